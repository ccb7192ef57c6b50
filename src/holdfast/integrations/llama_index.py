"""Our store as a chat store of LlamaIndex, for `ChatMemoryBuffer` and chat engines."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.contract import AsyncStore, Store
from holdfast.errors import InvalidMessage
from holdfast.integrations import framework_operations
from holdfast.integrations.forms import from_llama_index, to_llama_index
from holdfast.integrations.framework_operations import StepRunner, Turns
from holdfast.model import History, Message
from holdfast.runner import Steps
from holdfast.turns import Turns as WhichTurns

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.llms import ChatMessage
    from llama_index.core.storage.chat_store.base import BaseChatStore
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[llama-index]'") from error


class HoldfastChatStore(BaseChatStore):
    """Every session of a store by its key. Each call happens as a whole, or not at all.

    Both ways of calling work with a `Store`; an `AsyncStore` has the async ones only. One message
    is taken out by a rewrite that only happens if nobody wrote in between. `turns` says what
    `get_messages` shows of tool calls without result (see `Store.history`); an index counts all.
    """

    _runner: StepRunner = PrivateAttr()
    _turns: WhichTurns = PrivateAttr()

    def __init__(self, store: Store | AsyncStore, *, turns: WhichTurns = "whole") -> None:
        super().__init__()
        self._runner = StepRunner(store)
        self._turns = turns

    @classmethod
    def class_name(cls) -> str:
        """As LlamaIndex names its components."""
        return "HoldfastChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Put these in the place of all, in one step."""
        self._runner.run(framework_operations.replace(key, _all(messages)))

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """See `set_messages`."""
        await self._runner.wait(framework_operations.replace(key, _all(messages)))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Oldest first, of one instant; `damaged` of the list names what cannot be read."""
        return _shown(key, self._runner.run(self._read(key)))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """See `get_messages`."""
        return _shown(key, await self._runner.wait(self._read(key)))

    def _read(self, key: str) -> Steps[History]:
        return framework_operations.read(key, turns=self._turns)

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Append one, or put it before the one at this index, as in a list."""
        self._runner.run(_add(key, message, idx))

    async def async_add_message(
        self, key: str, message: ChatMessage, idx: int | None = None
    ) -> None:
        """See `add_message`."""
        await self._runner.wait(_add(key, message, idx))

    def add_messages(
        self, key: str, messages: Sequence[ChatMessage], *, once: str | None = None
    ) -> None:
        """Append a whole turn as one batch, which LlamaIndex itself has no call for.

        `once` is an idempotency key: where it was used before, nothing is added.
        """
        self._runner.run(framework_operations.add(key, _all(messages), once))

    async def aadd_messages(
        self, key: str, messages: Sequence[ChatMessage], *, once: str | None = None
    ) -> None:
        """See `add_messages`."""
        await self._runner.wait(framework_operations.add(key, _all(messages), once))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Erase a session for good; what could be read of it just before, or None."""
        return _shown(key, self._runner.run(framework_operations.read_and_forget(key))) or None

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """See `delete_messages`."""
        return (
            _shown(key, await self._runner.wait(framework_operations.read_and_forget(key))) or None
        )

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Take one out by its index and return it; None where there is none."""
        return _one(self._runner.run(framework_operations.pop(key, idx)))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """See `delete_message`."""
        return _one(await self._runner.wait(framework_operations.pop(key, idx)))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Take the newest out and return it; None where there is none."""
        return self.delete_message(key, -1)

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """See `delete_last_message`."""
        return await self.adelete_message(key, -1)

    def get_keys(self) -> list[str]:
        """The ids of all live sessions, ascending."""
        return self._runner.run(framework_operations.names())

    async def aget_keys(self) -> list[str]:
        """See `get_keys`."""
        return await self._runner.wait(framework_operations.names())


def to_holdfast(message: ChatMessage) -> Message:
    """A message of LlamaIndex as ours."""
    if not isinstance(message, ChatMessage):
        raise InvalidMessage(f"no ChatMessage: {type(message).__name__}; nothing was written")
    return from_llama_index(framework_operations.dumped(lambda: message.model_dump(mode="json")))


def theirs(message: Message) -> ChatMessage:
    """A message of ours as LlamaIndex's, by any writer."""
    return ChatMessage.model_validate(to_llama_index(message))


def _add(key: str, message: ChatMessage, idx: int | None) -> Steps[None]:
    added = to_holdfast(message)
    if idx is None:
        yield from framework_operations.add(key, [added])
        return

    def with_it(found: History) -> Sequence[Message]:
        listed = list(found)
        listed.insert(idx, added)
        return listed

    yield from framework_operations.change(key, with_it)


def _all(messages: Sequence[ChatMessage]) -> list[Message]:
    return [to_holdfast(message) for message in messages]


def _shown(key: str, found: History) -> Turns[ChatMessage]:
    return framework_operations.rendered(key, found, theirs)


def _one(taken: Message | None) -> ChatMessage | None:
    return None if taken is None else theirs(taken)
