"""Redis and Valkey as local processes, and a replica of one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, Self

from holdfast.errors import EngineFailed, FaultNotProven
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.ports import HOST, reserve_port
from holdfast.verify.engines.process import ANSWER_TIMEOUT_S, START_TIMEOUT_S
from holdfast.verify.engines.raw_protocol import ReplyError, redis_call, redis_calls
from holdfast.verify.engines.server import ServerEngine
from holdfast.verify.proof import Evidence, await_true
from holdfast.verify.rundir import write_private

CLUSTER_BUS_OFFSET: Final = 10_000
_PROBE_TIMEOUT_S: Final = 1.0


class RedisEngine(ServerEngine):
    """A redis-server or valkey-server on loopback, on its own data directory."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self.bus_offset = CLUSTER_BUS_OFFSET if "cluster-enabled" in self.settings else 0

    @property
    def url(self) -> str:
        """Where it answers; the same after every restart."""
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    @property
    def password(self) -> str:
        """What it asks for: other users of this machine reach its port as well."""
        return self._options.password

    def call(self, *words: str) -> Any:
        """Send one command and return its reply; for set-up and evidence, not for load."""
        return redis_call(self.port, *words, password=self.password)

    def info(self, section: str = "default") -> dict[str, str]:
        """`INFO`, as a dictionary."""
        return _as_dict(self.call("INFO", section))

    def replica(self) -> RedisReplica:
        """A started replica that has caught up with this engine; closed with it."""
        # By default the primary waits five seconds for more replicas before it sends anything.
        self.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        replica = RedisReplica(self._options.for_another(), self)
        self.replicas.append(replica)
        return replica.start()

    def _command(self) -> list[str]:
        # In a file of ours: all users of this machine can read a command line.
        secret = self._home() / "password.conf"
        write_private(secret, f"requirepass {self.password}\nmasterauth {self.password}\n")
        own = {"port": str(self.port), "bind": HOST, "dir": str(self.data_dir)}
        words = redis_arguments({**own, **self.settings})
        # Last: after an include Redis 7 keeps only one of several `save` points.
        return [str(self.binary.path), *words, "--include", str(secret)]

    def _answers(self) -> bool:
        """PING, which is refused while data are loaded, and the pid: another may hold the port."""
        try:
            _, info = redis_calls(
                self.port,
                ("PING",),
                ("INFO", "server"),
                password=self.password,
                timeout_s=_PROBE_TIMEOUT_S,
            )
        except ReplyError:
            return False
        facts = _as_dict(info)
        self._version = facts.get("valkey_version") or facts["redis_version"]
        return facts["process_id"] == str(self.pid)

    def _ask_to_stop(self) -> None:
        try:
            self.call("SHUTDOWN")
        except ReplyError:  # it refuses when it cannot save: the signal makes it try again
            super()._ask_to_stop()
        except OSError:
            return  # it ended without a reply, as it should

    def _now_s(self) -> float:
        seconds, microseconds = self.call("TIME")
        return int(seconds) + int(microseconds) / 1_000_000

    def _in_force(self) -> Mapping[str, str]:
        asked = (("CONFIG", "GET", name) for name in self.settings)
        replies = redis_calls(self.port, *asked, password=self.password)
        return {name: value for reply in replies for name, value in [reply[:2]]}


class RedisReplica(RedisEngine):
    """A Redis that follows another. It serves what it has, also while it is held."""

    def __init__(self, options: EngineOptions, primary: RedisEngine) -> None:
        super().__init__(options)
        self._primary = primary

    def start(self) -> Self:
        """Run it and return when it has caught up with the primary."""
        super().start()
        if not await_true(self._follows, START_TIMEOUT_S):
            raise EngineFailed(f"the replica did not catch up; its last words:\n{self.log()}")
        return self

    def pause_replay(self) -> Evidence:
        """Hold it at what it has now: it is sent to follow a port where nobody answers."""
        nobody = reserve_port()
        self._send_to(nobody.number)
        nobody.release()
        if not await_true(lambda: self._link() == "down", ANSWER_TIMEOUT_S):
            raise FaultNotProven("the replica's link to its primary is still up")
        offset = self.info("replication")["slave_repl_offset"]
        return Evidence("pause-replay", f"link down at offset {offset}", {"offset": int(offset)})

    def resume_replay(self) -> Evidence:
        """Let it follow again; returns when it has caught up."""
        self._send_to(self._primary.port)
        if not await_true(self._follows, START_TIMEOUT_S):
            raise FaultNotProven("the replica did not catch up with its primary")
        offset = self.info("replication")["slave_repl_offset"]
        return Evidence("resume-replay", f"link up at offset {offset}", {"offset": int(offset)})

    def _command(self) -> list[str]:
        return [*super()._command(), "--replicaof", HOST, str(self._primary.port)]

    def _send_to(self, port: int) -> None:
        self.call("REPLICAOF", HOST, str(port))

    def _link(self) -> str:
        return self.info("replication").get("master_link_status", "none")

    def _follows(self) -> bool:
        wanted = int(self._primary.info("replication")["master_repl_offset"])
        mine = self.info("replication")
        return mine.get("master_link_status") == "up" and int(mine["slave_repl_offset"]) >= wanted


def redis_arguments(settings: Mapping[str, str]) -> list[str]:
    """Settings as arguments; Redis 6 takes one pair of `save` points or of names at a time."""
    arguments: list[str] = []
    for name, value in settings.items():
        words = shlex.split(value) or [""]
        if name in ("save", "rename-command") and words != [""]:
            pairs = [words[at : at + 2] for at in range(0, len(words), 2)]
            arguments += [word for pair in pairs for word in (f"--{name}", *pair)]
        else:
            arguments += [f"--{name}", *words]
    return arguments


def _as_dict(info: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in info.splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}
