"""Output of the command for people, for programs and for CI; and the files to begin with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from holdfast.cli import main
from holdfast.verify import check_command
from holdfast.verify.report import ci
from tests.plugins import WITHOUT_OTHERS
from tests.test_cli import COMMAND, HISTORY, Shell
from tests.warm import WarmCommand

QUICK = ("check", "sqlite", "--faults", "none", "--promises", "faithful", "--time", "20",
         "--seed", "7")  # fmt: skip
"""Done in a second or two. The time is a limit: with less, a busy machine ends in "unknown"."""


@pytest.fixture
def shell(disk_path: Path, warm_command: WarmCommand) -> Shell:
    return Shell(disk_path, warm_command)


def test_a_message_is_appended_remembered_and_recalled(shell: Shell):
    written = shell("append", "u", "My name is Xiao Li", "--key", "k", "--json", "-")
    assert json.loads(written.stdout)["durability"] == "DISK"
    again = shell("append", "u", "My name is Xiao Li", "--key", "k")
    assert again.stdout == "written: u 1, DISK; it was there already, by its key\n"
    assert shell("append", "u", "--role", "assistant", given="Hello\n").returncode == 0
    read = json.loads(shell("history", "u", "--json").stdout)["messages"]
    assert [(m["role"], m["content"]) for m in read] == [
        ("user", "My name is Xiao Li"),
        ("assistant", "Hello\n"),
    ]
    assert shell("remember", "u", "Likes green tea").returncode == 0
    found = json.loads(shell("recall", "u", "green tea", "-k", "1", "--json", "-").stdout)
    assert [(hit["kind"], hit["text"]) for hit in found["hits"]] == [("memory", "Likes green tea")]
    assert "Likes green tea" in shell("recall", "u", "green tea").stdout


def test_json_means_the_same_everywhere(shell: Shell):
    shell("append", "u", "one")
    (shell.folder / "history.jsonl").write_text(HISTORY % '["m1"]')
    for command in (
        ("sessions",),
        ("history", "u"),
        ("engines", "--provider", "local"),
        ("judge", "history.jsonl"),
        ("doctor", shell.url),
        QUICK,
    ):
        alone = shell(*command, "--json", "-")
        assert json.loads(alone.stdout), command
        assert not (shell.folder / "-").exists()
        kept = shell(*command, "--json=out.json")
        assert kept.returncode == alone.returncode
        assert type(json.loads((shell.folder / "out.json").read_text())) is type(
            json.loads(alone.stdout)
        )
        assert kept.stdout, "the words are still for people"


def test_a_bare_json_takes_nothing_from_the_arguments_after_it(shell: Shell):
    shell("append", "u", "one")
    assert json.loads(shell("history", "--json", "u").stdout)["last"] == 1
    assert json.loads(shell("history", "--json", "-", "u").stdout)["last"] == 1


def test_quiet_says_the_verdict_and_nothing_of_what_is_kept(shell: Shell):
    done = shell(*QUICK, "--quiet")
    assert done.returncode == 0
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
    assert done.stdout.startswith("kept: ")


def test_ci_gets_a_line_a_scenario_a_summary_that_is_added_to_and_junit(shell: Shell):
    (shell.folder / "summary.md").write_text("before\n")
    done = shell(*QUICK, "--summary", "summary.md", "--junit", "junit.xml")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()  # no terminal
    assert lines
    assert all(line.startswith("  ✓ ") for line in lines)
    summary = (shell.folder / "summary.md").read_text()
    assert summary.startswith("before\n### holdfast: sqlite: kept\n")
    assert "| faithful | ✅ kept |" in summary
    suite = ET.parse(shell.folder / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite[0].get("name")) == (
        "1",
        "0",
        "faithful",
    )


HOSTILE = "a|b\n<script>\x1b]\ud800 ]]> & `x` \x00"


def _result(verdict: str) -> dict[str, object]:
    one = {"verdict": verdict, "because": HOSTILE, "evidence": {}, "anomalies": []}
    return {
        "target": HOSTILE,
        "verdict": verdict,
        "promises": {"durable": one},
        "environment": {"took_s": 1.5},
        "repeat": f"holdfast check '{HOSTILE}'",
    }


@pytest.mark.parametrize(
    ("verdict", "tag"), [("broken", "failure"), ("unknown", "error"), ("not claimed", "skipped")]
)
def test_a_hostile_sentence_stays_inside_its_place(verdict: str, tag: str):
    text = ci.junit(_result(verdict))
    case = ET.fromstring(text.split("?>", 1)[1])[0][0]
    assert [child.tag for child in case] == [tag]
    assert "a|b" in str(case[0].get("message"))
    lines = list(ci.markdown(_result(verdict)))
    rows = [line for line in lines if line.startswith("| durable")]
    assert len(rows) == 1
    assert rows[0].count("|") - rows[0].count("\\|") == 4
    again = lines[-2]
    assert again.startswith("The same plan again: `")
    assert again.endswith("`")
    assert again.count("`") == 2
    assert all("\n" not in line and "\x1b" not in line for line in lines)
    assert not any("<script" in line.replace("\\<script", "") for line in lines[:-2])


def test_a_reader_that_hangs_up_changes_no_verdict_and_no_file(disk_path: Path):
    """`holdfast check … | head -1` exited with 1, which is "broken", and wrote no file."""
    listens, speaks = os.pipe()
    os.close(listens)
    files = ("--json", "r.json", "--junit", "r.xml")
    done = subprocess.run(
        [COMMAND, *QUICK, *files],
        stdout=speaks,
        stderr=subprocess.PIPE,
        cwd=disk_path,
        timeout=100,
    )
    os.close(speaks)
    assert done.returncode == 0, done.stderr
    assert b"BrokenPipe" not in done.stderr
    assert json.loads((disk_path / "r.json").read_text())["verdict"] == "kept"
    assert (disk_path / "r.xml").exists()


def test_help_is_not_cut(shell: Shell):
    shown = " ".join(shell("--help").stdout.split())
    for command in main.commands.values():
        first = " ".join((command.help or "").split("\n\n")[0].split())
        assert first in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["redsi"], "did you mean 'redis'?"),
        (["sqlite", "--faults", "kil"], "did you mean 'kill'?"),
        (["sqlite", "--promises", "durabel"], "did you mean 'durable'?"),
        (["sqlite", "--scenario", "powercut"], "did you mean 'power-cut'?"),
        (["redis", "--config", "aof-evrysec"], "did you mean 'aof-everysec'?"),
        (["x.py:target", "--engine", "redsi"], "did you mean 'redis'?"),
        (["no_such.py:target"], "there is no file no_such.py in "),
        (["sqlite", "--operations", "append"], "append:N"),
        (["sqlite", "--not-claimed", "durable"], "durable is always judged"),
    ],
)
def test_a_mistyped_name_is_guessed(shell: Shell, arguments: list[str], words: str):
    done = shell("check", *arguments)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert done.stdout == ""  # whoever mistyped a name needs no introduction


def test_a_project_has_its_own_defaults_and_the_command_line_wins(shell: Shell):
    (shell.folder / "pyproject.toml").write_text(
        '[tool.holdfast]\ntarget = "sqlite"\nfaults = ["none"]\npromises = ["faithful", "recallable"]\n'
        'not-claimed = ["recallable"]\n'
        "time = 20\nseed = 11\n"
    )
    result = json.loads(shell("check", "--json", "-", "--time", "19").stdout)
    assert (result["target"], result["seed"], list(result["promises"])) == (
        "sqlite",
        11,
        ["faithful", "recallable"],
    )
    assert result["promises"]["recallable"]["verdict"] == "not claimed"
    assert (
        "--promises faithful,recallable --not-claimed recallable --time 19 --seed 11"
        in result["repeat"]
    )


@pytest.mark.parametrize(
    ("verdicts", "overall", "words", "colour"),
    [
        (["kept", "kept", "not claimed"], "kept", "2 promises kept", "#12703f"),
        (["kept", "broken", "unknown"], "broken", "1 promise broken", "#b01f1a"),
        ([], "unknown", "unknown", "#775000"),
    ],
)
def test_a_badge_says_the_verdict_and_nothing_of_the_store(
    verdicts: list[str], overall: str, words: str, colour: str
):
    promises = {f"<b>{n}</b>": {"verdict": verdict} for n, verdict in enumerate(verdicts)}
    result = {"target": "<script>", "verdict": overall, "promises": promises}
    told = json.loads(ci.badge_json(result))
    assert told == {"schemaVersion": 1, "label": "holdfast", "message": words, "color": colour}
    drawn = ET.fromstring(ci.badge_svg(result))
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["holdfast", words]
    assert colour in ci.badge_svg(result)


def test_a_badge_is_written_beside_the_check(shell: Shell):
    assert shell(*QUICK, "--badge", "b.png").returncode == 2
    done = shell(*QUICK, "--badge", "b.svg", "--json", "-")
    verdict = json.loads(done.stdout)["verdict"]
    assert f"1 promise {verdict}" in (shell.folder / "b.svg").read_text()


def test_findings_of_a_manifest_are_written_as_sarif(shell: Shell):
    (shell.folder / "compose 1.yaml").write_text(
        "services:\n  web:\n    image: nginx\n  db:\n    image: redis:7\n"
    )
    done = shell("doctor", "--manifest", "compose 1.yaml", "--sarif", "d.sarif")
    assert done.returncode == 1, done.stderr
    [run] = json.loads((shell.folder / "d.sarif").read_text())["runs"]
    first = run["results"][0]
    assert first["level"] == "error"
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "compose%201.yaml"
    assert place["region"] == {"startLine": 5}
    assert {one["ruleId"] for one in run["results"]} == {
        rule["id"] for rule in run["tool"]["driver"]["rules"]
    }
    wrong = shell("doctor", "sqlite:///x.db", "--sarif", "d.sarif")
    assert (wrong.returncode, "--sarif goes with --manifest" in wrong.stderr) == (2, True)


def test_a_project_names_several_targets_and_seeds(shell: Shell):
    (shell.folder / "pyproject.toml").write_text(
        '[tool.holdfast]\ntargets = ["sqlite"]\nseeds = [3, 4]\nfaults = ["none"]\n'
        'promises = ["faithful"]\ntime = 1\n'
    )
    assert "asks for several checks" in shell("check", "--json", "-").stderr
    done = shell("check", "--json", "r.json", "--summary", "s.md", "--quiet")
    found = [json.loads((shell.folder / f"r-{n}.json").read_text()) for n in (1, 2)]
    assert [(one["target"], one["seed"]) for one in found] == [("sqlite", 3), ("sqlite", 4)]
    # On a busy machine a second may be too short to know.
    codes = {"kept": 0, "unknown": 3}
    assert done.returncode == max(codes[one["verdict"]] for one in found), done.stderr
    assert (shell.folder / "s.md").read_text().count("### holdfast") == 2
    one = shell("check", "sqlite", "--seed", "9", "--json", "-")
    assert json.loads(one.stdout)["seed"] == 9


@pytest.mark.parametrize(
    ("codes", "worst"), [((0, 3), 3), ((3, 1, 0), 1), ((0, 0), 0), ((3, 0, 3), 3)]
)
def test_the_worst_of_several_checks_decides(
    monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], worst: int
):
    left = iter(codes)
    monkeypatch.setattr(check_command, "run", lambda *_: next(left))
    assert check_command.run_all(check_command.Outputs(), [{}] * len(codes)) == worst


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("seeds = []", "seeds = []"),
        ('seeds = ["1"]', "seeds = ['1']"),
        ("seeds = [true]", "seeds = [True]"),
        ("targets = [1]", "targets = [1]"),
        ("sed = 1", "did you mean 'seed'?"),
        ('seed = "x"', "seed = 'x'"),
        ("seed = true", "seed = True"),
        ("= nonsense", "cannot be read"),
    ],
)
def test_a_wrong_setting_of_a_project_is_named(shell: Shell, settings: str, words: str):
    (shell.folder / "pyproject.toml").write_text(f"[tool.holdfast]\n{settings}\n")
    done = shell("check")
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert shell("engines", "--provider", "local").returncode == 0, "other commands do not read it"


@pytest.mark.parametrize("engine", ["sqlite", "redis", "postgres"])
def test_init_writes_a_store_that_keeps_its_promises(shell: Shell, engine: str):
    made = shell("init", "new", "--engine", engine)
    assert made.returncode == 0, made.stderr
    again = shell("init", "new", "--engine", engine)
    assert again.returncode == 2
    assert "left as it is" in again.stderr
    checked = shell(
        "check", "new/my_memory.py:target", "--engine", engine, "--faults", "kill", "--time", "2",
        "--json", "-", "--require", "PROCESS",
    )  # fmt: skip
    result = json.loads(checked.stdout)
    broken = {
        name: one["because"]
        for name, one in result["promises"].items()
        if one["verdict"] == "broken"
    }
    assert not broken
    assert result["counts"]["acknowledged"] > 0
    tests = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *WITHOUT_OTHERS,
            "-p",
            "no:randomly",
            "-k",
            "order",
            "test_my_memory.py",
        ],
        cwd=shell.folder / "new",
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert tests.returncode == 0, tests.stdout


def test_init_asks_for_the_engine(shell: Shell):
    made = shell("init", given="redis\n")
    assert made.returncode == 0
    assert "redis" in (shell.folder / "my_memory.py").read_text()


def _heed_ctrl_c() -> None:
    """A job in the background of a shell ignores it, and so would every child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_the_chat_quietly(shell: Shell):
    with subprocess.Popen(
        [COMMAND, "chat", "--port", "0"],
        cwd=shell.folder,
        env=os.environ | {"HOLDFAST_STORE": shell.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=_heed_ctrl_c,  # noqa: PLW1509 - no thread of ours holds a lock
    ) as chat:
        assert chat.stdout is not None
        first = next(line for line in chat.stdout if "http://" in line)
        chat.send_signal(signal.SIGINT)
        words, _ = chat.communicate(timeout=60)
    assert chat.returncode == 0, first + words
    assert "Aborted" not in words
