"""Our store as a session of the OpenAI Agents SDK: `Runner.run(agent, text, session=…)`."""

from __future__ import annotations

from typing import Any, cast

from holdfast.contract import AsyncStore, Store
from holdfast.integrations import framework_operations
from holdfast.integrations.forms import OPENAI_AGENTS, from_openai_agents, to_openai_agents
from holdfast.integrations.framework_operations import StepRunner
from holdfast.turns import Turns

try:
    from agents.items import TResponseInputItem
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import SessionSettings, resolve_session_limit
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[openai-agents]'") from error


class HoldfastSession(SessionABC):
    """One session of a store. What is added in one call is there as a whole, or not at all.

    The store may be a `Store` (it is called in a thread; good for `Runner.run_sync`) or an
    `AsyncStore`. `turns` says what is shown of tool calls without result: see `Store.history`.
    With `once_by_id`, a batch of which every item has an id is added once and never
    again, not even after it was popped or cleared: for an application that repeats whole calls.
    """

    def __init__(
        self,
        session_id: str,
        store: Store | AsyncStore,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        turns: Turns = "whole",
        once_by_id: bool = False,
    ) -> None:
        self.session_id = session_id
        if isinstance(session_settings, dict):
            session_settings = SessionSettings().resolve(session_settings)
        self.session_settings = session_settings or SessionSettings()
        self._runner = StepRunner(store)
        self._turns = turns
        self._once_by_id = once_by_id

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit`, oldest first; `damaged` of the list names what cannot be read."""
        newest = resolve_session_limit(limit, self.session_settings)
        if newest is not None:
            newest = max(newest, 0)
        steps = framework_operations.read(self.session_id, newest, self._turns)
        found = await self._runner.wait(steps)
        items = framework_operations.rendered(self.session_id, found, to_openai_agents)
        return cast("list[TResponseInputItem]", items)

    async def add_items(self, items: list[TResponseInputItem], *, key: str | None = None) -> None:
        """Append them as one batch. With a `key` that was used before, nothing is added."""
        if key is None and self._once_by_id:
            key = framework_operations.key_of_ids(OPENAI_AGENTS, (_id_of(item) for item in items))
        messages = [from_openai_agents(item) for item in items]
        await self._runner.wait(framework_operations.add(self.session_id, messages, key))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item out and return it; None where there is none.

        Nothing is lost that was added meanwhile: then that is the newest, and is taken.
        """
        taken = await self._runner.wait(framework_operations.pop(self.session_id, -1))
        return None if taken is None else cast("TResponseInputItem", to_openai_agents(taken))

    async def clear_session(self) -> None:
        """Erase the session for good."""
        await self._runner.wait(framework_operations.forget(self.session_id))


def _id_of(item: Any) -> str | None:
    """The model's id of an item; a call and its result share one, so its type is part of it."""
    found = item.get("id") or item.get("call_id")
    return None if found is None else f"{item.get('type')}:{found}"
