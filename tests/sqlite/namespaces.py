"""Run Python in a mount namespace of its own, where it may mount without anybody noticing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run_in_namespace(code: str, *arguments: str) -> str:
    """What the code printed. Where the machine forbids mounting, the test says so aloud."""
    unshare = ["unshare", "--mount"] + ([] if os.getuid() == 0 else ["--map-root-user"])
    allowed = subprocess.run(
        [*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
    )
    if allowed.returncode:
        pytest.skip(f"this machine forbids mounting: {allowed.stderr.decode().strip()}")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", code, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
