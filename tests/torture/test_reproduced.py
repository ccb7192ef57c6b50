"""A finding becomes a test that fails on the broken store each time, and passes on the sound one.

Goes on where the last run stopped (`counts`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.plugins import WITHOUT_OTHERS
from tests.torture.counts import Counts

ROOT = Path(__file__).parents[2]
MENDED = {"files:unsynced_names": "files:json_file"}
SOUND = {"sqlite": "stores:sound", "redis": "redis_stores:sound_redis"}
TWINS = {
    "stores:lost_update": ("sqlite", "none"),
    "stores:torn_batch": ("sqlite", "none"),
    "stores:ack_before_write": ("sqlite", "kill"),
    "stores:never_syncs": ("sqlite", "power"),
    "files:sync_off": ("sqlite", "power-explore"),
    "files:unsynced_names": ("sqlite", "power-explore"),
    "stores:lossy": ("sqlite", "none"),
    "stores:resurrects": ("sqlite", "none"),
    "stores:forgets_by_prefix": ("sqlite", "none"),
    "stores:oldest_first": ("sqlite", "none"),
    "content_stores:truncates": ("sqlite", "none"),
    "redis_stores:swallows": ("redis", "kill,network"),
    "redis_stores:never_reconnects": ("redis", "kill"),
    "redis_stores:hides_all": ("redis", "none"),
}
"""Each with its engine, and the faults that a check of it needs: how it is caught is tested elsewhere."""
TIMES = 5
COMMAND_S = 600


def _run(command: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name(command)), *map(str, words)],
        cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_S,
    )  # fmt: skip


def _ends(file: Path) -> dict[str, int]:
    """How so many runs of this test ended; in one process, since to start one takes longer than the test."""
    text = file.read_text("utf-8")
    copies = [file.with_name(f"test_{number}.py") for number in range(TIMES)]
    for copy in copies:
        copy.write_text(text, "utf-8")
    done = _run("pytest", "-q", *WITHOUT_OTHERS, "-p", "no:cacheprovider", *copies)
    return {how: int(many) for many, how in re.findall(r"(\d+) (failed|passed|error)", done.stdout)}


def _reproduced(name: str, folder: Path) -> str:
    """What is wrong with the test that this twin is made into; nothing, if it does what it is for."""
    (engine, faults), target = TWINS[name], f"tests.verify.check.{name}"
    result, test = folder / "result.json", folder / "test_it.py"
    words = ("--engine", engine, "--faults", faults, "--json", result, "--shrink", "0")
    checked = _run("holdfast", "check", target, *words)
    made = _run("holdfast", "reproduce", result, "--out", test, "--shrink", "300")
    if made.returncode != 0:
        return f"{name}: {made.stderr[-500:]}{checked.stderr[-500:]}"
    broken = _ends(test)
    text = test.read_text("utf-8")
    mended = MENDED.get(name, SOUND[engine])
    test.write_text(text.replace(target, f"tests.verify.check.{mended}"), "utf-8")
    sound = _ends(test)
    print(name, broken, sound, flush=True)
    as_meant = (broken, sound) == ({"failed": TIMES}, {"passed": TIMES})
    return "" if as_meant else f"{name}: {broken}, {sound}\n{text}"


@pytest.mark.timeout(0)
def test_fourteen_findings_become_tests_that_never_fail_by_luck(time_s: float, tmp_path: Path):
    deadline = time.monotonic() + time_s
    wrong = []
    for name in TWINS:
        counts = Counts(f"reproduced-{name.replace(':', '.')}", 1)
        if time.monotonic() > deadline or not counts.left:
            continue
        folder = tmp_path / name
        folder.mkdir()
        words = _reproduced(name, folder)
        counts.add(int(not words), failures=int(bool(words)))
        if words:
            wrong.append(words)
    assert not wrong, "\n".join(wrong)
