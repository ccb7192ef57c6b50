"""Capsules: what every release wrote is read today, and what is not is named message by message."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Message, codec
from holdfast.backends.postgres import migration
from holdfast.backends.sqlite.driver import SCHEMA_VERSION
from holdfast.cli import main
from holdfast.errors import LimitExceeded, VerifyError
from holdfast.verify.capsule import Difference, Origin, Report, Today, create, kept, seeded, verify

CAPSULES = sorted(
    file.parent for file in Path(__file__).parents[2].glob("capsules/*/*/capsule.json")
)
RELEASES = "tests.verify.capsule.releases"
REDIS_6 = [folder for folder in CAPSULES if folder.name.startswith("redis-6.2")]


def name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def command(*words: object) -> Any:
    return CliRunner().invoke(main, ["capsule", *map(str, words)])


@pytest.mark.parametrize("folder", CAPSULES, ids=name)
def test_what_a_release_wrote_is_read_and_written_on_today(folder: Path):
    report = verify(folder)
    assert report.verdict == "same", report


@pytest.mark.parametrize("folder", REDIS_6, ids=name)
def test_what_redis_6_wrote_is_read_after_a_change_to_valkey(folder: Path):
    report = verify(folder, Today(engine="valkey"))
    assert report.verdict == "same", report
    assert "valkey 9" in report.because


def test_every_format_that_is_read_has_a_capsule():
    kinds = {folder.name.partition("-")[0] for folder in CAPSULES}
    assert kinds == {"sqlite", "redis", "valkey", "postgres", "export"}
    [export] = [folder for folder in CAPSULES if folder.name == "export"][-1:]
    lines = lzma.decompress((export / "data" / "export.jsonl.xz").read_bytes()).splitlines()
    records = [json.loads(line).get("record") for line in lines if b"\xe2\x80\xa8" not in line]
    versions = {record.get("v", 0) for record in records if record}
    assert versions == set(codec.READERS)
    files = [lzma.decompress(file.read_bytes()) for file in _data("memory.db.xz")]
    # The user_version of a SQLite file stands at byte 60 of it.
    schemas = {int.from_bytes(data[60:64], "big") for data in files}
    assert schemas == set(range(1, SCHEMA_VERSION + 1))
    dumps = [lzma.decompress(file.read_bytes()) for file in _data("dump.sql.xz")]
    # Every migration leaves a row.
    migrations = [data.count(b"INSERT INTO holdfast.holdfast_schema VALUES") for data in dumps]
    assert set(migrations) == set(range(1, migration.SCHEMA_VERSION + 1))


def _data(file: str) -> list[Path]:
    return [place for folder in CAPSULES if (place := folder / "data" / file).exists()]


@pytest.mark.parametrize("folder", CAPSULES, ids=name)
def test_a_capsule_asks_for_exactly_what_was_written(folder: Path):
    """From the plan alone: no word of this comes from a store."""
    wanted: dict[str, list[tuple[int, Any]]] = {}
    last: dict[str, int] = {}
    for write in seeded.writes(0, keyed=True, rewrites=True):
        shown = wanted.setdefault(write.session, [])
        if write.f != "append":
            shown.clear()
        for message in write.messages:
            last[write.session] = last.get(write.session, 0) + 1
            shown.append((last[write.session], message))
    capsule, _ = kept.read(folder)
    told = {session["session"]: session for session in capsule.sessions}
    assert told.keys() == {*wanted, seeded.OLD}
    for session, shown in wanted.items():
        found = told[session]["messages"]
        assert [message["seq"] for message in found] == [seq for seq, _ in shown]
        for message, (_, sent) in zip(found, shown, strict=True):
            assert {**message, **message["extra"]}.items() >= sent.items()
    assert told["gone"]["state"] == "forgotten"
    assert told["brief"]["ttl_s"] == seeded.TTL_S
    old = told[seeded.OLD]
    assert [message["content"] for message in old["messages"]] == [
        "from before the first release",
        "from 1.1",
    ]
    assert old["damaged"] == [3]


def test_a_capsule_is_small_and_the_same_for_the_same_seed(tmp_path: Path):
    for folder in ("one", "two"):
        assert command("create", tmp_path / folder, "--seed", 5).exit_code == 0
    one, two = (tmp_path / folder / "capsule.json" for folder in ("one", "two"))
    told, again = json.loads(one.read_text()), json.loads(two.read_text())
    assert told["sessions"] == again["sessions"]
    for place in CAPSULES:
        assert sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) < 25_000


def test_a_release_that_cannot_read_version_0_is_told_so(monkeypatch: pytest.MonkeyPatch):
    [sqlite] = [folder for folder in CAPSULES if folder.name == "sqlite"][:1]
    monkeypatch.delitem(codec.READERS, 0)
    report = verify(sqlite)
    assert report.verdict == "differs"
    [difference] = report.differences
    assert (difference.session, difference.place) == ("old-records", "message 1")
    assert "cannot be read; it was" in difference.what
    assert "from before the first release" in difference.what


def test_a_key_that_was_used_is_known_after_the_upgrade(tmp_path: Path):
    """A release that loses the keys would write every retry twice."""
    [sqlite] = [folder for folder in CAPSULES if folder.name == "sqlite"][:1]
    capsule, files = kept.read(sqlite)
    capsule.retries[0]["key"] = "never used"
    kept.write(tmp_path / "changed", capsule, files)
    report = verify(tmp_path / "changed")
    said = "a retry with the key 'never used' was taken for new"
    assert Difference("user-0", "", said) in report.differences


def test_somebodys_own_data_are_kept_as_a_file_or_an_export(tmp_path: Path, disk_path: Path):
    url = f"sqlite:///{disk_path / 'memory.db'}"
    with holdfast.connect(url) as store:
        store.append("a-1", [Message("user", "hello"), Message("assistant", "hi")])
        store.append("b-1", Message("user", "other"))
        for folder, words, form, count in (
            ("whole", (), "files", 2),
            ("part", ("--prefix", "a-"), "export", 1),
        ):
            made = command("create", tmp_path / folder, "--from", url, *words)
            assert made.exit_code == 0, made.output
            capsule, _ = kept.read(tmp_path / folder)
            assert (capsule.form, len(capsule.sessions)) == (form, count)
            assert [m["content"] for m in capsule.sessions[0]["messages"]] == ["hello", "hi"]
    done = command("verify", tmp_path / "whole", tmp_path / "part")
    assert done.exit_code == 0, done.output
    assert done.output.count("same: ") == 2


# N3: the harmless serialization change


@pytest.fixture(scope="module")
def yesterday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first release wrote."""
    folder = tmp_path_factory.mktemp("n3") / "capsule"
    done = command("create", folder, "--target", f"{RELEASES}:first", "--engine", "redis")
    assert done.exit_code == 0, done.output
    return folder


def read_by(release: str, yesterday: Path) -> Report:
    return verify(yesterday, Today(target=f"{RELEASES}:{release}"))


def test_n3_the_optimised_release_loses_every_old_session_and_it_is_said(yesterday: Path):
    report = read_by("optimised", yesterday)
    capsule, _ = kept.read(yesterday)
    full = {session["session"] for session in capsule.sessions if session["messages"]}
    unread = {each.session for each in report.differences if "cannot be read" in each.what}
    assert report.verdict == "differs"
    assert unread == full
    assert "zlib.error" in str(report.differences[0]) or "error: Error" in str(
        report.differences[0]
    )


def test_n3_the_quiet_one_is_shown_message_by_message(yesterday: Path):
    report = read_by("quiet", yesterday)
    capsule, _ = kept.read(yesterday)
    missing = [each for each in report.differences if "is missing; it was" in each.what]
    assert len(missing) == capsule.messages
    assert (missing[0].session, missing[0].place) == ("user-0", "message 1")


def test_n3_a_release_that_changes_content_is_shown_field_by_field(yesterday: Path):
    report = read_by("rounds", yesterday)
    assert {each.session for each in report.differences} == {"odd"}
    spaces, languages = report.differences  # the other one ends with U+2028
    assert spaces.what == r'content was " \n\t x \r\n ", is "x"'
    assert languages.what.startswith("content was ")


@pytest.mark.parametrize("release", ["first", "both"])
def test_n3_a_release_that_reads_both_is_the_same(yesterday: Path, release: str):
    assert read_by(release, yesterday).verdict == "same"


# What is no capsule, or cannot be read here


def test_a_changed_file_is_the_kits_failure_and_not_the_stores(tmp_path: Path):
    folder = tmp_path / "changed"
    shutil.copytree(CAPSULES[0], folder)
    [data] = (folder / "data").rglob("*.xz")
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(VerifyError, match="not what the capsule was made with"):
        verify(folder)
    assert command("verify", folder).exit_code == 4


def test_what_cannot_be_read_here_is_unknown(tmp_path: Path):
    done = command("verify", REDIS_6[0], "--engine-version", "2")
    assert done.exit_code == 3, done.output
    folder = tmp_path / "newer"
    shutil.copytree(CAPSULES[0], folder)
    manifest = folder / "capsule.json"
    manifest.write_text(
        manifest.read_text().replace('"holdfast_capsule": 1', '"holdfast_capsule": 2')
    )
    assert command("verify", folder).exit_code == 3


def test_data_that_the_engine_does_not_take_differ(tmp_path: Path):
    capsule, files = kept.read(next(folder for folder in REDIS_6 if "rdb" in folder.name))
    whole = files["dump.rdb"]
    kept.write(tmp_path / "torn", capsule, {"dump.rdb": whole[: len(whole) // 2]})
    done = command("verify", tmp_path / "torn")
    assert done.exit_code == 1
    assert "today's engine does not take it" in done.output


def test_wrong_arguments_are_told(tmp_path: Path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for words, said in (
        (("create", tmp_path / "full"), "never written over"),
        (("verify", tmp_path / "full"), "is no capsule"),
        (("create", tmp_path / "new", "--from", tmp_path / "nothing"), "takes a URL or an export"),
        (("create", tmp_path / "new", f"{RELEASES}:first"), "name the engine"),
        (("verify", REDIS_6[0], "--engine", "sqlite"), "not for sqlite"),
    ):
        done = command(*words)
        assert done.exit_code == 2, done.output
        assert said in done.output
    assert not (tmp_path / "new").exists()


def test_a_capsule_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "CAPSULE_BYTES_MAX", 1000)
    with pytest.raises(LimitExceeded, match="--prefix"):
        create(tmp_path / "large", Origin())
    assert not (tmp_path / "large").exists()
