"""Nothing is kept by default: each verdict rests on a fault that landed and could have hurt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import VerifyError
from holdfast.verify import required
from holdfast.verify.judge import Verdict
from holdfast.verify.report.check_terminal import closing_of
from holdfast.verify.result import Finding, combine
from holdfast.verify.scenarios import ScenarioContext
from holdfast.verify.spec import TargetSpec
from holdfast.verify.workload.client_pool import Bounds
from tests.verify.check.checking import run, tell

BARE = "tests.verify.check.bare_stores"
FILES = "tests.verify.check.files"
SOON: dict[str, Any] = {"seed": 1, "time_s": 2}


@pytest.fixture(autouse=True)
def bare_dir(disk_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BARE_DIR", str(disk_path))
    return disk_path


def test_a_store_that_never_syncs_is_not_durable_where_nobody_cut_the_power():
    asked = {**SOON, "promises": ("durable",)}
    result = run(f"{BARE}:sync_off", None, **asked)
    one = result.promises["durable"]
    assert one.verdict is Verdict.UNKNOWN, tell(result)
    assert "Target(data=" in one.because
    assert "--require MEMORY accepts less" in one.because


def test_a_sigkill_alone_is_no_power_cut_and_whoever_requires_less_is_told_so():
    asked = {**SOON, "promises": ("durable",), "faults": ("kill",)}
    result = run("sqlite", None, **asked)
    assert result.promises["durable"].verdict is Verdict.UNKNOWN, tell(result)
    assert "add power to --faults" in result.promises["durable"].because
    assert "--require PROCESS accepts less" in result.promises["durable"].because
    less = run("sqlite", None, require="PROCESS", **asked)
    assert less.promises["durable"].verdict is Verdict.KEPT, tell(less)


@pytest.mark.usefixtures("can_cut")
def test_a_power_cut_beside_the_data_proves_nothing():
    asked = {**SOON, "promises": ("durable",), "faults": ("power",)}
    result = run(f"{FILES}:elsewhere", **asked)
    assert result.promises["durable"].verdict is Verdict.UNKNOWN, tell(result)
    assert "data elsewhere" in result.promises["durable"].because
    assert not result.faults["power"].landed


def test_who_never_met_an_error_is_not_loud():
    result = run(f"{BARE}:swallows", None, **SOON, promises=("loud",))
    assert result.promises["loud"].verdict is Verdict.UNKNOWN, tell(result)
    assert "no client met an error" in result.promises["loud"].because


def test_a_part_says_what_it_asked_and_counts_what_it_wrote():
    result = run("sqlite", None, **SOON, faults=("none",), promises=("faithful",))
    assert result.verdict is Verdict.KEPT, tell(result)
    assert result.counts["acknowledged"] >= result.counts["read_back"] >= 14
    assert closing_of(result.to_json()) == "1 promise asked, kept; 11 not asked."


def test_of_some_promises_only_the_broken_ones_are_called_broken():
    told = {"durable": "broken", "ordered": "unknown", "loud": "broken"}
    promises = {name: {"verdict": verdict} for name, verdict in told.items()}
    words = closing_of({"verdict": "broken", "promises": promises, "not_asked": ["fresh"]})
    assert words == "3 promises asked: 2 broken, 1 unknown; 1 not asked."


def test_a_fault_that_did_not_land_makes_unknown_only_what_rests_on_it():
    landed = Finding("durable", Verdict.KEPT, "3 power cuts", "power-cut")
    missed = Finding("durable", Verdict.UNKNOWN, "nobody met it", "disk-full", not_landed=True)
    one = combine(["durable"], {}, [landed, missed])["durable"]
    assert one.verdict is Verdict.KEPT
    assert "Not put to the test: disk-full (nobody met it)" in one.because
    assert combine(["durable"], {}, [missed])["durable"].verdict is Verdict.UNKNOWN
    broken = Finding("durable", Verdict.BROKEN, "gone", "kill-clients")
    assert combine(["durable"], {}, [landed, missed, broken])["durable"].verdict is Verdict.BROKEN


@pytest.mark.usefixtures("can_cut")
def test_a_store_that_says_where_its_files_are_has_its_power_cut_there(bare_dir: Path):
    asked = {**SOON, "promises": ("durable",), "faults": ("power",)}
    cut = run(f"{BARE}:sync_off_data", None, **asked)
    assert cut.promises["durable"].verdict is Verdict.BROKEN, tell(cut)
    kept = run(f"{BARE}:sound_data", None, **asked)
    assert kept.promises["durable"].verdict is Verdict.KEPT, tell(kept)
    assert kept.faults["power"].landed
    assert [file.name for file in bare_dir.iterdir()] == ["data"]
    assert not (bare_dir / "data").is_symlink()
    assert list((bare_dir / "data").iterdir()) == []


def test_its_disk_is_filled_there():
    asked = {**SOON, "promises": ("loud",), "faults": ("disk",)}
    result = run(f"{BARE}:swallows_data", None, **asked)
    assert result.promises["loud"].verdict is Verdict.BROKEN, tell(result)


def test_a_directory_with_files_in_it_is_not_taken(bare_dir: Path):
    (bare_dir / "data").mkdir()
    (bare_dir / "data" / "mine").write_text("stays")
    with pytest.raises(VerifyError, match="is not empty"):
        run(f"{BARE}:sound_data", None, **SOON)
    assert (bare_dir / "data" / "mine").read_text() == "stays"
    assert len(list((bare_dir / "data").iterdir())) == 1


def durable(scenario: str, verdict: Verdict) -> Finding:
    return Finding("durable", verdict, "x", scenario)


@pytest.mark.parametrize(
    ("found", "level"),
    [
        ({"kill-clients": Verdict.KEPT, "power-cut": Verdict.KEPT}, "DISK"),
        ({"kill-clients": Verdict.KEPT, "power-cut": Verdict.BROKEN}, "PROCESS"),
        ({"kill-clients": Verdict.KEPT, "power-cut": Verdict.UNKNOWN}, "PROCESS"),
        ({"kill-clients": Verdict.BROKEN, "power-cut": Verdict.KEPT}, "MEMORY"),
        ({"concurrency": Verdict.BROKEN, "power-cut": Verdict.KEPT}, "MEMORY"),
        ({"power-cut": Verdict.KEPT, "power-explore": Verdict.BROKEN}, "MEMORY"),
    ],
)
def test_what_a_fault_took_was_not_tested_up_to_a_worse_fault(
    found: dict[str, Verdict], level: str, tmp_path: Path
):
    findings = [durable(scenario, verdict) for scenario, verdict in found.items()]
    context = ScenarioContext(
        spec=TargetSpec("sqlite:///memory.db"),
        engine=None,
        seed=1,
        folder=tmp_path,
        bounds=Bounds(),
        scale=1.0,
        about={},
        say=lambda _: None,
    )
    assert required.tested_to(context, findings).name == level
