"""Faults at the press of a button, on an engine and a service that the kit itself has started.

A supervisor holds both: it starts the engine on a directory of its own, the service as a
process of its own, and brings back what it ends. The page asks the service, the service asks
the supervisor by a secret that only the two know.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from holdfast.chat.control import CONTROL, SECRET
from holdfast.errors import HoldfastError, UsageError, VerifyError
from holdfast.terminal import say
from holdfast.verify.engines import Evidence, Killable, Pausable, start_engine
from holdfast.verify.engines.service import Service
from holdfast.verify.engines.sqlite import SqliteEngine

DOWN_S: Final = 1.5
"""How long a thing stays down, so that a person sees the page say so."""
CLOCK_BACK_S: Final = -3600.0
LANDED_KEPT: Final = 50
CONFIGS: Final = {"redis": "aof-always", "valkey": "aof-always"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One button: what it does, and what undoes it after a while."""

    name: str
    words: str
    act: Callable[[], Evidence]
    undo: Callable[[], Any] | None = None


class Supervisor:
    """Causes one fault after the other and keeps the proof of each."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = {fault.name: fault for fault in faults}
        self.landed: list[dict[str, Any]] = []
        self._one = threading.Lock()

    def faults_json(self) -> dict[str, Any]:
        """What can be done, and what was."""
        offered = [{"name": one.name, "words": one.words} for one in self.faults.values()]
        return {"faults": offered, "landed": self.landed[-LANDED_KEPT:]}

    def cause(self, name: str, key: str) -> None:
        """Do it, hold it for a while, undo it; the proof is noted under the key."""
        fault = self.faults[name]
        with self._one:
            note: dict[str, Any] = {"key": key, "fault": name}
            try:
                note["seen"] = fault.act().seen
                time.sleep(DOWN_S)
                if fault.undo is not None:
                    fault.undo()
            except HoldfastError as error:
                note["failed"] = str(error)
            self.landed.append(note)


def faults_of(engine: Any, service: Service, *, power: bool) -> list[Fault]:
    """What can be done to these two; an engine that has no such power has no such button."""
    name, start = engine.kind, engine.start
    found = [
        Fault("kill-service", "SIGKILL the service", service.kill, service.start),
        Fault("pause-service", "Pause the service", service.pause, service.resume),
    ]
    if isinstance(engine, Killable):
        found.append(Fault("kill-engine", f"SIGKILL {name}", engine.kill, start))
    if isinstance(engine, Pausable):
        found.append(Fault("pause-engine", f"Pause {name}", engine.pause, engine.resume))
    if power and isinstance(engine, SqliteEngine):  # it lives in the service, and ends with it
        cut = functools.partial(engine.power_cut, service.kill)
        found.append(Fault("power", "Cut the power", cut, service.start))
    elif power:
        found.append(Fault("power", f"Cut the power of {name}", engine.power_cut, start))
    back = functools.partial(engine.move_clock, CLOCK_BACK_S)
    found.append(Fault("clock", "Put the clock back an hour", back))
    return found


@contextmanager
def controlled(supervisor: Supervisor) -> Iterator[dict[str, str]]:
    """The environment that lets a service ask for faults, as long as this lasts."""
    secret = secrets.token_urlsafe(32)

    class Control(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self._may():
                self._say(200, supervisor.faults_json())

        def do_POST(self) -> None:
            if not self._may():
                return
            _, name, key = self.path.rsplit("/", 2)
            if name not in supervisor.faults:
                self._say(404, {"message": "there is no such fault here"})
                return
            # Answered first: the fault may end the process that asked.
            self._say(202, {"key": key})
            threading.Thread(target=supervisor.cause, args=(name, key), daemon=True).start()

        def _may(self) -> bool:
            given = self.headers.get("Authorization", "")
            if hmac.compare_digest(given.encode(), f"Bearer {secret}".encode()):
                return True
            self._say(403, {"message": "not from the service"})
            return False

        def _say(self, status: int, payload: dict[str, Any]) -> None:
            body = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Control)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {CONTROL: f"http://127.0.0.1:{server.server_port}", SECRET: secret}
    finally:
        server.shutdown()
        server.server_close()


def supervise(kind: str, port: int, options: list[str]) -> int:
    """Start engine and service, and hold them until stopped. Their data go with them."""
    supervisor = Supervisor([])
    engine, power = _engine(kind)
    with engine, controlled(supervisor) as environment:
        command = [sys.executable, "-c", "from holdfast.cli import main; main()", "chat"]
        given = ["--store", engine.url, "--port", str(port), *options]
        service = Service(
            [*command, *given], health="/healthz", env=environment, port=port, storage="disk"
        )
        if isinstance(engine, SqliteEngine):
            service.instruments += [*engine.instruments, *([engine.clock] if engine.clock else [])]
        faults = faults_of(engine, service, power=power)
        supervisor.faults = {one.name: one for one in faults}
        with service:
            say(f"open {service.url}/ (Ctrl-C ends it, and the {kind} with all that is in it)")
            with contextlib.suppress(KeyboardInterrupt):
                _until_stopped()
    return 0


def _engine(kind: str) -> tuple[Any, bool]:
    """An engine on a disk whose power can be cut, or where nobody may do that, on one without."""
    if kind not in {"sqlite", "redis", "valkey", "postgres"}:
        raise UsageError(f"no engine {kind!r} for --chaos: sqlite, redis, valkey or postgres")
    wanted: dict[str, Any] = {"config": CONFIGS.get(kind), "clock": True}
    try:
        return start_engine(kind, power="best", **wanted), True
    except (VerifyError, UsageError) as error:
        say(f"no button for the power: {error}")
        return start_engine(kind, storage="disk", **wanted), False


def _until_stopped() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    stopped.wait()
