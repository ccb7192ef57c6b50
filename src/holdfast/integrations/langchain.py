"""Our store as a chat message history of LangChain, for `RunnableWithMessageHistory`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.contract import AsyncStore, Store
from holdfast.integrations import framework_operations
from holdfast.integrations.forms import LANGCHAIN, from_langchain, plain, to_langchain
from holdfast.integrations.framework_operations import StepRunner, Turns
from holdfast.model import Message
from holdfast.runner import Steps
from holdfast.turns import Turns as WhichTurns
from holdfast.turns import check_turns, shown

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import (
        BaseMessage,
        ChatMessage,
        convert_to_messages,
        message_to_dict,
        messages_from_dict,
    )
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[langchain]'") from error

_ROLES: Final = ("user", "assistant", "system", "developer", "tool", "function")
"""Roles for which LangChain has a class; a message of any other bears its role itself."""


class HoldfastChatMessageHistory(BaseChatMessageHistory):
    """One session of a store. What is added in one call is there as a whole, or not at all.

    Both ways of calling work with a `Store`; an `AsyncStore` has the async ones only. `limit`
    shows the newest so many, `turns` what of tool calls without result: see `Store.history`. With
    `once_by_id`, a batch of which every message has an id is added once and never again, not even
    after `clear`: for an application that repeats whole calls.
    """

    def __init__(
        self,
        session_id: str,
        store: Store | AsyncStore,
        *,
        limit: int | None = None,
        turns: WhichTurns = "whole",
        once_by_id: bool = False,
    ) -> None:
        super().__init__()
        self.session_id = session_id
        self._runner = StepRunner(store)
        self._limit = limit
        self._turns = turns
        self._once_by_id = once_by_id

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """Oldest first, of one instant; `damaged` of the list names what cannot be read."""
        return self._shown(self._runner.run(self._read()))

    async def aget_messages(self) -> list[BaseMessage]:
        """See `messages`."""
        return self._shown(await self._runner.wait(self._read()))

    def add_messages(self, messages: Sequence[BaseMessage], *, key: str | None = None) -> None:
        """Append them as one batch. With a `key` that was used before, nothing is added."""
        self._runner.run(self._add(messages, key))

    async def aadd_messages(
        self, messages: Sequence[BaseMessage], *, key: str | None = None
    ) -> None:
        """See `add_messages`."""
        await self._runner.wait(self._add(messages, key))

    def replace_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Put these in the place of all, in one step: to trim, or to put a summary first.

        To clear and add them again takes several, and a crash in between loses the history.
        """
        self._runner.run(
            framework_operations.replace(self.session_id, [to_holdfast(each) for each in messages])
        )

    async def areplace_messages(self, messages: Sequence[BaseMessage]) -> None:
        """See `replace_messages`."""
        await self._runner.wait(
            framework_operations.replace(self.session_id, [to_holdfast(each) for each in messages])
        )

    def clear(self) -> None:
        """Erase the session for good."""
        self._runner.run(framework_operations.forget(self.session_id))

    async def aclear(self) -> None:
        """See `clear`."""
        await self._runner.wait(framework_operations.forget(self.session_id))

    def _read(self) -> Steps[Any]:
        return framework_operations.read(self.session_id, self._limit, self._turns)

    def _shown(self, found: Any) -> Turns[BaseMessage]:
        return framework_operations.rendered(self.session_id, found, theirs)

    def _add(self, messages: Sequence[BaseMessage], key: str | None) -> Steps[Any]:
        if key is None and self._once_by_id:
            key = framework_operations.key_of_ids(LANGCHAIN, (each.id for each in messages))
        return framework_operations.add(
            self.session_id, [to_holdfast(each) for each in messages], key
        )


def whole_messages(
    messages: Sequence[BaseMessage], turns: WhichTurns = "whole"
) -> list[BaseMessage]:
    """These as a model takes them: tool calls without result left out, or closed ("repaired").

    For the node of a graph that calls a model. A checkpointer gives a state back as it was, and
    is not told whether the tool that was cut off runs again or a new message follows its call.
    """
    check_turns(turns)
    outlines = [_outline(message) for message in messages]
    known = {id(outline): message for outline, message in zip(outlines, messages, strict=True)}
    return [known.get(id(one)) or theirs(one) for one in shown(tuple(outlines), turns)]


def _outline(message: BaseMessage) -> Message:
    """What of a message says which calls it makes or answers; the rest may be anything."""
    names = ("tool_calls", "invalid_tool_calls", "tool_call_id")
    data = {name: getattr(message, name, None) for name in names}
    extra = {LANGCHAIN: {"type": message.type, "data": data}}
    return Message(message.type, message.content, extra=extra)


def to_holdfast(message: BaseMessage) -> Message:
    """A message of LangChain as ours."""
    return from_langchain(message_to_dict(message))


def theirs(message: Message) -> BaseMessage:
    """A message of ours as LangChain's, by any writer."""
    form = to_langchain(message)
    if form is not None:
        return messages_from_dict([form])[0]
    said = plain(message)
    if message.role in _ROLES:
        made = convert_to_messages([said])[0]
    else:
        made = ChatMessage(role=message.role, content=said["content"] or "")
    made.id = message.id
    return made
