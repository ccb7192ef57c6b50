"""Tool calls and their results in a history, by any writer. Pure.

A model refuses a history in which a call has no result, or a result no call: a crash between the
two would make a session unusable for ever. Most want a result right behind its call, too; one that
comes when the talk has gone on is late. Known are the forms of OpenAI, Anthropic, LangChain, the
OpenAI Agents SDK, LlamaIndex, ADK, agent-framework and pydantic-ai, as this store keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

from holdfast.errors import UsageError
from holdfast.model import Message

Turns = Literal["all", "whole", "repaired"]

INTERRUPTED: Final = "interrupted: this call has no result. It may or may not have taken effect"
"""What a call is answered with that nobody answered."""

_ANSWERED_WITH_TEXT: Final = ("function_call", "custom_tool_call")


def check_turns(turns: object) -> None:
    """Refuse what is none of `Turns`."""
    if turns not in get_args(Turns):
        raise UsageError(f"turns must be all, whole or repaired, not {turns!r}; nothing was sent")


def calls_of(message: Message) -> list[str]:
    """The ids of the tool calls that a message makes."""
    found = [*_listed(message.extra.get("tool_calls"), "id")]
    chain = _field(message.extra, "langchain", "data")
    found += _listed(chain.get("tool_calls"), "id")
    found += _listed(chain.get("invalid_tool_calls"), "id")  # some models are sent these as calls
    item = _field(message.extra, "openai_agents")
    if str(item.get("type")).endswith("_call") and isinstance(item.get("call_id"), str):
        found.append(item["call_id"])
    index = _field(message.extra, "llama_index", "additional_kwargs")
    found += _listed(index.get("tool_calls"), "id")
    found += _parts(message, "tool_use", "id")
    found += _listed(_blocks(message, "tool_call"), "tool_call_id")
    found += _parts(message, "function_call", "call_id")
    found += _listed(_inner(message, "tool-call"), "tool_call_id")
    found += [one for one in _adk_ids(message, "function_call") if one not in _waiting(message)]
    return list(dict.fromkeys(found))


def results_of(message: Message) -> list[str]:
    """The ids of the calls that a message is, or holds, the result of."""
    item = _field(message.extra, "openai_agents")
    found = [
        message.extra.get("tool_call_id"),
        _field(message.extra, "langchain", "data").get("tool_call_id"),
        _field(message.extra, "llama_index", "additional_kwargs").get("tool_call_id"),
        item.get("call_id") if str(item.get("type")).endswith("_call_output") else None,
    ]
    found += _parts(message, "tool_result", "tool_use_id")
    found += _parts(message, "function_result", "call_id")
    returned = [*_inner(message, "tool-return"), *_inner(message, "retry-prompt")]
    found += _listed([one for one in returned if one.get("tool_name")], "tool_call_id")
    found += _adk_ids(message, "function_response")
    return list(dict.fromkeys(one for one in found if isinstance(one, str)))


def open_calls(messages: Sequence[Message]) -> list[str]:
    """The ids of the calls to which no later message is the result, in order."""
    return [call for _, call in _matched(messages).lacking]


def whole(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Without calls that lack a result, results that lack a call, and what belongs to them only.

    A result that came late is left out with its call.
    """
    kept = list(messages)
    while True:
        gone = _unfit(kept)
        if not gone:
            return tuple(kept)
        kept = [message for at, message in enumerate(kept) if at not in gone]


def repaired(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same, but with a result that says `INTERRUPTED` where one is lacking.

    Such a message has no number: it is not stored. A result that came late stands with its call.
    """
    messages = _moved_up(messages)
    lacking: dict[int, list[str]] = {}
    for at, call in _matched(messages).lacking:
        lacking.setdefault(at, []).append(call)
    closed: list[Message] = []
    waiting: list[Message] = []
    for at, message in enumerate(messages):
        if not results_of(message):
            closed += waiting
            waiting = []
        closed.append(message)
        made = (_closing(message, call) for call in lacking.get(at, ()))
        waiting += [result for result in made if result is not None]
    return whole(closed + waiting)


def shown(messages: tuple[Message, ...], turns: Turns) -> tuple[Message, ...]:
    """What is asked for of a history."""
    if turns == "all":
        return messages
    return whole(messages) if turns == "whole" else repaired(messages)


class _Matches(NamedTuple):
    """How the calls of a history and its results belong together, by where they are."""

    lacking: list[tuple[int, str]]
    """Calls without result."""
    orphans: set[int]
    """Results without call."""
    late: dict[int, set[int]]
    """Results that came late, and where their calls are."""
    pairs: dict[int, set[int]]
    """Messages that are no use without each other."""


def _matched(messages: Sequence[Message]) -> _Matches:
    waiting: dict[str, int] = {}
    lacking: list[tuple[int, str]] = []
    orphans: set[int] = set()
    late: dict[int, set[int]] = {}
    pairs: dict[int, set[int]] = {}
    free: set[str] = set()
    other = -1  # the last message that is more than a result
    for at, message in enumerate(messages):
        results, calls = results_of(message), calls_of(message)
        free.update(_waiting(message))
        for result in results:
            call_at = waiting.pop(result, None)
            if call_at is not None:
                pairs.setdefault(at, set()).add(call_at)
                pairs.setdefault(call_at, set()).add(at)
            if call_at is None and result in free:
                continue
            if call_at is None and result in calls:
                calls.remove(result)  # made and answered in one message
            elif call_at is None:
                orphans.add(at)
            elif call_at < other and not _is_item(messages[call_at]):
                late.setdefault(at, set()).add(call_at)
        for call in calls:
            if call in waiting:  # made again before it was answered
                lacking.append((waiting[call], call))
            waiting[call] = at
        other = at if calls or not (results or _is_approval(message)) else other
    lacking += [(at, call) for call, at in waiting.items()]
    return _Matches(sorted(lacking), orphans, late, pairs)


def _moved_up(messages: Sequence[Message]) -> Sequence[Message]:
    """With each result that came late behind its call; one of several calls' results stays."""
    late = {at: min(calls) for at, calls in _matched(messages).late.items() if len(calls) == 1}
    behind: dict[int, list[Message]] = {}
    for at, call_at in late.items():
        behind.setdefault(call_at, []).append(messages[at])
    kept = (at for at in range(len(messages)) if at not in late)
    return [one for at in kept for one in (messages[at], *behind.get(at, ()))]


def _unfit(messages: Sequence[Message]) -> set[int]:
    """What `whole` leaves out; with it reasoning that led to nothing else."""
    lacking, gone, late, pairs = _matched(messages)
    gone.update(at for at, _ in lacking)
    if not gone:  # what stands between a call and its result may be what goes
        gone.update(late, *late.values())
    following = [*gone]
    while following:
        more = pairs.get(following.pop(), set()) - gone
        gone |= more
        following += more
    for at in sorted(gone, reverse=True):
        before = at - 1
        while before >= 0 and _is_reasoning(messages[before]):
            gone.add(before)
            before -= 1
    return gone


def _is_item(message: Message) -> bool:
    """Of the Agents SDK or ADK: what takes these matches them by id, wherever they stand."""
    return "openai_agents" in message.extra or "adk" in message.extra


def _is_reasoning(message: Message) -> bool:
    return _field(message.extra, "openai_agents").get("type") == "reasoning"


def _closing(message: Message, call: str) -> Message | None:
    """The result of a call that was interrupted, in the form of the call; None: it takes no text."""
    extra = message.extra
    item = _field(extra, "openai_agents")
    if item.get("call_id") == call:
        if item["type"] not in _ANSWERED_WITH_TEXT:
            return None
        output = {"type": f"{item['type']}_output", "call_id": call, "output": INTERRUPTED}
        return Message("tool", INTERRUPTED, extra={"openai_agents": output})
    chain = _field(extra, "langchain", "data")
    if call in _listed(chain.get("invalid_tool_calls"), "id"):
        return None  # models that are not sent the call would refuse its result
    if call in _listed(chain.get("tool_calls"), "id"):
        data = {"type": "tool", "tool_call_id": call, "status": "error"}
        return Message("tool", INTERRUPTED, extra={"langchain": {"type": "tool", "data": data}})
    if "llama_index" in extra:
        rest = {"additional_kwargs": {"tool_call_id": call}}
        return Message("tool", INTERRUPTED, extra={"llama_index": rest})
    made = _closing_parts(message, call)
    return made or Message("tool", INTERRUPTED, extra={"tool_call_id": call})


def _closing_parts(message: Message, call: str) -> Message | None:
    """The same for frameworks whose messages are lists of parts; None: it is none of theirs."""
    extra = message.extra
    if call in _parts(message, "tool_use", "id"):
        part = {"type": "tool_result", "tool_use_id": call, "content": INTERRUPTED}
        return Message("user", [{**part, "is_error": True}])
    if "agent_framework" in extra:
        result = {"type": "function_result", "call_id": call, "result": INTERRUPTED}
        return Message("tool", [result], extra={"agent_framework": {"type": "message"}})
    if "pydantic_ai" in extra:
        calls = _inner(message, "tool-call")
        made: Any = next((one for one in calls if one.get("tool_call_id") == call), {})
        result = {"part_kind": "tool-return", "tool_call_id": call, "content": INTERRUPTED}
        held = {"type": "tool-return", "part": {**result, "tool_name": made.get("tool_name")}}
        return Message("tool", [held], extra={"pydantic_ai": {"message": {"kind": "request"}}})
    if "adk" in extra:
        event = _field(extra, "adk", "event")
        names = ("invocation_id", "author", "timestamp", "branch")
        kept = {name: event[name] for name in names if name in event}
        functions = _adk_functions(message, "function_call")
        function = next((one for one in functions if one["id"] == call), {})
        answer = {"id": call, "name": function.get("name"), "response": {"error": INTERRUPTED}}
        held = {"type": "function_response", "part": {"function_response": answer}}
        about = {"event": {**kept, "content": {"role": "user"}}}
        return Message("tool", [held], extra={"adk": about})
    return None


def _inner(message: Message, kind: str) -> list[Any]:
    """Parts of pydantic-ai, which stand as they are within one of the message's."""
    content = message.content if isinstance(message.content, list) else []
    parts = [one for one in content if isinstance(one, dict) and one.get("type") == kind]
    return [one["part"] for one in parts if isinstance(one.get("part"), dict)]


def _adk_functions(message: Message, kind: str) -> list[dict[str, Any]]:
    found = [part.get(kind) for part in _inner(message, kind)]
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("id"), str)]


def _waiting(message: Message) -> list[str]:
    """Calls of ADK's long-running tools: they may stay open, and are answered more than once."""
    waits = _field(message.extra, "adk", "event").get("long_running_tool_ids")
    return [one for one in waits if isinstance(one, str)] if isinstance(waits, list) else []


def _is_approval(message: Message) -> bool:
    """Whether a user only allows a call of agent-framework here, which stands before its result."""
    parts = message.content if isinstance(message.content, list) else []
    kinds = [part.get("type") for part in parts if isinstance(part, dict)]
    return bool(kinds) and all(kind == "function_approval_response" for kind in kinds)


def _adk_ids(message: Message, kind: str) -> list[str]:
    return [one["id"] for one in _adk_functions(message, kind)]


def _field(fields: Any, *names: str) -> dict[str, Any]:
    """An object within objects; empty where there is none."""
    for name in names:
        fields = fields.get(name) if isinstance(fields, dict) else None
    return fields if isinstance(fields, dict) else {}


def _listed(values: Any, name: str) -> Iterator[str]:
    for value in values if isinstance(values, list) else ():
        if isinstance(value, dict) and isinstance(value.get(name), str):
            yield value[name]


def _parts(message: Message, kind: str, name: str) -> list[str]:
    content = message.content if isinstance(message.content, list) else []
    parts = [part for part in content if isinstance(part, dict) and part.get("type") == kind]
    return [*_listed(parts, name)]


def _blocks(message: Message, kind: str) -> list[Any]:
    content = message.content if isinstance(message.content, list) else []
    return [one for one in content if isinstance(one, dict) and one.get("block_type") == kind]
