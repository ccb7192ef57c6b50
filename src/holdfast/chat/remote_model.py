"""A model behind any URL that speaks the OpenAI protocol, with the context that the store makes.

It may look into memory and remember by itself, as tools. All of that and its answer are one
append. The key for the model goes into a header and into no words.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from holdfast.chat import bounds
from holdfast.chat.answers import Asked, Delta, Looked, Made, found_text, is_there, look
from holdfast.chat.person_memories import Memory, remember
from holdfast.errors import EngineUnreachable, HoldfastError, Refused
from holdfast.model import Message

PROMPT: Final = (
    "You are a friendly companion with a long memory. Use what is known from earlier where it "
    "helps, and say when you were told it. Never invent a memory."
)
TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "function": {
            "name": "recall",
            "description": "Search what this person has told you, by meaning.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}},
                "required": ["query"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "remember",
            "description": "Keep one fact about this person for later conversations.",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        },
    },
]


@dataclass(slots=True)
class _Heard:
    """What a model has said so far in one request."""

    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    """It said that it was at its end: a connection that was cut ends too."""

    def take(self, choice: dict[str, Any]) -> str:
        """Add a piece of the stream; its text."""
        self.ended = self.ended or bool(choice.get("finish_reason"))
        delta: dict[str, Any] = choice.get("delta") or {}
        for part in delta.get("tool_calls") or []:
            self._take_call(part)
        text = delta.get("content") or ""
        self.text += text
        if len(self.text) > bounds.ANSWER_CHARS_MAX:
            raise Refused(f"the model's answer is longer than {bounds.ANSWER_CHARS_MAX} characters")
        return text

    def _take_call(self, part: dict[str, Any]) -> None:
        at = int(part.get("index", len(self.calls)))
        if at >= bounds.TOOL_ROUNDS_MAX * 4:
            raise Refused("the model calls too many tools at once")
        while len(self.calls) <= at:
            self.calls.append(
                {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
            )
        call, function = self.calls[at], part.get("function") or {}
        call["id"] = part.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""


class Model:
    """Asks POST {url}/chat/completions and streams what it says."""

    def __init__(self, url: str, model: str, *, api_key: str | None = None) -> None:
        self.name = model
        self._url = url.rstrip("/")
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._client = httpx.AsyncClient(headers=headers, timeout=bounds.MODEL_TIMEOUT_S)

    async def answer(self, asked: Asked) -> AsyncIterator[Looked | Delta | Made]:
        """Ask, carry out the tools it calls, ask again; its text as it comes."""
        prompt, looked = await self._prompt(asked)
        yield looked
        made: list[Message] = []
        left = bounds.TOOL_ROUNDS_MAX
        while True:
            heard, tools = _Heard(), left > 0
            async for text in self._stream([*prompt, *_openai(made)], heard, tools=tools):
                yield Delta(text)
            if not (tools and heard.calls):
                yield Made((*made, Message("assistant", heard.text)))
                return
            left -= 1
            results: list[Message] = []
            for call in heard.calls:
                result, seen = await _carry_out(asked, call)
                results.append(result)
                if seen is not None:
                    yield seen
            called = Message("assistant", heard.text or None, extra={"tool_calls": heard.calls})
            made += [called, *results]

    async def _prompt(self, asked: Asked) -> tuple[list[dict[str, Any]], Looked]:
        session = asked.person.session(asked.conversation)
        try:
            async with asked.place():
                context = await asked.store.context(
                    session,
                    asked.text[: bounds.QUERY_CHARS_MAX],
                    tokens=bounds.CONTEXT_TOKENS,
                    scope=asked.person.memories,
                )
        except HoldfastError as error:  # without long-term memory there still is the conversation
            page = await asked.store.history(session, limit=bounds.RECALLED, before=asked.seq + 1)
            turns = [one for one in page if one.role in {"user", "assistant"} and one.content]
            return [_system(), *_openai(turns)], Looked((), failed=str(error))
        return [_system(), *_openai(context.messages)], Looked(context.memories, context.behind)

    async def _stream(
        self, messages: list[dict[str, Any]], heard: _Heard, *, tools: bool
    ) -> AsyncIterator[str]:
        body: dict[str, Any] = {"model": self.name, "messages": messages, "stream": True}
        if tools:
            body["tools"] = TOOLS
        try:
            async with self._client.stream(
                "POST", f"{self._url}/chat/completions", json=body
            ) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise Refused(f"the model answered HTTP {answer.status_code}")
                async for line in _lines(answer):
                    text = heard.take(_choice(line))
                    if text:
                        yield text
            if not heard.ended:
                raise EngineUnreachable(
                    "the model's answer ended in the middle. Your message is saved; ask again"
                )
        except (httpx.HTTPError, ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, HoldfastError):
                raise
            raise EngineUnreachable(
                f"the model does not answer ({type(error).__name__}). Your message is saved; ask "
                "again when the model is back"
            ) from error

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()


def _system() -> dict[str, Any]:
    return {"role": "system", "content": PROMPT}


def _openai(messages: Any) -> list[dict[str, Any]]:
    """Only the fields that a chat API knows: servers refuse others."""
    known = ("tool_calls", "tool_call_id", "name")
    return [
        {"role": one.role, "content": one.content}
        | {name: one.extra[name] for name in known if name in one.extra}
        for one in messages
    ]


async def _lines(answer: httpx.Response) -> AsyncIterator[str]:
    """Cut at newlines only: a text inside may hold characters that others take for line ends."""
    rest = b""
    async for piece in answer.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > bounds.MODEL_LINE_BYTES_MAX:
            raise Refused(f"a line of the model is longer than {bounds.MODEL_LINE_BYTES_MAX} bytes")
        for line in whole:
            yield line.decode("utf-8")
    yield rest.decode("utf-8")


def _choice(line: str) -> dict[str, Any]:
    """The piece that a line of the stream carries; empty for any other line."""
    data = line.removeprefix("data:").strip()
    if not line.startswith("data:"):
        return {}
    if data == "[DONE]":
        return {"finish_reason": "stop"}
    choices: list[dict[str, Any]] = json.loads(data).get("choices") or [{}]
    return choices[0]


async def _carry_out(asked: Asked, call: dict[str, Any]) -> tuple[Message, Looked | None]:
    """The result of one tool; a wrong call is told to the model, not raised."""
    name, seen = call["function"]["name"], None
    try:
        given = json.loads(call["function"]["arguments"] or "{}")
        if name == "recall":
            async with asked.place():
                seen = await look(asked, str(given["query"]))
            text = found_text(seen)
        elif name == "remember":
            text = await _remember(asked, str(given["text"]))
        else:
            text = f"there is no tool {name!r}"
    except (ValueError, KeyError, TypeError) as error:
        text = f"not done: {error}"
    return Message("tool", text, extra={"tool_call_id": call["id"], "name": name}), seen


async def _remember(asked: Asked, text: str) -> str:
    memory = Memory(text, None, asked.conversation, asked.seq)
    session = asked.person.session(asked.conversation)
    async with asked.alone():  # a forget is before it, and the message is gone; or after it
        if not await is_there(asked.store, session, asked.seq):
            return "not remembered: the conversation was forgotten meanwhile"
        ack = await remember(asked.store, asked.person, memory)
    return f"remembered, {ack.durability.name}"
