"""The command, as a person uses it: a process with arguments, output and an exit code."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Message
from holdfast.cli import main
from tests.contract.spoiling import mutations, spoilt
from tests.warm import WarmCommand

COMMAND = Path(sys.executable).with_name("holdfast")


class Shell:
    def __init__(self, folder: Path, command: WarmCommand) -> None:
        self.folder = folder
        self._command = command
        self.url = f"sqlite:///{folder}/memory.db"

    def __call__(
        self, *arguments: str, given: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"HOLDFAST_STORE": self.url, "COLUMNS": "120"}
        return self._command.run(arguments, cwd=self.folder, env=environment, given=given)


@pytest.fixture
def shell(disk_path: Path, warm_command: WarmCommand) -> Shell:
    return Shell(disk_path, warm_command)


@pytest.fixture
def filled(shell: Shell) -> Shell:
    with holdfast.connect(shell.url) as store:
        store.append(
            "user-1", [Message("user", "My name is Xiao Li"), Message("assistant", "Hello [b]")]
        )
        store.append("user-2", Message("user", "\x1b[31mred\0 \ud800"), ttl_s=3600)
    return shell


def test_version_and_help(shell: Shell):
    assert shell("--version").stdout.strip() == f"holdfast, version {holdfast.__version__}"
    shown = shell("--help").stdout
    for command in ("sessions", "history", "forget", "export", "load", "engines", "completion"):
        assert command in shown
        assert shell(command, "--help").returncode == 0


def test_sessions_are_listed(filled: Shell):
    table = filled("sessions").stdout
    assert "user-1" in table
    assert "never" in table
    listed = json.loads(filled("sessions", "--json").stdout)
    assert [(stat["session"], stat["count"], stat["last"]) for stat in listed] == [
        ("user-1", 2, 2),
        ("user-2", 1, 1),
    ]
    assert listed[1]["ttl_s"] == 3600
    assert [
        s["session"] for s in json.loads(filled("sessions", "--json", "--limit", "1").stdout)
    ] == ["user-1"]
    assert json.loads(filled("sessions", "--json", "--prefix", "nobody").stdout) == []


def test_history_is_shown_as_it_is_without_control_codes(filled: Shell):
    shown = filled("history", "user-1").stdout
    assert "My name is Xiao Li" in shown
    assert "Hello [b]" in shown
    odd = filled("history", "user-2").stdout
    assert "\x1b" not in odd
    assert "\\x1b[31mred\\x00 \\ud800" in odd
    exact = json.loads(filled("history", "user-2", "--json").stdout)
    assert exact["messages"][0]["content"] == "\x1b[31mred\0 \ud800"
    paged = json.loads(filled("history", "user-1", "--json", "--after", "1").stdout)
    assert [message["seq"] for message in paged["messages"]] == [2]


def test_history_of_nobody_says_why_it_is_empty(filled: Shell):
    done = filled("history", "nobody")
    assert (done.returncode, done.stdout) == (0, "nobody: no messages here (never)\n")


def test_a_damaged_record_is_shown_where_it_stands(filled: Shell):
    connection = apsw.Connection(f"{filled.folder}/memory.db")
    connection.execute("UPDATE messages SET record = x'00' WHERE place = 1 << 32 | 1")
    connection.close()
    shown = filled("history", "user-1").stdout
    assert "DAMAGED" in shown
    assert "Hello" in shown


def test_forget_asks_first_and_says_what_was_erased(filled: Shell):
    refused = filled("forget", "user-1", given="n\n")
    assert refused.returncode == 1
    assert "Erase 2 message(s)" in refused.stdout
    assert filled("forget", "user-1", "--yes").stdout.startswith("forgotten: 2 message(s)")
    erased = json.loads(filled("forget", "user-2", "--yes", "--json").stdout)
    assert (erased["messages"], erased["scrubbed"]) == (1, True)
    assert json.loads(filled("sessions", "--json").stdout) == []


def test_forget_takes_a_prefix_or_an_age_and_gives_a_receipt(filled: Shell):
    assert filled("forget", "--older-than", "1h", "--yes").stdout.startswith("forgotten: 0 session")
    assert filled("forget", "user-1", "--prefix", "u", "--yes").returncode == 2
    assert filled("forget", "--older-than", "soon", "--yes").returncode == 2
    asked = filled("forget", "--prefix", "user-1", given="n\n")
    assert (asked.returncode, "begins with 'user-1'" in asked.stdout) == (1, True)
    receipt = json.loads(filled("forget", "--prefix", "user-1", "--yes", "--json").stdout)
    assert (receipt["sessions"], receipt["messages"]) == (["user-1"], 2)
    said = filled("forget", "--prefix", "user-", "--yes")
    assert "1 session(s), 1 message(s)" in said.stdout
    assert "forgotten so far" in said.stderr
    assert json.loads(filled("sessions", "--json").stdout) == []


@pytest.mark.parametrize(
    "bad", [b"\xff\xfe", b"[" * 200_000, b'{"seq":' + b"9" * 20_000 + b"}", b"\x00" * 1000]
)
def test_a_hostile_file_is_refused_in_one_sentence(filled: Shell, bad: bytes):
    exported = filled("export").stdout.encode().splitlines(keepends=True)
    (filled.folder / "bad.jsonl").write_bytes(b"".join(exported[:-1]) + bad)
    loaded = filled("load", "bad.jsonl", "--store", f"sqlite:///{filled.folder}/other.db")
    assert loaded.returncode == 2
    assert "Traceback" not in loaded.stderr
    assert "are loaded, nothing of the rest" in loaded.stderr
    assert len(loaded.stderr) < 700


def test_spoilt_files_end_with_a_documented_exit_code_and_a_sentence(filled: Shell):
    """In one process for many: `main` is what the command calls."""
    lines, codes = filled("export").stdout.splitlines(), set()
    for seed in range(60):
        file = filled.folder / "spoilt.jsonl"
        text = "\n".join(spoilt(lines, mutations(random.Random(seed))))
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        store = f"sqlite:///{filled.folder}/{seed // 20}.db"
        done = CliRunner().invoke(main, ["load", str(file), "--store", store])
        codes.add(done.exit_code)
        assert done.exception is None or isinstance(done.exception, SystemExit), (seed, done)
        assert done.exit_code == 0 or "loaded" in done.output, (seed, done.output)
    assert codes <= {0, 1, 2}  # done, not done, a file that is none
    assert codes > {0}


def test_export_and_load_move_everything(filled: Shell):
    exported = filled("export").stdout
    assert filled("export", "-o", "all.jsonl").returncode == 0
    assert (filled.folder / "all.jsonl").read_text("utf-8") == exported
    other = f"sqlite:///{filled.folder}/other.db"
    loaded = filled("load", "all.jsonl", "--store", other, "--json")
    assert json.loads(loaded.stdout) == {"sessions": 2, "messages": 3, "present": 0, "memories": 0}
    again = filled("load", "-", "--store", other, given=exported)
    assert again.stdout == "loaded: 0 session(s), 0 message(s); 2 were there already\n"
    assert filled("export", "--store", other).stdout == exported


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["sessions"], 1, "does not exist"),
        (["sessions", "--store", "mysql://x"], 2, "no store for mysql://"),
        (["history"], 2, "Missing argument"),
        (["history", "s", "--limit", "-1"], 2, "not in the range"),
        (["frobnicate"], 2, "No such command"),
        (["load", "no-such-file"], 2, "No such file"),
        (
            ["history", "x" * 2000, "--store", "sqlite:///new.db?mode=rwc"],
            2,
            "longer than 1024 bytes",
        ),
    ],
)
def test_errors_are_words_and_exit_codes(shell: Shell, arguments: list[str], code: int, words: str):
    done = shell(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (shell.folder / "memory.db").exists(), "looking must not create"


def test_a_spoilt_export_is_named_by_line(shell: Shell):
    done = shell("load", "-", given='{"holdfast_export":1}\nnonsense\n')
    assert done.returncode == 2
    assert "line 2" in done.stderr


def test_engines_name_the_embedded_one(shell: Shell):
    found = json.loads(shell("engines", "--json", "--provider", "local").stdout)
    here = {engine["kind"] for engine in found if engine["version"]}
    several = {"redis-sentinel", "redis-cluster", "valkey-sentinel", "valkey-cluster"}
    several |= {"postgres-standby", "postgres-patroni"}
    assert here == {"sqlite", "redis", "valkey", "postgres", "chroma"} | several
    assert "sqlite" in shell("engines", "--provider", "local").stdout
    assert shell("engines", "--provider", "cloud").returncode == 2


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: Shell, name: str):
    assert "_HOLDFAST_COMPLETE" in shell("completion", name).stdout


HISTORY = """\
{"holdfast_history": 1, "target": "t", "ttl_s": null, "clock_error_s": 0.0, "claims": []}
{"type": "invoke", "op": 1, "process": "a", "time_ns": 1, "f": "append", "session": "s", "messages": ["m1"]}
{"type": "ok", "op": 1, "process": "a", "time_ns": 2, "f": "append", "session": "s"}
{"type": "invoke", "op": 2, "process": "a", "time_ns": 3, "f": "history", "session": "s", "limit": null}
{"type": "ok", "op": 2, "process": "a", "time_ns": 4, "f": "history", "session": "s", "messages": %s}
"""


@pytest.mark.parametrize(
    ("read", "code", "verdict", "found"),
    [('["m1"]', 0, "kept", []), ("[]", 1, "broken", ["lost"])],
)
def test_a_recorded_history_is_judged(
    shell: Shell, read: str, code: int, verdict: str, found: list[str]
):
    (shell.folder / "history.jsonl").write_text(HISTORY % read)
    done = shell("judge", "history.jsonl", "--json", "out.json")
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith(verdict)
    result = json.loads((shell.folder / "out.json").read_text())
    assert result["verdict"] == verdict
    assert [anomaly["name"] for anomaly in result["anomalies"]] == found
    for anomaly in result["anomalies"]:
        assert anomaly["witness"] == [1, 2]


@pytest.mark.parametrize("content", ["", "hello\n", HISTORY[:200], '{"holdfast_history": 9}\n'])
def test_a_file_that_is_no_history_is_exit_4_with_the_line(shell: Shell, content: str):
    (shell.folder / "history.jsonl").write_text(content)
    done = shell("judge", "history.jsonl")
    assert done.returncode == 4
    assert "line" in done.stderr
    assert "Traceback" not in done.stderr


def test_reindex_builds_the_index_from_the_log(shell: Shell):
    with holdfast.connect(shell.url, background_indexing=False) as store:
        store.append("u", Message("user", "tea"))
        store.remember("u", "likes tea")
    done = shell("reindex", "--embedder", "wordllama", "--json")
    assert json.loads(done.stdout) == {"records": 2}
    with holdfast.connect(shell.url, embedder="wordllama") as store:
        assert store.index_lag("u") == 0
    wrong = shell("reindex", "--embedder", "gpt")
    assert wrong.returncode == 2
    assert "known are: minilm, wordllama" in wrong.stderr
