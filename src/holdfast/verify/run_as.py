"""The user that PostgreSQL runs as: it refuses to run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import Final

from holdfast.errors import EngineMissing

_BECOME: Final = (
    "import os, sys; user, group = int(sys.argv[1]), int(sys.argv[2]); "
    "os.setgroups([]); os.setresgid(group, group, group); os.setresuid(user, user, user); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def let_pass(folder: Path) -> None:
    """Let that user through a directory of ours, where it is another user; nobody else."""
    if os.geteuid() == 0:
        with contextlib.suppress(EngineMissing):
            os.chown(folder, -1, run_as_ids()[1])
            folder.chmod(0o710)


def run_as_ids() -> tuple[int, int]:
    """User and group that PostgreSQL runs as: ours, or an ordinary one where we are root."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise EngineMissing(
        "PostgreSQL does not run as root and there is neither a user `postgres` nor `nobody`. "
        "To get one: useradd --system postgres",
        backend="postgres",
    )


def run_as_user(command: list[str]) -> list[str]:
    """The command as the user that PostgreSQL runs as; it replaces itself, the pid stays."""
    if os.geteuid() != 0:
        return command
    user, group = run_as_ids()
    setpriv = shutil.which("setpriv")
    if setpriv is None:  # ten milliseconds slower, and always there
        return [sys.executable, "-I", "-S", "-c", _BECOME, str(user), str(group), *command]
    return [setpriv, f"--reuid={user}", f"--regid={group}", "--clear-groups", *command]
