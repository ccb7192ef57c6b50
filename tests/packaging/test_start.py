"""The command starts at once, and a shell completes it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.dist import TIMEOUT_S

BIN = Path(sys.executable).parent
RUNS = 3
TIMES_BARE = 5.0
"""`--help` beside the bare libraries it is made with. Both slow down together on a slow machine;
importing the kit, a driver or a web framework makes it ten times and more."""
CORE_ONLY = {"click", "holdfast"}
SHOW = """
import sys
from holdfast.cli import main
try:
    main(["--help"])
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
    print(*(name for name in sys.modules if name.startswith("holdfast.")), file=sys.stderr)
"""


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        env=os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"} | variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_help_loads_nothing_heavy():
    roots, own = run(sys.executable, "-c", SHOW).stderr.splitlines()
    standard = sys.stdlib_module_names
    site = {"__main__", "sitecustomize", "usercustomize", "_distutils_hack"}  # a machine's own
    loaded = {name for name in roots.split() if name not in standard and name not in site}
    assert {name for name in loaded if not name.startswith("__editable__")} == CORE_ONLY
    assert not {"asyncio", "concurrent", "sqlite3", "http", "email"} & set(roots.split())
    rooms = {name.split(".")[1] for name in own.split()}
    assert not rooms & {"backends", "verify", "doctor", "chat", "integrations"}


def processor_s(*command: str | Path) -> float:
    """Processor time of one run, not what a clock on the wall says beside a busy neighbour."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_costs_little_more_than_the_libraries_it_needs():
    pairs = [
        (
            processor_s(BIN / "holdfast", "--help"),
            processor_s(sys.executable, "-c", "import click, rich"),
        )
        for _ in range(RUNS)
    ]
    ours, bare = (min(times) for times in zip(*pairs, strict=True))
    assert ours < TIMES_BARE * bare, pairs


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("doc", ["doctor"]),
        ("check val", ["valkey"]),
        ("check langchain:s", ["langchain:sqlite"]),
        ("check redis --config aof-e", ["aof-everysec"]),
        ("check langchain:postgres --config de", ["default"]),
        ("check my:target --engine postgres --config de", ["default"]),
        ("check --promises durable,or", ["durable,ordered"]),
        ("check --promises durable,du", []),
        ("check --faults lost-ack,pau", ["lost-ack,pause"]),
        ("engines --provider comp", ["compose"]),
    ],
)
def test_a_shell_is_offered_names(words: str, offered: list[str]):
    typed = f"holdfast {words}"
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    answer = run(BIN / "holdfast", _HOLDFAST_COMPLETE="zsh_complete", **asked).stdout
    assert answer.splitlines()[1::3] == offered


def test_bash_completes_with_the_printed_script():
    program = """
    eval "$(_HOLDFAST_COMPLETE=bash_source holdfast)"
    COMP_WORDS=(holdfast check --promises durable,for) COMP_CWORD=3
    _holdfast_completion holdfast
    echo "${COMPREPLY[@]}"
    """
    assert run("bash", "-euc", program).stdout.split() == ["durable,forgotten"]
