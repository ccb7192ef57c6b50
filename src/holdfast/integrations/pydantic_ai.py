"""Our store as the message history of pydantic-ai: `agent.run(text, message_history=…)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.contract import AsyncStore, Store
from holdfast.integrations import framework_operations
from holdfast.integrations.agent_forms import from_pydantic_ai, to_pydantic_ai
from holdfast.integrations.framework_operations import StepRunner
from holdfast.model import Ack, Message
from holdfast.runner import Steps
from holdfast.turns import Turns

try:
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[pydantic-ai]'") from error


class HoldfastMessageHistory:
    """One session of a store. What one call adds is there as a whole, or not at all.

    Before a run: `message_history=history.load()`. After it: `history.add(result.new_messages())`.
    Both ways of calling work with a `Store`; an `AsyncStore` has the async ones (`aload`, `aadd`, …).

    `turns` says what is shown of tool calls without result: see `Store.history`. A run that ended with
    `DeferredToolRequests` goes on from such a call: load it with `turns="all"`.
    """

    def __init__(self, session: str, store: Store | AsyncStore, *, turns: Turns = "whole") -> None:
        self.session = session
        self._runner = StepRunner(store)
        self._turns: Turns = turns

    def load(self, limit: int | None = None, *, turns: Turns | None = None) -> list[ModelMessage]:
        """The newest `limit`, oldest first; `damaged` of the list names what cannot be read."""
        return self._runner.run(self._load(limit, turns))

    async def aload(
        self, limit: int | None = None, *, turns: Turns | None = None
    ) -> list[ModelMessage]:
        """See `load`."""
        return await self._runner.wait(self._load(limit, turns))

    def add(self, messages: Sequence[ModelMessage], *, key: str | None = None) -> Ack | None:
        """Append them as one batch; None where there are none.

        With a `key` that was used before, nothing is added: `key=result.run_id`, say.
        """
        return self._runner.run(framework_operations.add(self.session, to_holdfast(messages), key))

    async def aadd(self, messages: Sequence[ModelMessage], *, key: str | None = None) -> Ack | None:
        """See `add`."""
        steps = framework_operations.add(self.session, to_holdfast(messages), key)
        return await self._runner.wait(steps)

    def replace(self, messages: Sequence[ModelMessage], *, expect: int | None = None) -> Ack:
        """Put these, `result.all_messages()` say, in the place of all, in one step.

        With `expect`, only if the session still ends at that number, which an ack names as its `last`;
        otherwise `Conflict`, and nothing is changed.
        """
        return self._runner.run(self._replace(messages, expect))

    async def areplace(self, messages: Sequence[ModelMessage], *, expect: int | None = None) -> Ack:
        """See `replace`."""
        return await self._runner.wait(self._replace(messages, expect))

    def clear(self) -> None:
        """Erase the session for good."""
        self._runner.run(framework_operations.forget(self.session))

    async def aclear(self) -> None:
        """See `clear`."""
        await self._runner.wait(framework_operations.forget(self.session))

    def _load(self, limit: int | None, turns: Turns | None) -> Steps[list[ModelMessage]]:
        found = yield from framework_operations.read(self.session, limit, turns or self._turns)
        return framework_operations.rendered(self.session, found, theirs)

    def _replace(self, messages: Sequence[ModelMessage], expect: int | None) -> Steps[Ack]:
        held = to_holdfast(messages)
        ack: Ack = yield lambda store: store.rewrite(self.session, held, expect=expect)
        return ack


def to_holdfast(messages: Sequence[ModelMessage]) -> list[Message]:
    """Messages of pydantic-ai as ours."""
    forms: list[dict[str, Any]] = framework_operations.dumped(
        lambda: ModelMessagesTypeAdapter.dump_python([*messages], mode="json")
    )
    return [from_pydantic_ai(form) for form in forms]


def theirs(message: Message) -> ModelMessage:
    """A message of ours as pydantic-ai's, by any writer."""
    return ModelMessagesTypeAdapter.validate_python([to_pydantic_ai(message)])[0]
