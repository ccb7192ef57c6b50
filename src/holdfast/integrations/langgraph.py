"""Our store as a checkpointer of LangGraph: an agent's thread is a session of the log.

`checkpoint_log` says how it lies there. The latest checkpoint is the one with the highest number,
which the engine gave, and not the one whose id bears the latest time of some host.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.contract import AsyncStore, Store
from holdfast.errors import UsageError
from holdfast.integrations.checkpoint_steps import Threads
from holdfast.integrations.framework_operations import StepRunner

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from holdfast.integrations.langgraph_operations import SaverOperations, thread_of
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[langgraph]'") from error

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory


class HoldfastSaver(SaverOperations):
    """Checkpoints in a store. Each put is there as a whole when it returns, or not at all.

    Give it a store with a namespace of its own: `connect(url, namespace="agents")`. Both ways of
    calling work with a `Store`; an `AsyncStore` has the async ones only.

    With `keep=n` a thread prunes itself: the last n checkpoints stay (at times up to twice as
    many), and always the newest of each namespace, those with writes that no later checkpoint was
    made from, and what delta channels need.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        serde: SerializerProtocol | None = None,
        keep: int | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if keep is not None and (type(keep) is not int or keep < 1):
            raise UsageError(f"keep must be a number of checkpoints from 1, or None, not {keep!r}")
        self._runner = StepRunner(store)
        self._threads = Threads()
        self._keep = keep

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint of this id, or the latest; None where there is none.

        `Damaged` where a later record cannot be read: an agent must not go back unawares.
        """
        return self._runner.run(self._get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See `get_tuple`."""
        return await self._runner.wait(self._get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints of a thread, or of all; of each thread the newest first."""
        yield from self._runner.run(self._list(config, filter, before, limit))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `list`."""
        for found in await self._runner.wait(self._list(config, filter, before, limit)):
            yield found

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Append a checkpoint and what is new of its values; the config that names it."""
        with self._threads.in_turn(thread_of(config)):
            return self._runner.run(self._put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See `put`."""
        return await self._runner.wait(self._put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Append the writes of a task, to be applied when its step is complete."""
        with self._threads.in_turn(thread_of(config)):
            self._runner.run(self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """See `put_writes`."""
        await self._runner.wait(self._put_writes(config, writes, task_id, task_path))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to each channel since its nearest stored value, which is its seed."""
        return self._runner.run(self._delta_history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See `get_delta_channel_history`."""
        return await self._runner.wait(self._delta_history(config, channels))

    def get_next_version(self, current: Any, channel: None) -> Any:  # noqa: ARG002 - as LangGraph calls it
        """The version after this one: text as SqliteSaver and PostgresSaver have it.

        A thread of our first releases goes on with whole numbers: the two cannot be compared.
        """
        if isinstance(current, int):
            return current + 1
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"  # noqa: S311 - it tells two forks apart

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread for good."""
        self._runner.run(self._forget(str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """See `delete_thread`."""
        await self._runner.wait(self._forget(str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of these runs, each thread in one step."""
        self._runner.run(self._delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `delete_for_runs`."""
        await self._runner.wait(self._delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Add all of one thread to another; it can be seen as a whole, or not at all."""
        self._runner.run(self._copy(str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `copy_thread`."""
        await self._runner.wait(self._copy(str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace, or ("delete") none, each thread in one step.

        Of a thread with delta channels the checkpoints stay that they are made from.
        """
        self._runner.run(self._prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `prune`."""
        await self._runner.wait(self._prune(thread_ids, strategy))
