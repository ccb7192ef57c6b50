"""Breaks the code in one small way after another, and shows that a test notices each.

    make mutants                    all of them
    make mutants ARGS="judge pg"    those whose name contains one of these words
    make mutants ARGS=--dry         only whether each still fits the sources

`mutants.toml` has them: a name, a file, what stands there, what is put in its place, and the
tests that must fail. Each is tried in a copy of the sources; those tests have passed there before.
Exits 1 where a mutant lives on, 2 where one no longer fits or its tests fail without it.
"""

from __future__ import annotations

import argparse
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


def judged(mutant: Mutant, folder: Path) -> str:
    """Why it counts as alive; nothing where a test failed because of it."""
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


def alive(mutants: Sequence[Mutant], folders: Sequence[Path]) -> list[str]:
    """The names of those that no test noticed, with the reason."""
    free: queue.Queue[Path] = queue.Queue()
    for folder in folders:
        free.put(folder)

    def one(mutant: Mutant) -> str:
        folder, began = free.get(), time.monotonic()
        try:
            why = judged(mutant, folder)
        finally:
            free.put(folder)
        print(
            f"{'ALIVE' if why else 'killed':7} {time.monotonic() - began:5.1f} s  {mutant.name}",
            flush=True,
        )
        return f"{mutant.name}: {why}" if why else ""

    with ThreadPoolExecutor(len(folders)) as pool:
        return [why for why in pool.map(one, mutants) if why]


def main(arguments: Sequence[str]) -> int:
    """Try those that were asked for, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only those whose name contains one of these")
    parser.add_argument("--dry", action="store_true", help="only whether each fits the sources")
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
    with tempfile.TemporaryDirectory(prefix="holdfast-mutants-") as scratch:
        folders = [copied(Path(scratch) / str(n)) for n in range(min(asked.at_once, len(mutants)))]
        code, said = run(folders[0], sorted({test for m in mutants for test in m.tests}))
        if code != PASSED:
            print(f"these tests fail, or are not run, without any mutant: {said}")
            return 2
        survivors = alive(mutants, folders)
        if prefix := os.environ.get("PYTHONPYCACHEPREFIX"):  # of the copies nobody needs it again
            shutil.rmtree(Path(prefix, *Path(scratch).parts[1:]), ignore_errors=True)
    print("\n".join(survivors))
    print(f"{len(mutants)} mutants, {len(mutants) - len(survivors)} killed, {len(survivors)} alive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
