"""Our store as a checkpointer of LangGraph: an agent's thread is a session of the log.

Every checkpoint and every batch of pending writes is one record, appended; a thread is read whole.
The latest checkpoint is the one with the highest number, which the engine gave, and not the one
whose id bears the latest time of some host.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final

from holdfast.contract import AsyncStore, Store
from holdfast.errors import Damaged, UsageError
from holdfast.integrations import framework_operations
from holdfast.integrations.framework_operations import StepRunner
from holdfast.model import History, Message
from holdfast.runner import Steps

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
except ImportError as error:
    raise ImportError(f"{error}. To have it: pip install 'holdfast[langgraph]'") from error

FIELD: Final = "langgraph"
CHECKPOINT: Final = "checkpoint"
WRITES: Final = "writes"

Place = tuple[str, str]
"""A checkpoint within its thread: namespace and id."""

Packed = list[str]
"""A value of the graph: how it was serialized, and that as base64."""

Tuples = list[CheckpointTuple]
Places = list[Place]
# These have names because `list` means something else inside a saver.


class Thread:
    """What the log says of one thread: checkpoints by number, and the writes pending on each."""

    def __init__(self, found: History) -> None:
        self.damaged = found.damaged
        self.checkpoints: dict[Place, Message] = {}
        self._writes: dict[Place, list[Message]] = {}
        for message in found:
            kept = message.extra.get(FIELD)
            if not isinstance(kept, dict):
                continue
            place = kept["ns"], kept["checkpoint_id"]
            if message.role == WRITES:
                self._writes.setdefault(place, []).append(message)
            else:
                self.checkpoints.pop(place, None)  # put again, it stands where it was put last
                self.checkpoints[place] = message

    def newest_first(self, ns: str | None) -> list[Place]:
        """The checkpoints of a namespace, or of all."""
        return [place for place in reversed(self.checkpoints) if ns in (None, place[0])]

    def writes(self, place: Place) -> list[tuple[str, str, Packed]]:
        """(task, channel, packed value) of the writes that are pending on a checkpoint."""
        held: dict[tuple[str, int], tuple[str, str, Packed]] = {}
        for message in self._writes.get(place, ()):
            kept = message.extra[FIELD]
            for index, (channel, value) in enumerate(kept["writes"]):
                slot = kept["task_id"], WRITES_IDX_MAP.get(channel, index)
                if slot[1] < 0 or slot not in held:  # an error replaces, a task writes once
                    held[slot] = kept["task_path"], channel, value
        ordered = sorted(held, key=lambda slot: writes_sort_key(held[slot][0], *slot))
        return [(slot[0], *held[slot][1:]) for slot in ordered]

    def records(self, places: Sequence[Place]) -> list[Message]:
        """The records of these checkpoints and of their writes, in the order of the log."""
        kept = [self.checkpoints[place] for place in places]
        kept += [write for place in places for write in self._writes.get(place, ())]
        return sorted(kept, key=lambda message: message.seq or 0)


class HoldfastSaver(BaseCheckpointSaver[int]):
    """Checkpoints in a store. Each put is there as a whole when it returns, or not at all.

    Give it a store with a namespace of its own: `connect(url, namespace="agents")`. Both ways of
    calling work with a `Store`; an `AsyncStore` has the async ones only.
    """

    def __init__(
        self, store: Store | AsyncStore, *, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde)
        self._runner = StepRunner(store)

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
        new_versions: ChannelVersions,  # noqa: ARG002 - every value is in the checkpoint
    ) -> RunnableConfig:
        """Append a checkpoint; the config that names it."""
        thread, message = self._record(config, checkpoint, metadata)
        self._runner.run(framework_operations.add(thread, [message]))
        return _config(thread, (_ns(config), checkpoint["id"]))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - every value is in the checkpoint
    ) -> RunnableConfig:
        """See `put`."""
        thread, message = self._record(config, checkpoint, metadata)
        await self._runner.wait(framework_operations.add(thread, [message]))
        return _config(thread, (_ns(config), checkpoint["id"]))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Append the writes of a task, to be applied when its step is complete."""
        message = self._writes_record(config, writes, task_id, task_path)
        self._runner.run(framework_operations.add(_thread(config), [message]))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """See `put_writes`."""
        message = self._writes_record(config, writes, task_id, task_path)
        await self._runner.wait(framework_operations.add(_thread(config), [message]))

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread for good."""
        self._runner.run(framework_operations.forget(str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """See `delete_thread`."""
        await self._runner.wait(framework_operations.forget(str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Erase the checkpoints of these runs, each thread in one step."""
        self._runner.run(self._delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See `delete_for_runs`."""
        await self._runner.wait(self._delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Append all of one thread to another, in one step."""
        self._runner.run(_copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See `copy_thread`."""
        await self._runner.wait(_copy(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace, or ("delete") none, each thread in one step.

        `UsageError` for a thread with delta channels: what they were made from would be lost.
        """
        self._runner.run(self._prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See `prune`."""
        await self._runner.wait(self._prune(thread_ids, strategy))

    # Each operation once, for both ways of calling.

    def _get(self, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
        name, wanted = _thread(config), get_checkpoint_id(config)
        thread = Thread((yield from framework_operations.read(name)))
        if wanted is not None:
            place = _ns(config), wanted
            return self._tuple(name, thread, place) if place in thread.checkpoints else None
        places = thread.newest_first(_ns(config))
        _check_latest(name, thread, thread.checkpoints[places[0]].seq if places else 0)
        return self._tuple(name, thread, places[0]) if places else None

    def _list(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Steps[Tuples]:
        names = [_thread(config)] if config else (yield from framework_operations.names())
        found: Tuples = []
        for name in names:
            thread = Thread((yield from framework_operations.read(name)))
            for place in _chosen(thread, config, before):
                one = self._tuple(name, thread, place)
                if all(one.metadata.get(key) == value for key, value in (wanted or {}).items()):
                    found.append(one)
        return found if limit is None else found[: max(limit, 0)]

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Steps[None]:
        def others(thread: Thread) -> Places:
            return [
                place
                for place, message in thread.checkpoints.items()
                if self._unpack(message.extra[FIELD]["metadata"]).get("run_id") not in run_ids
            ]

        for name in (yield from framework_operations.names()) if run_ids else ():
            yield from _keep(name, others)

    def _prune(self, thread_ids: Sequence[str], strategy: str) -> Steps[None]:
        if strategy not in ("keep_latest", "delete"):
            raise UsageError(f"no strategy {strategy!r}: keep_latest or delete")
        for name in map(str, thread_ids):
            if strategy == "delete":
                yield from framework_operations.forget(name)
            else:
                yield from _keep(name, self._latest)

    def _latest(self, thread: Thread) -> Places:
        latest = {place[0]: place for place in thread.checkpoints}
        for place in latest.values():
            about = self._unpack(thread.checkpoints[place].extra[FIELD]["metadata"])
            if about.get("counters_since_delta_snapshot"):
                raise UsageError(
                    "this thread has delta channels, which are made from its earlier checkpoints: "
                    "they cannot be pruned. Nothing was changed"
                )
        return [*latest.values()]

    # Records.

    def _record(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> tuple[str, Message]:
        kept = {
            "ns": _ns(config),
            "checkpoint_id": checkpoint["id"],
            "parent": get_checkpoint_id(config),
            "checkpoint": self._pack(checkpoint),
            "metadata": self._pack(get_checkpoint_metadata(config, metadata)),
        }
        return _thread(config), Message(CHECKPOINT, None, extra={FIELD: kept})

    def _writes_record(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, path: str
    ) -> Message:
        kept = {
            "ns": _ns(config),
            "checkpoint_id": get_checkpoint_id(config),
            "task_id": task_id,
            "task_path": path,
            "writes": [[channel, self._pack(value)] for channel, value in writes],
        }
        return Message(WRITES, None, extra={FIELD: kept})

    def _tuple(self, name: str, thread: Thread, place: Place) -> CheckpointTuple:
        kept = thread.checkpoints[place].extra[FIELD]
        parent = kept["parent"]
        return CheckpointTuple(
            config=_config(name, place),
            checkpoint=self._unpack(kept["checkpoint"]),
            metadata=self._unpack(kept["metadata"]),
            parent_config=None if parent is None else _config(name, (place[0], parent)),
            pending_writes=[
                (task, channel, self._unpack(value))
                for task, channel, value in thread.writes(place)
            ],
        )

    def _pack(self, value: Any) -> Packed:
        kind, data = self.serde.dumps_typed(value)
        return [kind, base64.b64encode(data).decode("ascii")]

    def _unpack(self, packed: Packed) -> Any:
        return self.serde.loads_typed((packed[0], base64.b64decode(packed[1], validate=True)))


def _thread(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _ns(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def _config(thread: str, place: Place) -> RunnableConfig:
    ns, checkpoint_id = place
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": ns,
            "checkpoint_id": checkpoint_id,
        }
    }


def _chosen(
    thread: Thread, config: RunnableConfig | None, before: RunnableConfig | None
) -> Iterator[Place]:
    """The newest first; `before` a checkpoint of this thread by number, else by its id."""
    ns = config["configurable"].get("checkpoint_ns") if config else None
    wanted = get_checkpoint_id(config) if config else None
    bound = get_checkpoint_id(before) if before else None
    seqs = {place[1]: message.seq or 0 for place, message in thread.checkpoints.items()}
    for place in thread.newest_first(ns):
        if wanted not in (None, place[1]):
            continue
        if bound is not None:
            earlier = seqs[place[1]] < seqs[bound] if bound in seqs else place[1] < bound
            if not earlier:
                continue
        yield place


def _check_latest(name: str, thread: Thread, latest: int | None) -> None:
    later = [damage.seq for damage in thread.damaged if damage.seq > (latest or 0)]
    if later:
        raise Damaged(
            f"thread {name!r}: records {later} cannot be read, and the latest checkpoint may be "
            "among them. Name the checkpoint_id to go on from an earlier one; `list` shows them"
        )


def _keep(name: str, choose: Callable[[Thread], list[Place]]) -> Steps[None]:
    """Rewrite a thread to some of its checkpoints; one that needs no change is left alone."""

    def decide(found: History) -> list[Message] | None:
        thread = Thread(found)
        places = choose(thread)
        return None if len(places) == len(thread.checkpoints) else thread.records(places)

    yield from framework_operations.change(name, decide)


def _copy(source: str, target: str) -> Steps[None]:
    found: History = yield from framework_operations.read(str(source))
    if found.damaged:
        raise Damaged(f"thread {source!r} has records that cannot be read; nothing was copied")
    yield from framework_operations.add(str(target), list(found))
