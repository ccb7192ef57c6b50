"""Our store as a memory block of LlamaIndex."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory
from sqlalchemy.ext.asyncio import create_async_engine

import holdfast
from holdfast import AsyncStore, Store
from holdfast.integrations.llama_index_memory import ROOT, HoldfastMemoryBlock
from tests.recall.models import Letters

SAID = [
    ChatMessage("The lighthouse keeper is called Ingrid"),
    ChatMessage(role="assistant", content="Noted: Ingrid"),
    ChatMessage("Bread costs four crowns"),
]


@pytest.fixture(params=["Store", "AsyncStore"])
def use(request: pytest.FixtureRequest, url: str) -> Any:
    more: Any = {"embedder": Letters(), "background_indexing": False}

    async def main(work: Any) -> None:
        if request.param == "Store":
            with holdfast.connect(url, **more) as store:
                await work(store)
        else:
            async with await holdfast.connect_async(url, **more) as store:
                await work(store)

    return lambda work: asyncio.run(main(work))


def test_what_fits_is_found_in_the_same_session_only(use: Any):
    async def work(store: Store | AsyncStore) -> None:
        block = HoldfastMemoryBlock(store, k=1)
        await block.aput(SAID, session_id="s")
        await block.aput([ChatMessage("The lighthouse is closed")], session_id="t")
        assert SAID[0].additional_kwargs == {}
        asked = [ChatMessage("who keeps the lighthouse?")]
        found = await block.aget(asked, session_id="s")
        assert found == "<message role='user'>The lighthouse keeper is called Ingrid</message>"
        assert await block.aget([], session_id="s") == ""
        assert await block.aget(asked, session_id="u") == ""
        both = HoldfastMemoryBlock(store, k=2)
        text = await both.aget(asked, session_id="s")
        assert await both.atruncate(text, 1) == text.split("\n")[0]
        assert await both.atruncate(text, 1000) is None
        await block.aforget("s")
        assert await block.aget(asked, session_id="s") == ""

    use(work)


def test_one_memory_is_shared_by_who_names_its_scope(use: Any):
    async def work(store: Store | AsyncStore) -> None:
        await HoldfastMemoryBlock(store, scope="user-42").aput(SAID, session_id="s")
        found = await HoldfastMemoryBlock(store, scope="user-42").aget(SAID[2:], session_id="t")
        assert "Bread costs four crowns" in found

    use(work)


def test_what_leaves_the_short_term_memory_is_put_once_and_found(url: str):
    """A real `Memory` that forgets after a few words; the block is asked after a restart too."""

    def memory(store: Store, engine: Any) -> Memory:
        return Memory.from_defaults(
            session_id="s",
            async_engine=engine,
            token_limit=60,
            chat_history_token_ratio=0.3,
            token_flush_size=10,
            tokenizer_fn=str.split,
            memory_blocks=[HoldfastMemoryBlock(store, k=1)],
        )

    async def talk(store: Store) -> None:
        engine = create_async_engine("sqlite+aiosqlite://")
        spoken = memory(store, engine)
        for message in SAID * 3:
            await spoken.aput(message.model_copy(deep=True))
        await engine.dispose()

    async def ask(store: Store) -> list[ChatMessage]:
        engine = create_async_engine("sqlite+aiosqlite://")
        found = await memory(store, engine).aget(input="who is the lighthouse keeper?")
        await engine.dispose()
        return found

    more: Any = {"embedder": Letters(), "background_indexing": False}
    with holdfast.connect(url, **more) as store:
        asyncio.run(talk(store))
        kept = [one.content for one in store.history(f"{ROOT}s")]
        assert kept == [one.content for one in SAID * 3][: len(kept)]
        assert kept
    with holdfast.connect(url, **more) as store:
        assert "called Ingrid" in str(asyncio.run(ask(store))[0].content)
