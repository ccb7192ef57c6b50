"""Several clients at work on one target, and the history that they make together."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.linux import waited_for_cpu_s
from holdfast.verify.blocks import Block
from holdfast.verify.data_link import point
from holdfast.verify.history import Event, Header, write_history
from holdfast.verify.instrument import Instrument
from holdfast.verify.process_tree import waits_for_disk
from holdfast.verify.spec import TargetSpec
from holdfast.verify.workload.client import Job
from holdfast.verify.workload.client_process import ClientProcess
from holdfast.verify.workload.fork_server import ForkServer
from holdfast.verify.workload.plan import Shape, Step
from holdfast.verify.workload.remains import Remains, remains_of, served_ports

OPS_PER_CLIENT: Final = 1_000_000
_POLL_S: Final = 0.004
_EVENT_TYPES: Final = frozenset({"invoke", "ok", "fail", "info"})
_READ_ATTEMPTS: Final = 200
_SETTLE_S: Final = 1.0
"""So long a server may take to notice that its client is dead; then it stays open."""
_SETTLE_POLL_S: Final = 0.02
_STARVED_MAX: Final = 5
"""On a busy machine everything may take so many times longer."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long anything may take: a target that hangs never hangs the check."""

    open_s: float = 15.0
    operation_s: float = 10.0
    recover_s: float = 20.0
    back_s: float = 20.0
    """After an outage a client that was not answered again by then does not come back by itself."""
    life_s: float = 120.0
    """No client lives longer, whatever happens to its parent."""


class ClientPool(Block):
    """Clients of one scenario. Leaving the block ends every one of them.

    `trouble` says what went wrong with the clients themselves: one that hung, or died; `missed`
    that the fault which they were to meet did not land.
    """

    def __init__(
        self,
        spec: TargetSpec,
        folder: Path,
        *,
        name: str,
        seed: int,
        bounds: Bounds,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.spec, self.name, self.seed, self.bounds = spec, name, seed, bounds
        self.processes: list[ClientProcess] = []
        self.faults: list[Event] = []
        self.trouble: list[str] = []
        self.missed = ""
        self.hung = False
        self._dark: list[tuple[int, int]] = []
        """The times in which nothing that a client heard is worth anything."""
        self.instruments: list[Instrument] = []
        """What clients are started under, from the next one on."""
        self._folder, self._fork_server = folder, fork_server
        self._numbers = itertools.count(1)
        self._moves: list[tuple[int, int]] = []
        self._remains: list[tuple[Remains, tuple[int, ...]]] = []

    def close(self) -> None:
        """End every client."""
        for client in self.processes:
            client.end()

    def start(self, count: int = 1, **job: Any) -> list[ClientProcess]:
        """Start clients and return when each has opened its store; they wait for `go`.

        One that did not open in time, or could not, is in `trouble` and not in the answer.
        """
        return self.opened(self.begin(count, **job))

    def opened(self, begun: Sequence[ClientProcess]) -> list[ClientProcess]:
        """Those that have opened their store, once each has or could not."""
        self.until(lambda: all(c.ready or c.failed or not c.alive for c in begun), "open")
        return [client for client in begun if self._is_ready(client)]

    def begin(
        self,
        count: int = 1,
        *,
        shape: Shape | None = None,
        scripts: Sequence[Sequence[Step]] = (),
        at_once: int = 1,
        patience_s: float | None = None,
        attempts: int = 1,
        probe: str | None = None,
        lazy: bool = False,
        serve: bool = False,
        look: bool = False,
        spec: TargetSpec | None = None,
    ) -> list[ClientProcess]:
        """Start clients and return at once; see `opened`.

        Of `scripts` each gets a client of its own; otherwise there are `count`, all alike.
        """
        job_fields: dict[str, Any] = {
            "shape": None if shape is None else asdict(shape),
            "at_once": at_once,
            "patience_s": patience_s,
            "attempts": attempts,
            "probe": probe,
            "lazy": lazy,
            "serve": serve,
            "look": look,
        }
        return [
            self._start_one(
                spec or self.spec, {"script": [s.to_json() for s in script], **job_fields}
            )
            for script in scripts or [()] * count
        ]

    def _start_one(self, spec: TargetSpec, job_fields: dict[str, Any]) -> ClientProcess:
        number = next(self._numbers)
        if spec.data is not None and spec.engine is not None and spec.engine.data_dir is not None:
            point(Path(spec.data), spec.engine.data_dir)
        job = Job(
            spec=spec.to_json(),
            name=f"{self.name}.c{number}",
            first_op=number * OPS_PER_CLIENT,
            life_s=self.bounds.life_s,
            seed=self.seed,
            **job_fields,
        )
        client = ClientProcess(job, self._folder, self.instruments, self._fork_server)
        self.processes.append(client)
        return client

    def _is_ready(self, client: ClientProcess) -> bool:
        client.read()
        if client.ready:
            return True
        if client.failed:
            self.trouble.append(str(client.failed["because"]))
        elif client.alive:
            self.hung = True
            self.trouble.append(f"open() did not return within {self.bounds.open_s:g} s")
            client.kill()
        else:
            self._note_death(client)
        return False

    def until(
        self, condition: Callable[[], bool], what: str = "wait", *, within_s: float | None = None
    ) -> bool:
        """Watch the clients until the condition holds; whether it did in time."""
        limit_s = self.bounds.open_s if what == "open" else self.bounds.operation_s
        limit_s = limit_s if within_s is None else within_s
        begin, before = time.monotonic(), self._starved()
        while True:
            for client in self.processes:
                client.read()
            if condition():
                return True
            passed_s = time.monotonic() - begin
            if passed_s > limit_s and passed_s > limit_s + self._conceded_s(before, limit_s):
                return False
            time.sleep(_POLL_S)

    def watch(self, for_s: float) -> None:
        """Take in what the clients record, for so long."""
        end_s = time.monotonic() + for_s
        while True:
            for client in self.processes:
                client.read()
            if time.monotonic() >= end_s:
                return
            time.sleep(_POLL_S)

    def _starved(self) -> dict[int, float]:
        """How long each client has waited for a processor so far."""
        pids = [client.process.pid for client in self.processes]
        return {pid: waited_for_cpu_s(pid) for pid in pids}

    def _conceded_s(self, before: dict[int, float], limit_s: float) -> float:
        """A client that waits for a processor or a disk does not hang: a busy machine is no finding."""
        most_s = _STARVED_MAX * limit_s
        if any(waits_for_disk(client.process.pid) for client in self.processes):
            return most_s
        since = [waited_s - before.get(pid, 0.0) for pid, waited_s in self._starved().items()]
        return min(max(since, default=0.0), most_s)

    def until_acknowledged(self, count: int) -> bool:
        """Until so many appends more were acknowledged; False also if nobody is left to."""
        wanted = self.acknowledged() + count
        over = self.until(lambda: self.acknowledged() >= wanted or not self._working())
        return over and self.acknowledged() >= wanted

    def until_tried(self, clients: Sequence[ClientProcess], count: int, within_s: float) -> bool:
        """Until each of these has done so many operations more, from now on."""
        self.watch(0)  # what they did before and nobody has read yet does not count
        wanted = {client.name: client.ended + count for client in clients}
        return self.until(
            lambda: all(c.ended >= wanted[c.name] for c in clients), within_s=within_s
        )

    def acknowledged(self) -> int:
        """Appends acknowledged so far, by all."""
        return sum(client.acknowledged for client in self.processes)

    def in_flight(self) -> list[int]:
        """Operations begun and not ended, by all."""
        return [op for client in self.processes for op in client.open]

    def _working(self) -> bool:
        return any(client.alive for client in self.processes)

    def kill(self, client: ClientProcess) -> int:
        """SIGKILL one client; how many operations it was in. They are closed where that is sure."""
        if not client.alive:
            self._note_death(client)
            return 0
        remains = None if self.spec.embedded else remains_of(client.process.pid, self.spec.url)
        client.kill()
        caught = tuple(client.open)
        self.note_fault("kill", closes=caught if self.spec.embedded else ())
        if remains is not None:
            self._remains.append((remains, caught))
        self._settle()
        return len(caught)

    def _settle(self) -> bool:
        """Close what killed clients had begun, where their server has nothing left of them."""
        served = {url: served_ports(url) for url in {remains.url for remains, _ in self._remains}}
        for entry in list(self._remains):
            remains, caught = entry
            if remains.are_gone(served[remains.url]):
                self.note_fault("kill over", closes=caught)
                self._remains.remove(entry)
        return not self._remains

    def note_fault(self, name: str, *, closes: tuple[int, ...] = (), landed: bool = True) -> int:
        """Put a fault into the history, at the time of now, which is returned."""
        now_ns = time.monotonic_ns()
        self.faults.append(Event("fault", now_ns, name=name, closes=closes, landed=landed))
        return now_ns

    def lost_power(self, since_ns: int, *, dead: Sequence[ClientProcess] = ()) -> int:
        """The power was off from then until now; how many operations that caught.

        What was answered meanwhile was answered by a machine that was no longer there, so its
        outcome is unknown. Operations of clients that died with it will never be done.
        """
        self.watch(0)
        self._dark.append((since_ns, time.monotonic_ns()))
        caught = [
            (client, number)
            for client in self.processes
            for number in [*client.open, *client.ended_since(since_ns)]
        ]
        self.note_fault("power", closes=tuple(op for client, op in caught if client in dead))
        return len(caught)

    def clock_moved(self, by_s: float) -> None:
        """From now on it is later by so much in the history as well: days pass in it, too.

        Stepping back takes nothing away: what was written stays written before.
        """
        self._moves.append((time.monotonic_ns(), round(by_s * 1e9)))

    def _seen_ns(self, time_ns: int) -> int:
        """When it happened, in the time of the story."""
        moved = itertools.accumulate(by_ns for at_ns, by_ns in self._moves if at_ns <= time_ns)
        return time_ns + max(0, *moved, 0)

    def stop(self) -> None:
        """Let every client finish what it is in; one that cannot is killed, and noted."""
        for client in self.processes:
            client.stop()
        self.until(lambda: not self._working())
        for client in self.processes:
            if client.alive:
                self._note_hang(client)
            elif not client.killed and client.process.returncode != 0 and not client.failed:
                self._note_death(client)
        deadline = time.monotonic() + _SETTLE_S
        while not self._settle() and time.monotonic() < deadline:
            time.sleep(_SETTLE_POLL_S)

    def _note_hang(self, client: ClientProcess) -> None:
        asked = next(iter(client.open.values()), {"f": "close"})
        self.hung = True
        self.trouble.append(
            f"{asked['f']}() did not return within {self.bounds.operation_s:g} s of the end"
        )
        closes = tuple(client.open) if self.spec.embedded else ()
        client.kill()
        self.note_fault("kill", closes=closes)

    def _note_death(self, client: ClientProcess) -> None:
        code = client.process.returncode
        said = client.last_words()
        printed = f": {said}" if said else ", and printed nothing"
        words = f"a client ended by itself (exit {code}){printed}"
        if words not in self.trouble:
            self.trouble.append(words)

    def read_all(self) -> None:
        """A new client reads every session whole, again and again until it is answered."""
        sessions = dict.fromkeys(
            event["session"]
            for client in self.processes
            for event in client.events
            if event["type"] == "invoke"
        )
        script = [Step("history", session) for session in sessions]
        for reader in self.start(scripts=[script], attempts=_READ_ATTEMPTS):
            reader.go()
            self.until(lambda: not reader.alive, within_s=self.bounds.recover_s)  # noqa: B023
            if reader.alive:
                self._note_hang(reader)

    def raw_events(self) -> Iterator[dict[str, Any]]:
        """What every client recorded, client by client."""
        for client in self.processes:
            client.read()
            yield from client.events

    def write(self, path: Path, header: Header) -> None:
        """The history of all of them, in the order of time."""
        events = [
            _event({**self._seen(raw), "time_ns": self._seen_ns(raw["time_ns"])})
            for raw in self.raw_events()
            if raw["type"] in _EVENT_TYPES
        ]
        write_history(path, header, [*events, *self.faults])

    def _seen(self, raw: dict[str, Any]) -> dict[str, Any]:
        """An event as it counts: an answer without power is none."""
        dark = any(since <= raw["time_ns"] <= until for since, until in self._dark)
        if not dark or raw["type"] == "invoke":
            return raw
        return {"type": "info", "time_ns": raw["time_ns"], "op": raw["op"]}


def _event(raw: dict[str, Any]) -> Event:
    return Event(
        raw["type"],
        raw["time_ns"],
        op=raw["op"],
        process=raw.get("process"),
        f=raw.get("f"),
        session=raw.get("session"),
        messages=_tuple(raw.get("messages")),
        limit=raw.get("limit"),
        seqs=_tuple(raw.get("seqs")),
        key=raw.get("key"),
    )


def _tuple(value: list[Any] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)
