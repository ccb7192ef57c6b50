"""A session of the OpenAI Agents SDK that shortens itself, and loses nothing that is written meanwhile.

The SDK's own `OpenAIResponsesCompactionSession` clears the session that it wraps and adds what the model made
of it: an item that another process adds meanwhile is gone. Here one write puts the short history in the place
of exactly those items that the model was given, and what came after them stays behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast import turns as whole_turns
from holdfast.contract import AsyncStore, Store
from holdfast.errors import Conflict
from holdfast.integrations import framework_operations
from holdfast.integrations.forms import from_openai_agents, to_openai_agents
from holdfast.integrations.framework_operations import TRIES, log
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.model import History, Message
from holdfast.runner import Steps

try:
    from agents.models._openai_shared import get_default_openai_client
    from openai import AsyncOpenAI
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[openai-agents]'") from error

ITEMS_MIN: Final = 10
"""Items beside a user's messages from which on a session is shortened by default, as in the SDK."""
_FOR_THE_SDK_ONLY: Final = ("_agents_tool_description", "_agents_tool_title", "created_by")

Items = list[dict[str, Any]]


class HoldfastCompactionSession(HoldfastSession):
    """A `HoldfastSession` that the Runner lets shorten itself by `responses.compact` after a turn.

    `should_compact` is given the items and decides; by default there have to be ten that are neither a
    user's nor made by a compaction. While a tool call of the last turn waits for its result, and while a record
    cannot be read, nothing is shortened; a call that an earlier turn left open is not sent, and stays. It needs
    a model of the Responses API. The items themselves are sent, never the id of a response: what is replaced
    is exactly what was sent.
    """

    def __init__(
        self,
        session_id: str,
        store: Store | AsyncStore,
        *,
        client: AsyncOpenAI | None = None,
        model: str = "gpt-4.1",
        should_compact: Callable[[Items], bool] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(session_id, store, **more)
        self.model = model
        self._client = client
        self._should_compact = should_compact or enough

    async def run_compaction(self, args: Any = None) -> None:
        """Shorten the session, if it is time or `args` has `force`; otherwise nothing happens.

        If an item that was sent is taken out meanwhile, the session stays as it is, and the log says so.
        """
        found = await self._runner.wait(framework_operations.read(self.session_id))
        if not found or found.damaged or whole_turns.open_calls(_last_turn(found)):
            return
        sent = whole_turns.whole(found)
        items = [to_openai_agents(message) for message in sent]
        if not ((args or {}).get("force") or self._should_compact(items)):
            return
        about: Any = {"model": self.model, "input": [_sendable(item) for item in items]}
        answer = await self._compacting_client().responses.compact(**about)
        short = [from_openai_agents(item) for item in made_of(answer.output or [])]
        if not short:
            log.warning("the model made nothing of %r, which stays as it is", self.session_id)
            return
        numbers = {message.seq for message in sent}
        short += [message for message in found if message.seq not in numbers]
        await self._runner.wait(_put_in_place(self.session_id, found, short))

    def _compacting_client(self) -> AsyncOpenAI:
        if self._client is None:
            self._client = get_default_openai_client() or AsyncOpenAI()
        return self._client


def enough(items: Items) -> bool:
    """Whether a session is worth shortening, as the SDK decides it by default."""
    counted = [
        item for item in items if item.get("role") != "user" and item.get("type") != "compaction"
    ]
    return len(counted) >= ITEMS_MIN


def made_of(output: Sequence[Any]) -> Items:
    """What `responses.compact` answered, as items that may be sent again."""
    items: Items = [
        one if isinstance(one, dict) else one.model_dump(exclude_unset=True, warnings=False)
        for one in output
    ]
    items = [_sendable(item) for item in items]
    if any(item.get("type") == "reasoning" for item in items):
        return items
    # An assistant's message that has its id is refused without the reasoning that led to it.
    return [
        {name: value for name, value in item.items() if name != "id"}
        if item.get("role") == "assistant"
        else item
        for item in items
    ]


def _sendable(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in _FOR_THE_SDK_ONLY}


def _last_turn(found: History) -> Sequence[Message]:
    """What came after the user's last message."""
    asked = [at for at, message in enumerate(found, 1) if message.role == "user"]
    return found[asked[-1] :] if asked else found


def _put_in_place(session: str, seen: History, short: Sequence[Message]) -> Steps[None]:
    """Put these in the place of those that were seen, and keep what came after them."""
    numbers = [message.seq for message in seen]
    for _ in range(TRIES):
        found = yield from framework_operations.read(session)
        newer = [message for message in found if (message.seq or 0) > seen.last]
        if found.damaged or [message.seq for message in found[: len(seen)]] != numbers:
            break
        rest, last = [*short, *newer], found.last
        try:
            yield lambda store, rest=rest, last=last: store.rewrite(session, rest, expect=last)
        except Conflict:
            continue
        return
    log.warning("%r was changed while it was compacted, and stays as it is", session)
