"""Forms of ADK, agent-framework and pydantic-ai as JSON <-> our `Message`, exactly. Pure; needs none of them.

Each of them says a message as a list of parts. A message of one text has that text as its content;
otherwise the content is a list in which texts are `{"type": "text", "text": …}` as in OpenAI's, so
that every reader finds them, and any other part is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.errors import InvalidMessage
from holdfast.integrations.forms import ADK, AGENT_FRAMEWORK, PYDANTIC_AI, field, plain
from holdfast.model import Message

_PYDANTIC_TEXTS: Final = ("text", "user-prompt", "system-prompt")
"""Kinds of part whose `content` is what was said."""
_PYDANTIC_RESULTS: Final = ("tool-return", "retry-prompt")


def from_agent_framework(form: Mapping[str, Any], **more: Any) -> Message:
    """Of a message of agent-framework, as its `to_dict` makes it."""
    role, contents = field(form, "role", str), field(form, "contents", list)
    rest = {name: value for name, value in form.items() if name not in ("role", "contents")}
    alone = contents[0] if len(contents) == 1 and isinstance(contents[0], dict) else {}
    text = alone.get("text")
    if isinstance(text, str) and alone == _agent_text(text):
        return Message(role, text, extra={AGENT_FRAMEWORK: rest}, **more)
    return Message(role, contents, extra={AGENT_FRAMEWORK: rest}, **more)


def to_agent_framework(message: Message) -> dict[str, Any]:
    """What `from_agent_framework` was given; any other message as agent-framework would say it."""
    kept = message.extra.get(AGENT_FRAMEWORK)
    content = message.content
    contents = [_agent_text(content)] if isinstance(content, str) else content or []
    if isinstance(kept, dict):
        return {**kept, "role": message.role, "contents": contents}
    said = plain(message)
    contents = [_agent_part(part) for part in contents]
    contents += [_agent_call(call) for call in said.get("tool_calls") or ()]
    if isinstance(result := said.get("tool_call_id"), str):
        contents = [{"type": "function_result", "call_id": result, "result": content}]
    return {"type": "message", "role": message.role, "contents": contents}


def _agent_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "additional_properties": {}}


def _agent_part(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") in ("text", "input_text", "output_text"):
        return _agent_text(_text_of(part))
    raise InvalidMessage(f"agent-framework has no content for a part of type {part.get('type')!r}")


def _agent_call(call: Any) -> dict[str, Any]:
    named = call["function"]
    said = {"name": named["name"], "arguments": named["arguments"]}
    return {"type": "function_call", "call_id": call["id"], **said}


def from_pydantic_ai(form: Mapping[str, Any], **more: Any) -> Message:
    """Of a message of pydantic-ai, as `ModelMessagesTypeAdapter` makes it."""
    parts = [_pydantic_part(part) for part in field(form, "parts", list)]
    rest = {name: value for name, value in form.items() if name != "parts"}
    role = _pydantic_role(field(form, "kind", str), form["parts"])
    if len(parts) == 1 and parts[0]["type"] == "text":
        kept = {"message": rest, "part": parts[0]["part"]}
        return Message(role, parts[0]["text"], extra={PYDANTIC_AI: kept}, **more)
    return Message(role, parts, extra={PYDANTIC_AI: {"message": rest}}, **more)


def to_pydantic_ai(message: Message) -> dict[str, Any]:
    """What `from_pydantic_ai` was given; any other message as pydantic-ai would say it."""
    kept = message.extra.get(PYDANTIC_AI)
    content: Any = message.content
    if isinstance(kept, dict) and isinstance(content, str):
        return {**kept["message"], "parts": [{**kept["part"], "content": content}]}
    if isinstance(kept, dict):
        return {**kept["message"], "parts": [_pydantic_back(part) for part in content or ()]}
    text = (
        content if isinstance(content, str) else "\n".join(_text_of(one) for one in content or ())
    )
    return _pydantic_of_others(message, plain(message), text)


def _pydantic_of_others(message: Message, said: dict[str, Any], text: str) -> dict[str, Any]:
    if message.role == "assistant":
        parts: list[dict[str, Any]] = [{"part_kind": "text", "content": text}] if text else []
        parts += [_pydantic_call(call) for call in said.get("tool_calls") or ()]
        return {"kind": "response", "parts": parts}
    if isinstance(call := said.get("tool_call_id"), str):
        name = said.get("name") or "unknown"
        part = {"part_kind": "tool-return", "tool_name": name, "tool_call_id": call}
        return {"kind": "request", "parts": [{**part, "content": text}]}
    kind = "system-prompt" if message.role == "system" else "user-prompt"
    return {"kind": "request", "parts": [{"part_kind": kind, "content": text}]}


def _pydantic_call(call: Any) -> dict[str, Any]:
    named = call["function"]
    said = {"tool_name": named["name"], "args": named["arguments"]}
    return {"part_kind": "tool-call", "tool_call_id": call["id"], **said}


def _pydantic_role(kind: str, parts: list[Any]) -> str:
    if kind == "response":
        return "assistant"
    kinds = {part["part_kind"] for part in parts}
    if kinds & {*_PYDANTIC_RESULTS}:
        return "tool"
    return "system" if kinds == {"system-prompt"} else "user"


def _pydantic_part(part: Any) -> dict[str, Any]:
    kind, content = field(part, "part_kind", str), part.get("content")
    if kind in _PYDANTIC_TEXTS and isinstance(content, str):
        rest = {name: value for name, value in part.items() if name != "content"}
        return {"type": "text", "text": content, "part": rest}
    return {"type": kind, "part": part}


def _pydantic_back(part: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = part["part"]
    return {**kept, "content": part["text"]} if part["type"] == "text" else kept


def from_adk(form: Mapping[str, Any], **more: Any) -> Message:
    """Of an event of ADK as JSON with its fields' own names and without those that are None."""
    said = form.get("content")
    parts = said.get("parts") if isinstance(said, dict) else None
    rest = {name: value for name, value in form.items() if name != "content"}
    if not isinstance(said, dict) or not isinstance(parts, list):
        kept = rest if said is None else {**rest, "content": said}
        return Message(_adk_role(form, ()), None, extra={ADK: {"event": kept}}, **more)
    rest["content"] = {name: value for name, value in said.items() if name != "parts"}
    held = {ADK: {"event": rest}}
    listed = [_adk_part(part) for part in parts]
    alone = listed[0] if len(listed) == 1 else {}
    text = alone["text"] if alone.keys() == {"type", "text"} else None
    return Message(_adk_role(form, parts), listed if text is None else text, extra=held, **more)


def to_adk(message: Message) -> dict[str, Any]:
    """What `from_adk` was given; any other message as an event of its author."""
    kept = message.extra.get(ADK)
    content = message.content
    listed = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if isinstance(kept, dict) and isinstance(event := kept.get("event"), dict):
        if listed is None:
            return dict(event)
        said = {**event["content"], "parts": [_adk_back(part) for part in listed]}
        return {**event, "content": said}
    parts = [{"text": _text_of(part)} for part in listed or ()]
    role = "user" if message.role == "user" else "model"
    at = message.created_at or datetime.fromtimestamp(0, UTC)
    return {
        "author": message.role,
        "id": message.id,
        "timestamp": at.timestamp(),
        "content": {"role": role, "parts": parts},
    }


def _adk_role(form: Mapping[str, Any], parts: Any) -> str:
    if any(isinstance(part, dict) and part.get("function_response") for part in parts):
        return "tool"
    return "user" if form.get("author") == "user" else "assistant"


def _adk_part(part: Any) -> dict[str, Any]:
    if isinstance(part, dict) and isinstance(text := part.get("text"), str):
        rest = {name: value for name, value in part.items() if name != "text"}
        return {"type": "text", "text": text, **({"part": rest} if rest else {})}
    kind = next((name for name in ("function_call", "function_response") if name in part), "part")
    return {"type": kind, "part": part}


def _adk_back(part: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = part.get("part", {})
    return {"text": part["text"], **kept} if part["type"] == "text" else kept


def _text_of(part: Any) -> str:
    text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise InvalidMessage(f"this part holds no text: {str(part)[:80]}")
    return text
