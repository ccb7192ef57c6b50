"""Our store as LlamaIndex's chat store."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.memory import ChatMemoryBuffer

import holdfast
from holdfast import InvalidMessage, Message, Store, UsageError
from holdfast.integrations.forms import from_llama_index, to_llama_index
from holdfast.integrations.llama_index import HoldfastChatStore
from holdfast.verify.records import flip_one

PNG = b"\x89PNG\r\n\x1a\n\0"
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
EVERY_KIND = [
    ChatMessage(role="system", content="Be brief"),
    ChatMessage("What is this?"),
    ChatMessage(blocks=[TextBlock(text="see"), ImageBlock(image=PNG, image_mimetype="image/png")]),
    ChatMessage(blocks=[ImageBlock(url="http://127.0.0.1/squid.png", detail="low")]),
    ChatMessage(blocks=[AudioBlock(audio=b"RIFF", format="wav")]),
    ChatMessage(role="assistant", content=None, additional_kwargs={"tool_calls": [CALL]}),
    ChatMessage(
        role="assistant",
        blocks=[ToolCallBlock(tool_call_id="c", tool_name="look", tool_kwargs={"at": [1, None]})],
    ),
    ChatMessage(role="tool", content="a squid 🦑", additional_kwargs={"tool_call_id": "c"}),
    ChatMessage(role="assistant", content=""),
]


def texts(messages: Any) -> list[Any]:
    return [message.content for message in messages]


def test_every_kind_of_message_comes_back_as_it_went_in(store: Store):
    chats = HoldfastChatStore(store, turns="all")
    chats.set_messages("s", EVERY_KIND)
    assert chats.get_messages("s") == EVERY_KIND
    chats.add_message("s", EVERY_KIND[2])
    assert chats.get_messages("s") == [*EVERY_KIND, EVERY_KIND[2]]
    assert store.history("s")[1].content == "What is this?"


@pytest.mark.parametrize(
    "form",
    [
        {"role": "user", "blocks": [{"block_type": "text", "text": "x", "later": 1}], "more": 2},
        {"role": "user", "blocks": [{"block_type": "new", "text": "x"}], "additional_kwargs": {}},
        {"role": "user", "blocks": [], "additional_kwargs": {}},
    ],
)
def test_what_a_later_release_adds_to_a_message_is_kept(form: dict[str, Any]):
    assert to_llama_index(from_llama_index(form)) == form


def test_one_message_is_taken_out_and_the_rest_stays(store: Store):
    chats = HoldfastChatStore(store)
    chats.add_messages("s", [ChatMessage(text) for text in "abcd"])
    assert texts([chats.delete_message("s", 1), chats.delete_last_message("s")]) == ["b", "d"]
    assert texts(chats.get_messages("s")) == ["a", "c"]
    assert chats.delete_message("s", 7) is None
    assert texts(chats.delete_messages("s")) == ["a", "c"]
    assert chats.delete_messages("s") is None
    assert chats.delete_last_message("s") is None
    for text, idx in (("b", None), ("a", 0), ("c", 7)):
        chats.add_message("s", ChatMessage(text), idx)
    assert texts(chats.get_messages("s")) == ["a", "b", "c"]


def test_the_async_methods_do_the_same(awaited: Any):
    async def use(store: Any) -> None:
        chats = HoldfastChatStore(store)
        await chats.aset_messages("s", [ChatMessage(text) for text in "ab"])
        await chats.async_add_message("s", ChatMessage("c"))
        await chats.aadd_messages("t", [ChatMessage("x")], once="request-7")
        await chats.aadd_messages("t", [ChatMessage("x")], once="request-7")
        assert await chats.aget_keys() == ["s", "t"]
        assert texts(await chats.aget_messages("t")) == ["x"]
        assert texts([await chats.adelete_message("s", 0)]) == ["a"]
        assert texts([await chats.adelete_last_message("s")]) == ["c"]
        assert texts(await chats.adelete_messages("s")) == ["b"]
        assert await chats.aget_messages("s") == []
        if not isinstance(store, Store):
            with pytest.raises(UsageError, match="has to be awaited"):
                chats.get_keys()

    awaited(use)


def test_a_memory_buffer_goes_on_after_a_restart(url: str):
    def memory(store: Store) -> ChatMemoryBuffer:
        return ChatMemoryBuffer.from_defaults(
            token_limit=1000,
            chat_store=HoldfastChatStore(store),
            chat_store_key="user-42",
            tokenizer_fn=str.split,
        )

    with holdfast.connect(url) as store:
        memory(store).put(ChatMessage("I am Xiao Li"))
        memory(store).put(ChatMessage(role="assistant", content="Nice to meet you"))
    with holdfast.connect(url) as store:
        assert texts(memory(store).get()) == ["I am Xiao Li", "Nice to meet you"]


def test_messages_of_others_are_read_and_what_has_no_word_there_is_named(store: Store):
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "http://x/"}},
    ]
    store.append(
        "s", [Message("user", parts), Message("narrator", "x"), Message("user", [{"type": "?"}])]
    )
    found: Any = HoldfastChatStore(store).get_messages("s")
    assert [message.role for message in found] == [MessageRole.USER]
    assert [block.block_type for block in found[0].blocks] == ["text", "image"]
    assert [damage.seq for damage in found.damaged] == [2, 3]
    assert "no block for a part of type '?'" in found.damaged[1].reason


def test_a_damaged_record_is_named_and_hides_nothing_else(store: Store, url: str):
    chats = HoldfastChatStore(store)
    chats.add_messages("s", [ChatMessage(text) for text in "abc"])
    flip_one(url, "default", "s")
    found: Any = chats.get_messages("s")
    assert texts(found) == ["a", "c"]
    assert [damage.seq for damage in found.damaged] == [2]


@pytest.mark.parametrize(
    "odd", [ChatMessage(content="a", additional_kwargs={"x": object()}), {"role": "user"}]
)
def test_what_json_has_no_word_for_is_refused_with_all_of_its_batch(store: Store, odd: Any):
    chats = HoldfastChatStore(store)
    with pytest.raises(InvalidMessage, match="nothing was written"):
        chats.add_messages("s", [ChatMessage(content="Hello"), odd])
    assert chats.get_messages("s") == []
