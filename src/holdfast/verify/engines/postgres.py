"""PostgreSQL as a local process, and its streaming replica."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from holdfast.errors import EngineFailed, FaultNotProven
from holdfast.verify import reaper
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.ports import HOST
from holdfast.verify.engines.process import ANSWER_TIMEOUT_S, START_TIMEOUT_S
from holdfast.verify.engines.raw_protocol import ReplyError, postgres_query, scram_verifier
from holdfast.verify.engines.server import ServerEngine
from holdfast.verify.engines.template import ClusterFiles, superuser_password
from holdfast.verify.proof import Evidence, await_true
from holdfast.verify.run_as import run_as_ids, run_as_user
from holdfast.verify.rundir import RunDir, root_of

_BACKUP_TIMEOUT_S: Final = 300.0
_PROBE_TIMEOUT_S: Final = 5.0
SPARES_MAX: Final = 2
"""Used directories that a process keeps, of about 30 MB each."""
_READY_LINE: Final = 7
"""Index of the line of postmaster.pid that says `ready`; an open port is not enough."""

_OWN: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    # Dynamic shared memory in the data directory instead of /dev/shm: after SIGKILL it goes
    # with the directory. It has no part in what a commit survives.
    "dynamic_shared_memory_type": "mmap",
}
_SYNCS_AT_ONCE: Final = {"recovery_init_sync_method": "syncfs"}
"""After a crash it syncs its whole directory first; file by file that takes seconds on a disk."""
_SYNCS_AT_ONCE_SINCE: Final = 14


class PostgresEngine(ServerEngine):
    """A PostgreSQL on loopback, on its own data directory, with fsync as PostgreSQL has it."""

    @property
    def _programs(self) -> Path:
        """Where initdb and pg_basebackup are; Debian links only some of them into PATH."""
        return self.binary.path.resolve().parent

    @property
    def url(self) -> str:
        """Where it answers; the same after every restart."""
        return f"postgresql://postgres:{self.password}@{HOST}:{self.port}/postgres"

    @functools.cached_property
    def password(self) -> str:
        """What it asks for: other users of this machine reach its port as well."""
        return superuser_password()

    def query(self, statement: str, database: str = "postgres") -> list[tuple[str | None, ...]]:
        """Run one statement and return its rows as text; for set-up and evidence, not for load."""
        return postgres_query(self.port, statement, password=self.password, database=database)

    def role_url(self, role: str, database: str = "postgres") -> str:
        """Where a role that is there already logs in; it gets the password of this engine."""
        self.query(f"ALTER ROLE \"{role}\" PASSWORD '{scram_verifier(self.password)}'")
        return f"postgresql://{role}:{self.password}@{HOST}:{self.port}/{database}"

    def start(self) -> Self:
        """Run it and return when it answers; with configuration `replica`, the replica too."""
        super().start()
        if self.config == "replica" and not self.replicas:
            self.replica()
        return self

    def replica(self, *, apply_delay_s: float = 0) -> PostgresReplica:
        """A started streaming replica that has caught up with this engine; closed with it."""
        options = replace(self._options.for_another(), config="default")
        replica = PostgresReplica(options, self, apply_delay_s=apply_delay_s)
        self.replicas.append(replica)
        return replica.start()

    def kill(self) -> Evidence:
        """SIGKILL the postmaster and all its children and wait until each is gone.

        A child that lives on would hold the shared memory, and the next start would fail.
        """
        return super().kill()

    def power_cut(self) -> Evidence:
        """End it at once and drop what it had not synced; its shared memory goes too."""
        pid_file = self.data_dir / "postmaster.pid"
        segment = reaper.segment_of(pid_file)  # not to be read any more when the power is gone
        try:
            return super().power_cut()
        finally:
            reaper.remove_segment(segment)

    def _take_run_dir(self) -> RunDir:
        """A directory that an engine of this process gave back, where there is one."""
        self._files = ClusterFiles(self.binary.path.resolve(), run_as_user, run_as_ids())
        spare = _spares.take(self._files.template, root_of(self._storage))
        if spare is None:
            return self._fresh_run_dir()
        run_dir, self._files = spare
        return run_dir

    def _prepare(self, data_dir: Path) -> None:
        self._log_path().unlink(missing_ok=True)
        self._files.make_new(data_dir)

    def _give_back(self, run_dir: RunDir) -> None:
        """Keep the directory for the next engine: making it new is faster than making one.

        In a directory of the caller's nothing may stay.
        """
        run_dir.end_processes()
        is_temporary = not isinstance(self._storage, Path)
        is_whole = (run_dir.path / "data" / "PG_VERSION").exists()
        if not (is_temporary and is_whole and _spares.give(run_dir, self._files)):
            run_dir.clear()

    def _failure(self, what: str) -> EngineFailed:
        if "Permission denied" in self._log_since_start():
            what += f"; it runs as user {run_as_ids()[0]} here, who must be able to reach its files"
        return super()._failure(what)

    def _command(self) -> list[str]:
        own = _OWN | (_SYNCS_AT_ONCE if self.binary.major >= _SYNCS_AT_ONCE_SINCE else {})
        settings = {**own, "port": str(self.port), **self.settings}
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        postgres = self._programs / "postgres"
        return run_as_user([str(postgres), "-D", str(self.data_dir), *words])

    def _answers(self) -> bool:
        lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        if lines[:1] != [str(self.pid)] or lines[_READY_LINE : _READY_LINE + 1] != ["ready   "]:
            return False
        with contextlib.suppress(ReplyError):
            rows = postgres_query(
                self.port, "SELECT 1", password=self.password, timeout_s=_PROBE_TIMEOUT_S
            )
            return rows == [("1",)]
        return False

    def _ask_to_stop(self) -> None:
        """The fast shutdown: sessions are ended, data are written, nothing is waited for."""
        self._running().send_signal(signal.SIGINT)

    def _now_s(self) -> float:
        return float(self.query("SELECT extract(epoch FROM clock_timestamp())")[0][0] or 0)

    def _in_force(self) -> Mapping[str, str]:
        return {name: self.query(f"SHOW {name}")[0][0] or "" for name in self.settings}

    def _end(self) -> list[int]:
        pids = super()._end()
        reaper.free_shared_memory(self.data_dir / "postmaster.pid")
        return pids


class PostgresReplica(PostgresEngine):
    """A PostgreSQL that follows another; it answers reads, also while it is held."""

    def __init__(
        self, options: EngineOptions, primary: PostgresEngine, *, apply_delay_s: float
    ) -> None:
        super().__init__(options)
        # By default it would look for a primary that came back only every five seconds.
        self.settings.setdefault("wal_retrieve_retry_interval", "50ms")
        self._primary = primary
        self._apply_delay_s = apply_delay_s
        self._slot = f"holdfast_{os.urandom(6).hex()}"

    def start(self) -> Self:
        """Run it and return when it has received what the primary has."""
        super().start()
        sent = self._primary.query("SELECT pg_current_wal_lsn()")[0][0]
        # Of what it had before it began to stream, PostgreSQL does not say that it was received.
        has = "greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"
        received = f"SELECT pg_last_wal_receive_lsn() IS NOT NULL AND {has} >= '{sent}'"
        if not await_true(lambda: self.query(received) == [("t",)], START_TIMEOUT_S):
            raise EngineFailed(f"the replica did not catch up; its last words:\n{self.log()}")
        return self

    def pause_replay(self) -> Evidence:
        """Hold it at what it has now; what it received meanwhile waits."""
        self.query("SELECT pg_wal_replay_pause()")
        state = "SELECT pg_get_wal_replay_pause_state()"
        if not await_true(lambda: self.query(state) == [("paused",)], ANSWER_TIMEOUT_S):
            raise FaultNotProven(f"replay was to pause; its state is {self.query(state)}")
        at = self.query("SELECT pg_last_wal_replay_lsn()")[0][0]
        return Evidence("pause-replay", f"replay paused at {at}", {"lsn": at})

    def resume_replay(self) -> Evidence:
        """Let it follow again; returns when it has applied what the primary has now."""
        self.query("SELECT pg_wal_replay_resume()")
        wanted = self._primary.query("SELECT pg_current_wal_lsn()")[0][0]
        applied = f"SELECT pg_last_wal_replay_lsn() >= '{wanted}'"
        if not await_true(lambda: self.query(applied) == [("t",)], START_TIMEOUT_S):
            raise FaultNotProven(f"the replica did not reach {wanted}")
        return Evidence("resume-replay", f"applied up to {wanted}", {"lsn": wanted})

    def follow(self, primary: PostgresEngine) -> None:
        """Follow another primary from now on, from where it is."""
        self._primary = primary
        primary.query(f"SELECT pg_create_physical_replication_slot('{self._slot}')")
        source = f"host={HOST} port={primary.port} user=postgres password={self.password}"
        self.query(f"ALTER SYSTEM SET primary_conninfo = '{source}'")
        self.query("SELECT pg_reload_conf()")

    def delay(self, apply_delay_s: float) -> Evidence:
        """Apply every commit that much later than it happened; 0 follows at once."""
        self._apply_delay_s = apply_delay_s
        wanted = f"{round(apply_delay_s * 1000)}"
        self.query(f"ALTER SYSTEM SET recovery_min_apply_delay = '{wanted}ms'")
        self.query("SELECT pg_reload_conf()")
        read = "SELECT setting FROM pg_settings WHERE name = 'recovery_min_apply_delay'"
        if not await_true(lambda: self.query(read) == [(wanted,)], ANSWER_TIMEOUT_S):
            raise FaultNotProven(f"a delay of {wanted} ms was set; it reads {self.query(read)}")
        return Evidence("delay", f"replay is {wanted} ms late", {"apply_delay_s": apply_delay_s})

    def close(self) -> None:
        """End it and remove what it left, also its slot on the primary."""
        was_started = self._run_dir is not None
        super().close()
        if was_started and self._primary.pid is not None:
            with contextlib.suppress(OSError):
                self._primary.query(f"SELECT pg_drop_replication_slot('{self._slot}')")

    def _take_run_dir(self) -> RunDir:
        return self._fresh_run_dir()

    def _give_back(self, run_dir: RunDir) -> None:
        run_dir.clear()

    def _prepare(self, data_dir: Path) -> None:
        """A base backup of the primary, with a slot so that no log is thrown away too early."""
        user, group = run_as_ids()
        os.chown(data_dir, user, group)
        source = f"host={HOST} port={self._primary.port} user=postgres"
        backup = str(self._programs / "pg_basebackup")
        options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "--create-slot"]
        target = [f"--slot={self._slot}", f"--pgdata={data_dir}", f"--dbname={source}"]
        done = subprocess.run(  # noqa: S603 - beside the binary that was chosen
            run_as_user([backup, *options, *target]),
            capture_output=True,
            text=True,
            timeout=_BACKUP_TIMEOUT_S,
            check=False,
            cwd="/",
            env={**os.environ, "PGPASSWORD": self.password},
        )
        if done.returncode:
            raise EngineFailed(f"pg_basebackup failed. Its last words:\n{done.stderr[-2000:]}")
        if self._apply_delay_s:
            setting = f"recovery_min_apply_delay = '{round(self._apply_delay_s * 1000)}ms'\n"
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW  # its user may have put a link there
            with open(os.open(data_dir / "postgresql.auto.conf", flags), "a") as conf:  # noqa: PTH123
                conf.write(setting)


class _Spares:
    """Directories that closed engines of this process left, to be made new for the next.

    The reaper holds them, so they go when the process does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._kept: list[tuple[RunDir, ClusterFiles]] = []

    def give(self, run_dir: RunDir, files: ClusterFiles) -> bool:
        """Take it in under a new name; False where there are enough."""
        with self._lock:
            if len(self._own()) >= SPARES_MAX:
                return False
            run_dir.rename()
            self._kept.append((run_dir, files))
            return True

    def take(self, template: Path, root: Path) -> tuple[RunDir, ClusterFiles] | None:
        """One from this template on this storage, under a new name; None where there is none."""
        with self._lock:
            for spare in self._own():
                run_dir, files = spare
                if files.template == template and run_dir.path.parent == root:
                    self._kept.remove(spare)
                    run_dir.rename()
                    return spare
            return None

    def _own(self) -> list[tuple[RunDir, ClusterFiles]]:
        """After a fork the list is the parent's: its directories are not ours."""
        if self._owner != os.getpid():
            self._owner, self._kept = os.getpid(), []
        return list(self._kept)


_spares = _Spares()
