"""A crash state is stored with its finding, and read byte for byte by the test that is made of it."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import VerifyError
from holdfast.verify import crash_archive
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.replay import replay
from holdfast.verify.reproduce import Reproduced, as_test, hold
from holdfast.verify.shrink import Quiet

FILES = "tests.verify.check.files"
PLAN = CheckOptions(
    engine="sqlite", seed=5, promises=("durable",), time_s=2.0, scenario="power-explore",
    clients=1, operations=("append:1",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("twin", "mended"),
    [
        (f"{FILES}:sync_off", "tests.verify.check.stores:sound"),
        (f"{FILES}:unsynced_names", f"{FILES}:json_file"),
    ],
)
def test_the_test_fails_on_the_twin_with_the_stored_state_and_passes_on_the_mended(
    twin: str, mended: str, tmp_path: Path
):
    plan = replace(PLAN, target=twin)
    result = check(plan, Quiet(), whole=False)
    packed = json.loads(json.dumps(result.to_json()))["promises"]["durable"]["crash_state"]
    state = tmp_path / "test_x.crash.zip"
    state.write_bytes(crash_archive.from_text(packed))
    assert replay(plan, "durable", state) == replay(plan, "durable", state) != ""
    with pytest.raises(
        AssertionError, match="The stored crash state .*test_x.crash.zip: A appends"
    ):
        hold(plan, "durable", state)
    hold(replace(plan, target=mended), "durable", state)
    text = as_test(Reproduced("durable", plan, result), state.name)
    assert "state=Path(__file__).with_name('test_x.crash.zip')" in text
    compile(text, "test_x.py", "exec")


def test_a_state_comes_back_byte_for_byte_and_a_large_one_is_not_kept(tmp_path: Path):
    state, again = tmp_path / "state", tmp_path / "again"
    (state / "a" / "empty").mkdir(parents=True)
    again.mkdir()
    (state / "a" / "x y-journal").write_bytes(bytes(range(256)))
    file = tmp_path / "s.zip"
    file.write_bytes(crash_archive.from_text(crash_archive.pack(state, [b"{}\n", b"1\n"])))
    found = crash_archive.unpack(file, again)
    assert (found / "a" / "x y-journal").read_bytes() == bytes(range(256))
    assert (found / "a" / "empty").is_dir()
    assert (again / "history.jsonl").read_bytes() == b"{}\n1\n"
    (state / "link").symlink_to("/etc/passwd")
    assert crash_archive.pack(state, []) == ""
    (state / "link").unlink()
    with (state / "large").open("wb") as large:
        large.truncate(crash_archive.UNPACKED_BYTES_MAX + 1)
    assert crash_archive.pack(state, []) == ""


def _zip(names: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in names.items():
            archive.writestr(name, data)
    return made.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zip at all",
        _zip({"state/x": b""}),
        _zip({"history.jsonl": b"", "state/../../x": b""}),
        _zip({"history.jsonl": b"", "/x": b""}),
        _zip({"history.jsonl": b"", "x": b""}),
        _zip({"history.jsonl": b"", "state/a\nb": b""}),
        _zip({"history.jsonl": b"", "state/x": bytes(crash_archive.UNPACKED_BYTES_MAX + 1)}),
        _zip({"history.jsonl": b"", "state/x": b"", "state/x/y": b""}),
        _zip({"history.jsonl": b"", "state/x": b"abcdefgh" * 99})[:-30],
        _zip({"history.jsonl": b"", "state/x": b"A" * 9}).replace(b"state/x", b"state/y", 1),
    ],
)
def test_what_is_no_crash_state_is_refused_and_leaves_nothing_elsewhere(
    data: bytes, tmp_path: Path
):
    file, folder = tmp_path / "s.zip", tmp_path / "in" / "folder"
    file.write_bytes(data)
    folder.mkdir(parents=True)
    with pytest.raises(VerifyError, match=r"s\.zip"):
        crash_archive.unpack(file, folder)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "s.zip"]
    assert list((tmp_path / "in").iterdir()) == [folder]


@pytest.mark.parametrize("history", [b"", b"[]\n[]\n", b"{}\n{}\n", b"[" * 100_000, b"\xff\n"])
def test_a_state_whose_history_is_none_is_refused(history: bytes, tmp_path: Path):
    file = tmp_path / "s.zip"
    file.write_bytes(_zip({"history.jsonl": history, "state/": b""}))
    with pytest.raises(VerifyError, match=r"s\.zip"):
        replay(replace(PLAN, target="sqlite"), "durable", file)


@pytest.mark.parametrize("text", [None, 5, "%", "A" * 10_000_000, ["x"]])
def test_a_result_with_another_kind_of_crash_state_is_refused(text: object):
    with pytest.raises(VerifyError, match="crash state"):
        crash_archive.from_text(text)
    assert crash_archive.from_text(base64.b64encode(b"x").decode()) == b"x"
