"""One PostgreSQL under Patroni, and the etcd in which its members agree who is primary."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.errors import EngineMissing, FaultNotProven
from holdfast.linux import descendants, working_dir
from holdfast.verify import reaper
from holdfast.verify.engines.binaries import choose_binary
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.ports import HOST, reserve_port
from holdfast.verify.engines.process import ANSWER_TIMEOUT_S, LocalProcess
from holdfast.verify.engines.raw_protocol import postgres_query
from holdfast.verify.proof import Evidence, await_true
from holdfast.verify.run_as import run_as_ids, run_as_user
from holdfast.verify.rundir import RunDir, write_private

SWITCH_TIMEOUT_S: Final = 60.0
TTL_S: Final = 5
"""How long a primary may be silent before another one takes its place."""
USER: Final = "holdfast"
_DCS: Final = {
    "ttl": TTL_S,
    "loop_wait": 1,
    "retry_timeout": 2,
    "maximum_lag_on_failover": 1 << 40,
}
_OWN: Final = {
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",
    "wal_log_hints": "on",
    "wal_retrieve_retry_interval": "50ms",
}


def need_program(name: str) -> str:
    """Where a program of the coordinator is; `EngineMissing` with the command that brings it."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin")
    if found is None:
        raise EngineMissing(
            f"the topology patroni needs the program {name}, and it is not in PATH. To get it: "
            "sudo apt-get install -y --no-install-recommends patroni etcd-server",
            backend="postgres",
        )
    return found


def takes_lead_back() -> bool:
    """Whether a member that slept past its lease may take the lead from who was promoted since.

    Patroni 3.0.2 then writes its name into etcd over any other, by its source, and what the new
    primary had acknowledged is thrown away. 3.0.4 compares first; 3.0.3 was not looked at.
    """
    words = [need_program("patroni"), "--version"]
    said = subprocess.check_output(words, text=True, timeout=ANSWER_TIMEOUT_S)  # noqa: S603 - ours
    return tuple(map(int, re.findall(r"\d+", said)[:3])) < (3, 0, 4)


class Etcd(LocalProcess):
    """One etcd on loopback; it asks for a password as every engine of the kit does."""

    bus_offset = 1

    def __init__(self, options: EngineOptions) -> None:
        super().__init__("etcd", options.storage, None)
        self.password = secrets.token_hex(16)
        self._program = need_program("etcd")

    def protect(self) -> None:
        """Let nobody in without the password."""
        self._call("auth/user/add", {"name": "root", "password": self.password})
        self._call("auth/role/add", {"name": "root"})
        self._call("auth/user/grant", {"user": "root", "role": "root"})
        self._call("auth/enable", {})

    def _command(self) -> list[str]:
        client, peer = (f"http://{HOST}:{self.port + more}" for more in (0, self.bus_offset))
        words = {
            "data-dir": str(self.data_dir),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
            # A random password needs no slow hash: on a busy machine Patroni gave up before it was done.
            "bcrypt-cost": "4",
        }
        return [self._program, *(f"--{name}={value}" for name, value in words.items())]

    def _answers(self) -> bool:
        return '"true"' in _get(f"http://{HOST}:{self.port}/health")

    def _call(self, what: str, body: Mapping[str, str]) -> None:
        _get(f"http://{HOST}:{self.port}/v3/{what}", body)


class PatroniMember(LocalProcess):
    """A PostgreSQL that Patroni starts, promotes and stops; both end together."""

    def __init__(
        self, options: EngineOptions, port: int, etcd: Etcd, *, password: str, synchronous: bool
    ) -> None:
        super().__init__("postgres", options.storage, port)
        self.binary = choose_binary(options.kind, options.version)
        self.version = self.binary.version
        self.password = password
        self.name = f"member_{port}"
        self._rest = reserve_port()
        self._etcd = etcd
        self._synchronous = synchronous
        self._settings = dict(options.settings)
        self._program = need_program("patroni")

    @property
    def url(self) -> str:
        """Where this member answers."""
        return f"postgresql://postgres:{self.password}@{HOST}:{self.port}/postgres"

    def query(self, statement: str, database: str = "postgres") -> list[tuple[str | None, ...]]:
        """Run one statement and return its rows as text; `OSError` where it does not answer."""
        return postgres_query(self.port, statement, password=self.password, database=database)

    def cluster(self) -> list[Mapping[str, Any]]:
        """What Patroni says of each member: `name`, `role`, `state`, `timeline`."""
        reply = json.loads(_get(f"http://{HOST}:{self._rest.number}/cluster"))
        return list(reply["members"])

    def switch(self) -> None:
        """Ask Patroni to make another member primary, until it knows of one that may be."""
        url = f"http://{HOST}:{self._rest.number}/switchover"
        refused = ""

        def is_done() -> bool:
            nonlocal refused
            try:
                _get(url, {"leader": self.name}, self.password, timeout_s=SWITCH_TIMEOUT_S)
            except urllib.error.HTTPError as error:
                refused = error.read().decode("utf-8", "replace")
                return False
            return True

        if not await_true(is_done, SWITCH_TIMEOUT_S, poll_s=0.1):
            raise FaultNotProven(f"Patroni made no other member primary: {refused}\n{self.log()}")

    def pause(self) -> Evidence:
        """SIGSTOP Patroni and its PostgreSQL."""
        self._running()
        pids = self.pids()
        reaper.signal_all(pids, signal.SIGSTOP)
        return Evidence(
            "pause", f"{len(pids)} processes stopped", {"states": dict.fromkeys(pids, "T")}
        )

    def resume(self) -> Evidence:
        """SIGCONT; proven by an answer of Patroni."""
        pids = self.pids()
        reaper.signal_all(pids, signal.SIGCONT)
        if not await_true(self._answers, ANSWER_TIMEOUT_S):
            raise FaultNotProven(f"{self.name} did not answer:\n{self.log()}")
        return Evidence("resume", "Patroni answers", {"pids": pids})

    def end_patroni(self) -> None:
        """SIGKILL Patroni alone; its PostgreSQL goes on, and `start` brings it back."""
        process = self._running()
        process.kill()
        process.wait(ANSWER_TIMEOUT_S)

    def pids(self) -> list[int]:
        """Patroni and the PostgreSQL, which is no child of it."""
        roots = [self._process.pid] if self._process is not None else []
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int((self.data_dir / "postmaster.pid").read_text().split()[0])
            if working_dir(pid) == str(self.data_dir.resolve()):  # else another has its pid by now
                roots.append(pid)
        return descendants(roots)

    def close(self) -> None:
        """End both at once and remove what they left."""
        super().close()
        self._rest.release()

    def _end(self) -> list[int]:
        process = self._process
        pids = self.pids()
        reaper.signal_all(pids, signal.SIGSTOP)
        pids = self.pids()  # what they started meanwhile
        reaper.signal_all(pids, signal.SIGKILL)
        if process is not None:
            process.wait(ANSWER_TIMEOUT_S)
        left = reaper.await_gone(pids)
        self._process = None
        if left:
            raise FaultNotProven(f"processes {left} of {self.name} outlived SIGKILL")
        reaper.free_shared_memory(self.data_dir / "postmaster.pid")
        return pids

    def _take_run_dir(self) -> RunDir:
        run_dir = self._fresh_run_dir()
        agent = run_dir.path / "agent"
        agent.mkdir(mode=0o700)
        write_private(agent / "patroni.json", json.dumps(self._configuration(run_dir.path)))
        # The file first: who owns its directory may put a link in its place.
        for path in (agent / "patroni.json", agent, run_dir.path / "data"):
            os.chown(path, *run_as_ids())
        return run_dir

    def _working_dir(self) -> Path:
        return self._home() / "agent"

    def _command(self) -> list[str]:
        return run_as_user([self._program, str(self._working_dir() / "patroni.json")])

    def _answers(self) -> bool:
        return bool(_get(f"http://{HOST}:{self._rest.number}/patroni"))

    def _configuration(self, home: Path) -> dict[str, Any]:
        mine, rest = f"{HOST}:{self.port}", f"{HOST}:{self._rest.number}"
        return {
            "scope": "holdfast",
            "name": self.name,
            "restapi": {
                "listen": rest,
                "connect_address": rest,
                "authentication": {"username": USER, "password": self.password},
            },
            "etcd3": {
                "host": f"{HOST}:{self._etcd.port}",
                "username": "root",
                "password": self._etcd.password,
            },
            "bootstrap": {
                "dcs": {
                    **_DCS,
                    "synchronous_mode": self._synchronous,
                    "postgresql": {"use_pg_rewind": True, "parameters": {**_OWN, **self._settings}},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "no-sync"],
            },
            "postgresql": {
                "listen": mine,
                "connect_address": mine,
                "data_dir": str(home / "data"),
                "bin_dir": str(self.binary.path.resolve().parent),
                "pgpass": str(home / "agent" / "pgpass"),
                # Otherwise a copy waits for a checkpoint that takes its time.
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
                "remove_data_directory_on_diverged_timelines": True,
                "remove_data_directory_on_rewind_failure": True,
                "authentication": {
                    "superuser": {"username": "postgres", "password": self.password},
                    "replication": {"username": "replicator", "password": self.password},
                },
                "pg_hba": [
                    f"host {database} all {HOST}/32 scram-sha-256"
                    for database in ("all", "replication")
                ],
            },
        }


def _get(
    url: str,
    body: Mapping[str, str] | None = None,
    password: str = "",
    *,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> str:
    """What a server of ours on loopback answers."""
    word = base64.b64encode(f"{USER}:{password}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310 - a URL of ours
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Basic {word}"} if password else {},
    )
    with _direct().open(request, timeout=timeout_s) as reply:
        return str(reply.read().decode())


@functools.cache
def _direct() -> urllib.request.OpenerDirector:
    """Past any proxy that the environment names."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
