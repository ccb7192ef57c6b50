"""A fresh PostgreSQL data directory in milliseconds: `initdb` runs once, then it is copied.

A directory that was used is made new again by writing only what changed in it.

The template is one file in the user's cache directory, named by a hash of the binary and of
the options: first a JSON index, then the bytes of every file. One file is written, synced
and renamed in a single step, so that two runs that make it at once both end with a whole
one; and unpacking it costs a few system calls a file. Files are never hard-linked, since
PostgreSQL writes in place.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import mmap
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.errors import EngineFailed
from holdfast.verify.engines.raw_protocol import scram_verifier
from holdfast.verify.rundir import RunDir, cache_dir, write_private

INITDB_OPTIONS: Final = (
    "--username=postgres",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--wal-segsize=1",
    "--no-sync",
)
_FORMAT: Final = "3"
_INITDB_TIMEOUT_S: Final = 120.0
_LENGTH_BYTES: Final = 8
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""Where root runs the kit, PostgreSQL's user may put a link in the way at any time: each step goes from
one open directory to the next."""
_ALWAYS_NEW: Final = ("pg_wal/", "global/pg_control")
"""Segments of the log are renamed into one another, so no sign on them proves anything."""

AsUser = Callable[[list[str]], list[str]]
"""Turns a command into the same one run by the user that PostgreSQL runs as."""


class ClusterFiles:
    """The files of a database cluster that came from a template, and can be made new again."""

    def __init__(self, postgres: Path, as_user: AsUser, owner: tuple[int, int]) -> None:
        self.template = _template_path(postgres)
        if not self.template.exists():
            _make_template(postgres, self.template, as_user, owner)
        self._chown = owner if owner != (os.geteuid(), os.getegid()) else None
        self._written: dict[str, tuple[int, int]] = {}

    def make_new(self, data_dir: Path) -> None:
        """Whatever is in the directory, afterwards it is exactly the template.

        Only what changed is written: a file is kept when it is the one that we wrote (same
        inode, and no change of any sort since, by its ctime), and its mtime is still the one
        that we set. Every write of PostgreSQL moves that, however soon it came.
        """
        directories, files, data = self._open()
        folders = {"": os.open(data_dir, _FOLDER)}
        try:
            _remove_others(folders[""], "", set(directories), {name for name, _, _ in files})
            self._own(folders[""])
            for name in directories:
                inside, _, last = name.rpartition("/")
                folders[name] = self._make_directory(folders[inside], last)
            for name, offset, size in files:
                folder, last = folders[name.rpartition("/")[0]], name.rpartition("/")[2]
                if not self._is_untouched(folder, last, name):
                    self._write(folder, last, name, data[offset : offset + size])
        finally:
            for folder in folders.values():
                os.close(folder)

    def _open(self) -> tuple[list[str], list[tuple[str, int, int]], memoryview]:
        """Directories, files with their places, and the content: mapped, gone when let go of."""
        with self.template.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
        directories, files = json.loads(data[_LENGTH_BYTES:start])
        return directories, files, memoryview(data)[start:]

    def _make_directory(self, folder: int, name: str) -> int:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
        made = os.open(name, _FOLDER, dir_fd=folder)
        self._own(made)
        return made

    def _own(self, folder: int) -> None:
        os.fchmod(folder, 0o700)
        if self._chown:
            os.fchown(folder, *self._chown)

    def _is_untouched(self, folder: int, last: str, name: str) -> bool:
        if name.startswith(_ALWAYS_NEW) or name not in self._written:
            return False
        try:
            seen = os.lstat(last, dir_fd=folder)
        except FileNotFoundError:
            return False
        return seen.st_mtime_ns == 0 and (seen.st_ino, seen.st_ctime_ns) == self._written[name]

    def _write(self, folder: int, last: str, name: str, content: memoryview) -> None:
        with suppress(FileNotFoundError):
            os.unlink(last, dir_fd=folder)
        target = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        try:
            if self._chown:
                os.fchown(target, *self._chown)
            _write_all(target, content)
            os.utime(target, ns=(0, 0))
            seen = os.fstat(target)
        finally:
            os.close(target)
        self._written[name] = (seen.st_ino, seen.st_ctime_ns)


def _remove_others(folder: int, inside: str, directories: set[str], files: set[str]) -> None:
    """Remove what the template does not have, links and wrong types too; follow no link."""
    with os.scandir(folder) as entries:
        for entry in list(entries):
            name = f"{inside}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if name not in directories:
                    shutil.rmtree(entry.name, dir_fd=folder)
                    continue
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                try:
                    _remove_others(inner, f"{name}/", directories, files)
                finally:
                    os.close(inner)
            elif name not in files or entry.is_symlink():
                os.unlink(entry.name, dir_fd=folder)


def _write_all(target: int, data: memoryview) -> None:
    while data:
        data = data[os.write(target, data) :]


def superuser_password() -> str:
    """Of every PostgreSQL that this user starts: one may come up on the files of another.

    It is random, and in a file of the user's own.
    """
    file = cache_dir() / "postgres.password"
    if not file.exists():
        with _lock(file.with_suffix(".lock")):
            if not file.exists():
                write_private(file, secrets.token_hex(16))
    return file.read_text()


def _template_path(postgres: Path) -> Path:
    binary = _digest(postgres, postgres.stat().st_mtime_ns)
    options = "\0".join([_FORMAT, binary, superuser_password(), *INITDB_OPTIONS])
    key = hashlib.blake2b(options.encode(), digest_size=16).hexdigest()
    return cache_dir() / f"postgres-{key}.template"


@functools.cache
def _digest(binary: Path, _changed_ns: int) -> str:
    with binary.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _make_template(postgres: Path, template: Path, as_user: AsUser, owner: tuple[int, int]) -> None:
    """Run `initdb`; of several processes that want the same template, one does it."""
    with _lock(template.with_suffix(".lock")):
        if template.exists():
            return
        work = RunDir("memory")
        try:
            cluster = work.path / "data"
            cluster.mkdir(mode=0o700)
            secret = work.path / "password"
            write_private(secret, scram_verifier(superuser_password()))
            os.chown(cluster, *owner)
            os.chown(secret, *owner)
            _initdb(postgres.with_name("initdb"), cluster, secret, as_user)
            _pack(cluster, template)
        finally:
            work.clear()


def _initdb(initdb: Path, cluster: Path, secret: Path, as_user: AsUser) -> None:
    words = [*INITDB_OPTIONS, f"--pwfile={secret}", f"--pgdata={cluster}"]
    command = as_user([str(initdb), *words])
    done = subprocess.run(  # noqa: S603 - beside the binary that was chosen
        command, capture_output=True, text=True, timeout=_INITDB_TIMEOUT_S, check=False, cwd="/"
    )
    if done.returncode:
        raise EngineFailed(
            f"initdb ended with exit code {done.returncode}. Its last words:\n"
            f"{done.stdout[-2000:]}{done.stderr[-2000:]}",
            operation="start",
            backend="postgres",
        )


def _pack(cluster: Path, template: Path) -> None:
    """Write the cluster into one file: synced, then renamed, so that it is whole or absent."""
    directories, contents = _read_all(cluster)
    files, offset = [], 0
    for name, content in contents:
        files.append((name, offset, len(content)))
        offset += len(content)
    index = json.dumps([directories, files]).encode()
    part = template.with_suffix(f".{os.getpid()}.part")
    try:
        with part.open("wb") as out:
            out.write(len(index).to_bytes(_LENGTH_BYTES) + index)
            for _, content in contents:
                out.write(content)
            out.flush()
            os.fsync(out.fileno())
        part.rename(template)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _read_all(cluster: Path) -> tuple[list[str], list[tuple[str, bytes]]]:
    """Every directory in it, and every file with its content; `OSError` for a link."""
    directories, files = [], []
    for path, _, names, folder in os.fwalk(cluster):
        inside = os.path.relpath(path, cluster)
        directories.append(inside)
        for name in names:
            found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with open(found, "rb") as file:  # noqa: PTH123
                files.append((os.path.normpath(f"{inside}/{name}"), file.read()))
    return sorted(set(directories) - {"."}), sorted(files)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; the kernel frees it when that process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
