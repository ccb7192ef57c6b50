"""The services of a compose file as real processes, each in a network namespace; for root only.

Images cannot be had everywhere, their commands can be tried: what a file says is run as it stands, with
the engines of this machine, host names of its own and a network of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import yaml

from holdfast.verify.run_as import run_as_ids
from tests.waiting import wait_until

PASSWORD = "s3cret-of-the-example"
CLIENT = "client"
NET = "172.28.7"
"""That of the file which names its addresses itself."""
WITHIN_S = 60
_VOLUMES = re.compile(r"(?<![\w.])(/var/lib/postgresql/data|/data|/tmp)\b")
_MORTAL = ("setpriv", "--pdeathsig", "KILL")
"""So that a test that is killed leaves no service behind."""
ENTRYPOINT = """#!/bin/sh
# What the image of PostgreSQL does before it starts the server, as far as an example needs it.
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" > "$PGDATA.password"
  initdb -D "$PGDATA" -U postgres --pwfile="$PGDATA.password" --no-sync -A scram-sha-256 > /dev/null
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  printf "listen_addresses = '*'\\nunix_socket_directories = ''\\n" >> "$PGDATA/postgresql.conf"
  printf "dynamic_shared_memory_type = mmap\\n" >> "$PGDATA/postgresql.conf"
fi
exec "$@"
"""


def is_possible() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, ("ip", "nsenter", "setpriv", "unshare")))


def services_of(file: Path) -> dict[str, Any]:
    """The services, with the variables that a user sets."""
    text = file.read_text()
    for name in ("REDIS_PASSWORD", "POSTGRES_PASSWORD"):
        text = text.replace(f"${{{name}:?choose one}}", PASSWORD)
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    return found


class Services:
    """Running services; leaving the block ends them and removes their network."""

    def __init__(
        self, file: Path, home: Path, programs: dict[str, Path], instead: dict[str, str]
    ) -> None:
        self._services = services_of(file)
        self._home, self._instead = home, instead
        self._name = f"hf{secrets.token_hex(3)}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._bin = home / "bin"
        self._bin.mkdir()
        for name, path in programs.items():
            (self._bin / name).symlink_to(path)
        (self._bin / "docker-entrypoint.sh").write_text(ENTRYPOINT)
        (self._bin / "docker-entrypoint.sh").chmod(0o755)
        self.addresses = {
            name: self._address(name, at) for at, name in enumerate((*self._services, CLIENT), 101)
        }
        lines = [f"{place} {name}" for name, place in self.addresses.items()]
        (home / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")

    def _address(self, name: str, at: int) -> str:
        networks = self._services.get(name, {}).get("networks")
        named = networks["memory"].get("ipv4_address") if isinstance(networks, dict) else None
        return str(named or f"{NET}.{at}")

    def __enter__(self) -> Self:
        _ip("netns", "add", self._name)
        _ip("-n", self._name, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._name, "link", "set", "switch", "up")
        for at, (name, place) in enumerate(self.addresses.items()):
            here, port = self._namespace(name), f"port{at}"
            _ip("netns", "add", here)
            _ip("link", "add", "eth0", "netns", here, "type", "veth",
                "peer", "name", port, "netns", self._name)  # fmt: skip
            _ip("-n", self._name, "link", "set", port, "master", "switch", "up")
            _ip("-n", here, "addr", "add", f"{place}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", here, "link", "set", device, "up")
        for name, service in self._services.items():
            self._start(name, service)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._processes:
            self.kill(name)
        for name in self.addresses:
            _ip("netns", "delete", self._namespace(name))
        _ip("netns", "delete", self._name)

    def kill(self, name: str) -> None:
        """SIGKILL a service with all that it started."""
        process = self._processes[name]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WITHIN_S)
        wait_until(lambda: not _ip("netns", "pids", self._namespace(name)), within_s=WITHIN_S)

    def log(self) -> str:
        """The end of what each said."""
        logs = sorted(self._home.glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text()[-800:]}" for log in logs)

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python as a client in the same network."""
        command = [*self._inside(CLIENT), sys.executable, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=3 * WITHIN_S)

    def _start(self, name: str, service: dict[str, Any]) -> None:
        folder = self._home / name
        (folder / "kept").mkdir(parents=True)
        command = service["command"]
        words = [
            self._local(word, folder)
            for word in (command.split() if isinstance(command, str) else command)
        ]
        given = {n: self._local(str(v), folder) for n, v in service.get("environment", {}).items()}
        if service.get("user") == "postgres":
            user, group = run_as_ids()
            for place in (folder, folder / "kept"):
                os.chown(place, user, group)
            ids = (f"--reuid={user}", f"--regid={group}", "--clear-groups")
            words = [*_MORTAL, *ids, *words]
        with (self._home / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*_MORTAL, *self._inside(name), *words],
                cwd=folder / "kept",
                env={"PATH": f"{self._bin}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", **given},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _local(self, text: str, folder: Path) -> str:
        """A word of the file as it is here: Compose's `$$` is `$`, a volume is a directory."""
        for old, new in self._instead.items():
            text = text.replace(old, new)
        return _VOLUMES.sub(str(folder / "kept"), text).replace("$$", "$")

    def _inside(self, name: str) -> list[str]:
        set_up = f'hostname {name} && mount --bind {self._home}/hosts /etc/hosts && exec "$@"'
        return [
            "nsenter", f"--net=/run/netns/{self._namespace(name)}",
            "unshare", "--uts", "--mount", "sh", "-c", set_up, "sh",
        ]  # fmt: skip

    def _namespace(self, name: str) -> str:
        return f"{self._name}-{name}"


def _ip(*words: str) -> bytes:
    return subprocess.check_output(["ip", *words], stderr=subprocess.PIPE, timeout=WITHIN_S)
