"""`holdfast doctor`: words, exit codes, and never a password."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import holdfast
from holdfast import Message
from holdfast.cli import main
from holdfast.doctor import Audit, Finding, Hazard, Severity, Soundness, audit
from holdfast.doctor.finding import joined
from holdfast.secrets import SecretUrl
from tests.doctor.conftest import OnDisk

SOUND, UNSOUND, UNKNOWN, ABSENT = Soundness


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


@pytest.fixture
def sound(disk_path: Path) -> str:
    url = f"sqlite:///{disk_path}/memory.db"
    with holdfast.connect(url) as store:
        store.append("a", Message("user", "x"))
    return url


@pytest.mark.usefixtures("nothing_is_temporary")
def test_sound_is_0(sound: str, tmp_path: Path):
    done = doctor(sound, "--json", str(tmp_path / "out.json"))
    assert done.exit_code == 0, done.output
    assert "sound: nothing was found" in done.output
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["sound"]["power"] == "sound"
    assert told["holdfast_level"] == "DISK"
    assert told["exit_code"] == 0
    assert doctor(sound, "--fix").output == "# nothing to change\n"


def test_findings_are_1_and_the_fix_is_printed_and_not_made(on_disk: OnDisk, tmp_path: Path):
    engine = on_disk("redis", config="aof-everysec")
    done = doctor(engine.url, "--json", str(tmp_path / "out.json"))
    assert done.exit_code == 1
    for words in ("critical: the last second or two", "redis-cli CONFIG SET appendfsync always"):
        assert words in done.output
    [worst, *_] = json.loads((tmp_path / "out.json").read_text())["findings"]
    assert worst["hazards"] == ["sigkill", "power"]
    fix = doctor(engine.url, "--fix")
    assert fix.exit_code == 1
    assert "redis-cli CONFIG SET appendfsync always\n" in fix.output
    assert engine.call("CONFIG", "GET", "appendfsync")[1] == "everysec"


def test_a_target_and_its_manifest_are_one_audit(sound: str, tmp_path: Path):
    manifest = tmp_path / "compose.yaml"
    manifest.write_text("services: {db: {image: redis, tmpfs: /data}}")
    done = doctor(sound, "--manifest", str(manifest))
    assert done.exit_code == 1
    assert "sqlite + manifest" in done.output
    assert doctor("--manifest", str(manifest)).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "nothing to look at"),
        (["mysql://x"], 2, "no audit for mysql://"),
        (["memory.db"], 2, "a target without a scheme"),
        (["redis://h/x?y=z"], 2, "does not know the option"),
        (["redis://h", "--canary"], 2, "go with --watch"),
        (["redis://h", "--watch", "--fix"], 2, "goes without"),
        (["--watch", "--manifest", __file__], 2, "needs a target"),
        (["--manifest", "no-such-file"], 2, "does not exist"),
        (["redis://127.0.0.1:1"], 3, "not a pass"),
        (["redis://user:s3cret@127.0.0.1:1"], 3, "127.0.0.1:1"),
        (["postgresql://user:s3cret@127.0.0.1:1/x"], 3, "not a pass"),
        (["http://127.0.0.1:1"], 3, "no Chroma answers"),
        (["sqlite:///no-such-file.db"], 3, "cannot be read"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, words: str):
    done = doctor(*arguments)
    assert done.exit_code == code, done.output
    assert words in done.output + done.stderr
    assert "s3cret" not in done.output + done.stderr


def test_a_failure_of_the_doctor_itself_is_4(monkeypatch: pytest.MonkeyPatch, sound: str):
    def fall(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("holdfast.doctor.ask_sqlite.look", fall)
    done = doctor(sound)
    assert done.exit_code == 4
    assert "the doctor itself failed" in done.stderr


def test_control_codes_of_a_stranger_are_not_sent_to_the_terminal(on_disk: OnDisk):
    engine = on_disk("redis", config="aof-always")
    engine.call("SET", "memory\x1b[31m", "x", "EX", "60")
    done = doctor(engine.url)
    assert "memory\\x1b[31m" in done.output
    assert "\x1b[31m" not in done.output


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:pa/ss@host:1/0?durability=disk", "redis://host:1/0"),
        ("postgresql://u:p@h/db", "postgresql://h/db"),
        ("sqlite:////srv/a@b.db", "sqlite:////srv/a@b.db"),
    ],
)
def test_a_target_is_shown_without_its_password(url: str, shown: str):
    assert str(SecretUrl(url)) == shown


def finding(severity: Severity, *hazards: Hazard) -> Finding:
    return Finding(severity, hazards, "loses", "why", "now", "change")


def seen(*findings: Finding, power: Soundness = SOUND) -> Audit:
    sound = dict.fromkeys(Hazard, SOUND) | {Hazard.POWER: power}
    return Audit("redis", "here", findings, sound)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (seen(), 0),
        (seen(finding(Severity.NOTE)), 0),
        (seen(finding(Severity.WARNING)), 1),
        (seen(power=UNKNOWN), 3),
        (seen(finding(Severity.CRITICAL), power=UNKNOWN), 1),
        (Audit("redis", "here"), 3),
    ],
)
def test_the_exit_code_of_an_audit(given: Audit, code: int):
    assert given.exit_code == code


def test_of_several_looks_the_worst_counts():
    both = joined([seen(power=ABSENT), seen(finding(Severity.NOTE), power=UNSOUND)])
    assert both.sound[Hazard.POWER] is UNSOUND
    assert both.sound[Hazard.SIGKILL] is SOUND
    assert joined([seen(), Audit("x", "y")]).sound[Hazard.POWER] is UNKNOWN


def test_every_node_of_a_cluster_is_looked_at(on_disk: OnDisk):
    engine = on_disk("redis", config="cluster")
    with holdfast.connect(engine.url) as store:
        for at in range(12):
            store.append(f"session-{at}", Message("user", "x"))
    found = audit(engine.url)
    assert found.where.count(":") == 3
    read = [value for name, value in found.facts.items() if name.endswith("records read")]
    assert sum(int(words.split()[0]) for words in read) == 12
    assert (found.sound[Hazard.SIGKILL], found.sound[Hazard.POWER]) == (SOUND, SOUND)
    late = audit(engine.url, time_s=0)
    assert late.sound[Hazard.SIGKILL] is UNKNOWN
    assert "the time for this audit was over" in " ".join(late.unseen)
