"""Breaks the code in one small way after another, and shows that a test notices each.

    make mutants                    all of them
    make mutants ARGS="judge pg"    those whose name contains one of these words
    make mutants ARGS=--dry         only whether each still fits the sources
    make mutants ARGS=--again       those too that were killed before

`mutants.toml` has them: a name, a file, what stands there, what is put in its place, and the
tests that must fail. Each is tried in a copy of the sources, where they have passed before.
One that was killed is not tried again until its lines in the table, the file that it changes or a
file of its tests change, so an interrupted run goes on where it stopped.
Exits 1 where a mutant lives on or its tests fail without it, 2 where one no longer fits.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
KILLED = ROOT / ".cache" / "mutants-killed"
"""A line for each that was killed: its digest and its name."""
COPIED = ("src", "tests", "scripts", "bench", "examples", "docs")
TESTS_S = 600.0
"""No run of one mutant's tests takes longer; each test has a bound of its own besides."""
PASSED, FAILED = 0, 1


class DoesNotFit(Exception):
    """The sources have changed: the table has to be brought up to date."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small change, and the tests of which at least one must fail because of it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """The changed text; what is replaced must stand there exactly once."""
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise DoesNotFit(f"{self.name}: {self.file} has {found} places for it, and needs one")
        return text.replace(self.old, self.new)

    def digest(self) -> str:
        """Another one as soon as it, the file that it changes or a file of its tests is another."""
        found = hashlib.sha256(repr(self).encode())
        for name in (self.file, *(test.partition("::")[0] for test in self.tests)):
            path = ROOT / name
            for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
                found.update(file.read_bytes())
        return found.hexdigest()


def read_table(path: Path) -> list[Mutant]:
    """All of them; no two have the same name."""
    table = tomllib.loads(path.read_text("utf-8"))
    mutants = [
        Mutant(name, **{**each, "tests": tuple(each["tests"])}) for name, each in table.items()
    ]
    if unlike := [m.name for m in mutants if not m.tests]:
        raise DoesNotFit(f"{unlike[0]}: no test is named that must fail")
    return mutants


def misfits(mutants: Iterable[Mutant]) -> list[str]:
    """Why some cannot be tried any more: the source or a test has changed or gone."""
    found = []
    for mutant in mutants:
        try:
            mutant.applied_to((ROOT / mutant.file).read_text("utf-8"))
        except (OSError, DoesNotFit) as error:
            found.append(str(error))
        for test in mutant.tests:
            path, _, name = test.partition("::")
            there = (ROOT / path).exists() and (
                not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text("utf-8")
            )
            found += [] if there else [f"{mutant.name}: there is no test {test}"]
    return found


def killed_before() -> set[str]:
    """The digests of those that earlier runs killed."""
    if not KILLED.exists():
        return set()
    return {line.split()[0] for line in KILLED.read_text("utf-8").splitlines() if line}


def note_killed(mutant: Mutant) -> None:
    """It need not be tried again as long as nothing about it changes."""
    KILLED.parent.mkdir(exist_ok=True)
    with KILLED.open("a", encoding="utf-8") as file:
        file.write(f"{mutant.digest()} {mutant.name}\n")


def copied(folder: Path) -> Path:
    """The sources and tests, in a directory that nobody else uses."""
    left_out = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile"):
        shutil.copy2(ROOT / name, folder / name)
    return folder


def run(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    """How pytest ended in that copy, and what it said."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    # Otherwise every library is compiled every time; where a caller keeps that, it is used.
    environment.setdefault("PYTHONPYCACHEPREFIX", str(folder.parent / "bytecode"))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    options = ["-q", "-x", "--tb=line", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(  # noqa: S603 - the tests of the table
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TESTS_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"its tests did not end within {TESTS_S:g} s"
    return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


def judged(mutant: Mutant, folder: Path, passed: set[tuple[str, ...]]) -> str:
    """Why it counts as alive; nothing where a test failed because of it.

    `passed` are tests that are known to pass without it.
    """
    if mutant.tests not in passed:
        code, said = run(folder, mutant.tests)
        if code != PASSED:
            return f"its tests fail, or are not run, without it (exit {code}): {said}"
        passed.add(mutant.tests)
    file = folder / mutant.file
    sound, times = file.read_text("utf-8"), file.stat()
    file.write_text(mutant.applied_to(sound), "utf-8")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 10**9))  # compiled again for certain
    try:
        code, said = run(folder, mutant.tests)
    finally:
        file.write_text(sound, "utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    if code == FAILED:
        return ""
    return "its tests pass" if code == PASSED else f"its tests did not run (exit {code}): {said}"


def alive(mutants: Sequence[Mutant], at_once: int) -> list[str]:
    """The names of those that no test noticed, with the reason."""
    free: queue.Queue[Path] = queue.Queue()
    passed: set[tuple[str, ...]] = set()

    def one(mutant: Mutant) -> str:
        folder, began = free.get(), time.monotonic()
        try:
            why = judged(mutant, folder, passed)
        finally:
            free.put(folder)
        if not why:
            note_killed(mutant)
        print(
            f"{'ALIVE' if why else 'killed':7} {time.monotonic() - began:5.1f} s  {mutant.name}",
            flush=True,
        )
        return f"{mutant.name}: {why}" if why else ""

    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as scratch:
        for n in range(at_once):
            free.put(copied(Path(scratch) / str(n)))
        with ThreadPoolExecutor(at_once) as pool:
            survivors = [why for why in pool.map(one, mutants) if why]
        if prefix := os.environ.get("PYTHONPYCACHEPREFIX"):  # of the copies nobody needs it again
            shutil.rmtree(Path(prefix, *Path(scratch).parts[1:]), ignore_errors=True)
    return survivors


def main(arguments: Sequence[str]) -> int:
    """Try those that were asked for, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only those whose name contains one of these")
    parser.add_argument("--dry", action="store_true", help="only whether each fits the sources")
    parser.add_argument("--again", action="store_true", help="those too that were killed before")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, metavar="N")
    asked = parser.parse_args(arguments)
    every = read_table(asked.table)
    mutants = [m for m in every if not asked.words or any(word in m.name for word in asked.words)]
    if not mutants:
        print(f"no mutant has one of these words in its name: {' '.join(asked.words)}")
        return 2
    if wrong := misfits(mutants):
        print("\n".join(wrong))
        return 2
    if asked.dry:
        print(f"{len(mutants)} mutants fit the sources")
        return 0
    known = set() if asked.again else killed_before()
    left = [m for m in mutants if m.digest() not in known]
    if before := len(mutants) - len(left):
        print(f"{before} were killed before, and nothing about them has changed")
    survivors = alive(left, min(asked.at_once, len(left))) if left else []
    print("\n".join(survivors))
    print(f"{len(mutants)} mutants, {len(mutants) - len(survivors)} killed, {len(survivors)} alive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
