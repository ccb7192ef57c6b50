"""Run in an environment with the frameworks in it: their Redis stores beside ours, taking turns.

Prints a figure a line as JSON. All of them write a turn of two messages to the same engine,
one client, and read the newest 50.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import holdfast
from bench.figure import side_by_side
from holdfast import Message

TURNS = 40
ROUNDS = 7
PAGE = 50
TEXT = "x" * 200
Ways = dict[str, Callable[[], object]]


def ours(url: str) -> tuple[Ways, Ways]:
    store = holdfast.connect(url)
    turn = [Message("user", TEXT), Message("assistant", TEXT)]
    return (
        {"ours": lambda: [store.append("s", turn) for _ in range(TURNS)]},
        {"ours": lambda: [store.history("s", limit=PAGE) for _ in range(TURNS)]},
    )


def openai_agents(url: str) -> tuple[Ways, Ways]:
    sessions = importlib.import_module("agents.extensions.memory.redis_session")
    runner = asyncio.Runner()
    session = sessions.RedisSession.from_url("s", url=url)
    turn = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": TEXT}]

    async def write() -> None:
        for _ in range(TURNS):
            await session.add_items(turn)

    async def read() -> None:
        for _ in range(TURNS):
            await session.get_items(limit=PAGE)

    name = named("openai-agents RedisSession", "openai-agents")
    return {name: lambda: runner.run(write())}, {name: lambda: runner.run(read())}


def langchain(url: str) -> tuple[Ways, Ways]:
    histories = importlib.import_module("langchain_community.chat_message_histories")
    messages = importlib.import_module("langchain_core.messages")
    history = histories.RedisChatMessageHistory("s", url=url)
    turn = [messages.HumanMessage(TEXT), messages.AIMessage(TEXT)]
    name = named("langchain-community RedisChatMessageHistory", "langchain-community")
    # It has no way to read less than everything.
    return {name: lambda: [history.add_messages(turn) for _ in range(TURNS)]}, {}


def llama_index(url: str) -> tuple[Ways, Ways]:
    stores = importlib.import_module("llama_index.storage.chat_store.redis")
    llms = importlib.import_module("llama_index.core.llms")
    store = stores.RedisChatStore(redis_url=url)
    turn = [
        llms.ChatMessage(role="user", content=TEXT),
        llms.ChatMessage(role="assistant", content=TEXT),
    ]

    def write() -> None:
        for _ in range(TURNS):
            for message in turn:
                store.add_message("llama", message)

    name = named("LlamaIndex RedisChatStore", "llama-index-storage-chat-store-redis")
    return {name: write}, {}


def named(store: str, package: str) -> str:
    return f"{store} {importlib.metadata.version(package)}"


def main(url: str) -> None:
    warnings.simplefilter("ignore")
    writes, reads = ours(url)
    for theirs in (openai_agents, langchain, llama_index):
        try:
            more_writes, more_reads = theirs(url)
            writes |= more_writes
            reads |= more_reads
        except Exception as error:  # noqa: BLE001 - the others are still to be measured
            detail = f"{type(error).__name__}: {error}"
            show(f"{theirs.__name__}: not measured", 0.0, None, detail)
    for what, ways in (("turns written", writes), (f"newest {PAGE} read", reads)):
        taken = side_by_side(ways, rounds=ROUNDS)
        own_us = taken.pop("ours") / TURNS * 1e6
        for name, time_s in taken.items():
            their_us = time_s / TURNS * 1e6
            detail = f"theirs {their_us:,.0f} us, ours {own_us:,.0f} us, appendfsync always"
            show(f"{what}, ours beside {name}", their_us / own_us, 1.0, detail)


def show(name: str, value: float, at_least: float | None, detail: str) -> None:
    figure: dict[str, Any] = {"name": name, "value": value, "at_least": at_least, "detail": detail}
    print(json.dumps(figure))


if __name__ == "__main__":
    main(sys.argv[1])
