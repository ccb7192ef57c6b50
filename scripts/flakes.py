"""Runs the tests N times, in another order each time, beside busy loops and a busy disk.

    make flakes N=6 ARGS="tests/redis"

Every other run has the machine to itself. Lists each test that was not the same every time, with
the order in which it was not (`HOLDFAST_TEST_ORDER` repeats it), and exits 1 if there is one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET  # of our own runs
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOOP = "while True: pass"
DISK = """
import os, sys
block = os.urandom(1 << 20)
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(64):
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
"""


@contextlib.contextmanager
def busy(folder: Path) -> Iterator[None]:
    """Two loops that never rest, and a writer that syncs every megabyte."""
    commands = [["-c", LOOP], ["-c", LOOP], ["-c", DISK, str(folder / "busy")]]
    started = [subprocess.Popen([sys.executable, *command]) for command in commands]  # noqa: S603 - fixed
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def run(order: str, report: Path, arguments: list[str]) -> dict[str, str]:
    """How every test ended, by its name."""
    workers = (os.cpu_count() or 1) + 1
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--dist", "worksteal"]
    log = report.with_suffix(".log")
    with log.open("wb") as out:
        environment = os.environ | {"HOLDFAST_TEST_ORDER": order}
        subprocess.run(  # noqa: S603 - the caller's own arguments to pytest
            [*command, f"--junitxml={report}", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=out,
            check=False,
        )
    if not report.exists():
        sys.exit(f"no test ran: {log.read_text('utf-8')[-2000:]}")
    ended: dict[str, str] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        name = f"{case.get('classname')}::{case.get('name')}"
        found = {child.tag for child in case} & {"failure", "error", "skipped"}
        ended[name] = " and ".join(sorted(found)) or ended.get(name, "passed")
    return ended


def main(times: int, arguments: list[str]) -> int:
    """Run, compare, tell."""
    endings: dict[str, dict[str, str]] = defaultdict(dict)
    folder = Path(tempfile.mkdtemp(prefix="flakes-", dir=ROOT / ".cache"))
    print(f"reports and logs: {folder}")
    for number in range(times):
        order = str(number + 1)
        begin = time.monotonic()
        with busy(folder) if number % 2 else contextlib.nullcontext():
            ended = run(order, folder / f"{order}.xml", arguments)
        for name, how in ended.items():
            endings[name][order] = how
        bad = sum("failure" in how or "error" in how for how in ended.values())
        beside = "busy" if number % 2 else "idle"
        took_s = time.monotonic() - begin
        print(
            f"order {order:>3} {beside} {took_s:6.0f} s {len(ended):6} tests {bad:4} red",
            flush=True,
        )
    unlike = {
        name: how for name, how in endings.items() if len(how) < times or len(set(how.values())) > 1
    }
    for name, how in sorted(unlike.items()):
        told = [
            f"{order}: {how.get(order, 'not there')}" for order in map(str, range(1, times + 1))
        ]
        print(f"NOT THE SAME {name}: {', '.join(told)}")
    always = sorted(
        name for name, how in endings.items() if set(how.values()) - {"passed", "skipped"}
    )
    for name in always:
        if name not in unlike:
            print(f"ALWAYS RED {name}")
    print(f"{len(endings)} tests, {times} runs: {len(unlike)} not the same each time")
    return 1 if unlike or always else 0


if __name__ == "__main__":
    (ROOT / ".cache").mkdir(exist_ok=True)
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
