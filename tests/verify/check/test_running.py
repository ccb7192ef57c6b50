"""How a check behaves: bad targets, a target that hangs or dies, Ctrl-C, files, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import UsageError, VerifyError
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import start_engine
from holdfast.verify.faults import tree
from holdfast.verify.judge import Verdict
from holdfast.verify.spec import TargetSpec, kind_of, load_target, view_of
from tests.verify.check import odd_stores
from tests.verify.check.checking import STORES, run, tell
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
HOLDFAST = Path(sys.executable).with_name("holdfast")


def command(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(HOLDFAST), "check", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that starts this in the background hands Ctrl-C down as ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )


def test_a_store_that_hangs_ends_in_unknown_within_its_bound():
    begin = time.monotonic()
    result = run("hangs", seed=1, promises=("ordered", "faithful"), time_s=4)
    assert result.verdict is Verdict.UNKNOWN
    assert "did not return" in result.promises["ordered"].because, tell(result)
    assert "hangs" in result.promises["faithful"].because
    assert time.monotonic() - begin < 100


def test_what_could_not_be_run_anyway_is_no_unknown_of_a_check_that_came_to_its_time_limit(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(CheckOptions, "limit_s", property(lambda _: -1.0))
    result = run("sound", seed=1, promises=("durable",))
    assert result.promises["durable"].verdict is Verdict.UNKNOWN, tell(result)
    assert "time limit reached" in result.promises["durable"].because
    asked = result.promises["durable"].evidence["scenarios"]
    assert "kill-clients" in asked
    assert "kill-engine" not in asked  # there is no server
    assert result.faults["restart"].not_run == "there is no server: the clients are the engine"


def test_a_store_that_hangs_while_it_is_opened_ends_in_unknown():
    result = run("hangs_at_open", seed=1, time_s=2)
    assert result.exit_code == 3
    assert "open() did not return" in result.promises["durable"].because


def test_a_store_that_dies_in_an_append_is_never_called_kept():
    result = run("dies", seed=1, promises=("ordered", "durable"), faults=("kill",), time_s=5)
    assert result.exit_code == 3, tell(result)
    assert "ended by itself (exit -11)" in result.promises["ordered"].because


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fails_at_open", "nobody is at home"),
        ("dies_at_open", "exit 7"),
        ("not_a_target", "not a Target"),
        ("nowhere", "cannot be imported"),
    ],
)
def test_a_target_that_cannot_be_opened_is_the_kits_failure(name: str, words: str):
    with pytest.raises(VerifyError, match=words):
        run(name, time_s=5)


def test_a_function_without_parameters_is_a_target_without_an_engine():
    files = "tests.verify.check.files"
    assert load_target(TargetSpec(f"{files}:without_engine")).name == "files of its own"
    with pytest.raises(VerifyError, match="name one with --engine"):
        load_target(TargetSpec(f"{files}:json_file"))
    with start_engine("sqlite") as engine, pytest.raises(VerifyError, match="leave --engine out"):
        load_target(TargetSpec(f"{files}:without_engine", engine=view_of(engine)))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cannot_write", r"append\(\) raised OperationalError: .*boddy"),
        ("cannot_read", r"history\(\) raised TypeError: .*limits"),
    ],
)
def test_a_target_whose_first_calls_all_raise_ends_the_check_with_its_line(name: str, words: str):
    begin = time.monotonic()
    with pytest.raises(UsageError, match=words) as refused:
        run(f"tests.verify.check.odd_stores:{name}", seed=1)
    text = Path(odd_stores.__file__).read_text("utf-8").splitlines()
    place, _, source = str(refused.value).partition("odd_stores.py:")[2].partition(", in ")
    assert text[int(place) - 1].strip() in source
    assert time.monotonic() - begin < 30 * 4 / 2  # far from the time that was asked for


def test_the_command_exits_with_2_where_the_first_calls_all_raise():
    with command("tests.verify.check.odd_stores:cannot_write", "--engine", "sqlite") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no column named boddy" in err
    assert "Traceback" not in err


def test_the_command_exits_with_2_where_the_target_cannot_be_imported():
    with command("no.such.module:target") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no.such.module:target cannot be imported" in err
    assert "Traceback" not in err


RAISES_AT_OPEN = """from holdfast.verify import Target

def memory():
    return 1 / 0

def target(engine):
    return Target(open=memory, engine=engine)
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("from holdfast.verify import Target\n\nclass Memory(:\n    pass\n", "3: class Memory(:"),
        ("import no_such_module_of_mine\n", "1, in <module>: import no_such_module_of_mine"),
        (RAISES_AT_OPEN, "4, in memory: return 1 / 0"),
    ],
)
def test_the_command_exits_with_2_and_the_line_where_the_target_is_wrong(
    tmp_path: Path, source: str, words: str
):
    file = tmp_path / "wrong_target.py"
    file.write_text(source)
    with command(f"{file}:target", "--engine", "sqlite") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    assert f"wrong_target.py:{words}" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("target", "engine", "words"),
    [
        ("mysql", None, "no target 'mysql'"),
        ("mysql://somewhere", None, "no store of ours for mysql://"),
        ("sqlite", "redis", "leave --engine out"),
        ("sqlite:///x.db", "sqlite", "leave --engine out"),
    ],
)
def test_a_wrong_name_is_told_with_the_right_ones(target: str, engine: str | None, words: str):
    with pytest.raises(UsageError, match=words):
        kind_of(target, engine)


def test_an_engine_that_we_do_not_start_cannot_be_configured(disk_path: Path):
    with pytest.raises(UsageError, match="an engine that we start"):
        run(f"sqlite:///{disk_path}/memory.db", None, config="default")


@pytest.mark.parametrize(
    "asked",
    [{"faults": ("earthquake",)}, {"promises": ("eternal",)}],
)
def test_wrong_names_of_faults_and_promises_are_refused(asked: dict[str, Any]):
    with pytest.raises(UsageError, match="there are|yet"):
        CheckOptions(**asked)


def test_without_a_fault_nothing_is_called_durable():
    result = run("sqlite", None, seed=1, faults=("none",), promises=("durable", "loud"), time_s=5)
    assert result.promises["durable"].verdict is Verdict.UNKNOWN
    assert result.promises["loud"].verdict is Verdict.UNKNOWN


def test_a_fault_that_was_asked_for_and_cannot_be_caused_leaves_its_promises_unknown():
    result = run("sqlite", None, seed=1, faults=("lost-ack",), promises=("loud",), time_s=5)
    assert result.promises["loud"].verdict is Verdict.UNKNOWN
    assert "no network" in result.promises["loud"].because


def test_a_url_is_checked_in_a_corner_of_its_own_and_left_clean(disk_path: Path):
    url = f"sqlite:///{disk_path}/memory.db"
    with holdfast.connect(url) as store:
        store.append("mine", [holdfast.Message("user", "stays")])
    result = run(url, None, seed=2, promises=("ordered", "faithful", "expiring"), time_s=10)
    assert result.verdict is Verdict.KEPT, tell(result)
    with holdfast.connect(url) as store:
        assert store.sessions() == ["mine"]
        assert len(store.history("mine")) == 1


def test_ctrl_c_stops_cleanly_and_reports_what_is_known(tmp_path: Path):
    file, page = tmp_path / "result.json", tmp_path / "report.html"
    with command("--seed", "1", "--json", str(file), "--report", str(page)) as process:
        wait_until(lambda: len(tree(process.pid)) > 4, within_s=60)
        below = tree(process.pid)[1:]
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "stopped by Ctrl-C" in out
    assert json.loads(file.read_text())["promises"]["durable"]["verdict"] == "unknown"
    assert "stopped by Ctrl-C" in page.read_text("utf-8")
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


def test_the_command_prints_a_scorecard_and_writes_the_result(tmp_path: Path):
    file, page = tmp_path / "result.json", tmp_path / "report.html"
    words = ("--seed", "9", "--promises", "ordered,faithful,recallable", "--time", "8")
    with command("sqlite", *words, "--json", str(file), "--report", str(page)) as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, out + err
    assert "what it said it had kept" in out
    assert "✓ kept" in out
    assert "holdfast check sqlite --promises ordered,faithful,recallable --time 8 --seed 9" in out
    assert out.endswith(f"The report: {page}\n")
    assert "3 promises asked, kept; 9 not asked." in page.read_text("utf-8")
    assert set(tmp_path.iterdir()) == {file, page}
    assert all(line.startswith("  ✓ ") for line in err.splitlines()), (
        err
    )  # no terminal: a line each
    result = json.loads(file.read_text())
    assert list(result)[:7] == [
        "target", "seed", "verdict", "promises", "faults", "counts", "environment",
    ]  # fmt: skip
    assert result["verdict"] == "kept"
    assert list(result["promises"]) == ["ordered", "faithful", "recallable"]
    assert set(result["promises"]["ordered"]) == {"verdict", "because", "evidence", "anomalies"}
    assert result["promises"]["recallable"]["verdict"] == "kept"
    assert result["counts"]["acknowledged"] >= result["counts"]["read_back"] > 0


@pytest.mark.parametrize("option", ["--report", "--json"])
def test_a_file_that_cannot_be_written_is_refused_before_the_check(tmp_path: Path, option: str):
    (tmp_path / "file").touch()
    for place in (tmp_path / "nowhere" / "x", tmp_path / "file" / "x", tmp_path):
        with command(option, str(place)) as process:
            out, err = process.communicate(timeout=60)
        assert process.returncode == 2, err
        assert str(place) in err
        assert "Traceback" not in err
        assert out == ""


def test_a_broken_store_is_told_with_its_witness_and_exit_1(tmp_path: Path):
    file = tmp_path / "result.json"
    words = ("--engine", "sqlite", "--promises", "snapshot", "--seed", "3", "--time", "20")
    with command(f"{STORES}:oldest_first", *words, "--json", str(file)) as process:
        out, err = process.communicate(timeout=200)
    assert process.returncode == 1, out + err
    assert "✗ broken" in out
    anomaly = json.loads(file.read_text())["promises"]["snapshot"]["anomalies"][0]
    assert anomaly["name"] == "window"
    assert [o["op"] for o in anomaly["operations"]] == anomaly["witness"]


def test_a_fault_that_landed_in_one_scenario_is_not_unknown_because_of_another():
    # SQLite has no server to kill; its clients were.
    asked = {"faults": ("kill",), "promises": ("durable",), "require": "PROCESS"}
    result = run("sqlite", None, seed=1, time_s=5, **asked)
    assert result.faults["kill"].landed > 0
    assert result.exit_code == 0, tell(result)


def test_a_password_is_in_no_word_about_the_target():
    options = CheckOptions(target="redis://me:secret@localhost:6379/0", seed=3)
    assert options.command == "holdfast check redis://localhost:6379/0 --seed 3"
