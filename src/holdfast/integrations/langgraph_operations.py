"""What a checkpointer of LangGraph does with our store, step by step; `langgraph` is its interface."""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

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
)

from holdfast.errors import Damaged, HoldfastError, UsageError
from holdfast.integrations import framework_operations
from holdfast.integrations.checkpoint_log import (
    CHECKPOINT,
    FIELD,
    WRITES,
    Batch,
    Body,
    Catalog,
    Entry,
    Place,
    facts_of,
    in_groups,
    record,
)
from holdfast.integrations.checkpoint_steps import Threads, picked
from holdfast.integrations.checkpoint_values import (
    Dumped,
    Packed,
    Part,
    ReadPart,
    form,
    pack,
    pending_writes,
    spans,
    unpack,
)
from holdfast.model import Message
from holdfast.runner import Steps

if TYPE_CHECKING:
    from langgraph.checkpoint.base import DeltaChannelHistory

INLINE_BYTES_MAX: Final = 256
"""A value up to this size is written with every checkpoint: to refer to it would take as much."""

Tuples = list[CheckpointTuple]
Parts = Mapping[int, ReadPart]
Forms = dict[str, dict[str, Any]]
Bodies = list[tuple[Entry, Body]]
Numbers = list[int]  # they have names because `list` means something else inside a saver


class SaverOperations(BaseCheckpointSaver[Any]):
    """Each operation of a saver once, for both ways of calling: steps over `Threads`."""

    _threads: Threads
    _keep: int | None

    def _get(self, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
        name, ns, wanted = thread_of(config), _ns(config), get_checkpoint_id(config)

        def look(*, full: bool) -> Steps[tuple[Catalog, Entry | None]]:
            catalog = yield from self._threads.open(name, full=full)
            at = catalog.checkpoints.get((ns, wanted)) if wanted else catalog.latest.get(ns)
            return catalog, at

        def steps() -> Steps[CheckpointTuple | None]:
            catalog, entry = yield from look(full=False)
            if catalog.missing and (entry is None or not catalog.knows_writes_of(entry)):
                catalog, entry = yield from look(full=True)
            if wanted is None:
                _check_latest(name, catalog, 0 if entry is None else entry.seq)
            found = yield from self._tuples(name, catalog, [] if entry is None else [entry])
            return found[0] if found else None

        return (yield from self._threads.retried(name, steps))

    def _list(
        self,
        config: RunnableConfig | None,
        wanted: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Steps[Tuples]:
        names = [thread_of(config)] if config else (yield from framework_operations.names())
        found: Tuples = []
        for name in names:
            most = None if limit is None else max(limit, 0) - len(found)
            if most == 0:
                break
            choose = functools.partial(self._chosen, name, config, wanted or {}, before, most)
            found += yield from self._threads.retried(name, choose)
        return found

    def _chosen(
        self,
        name: str,
        config: RunnableConfig | None,
        wanted: dict[str, Any],
        before: RunnableConfig | None,
        most: int | None,
    ) -> Steps[Tuples]:
        catalog = yield from self._threads.open(name)
        entries = [one for one in _bounded(catalog, config, before) if one.may_match(wanted)]
        found: Tuples = []
        for some in in_groups(entries):
            for one in (yield from self._tuples(name, catalog, some)):
                if all(one.metadata.get(key) == value for key, value in wanted.items()):
                    found.append(one)
            if most is not None and len(found) >= most:
                return found[:most]
        return found

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Steps[RunnableConfig]:
        name, place = thread_of(config), (_ns(config), checkpoint["id"])
        about: Any = get_checkpoint_metadata(config, metadata)
        kept = {
            "ns": place[0],
            "checkpoint_id": place[1],
            "parent": get_checkpoint_id(config),
            **facts_of(about),
        }
        bare = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        body = Body(self._pack(bare), self._pack(about), None, None, None)
        message_id = secrets.token_hex(8)
        dumped = functools.cache(
            lambda channel: self._dumped(checkpoint["channel_values"][channel])
        )

        def fill(batch: Batch, held: Forms, same: set[str]) -> None:
            body.values = {
                channel: held[channel]
                if channel in same
                else form(dumped(channel), held.get(channel, {}), batch.add_part)
                for channel in checkpoint["channel_values"]
            }

        def finish(batch: Batch) -> None:
            own = batch.last + len(batch.records) + 1
            for ref in body.refs():
                ref[0] = own - ref[0]
            batch.add(record(CHECKPOINT, {**kept, "z": body.squeezed()}, message_id=message_id))

        def make(catalog: Catalog, batch: Batch) -> Steps[None]:
            parent = yield from self._parent(name, catalog, place[0], kept["parent"])
            fill(batch, *self._held(checkpoint, new_versions, parent))
            index = batch.add_index(catalog.entries, catalog.runs)
            own = batch.last + len(batch.records) + 1
            body.early = [own - seq for seq in catalog.writes.get(place, ())]
            body.index = batch.index_form(index)
            finish(batch)

        def alone(batch: Batch) -> None:
            body.early = body.index = None
            fill(batch, {}, set())
            finish(batch)

        yield from self._threads.put(name, place, make, alone)
        yield from self._prune_by_itself(name)
        return _config(name, place)

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, path: str
    ) -> Steps[None]:
        kept = {
            "ns": _ns(config),
            "checkpoint_id": get_checkpoint_id(config),
            "task_id": task_id,
            "task_path": path,
            "writes": [[channel, self._pack(value)] for channel, value in writes],
        }
        yield from self._threads.add_writes(thread_of(config), record(WRITES, kept))

    def _forget(self, name: str) -> Steps[None]:
        self._threads.drop(name)
        yield from framework_operations.forget(name)

    def _copy(self, source: str, target: str) -> Steps[None]:
        yield from self._threads.retried(source, lambda: self._threads.copy(source, target))

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Steps[None]:
        for name in (yield from framework_operations.names()) if run_ids else ():

            def others(catalog: Catalog, name: str = name) -> Steps[set[Place]]:
                entries = catalog.newest_first(None)
                gone = set()
                wanted = [{"run_id": run} for run in run_ids]
                for some in in_groups(one for one in entries if any(map(one.may_match, wanted))):
                    for one, body in (yield from self._bodies(name, catalog, some)):
                        if self._unpack(body.metadata).get("run_id") in run_ids:
                            gone.add(one.place)
                return {one.place for one in entries} - gone

            yield from self._pruned(name, others)

    def _prune(self, thread_ids: Sequence[str], strategy: str) -> Steps[None]:
        if strategy not in ("keep_latest", "delete"):
            raise UsageError(f"no strategy {strategy!r}: keep_latest or delete")
        for name in map(str, thread_ids):
            if strategy == "delete":
                yield from self._forget(name)
            else:

                def latest(catalog: Catalog, name: str = name) -> Steps[set[Place]]:
                    return self._with_ancestors(name, catalog, [*catalog.latest.values()])

                yield from self._pruned(name, latest)

    def _prune_by_itself(self, name: str) -> Steps[None]:
        catalog = self._threads.known(name)
        count = self._keep
        if count is None or catalog is None:
            return
        if (size := len(catalog.checkpoints)) < max(2 * count, catalog.prune_at):
            return
        catalog.prune_at = size + count  # where all has to stay, do not look at every put

        def newest(catalog: Catalog) -> Steps[set[Place]]:
            kept = {one.place for one in catalog.newest_first(None)[:count]} | catalog.pending()
            kept |= {one.place for one in [*catalog.latest.values()]}
            return self._with_ancestors(name, catalog, [catalog.checkpoints[one] for one in kept])

        try:
            yield from self._pruned(name, newest)
        except HoldfastError as error:  # the put is done; the next one prunes
            framework_operations.log.warning("%r was not pruned: %s", name, error)

    def _pruned(self, name: str, choose: Any) -> Steps[None]:
        yield from self._threads.retried(name, lambda: self._threads.keep(name, choose))

    def _with_ancestors(
        self, name: str, catalog: Catalog, entries: Iterable[Entry]
    ) -> Steps[set[Place]]:
        """The places of these checkpoints, and of those that their delta channels are made from."""
        kept: set[Place] = set()
        for some in in_groups(entries):
            for entry, body in (yield from self._bodies(name, catalog, some)):
                kept.add(entry.place)
                counters = self._unpack(body.metadata).get("counters_since_delta_snapshot") or ()
                lacking = set(counters) - self._channels(body)
                for older in in_groups(catalog.ancestors(entry.place)):
                    if not lacking:
                        break
                    for ancestor, its in (yield from self._bodies(name, catalog, older)):
                        kept |= {ancestor.place} if lacking else set()
                        lacking -= self._channels(its)
        return kept

    def _delta_history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Steps[Mapping[str, DeltaChannelHistory]]:
        name, wanted = thread_of(config), get_checkpoint_id(config)

        def steps() -> Steps[Mapping[str, DeltaChannelHistory]]:
            catalog = yield from self._threads.open(name)
            latest = catalog.latest.get(_ns(config))
            place = (_ns(config), wanted) if wanted else latest.place if latest else ("", "")
            found: dict[str, Any] = {channel: {"writes": []} for channel in channels}
            lacking = set(channels)
            for some in in_groups(catalog.ancestors(place)):
                for one in (
                    (yield from self._tuples(name, catalog, some, lacking)) if lacking else ()
                ):
                    for write in reversed(one.pending_writes or []):
                        if write[1] in lacking:
                            found[write[1]]["writes"].insert(0, write)
                    for channel in lacking & one.checkpoint["channel_values"].keys():
                        found[channel]["seed"] = one.checkpoint["channel_values"][channel]
                        lacking.discard(channel)
            return found

        return (yield from self._threads.retried(name, steps)) if channels else {}

    # Records.

    def _parent(
        self, name: str, catalog: Catalog, ns: str, parent_id: str | None
    ) -> Steps[tuple[int, Body, bool] | None]:
        """A checkpoint whose parts the next one may refer to; whether it is surely its parent."""
        latest = catalog.latest.get(ns)
        entry = latest if parent_id is None else catalog.checkpoints.get((ns, parent_id), latest)
        if entry is None:
            return None
        [(_, body)] = yield from self._bodies(name, catalog, [entry])
        return entry.seq, body, entry.checkpoint_id == parent_id

    def _held(
        self,
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
        parent: tuple[int, Body, bool] | None,
    ) -> tuple[Forms, set[str]]:
        """The values of the parent by number, not distance; and the channels that have not changed."""
        if parent is None or parent[1].values is None:
            return {}, set()
        seq, body, is_parent = parent
        for ref in body.refs():
            ref[0] = seq - ref[0]
        held: Forms = body.values or {}
        now = checkpoint["channel_versions"]
        theirs = self._unpack(body.checkpoint)["channel_versions"] if is_parent else {}
        same = {one for one in held if one in theirs and theirs[one] == now.get(one)}
        return held, same - new_versions.keys()

    def _dumped(self, value: Any) -> Dumped:
        """The parts of a value; and the value as a whole, where it is small."""
        if type(value) is list and len(value) > 1:
            how, parts = "list", [value[at : at + size] for at, size in spans(len(value))]
        else:
            how, parts = "one", [value]
        made = [Part(*self.serde.dumps_typed(part)) for part in parts]
        is_small = sum(len(part.data) for part in made) <= INLINE_BYTES_MAX
        return how, made, self._pack(value) if is_small else None

    def _bodies(self, name: str, catalog: Catalog, entries: Sequence[Entry]) -> Steps[Bodies]:
        heads = dict(list(catalog.heads.values()))
        found = yield from picked(name, [one.seq for one in entries if one.seq not in heads])
        return [(entry, Body.of(heads.get(entry.seq) or found[entry.seq])) for entry in entries]

    def _tuples(
        self,
        name: str,
        catalog: Catalog,
        entries: Sequence[Entry],
        channels: set[str] | None = None,
    ) -> Steps[Tuples]:
        """These checkpoints with their writes and the values of all channels, or of these."""
        bodies = yield from self._bodies(name, catalog, entries)
        wanted, writes = set[tuple[int, str]](), dict[int, Numbers]()
        for entry, body in bodies:
            early = {entry.seq - distance for distance in body.early or ()}
            writes[entry.seq] = sorted(early.union(catalog.writes.get(entry.place, ())))
            if body.values is not None and channels is not None:
                body.values = {one: body.values[one] for one in channels & body.values.keys()}
            wanted.update((entry.seq - distance, digest) for distance, digest in body.refs())
        parts = yield from self._threads.parts(name, catalog, wanted)
        found = yield from picked(name, itertools.chain.from_iterable(writes.values()))
        return [
            self._tuple(name, entry, body, parts, [found[seq] for seq in writes[entry.seq]])
            for entry, body in bodies
        ]

    def _tuple(
        self,
        name: str,
        entry: Entry,
        body: Body,
        parts: Parts,
        writes: Sequence[Message],
    ) -> CheckpointTuple:
        checkpoint = self._unpack(body.checkpoint)
        if body.values is not None:
            checkpoint["channel_values"] = {
                channel: self._value(form, entry.seq, parts)
                for channel, form in body.values.items()
            }
        pending = pending_writes((message.extra[FIELD] for message in writes), WRITES_IDX_MAP)
        return CheckpointTuple(
            config=_config(name, entry.place),
            checkpoint=checkpoint,
            metadata=self._unpack(body.metadata),
            parent_config=None if entry.parent is None else _config(name, (entry.ns, entry.parent)),
            pending_writes=[
                (task, channel, self._unpack(value)) for task, channel, value in pending
            ],
        )

    def _value(self, form: dict[str, Any], seq: int, parts: Parts) -> Any:
        if "in" in form:
            return self._unpack(form["in"])
        refs = form.get("one", form.get("list", ()))
        values = [parts[seq - ref[0]].value(self.serde) for ref in refs]
        return values[0] if "one" in form else [*itertools.chain.from_iterable(values)]

    def _channels(self, body: Body) -> set[str]:
        values = body.values
        return set(self._unpack(body.checkpoint)["channel_values"] if values is None else values)

    def _pack(self, value: Any) -> Packed:
        return pack(*self.serde.dumps_typed(value))

    def _unpack(self, packed: Packed) -> Any:
        return self.serde.loads_typed(unpack(packed))


def thread_of(config: RunnableConfig) -> str:
    """It is the name of its session, too."""
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


def _bounded(
    catalog: Catalog, config: RunnableConfig | None, before: RunnableConfig | None
) -> Iterator[Entry]:
    """The newest first; `before` a checkpoint by number within its namespace, else by its id.

    A graph and its subgraph write side by side: which of the two came first in the log is chance.
    """
    ns = config["configurable"].get("checkpoint_ns") if config else None
    wanted = get_checkpoint_id(config) if config else None
    bound = get_checkpoint_id(before) if before else None
    ends = {one.ns: one.seq for one in catalog.newest_first(None) if one.checkpoint_id == bound}
    for entry in catalog.newest_first(ns):
        if wanted not in (None, entry.checkpoint_id):
            continue
        by_id = bound is None or entry.checkpoint_id < bound
        if entry.seq < ends[entry.ns] if entry.ns in ends else by_id:
            yield entry


def _check_latest(name: str, catalog: Catalog, latest: int) -> None:
    later = [seq for seq in catalog.damaged if seq > latest]
    if later:
        raise Damaged(
            f"thread {name!r}: records {later} cannot be read, and the latest checkpoint may be "
            "among them. Name the checkpoint_id to go on from an earlier one; `list` shows them"
        )
