"""A framework's message as JSON <-> our `Message`, exactly. Pure; needs no framework.

Role and content stand where every reader of a session finds them: `recall`, the chat page, another
framework. All else of a framework's own form is kept as it is in one field of `extra` that bears
the framework's name, and only its own adapter reads that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import InvalidMessage
from holdfast.model import OPENAI_FIELDS, Message

LANGCHAIN: Final = "langchain"
OPENAI_AGENTS: Final = "openai_agents"
LLAMA_INDEX: Final = "llama_index"
ADK: Final = "adk"
AGENT_FRAMEWORK: Final = "agent_framework"
PYDANTIC_AI: Final = "pydantic_ai"
FIELDS: Final = (LANGCHAIN, OPENAI_AGENTS, LLAMA_INDEX, ADK, AGENT_FRAMEWORK, PYDANTIC_AI)

_LANGCHAIN_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "remove": "remove",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
    "FunctionMessageChunk": "function",
}
_LANGCHAIN_NAMED: Final = ("chat", "ChatMessageChunk")
"""Kinds of message that name their role themselves."""

_ITEM_ROLES: Final = {"function_call_output": "tool", "computer_call_output": "tool"}
"""Roles of items of the OpenAI Agents SDK that have none; the others are the assistant's."""


def plain(message: Message) -> dict[str, Any]:
    """The OpenAI dictionary of a message, without what only one framework understands."""
    return {name: value for name, value in message.to_openai().items() if name not in FIELDS}


def from_langchain(form: Mapping[str, Any], **more: Any) -> Message:
    """Of `{"type": …, "data": {…}}`, as `message_to_dict` of LangChain makes it."""
    kind, data = field(form, "type", str), field(form, "data", dict)
    role = data.get("role") if kind in _LANGCHAIN_NAMED else _LANGCHAIN_ROLES.get(kind)
    if role is None or "content" not in data:
        raise InvalidMessage(
            f"{kind!r} is no kind of message that LangChain reads back; nothing was written"
        )
    rest = {name: value for name, value in data.items() if name != "content"}
    if isinstance(data.get("id"), str) and "id" not in more:
        more["id"] = data["id"]
    extra = {LANGCHAIN: {"type": kind, "data": rest}}
    return Message(role, data["content"], extra=extra, **more)


def to_langchain(message: Message) -> dict[str, Any] | None:
    """What `from_langchain` was given; None for a message that LangChain did not write."""
    kept = message.extra.get(LANGCHAIN)
    if not isinstance(kept, dict) or not {"type", "data"} <= kept.keys():
        return None
    return {"type": kept["type"], "data": {**kept["data"], "content": message.content}}


def from_openai_agents(item: Mapping[str, Any], **more: Any) -> Message:
    """Of an input item of the OpenAI Agents SDK; calls, results and reasoning too."""
    if not isinstance(item, dict):
        raise InvalidMessage(f"an item is a dict, not {type(item).__name__}; nothing was written")
    if _is_message(item):
        rest = {name: value for name, value in item.items() if name not in OPENAI_FIELDS}
        return Message(item["role"], item["content"], extra=rest, **more)
    output = item.get("output")
    role = _ITEM_ROLES.get(str(item.get("type")), "assistant")
    text = output if isinstance(output, str) else None
    return Message(role, text, extra={OPENAI_AGENTS: dict(item)}, **more)


def to_openai_agents(message: Message) -> dict[str, Any]:
    """What `from_openai_agents` was given; of any other message its OpenAI dictionary."""
    kept = message.extra.get(OPENAI_AGENTS)
    return dict(kept) if isinstance(kept, dict) else plain(message)


def _is_message(item: dict[str, Any]) -> bool:
    content = item.get("content")
    return (
        isinstance(item.get("role"), str)
        and "content" in item
        and (content is None or isinstance(content, str | list))
        and not any(name in item for name in FIELDS)
    )


def from_llama_index(form: Mapping[str, Any], **more: Any) -> Message:
    """Of a `ChatMessage` of LlamaIndex as JSON, with `blocks` or, as it once was, `content`."""
    role = field(form, "role", str)
    blocks = form["blocks"] if "blocks" in form else _blocks_of(form.get("content"))
    if not isinstance(blocks, list):
        raise InvalidMessage("a ChatMessage has a list of blocks; nothing was written")
    text = blocks[0].get("text") if len(blocks) == 1 and isinstance(blocks[0], dict) else None
    alone = isinstance(text, str) and blocks[0] == _text_block(text)
    rest = {
        name: value for name, value in form.items() if name not in ("role", "content", "blocks")
    }
    return Message(role, text if alone else blocks, extra={LLAMA_INDEX: rest}, **more)


def to_llama_index(message: Message) -> dict[str, Any]:
    """What `from_llama_index` was given; any other message as LlamaIndex would say it."""
    kept = message.extra.get(LLAMA_INDEX)
    if isinstance(kept, dict):
        content = message.content
        blocks = _blocks_of(content) if isinstance(content, str) else content
        return {**kept, "role": message.role, "blocks": blocks}
    said = plain(message)
    rest = {name: value for name, value in said.items() if name not in OPENAI_FIELDS}
    parts = _blocks_of(message.content)
    return {
        "role": message.role,
        "blocks": [_block_of(part) for part in parts],
        "additional_kwargs": rest,
    }


def _blocks_of(content: str | list[Any] | None) -> list[Any]:
    if isinstance(content, str):
        return [_text_block(content)]
    return [] if content is None else content


def _text_block(text: str) -> dict[str, str]:
    return {"block_type": "text", "text": text}


def _block_of(part: Any) -> Any:
    """A part of an OpenAI message as a block; what is no part of one is left for LlamaIndex."""
    if not isinstance(part, dict) or "block_type" in part:
        return part
    if part.get("type") in ("text", "input_text", "output_text"):
        return _text_block(part["text"])
    if part.get("type") == "image_url":
        return {"block_type": "image", "url": part["image_url"]["url"]}
    raise InvalidMessage(f"LlamaIndex has no block for a part of type {part.get('type')!r}")


def field(form: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of a form, of this type; `InvalidMessage` where there is none."""
    value = form.get(name) if isinstance(form, Mapping) else None
    if not isinstance(value, kind):
        raise InvalidMessage(f"no message: it has no {kind.__name__} {name!r}; nothing was written")
    return value
