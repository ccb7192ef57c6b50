"""`make mutants` itself: every mutant still fits the sources, and one that no test notices is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stacks.sitecustomize import FILE

ROOT = Path(__file__).parents[1]
CODEC = """
['{name}']
file = 'src/holdfast/codec.py'
old = '{old}'
new = '{new}'
tests = ["tests/unit/test_codec.py::test_a_later_version_says_upgrade"]
"""
VERSION = "if version > VERSION:"


def mutants(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "mutants.py"), *words]
    # As from a shell: what this run of the tests set up for its own processes is not handed down.
    own = ("PYTHONPATH", FILE)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in own and not name.startswith("PYTEST_")
    }
    return subprocess.run(
        command, capture_output=True, text=True, timeout=280, check=False, env=environment
    )


def test_every_mutant_fits_the_sources_and_its_tests_are_there():
    done = mutants("--dry")
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 60


@pytest.mark.timeout(300)
def test_one_in_the_kit_and_one_in_the_store_are_killed():
    words = ("judge: a window may be too long", "codec: a later version is damage")
    done = mutants("--again", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "before" not in done.stdout
    assert "2 mutants, 2 killed, 0 alive" in done.stdout
    done = mutants(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 were killed before" in done.stdout
    assert "2 mutants, 2 killed, 0 alive" in done.stdout


@pytest.mark.timeout(300)
def test_one_that_no_test_notices_is_named(tmp_path: Path):
    table = tmp_path / "table.toml"
    table.write_text(CODEC.format(name="lives on", old=VERSION, new="if version >= VERSION + 1:"))
    done = mutants("--table", str(table))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lives on: its tests pass" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("if no_such_line:", "pass", "has 0 places for it"),
        ("raise", "pass", "places for it, and needs one"),
        (VERSION, VERSION, "needs one"),
    ],
)
def test_one_that_no_longer_fits_is_an_error(tmp_path: Path, old: str, new: str, words: str):
    table = tmp_path / "table.toml"
    table.write_text(CODEC.format(name="outdated", old=old, new=new))
    done = mutants("--dry", "--table", str(table))
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stdout


def test_a_test_that_is_gone_is_an_error(tmp_path: Path):
    table = tmp_path / "table.toml"
    text = CODEC.format(name="x", old=VERSION, new="if False:")
    table.write_text(text.replace("test_a_later_version_says_upgrade", "test_gone"))
    done = mutants("--dry", "--table", str(table))
    assert done.returncode == 2
    assert "there is no test" in done.stdout
