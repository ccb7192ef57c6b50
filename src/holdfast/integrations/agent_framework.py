"""Our store as a history provider of Microsoft's agent-framework: `Agent(context_providers=[…])`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, Final

from holdfast import turns as whole_turns
from holdfast.contract import AsyncStore, Store
from holdfast.errors import Conflict
from holdfast.integrations import framework_operations
from holdfast.integrations.agent_forms import from_agent_framework, to_agent_framework
from holdfast.integrations.forms import AGENT_FRAMEWORK
from holdfast.integrations.framework_operations import TRIES, StepRunner
from holdfast.model import History, Message
from holdfast.runner import Steps
from holdfast.turns import Turns

try:
    import agent_framework
    from agent_framework import HistoryProvider
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[agent-framework]'") from error

_GIVEN: Final[ContextVar[tuple[str, ...]]] = ContextVar("_GIVEN", default=())
"""The calls that the run which is about to begin brings an answer to."""
_JUST_SAID: Final[ContextVar[bool]] = ContextVar("_JUST_SAID", default=False)
"""Whether the last message that is saved is what a model has just said: that repeats nothing."""
DEFAULT_SESSION: Final = "default"
"""Where agent-framework names no session, as in its own providers."""


class HoldfastHistoryProvider(HistoryProvider):
    """The sessions of a store. What one run adds is there as a whole, or not at all.

    The store may be a `Store` (it is called in a thread) or an `AsyncStore`. `turns` says what is
    shown of tool calls without result: see `Store.history`. Messages with which a call repeats the
    end of what is stored are not stored twice: some clients send the whole transcript each time.
    With `skip_excluded`, those that a compaction has marked as excluded are not shown.
    """

    DEFAULT_SOURCE_ID: ClassVar[str] = "holdfast"

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        source_id: str = DEFAULT_SOURCE_ID,
        turns: Turns = "whole",
        skip_excluded: bool = False,
        **which: Any,
    ) -> None:
        super().__init__(source_id, **which)
        whole_turns.check_turns(turns)
        self.skip_excluded = skip_excluded
        self._runner = StepRunner(store)
        self._turns: Turns = turns

    async def before_run(self, **about: Any) -> None:
        """Load the history. A call that the input of this run allows or answers is not left out."""
        token = _GIVEN.set(_answered(about["context"].input_messages))
        try:
            await super().before_run(**about)
        finally:
            _GIVEN.reset(token)

    async def after_run(self, **about: Any) -> None:
        """Save the turn. What the model said in it is new, also if it is the same as before."""
        response = about["context"].response
        token = _JUST_SAID.set(bool(self.store_outputs and response and response.messages))
        try:
            await super().after_run(**about)
        finally:
            _JUST_SAID.reset(token)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[agent_framework.Message]:
        """Oldest first, of one instant; `damaged` of the list names what cannot be read."""
        del state, kwargs
        name = session_id or DEFAULT_SESSION
        found = await self._runner.wait(framework_operations.read(name))
        found = _with_answers(found, _GIVEN.get(), self._turns)
        shown = framework_operations.rendered(name, found, theirs)
        if self.skip_excluded:
            shown[:] = [one for one in shown if not one.additional_properties.get("_excluded")]
        return shown

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[agent_framework.Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append as one batch what is not the end of the session already."""
        del state, kwargs
        listed = [to_holdfast(message) for message in messages]
        if listed:
            steps = _add_new(session_id or DEFAULT_SESSION, listed, int(_JUST_SAID.get()))
            await self._runner.wait(steps)

    async def clear(self, session_id: str | None) -> None:
        """Erase a session for good."""
        await self._runner.wait(framework_operations.forget(session_id or DEFAULT_SESSION))


def _answered(messages: Sequence[agent_framework.Message]) -> tuple[str, ...]:
    """The calls that these messages allow, refuse or have the result of."""
    contents: list[Any] = [content for message in messages for content in message.contents]
    allowed = [one.function_call for one in contents if one.type == "function_approval_response"]
    answers = [one for one in contents if one.type == "function_result"]
    return tuple(one.call_id for one in (*allowed, *answers) if one is not None and one.call_id)


def _with_answers(found: History, calls: Sequence[str], turns: Turns) -> History:
    """What is to be shown before messages with the answers to these calls."""
    answers = tuple(
        Message("tool", [{"type": "function_result", "call_id": call}], extra={AGENT_FRAMEWORK: {}})
        for call in calls
    )
    shown = whole_turns.shown(found.messages + answers, turns)
    made = {id(one) for one in answers}
    return dataclasses.replace(found, messages=tuple(one for one in shown if id(one) not in made))


def to_holdfast(message: agent_framework.Message) -> Message:
    """A message of agent-framework as ours."""
    return from_agent_framework(message.to_dict())


def theirs(message: Message) -> agent_framework.Message:
    """A message of ours as agent-framework's, by any writer."""
    return agent_framework.Message.from_dict(to_agent_framework(message))


def _add_new(session: str, messages: list[Message], said: int) -> Steps[None]:
    """Append those that are not there, only if nobody wrote in between; otherwise look again.

    The last `said` of them are new, whatever is there.
    Where others write all the time, the last look decides: to keep a message twice is better than
    to lose one.
    """
    new: Sequence[Message] = messages
    for _ in range(TRIES):
        found = yield from framework_operations.read(session, len(messages) + 1)
        new = _new(found, messages, said)
        if not new:
            return
        try:
            yield from framework_operations.add(session, new, expect=found.last)
        except Conflict:
            continue
        return
    yield from framework_operations.add(session, new)


def _new(stored: Sequence[Message], added: list[Message], said: int) -> list[Message]:
    """Without those with which `added`, up to the last `said`, repeats the end of `stored`.

    One message of a user without an id is no repetition: people do say the same thing twice.
    """
    old = [_identity(one) for one in stored]
    new = [_identity(one) for one in added[: len(added) - said]]
    for start in range(len(new) - len(old) + 1):
        if (
            old
            and new[start : start + len(old)] == old
            and not _may_be_said_again(stored[-1:], old)
        ):
            return added[start + len(old) :]
    for size in range(min(len(old), len(new)), 0, -1):
        if old[-size:] == new[:size] and not _may_be_said_again(stored[-size:], old[-size:]):
            return added[size:]
    return added


def _may_be_said_again(stored: Sequence[Message], identities: list[tuple[str, str]]) -> bool:
    return len(identities) == 1 and stored[0].role == "user" and identities[0][0] == "content"


def _identity(message: Message) -> tuple[str, str]:
    kept = message.extra.get("agent_framework")
    name = kept.get("message_id") if isinstance(kept, dict) else None
    if name is not None:
        return ("id", str(name))
    return ("content", json.dumps([message.role, message.content], sort_keys=True))
