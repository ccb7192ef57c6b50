"""The durability card: counts from acks and what is left, a bar each, exit codes as usual."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.model import Durability
from holdfast.verify.card import make_card, measure, subjects_of
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from holdfast.verify.report import html
from holdfast.verify.report.card_terminal import amounts, bar
from holdfast.verify.result import CheckResult
from holdfast.verify.result_card import Acked, Loss, Row, card_of, loss_of

HOLDFAST = Path(sys.executable).with_name("holdfast")
MS = 1_000_000
ACKS = [
    Acked("a", 10 * MS, ("a.1.0", "a.1.1")),
    Acked("a", 20 * MS, ("a.2.0", "a.2.1")),
    Acked("b", 30 * MS, ("b.1.0", "b.1.1")),
    Acked("c", 40 * MS, ("c.1.0",)),
]


def test_a_loss_is_counted_with_its_window_and_its_halved_sessions():
    found = {"a": ["a.1.0", "a.1.1", "a.2.0"], "b": ["b.1.0", "b.1.1"]}
    loss = loss_of(ACKS, found, 50 * MS, unsynced_bytes=7)
    assert loss == Loss(acknowledged=4, lost=2, window_ms=30.0, halved=1, torn=1, unsynced_bytes=7)


def test_what_was_acknowledged_after_the_fault_does_not_count():
    assert loss_of(ACKS, {}, 25 * MS) == Loss(acknowledged=2, lost=2, window_ms=15.0)


def test_where_nothing_can_be_read_everything_is_lost():
    loss = loss_of(ACKS, {}, 50 * MS, trouble="it does not start any more")
    assert (loss.lost, loss.halved, loss.trouble) == (4, 0, "it does not start any more")


def card(*rows: Row, require: Durability = Durability.DISK) -> CheckResult:
    return card_of("redis", 1, require, rows, {"engine": {}, "took_s": 1.0}, "holdfast check")


KEPT, LOST = Loss(10, 0), Loss(10, 4, 12.0)


@pytest.mark.parametrize(
    ("row", "require", "verdict"),
    [
        (Row("x", "power", losses=[KEPT, KEPT]), Durability.DISK, Verdict.KEPT),
        (Row("x", "power", losses=[KEPT, LOST]), Durability.DISK, Verdict.BROKEN),
        (Row("x", "power", losses=[KEPT, LOST]), Durability.PROCESS, Verdict.NOT_CLAIMED),
        (Row("x", "kill", losses=[LOST]), Durability.PROCESS, Verdict.BROKEN),
        (Row("x", "kill", losses=[LOST]), Durability.MEMORY, Verdict.NOT_CLAIMED),
        (Row("x", "power", not_run="no root"), Durability.DISK, Verdict.UNKNOWN),
        (Row("x", "power", losses=[Loss(0, 0)]), Durability.DISK, Verdict.UNKNOWN),
    ],
)
def test_a_row_is_held_to_what_is_required(row: Row, require: Durability, verdict: Verdict):
    assert row.verdict(require) is verdict


def test_the_card_is_as_bad_as_its_worst_row():
    good = Row("always", "power", losses=[KEPT])
    assert card(good).exit_code == 0
    assert card(good, Row("everysec", "power", losses=[LOST])).exit_code == 1
    assert card(good, Row("everysec", "power", not_run="no root")).exit_code == 3
    assert card(Row("everysec", "power", losses=[LOST]), require=Durability.MEMORY).exit_code == 3


def test_a_card_is_the_result_of_a_check_with_a_row_for_each_configuration():
    result = card(Row("always", "power", losses=[KEPT]), Row("none", "power", losses=[LOST, KEPT]))
    told = result.to_json()
    assert told["promises"]["durable"]["verdict"] == told["verdict"] == "broken"
    assert told["counts"] == {"acknowledged": 30, "read_back": 26, "lost": 4}
    assert told["faults"]["power"]["landed"] == 3
    assert [(row["config"], row["verdict"]) for row in told["rows"]] == [
        ("always", "kept"),
        ("none", "broken"),
    ]
    assert told["require"] == "DISK"


def shown(*losses: Loss) -> dict[str, Any]:
    return Row("x", "power", losses=list(losses)).to_json(Durability.DISK)


def test_a_bar_shows_even_the_smallest_loss():
    assert bar(0, 10).count("█") == 0
    assert bar(1, 100_000).count("█") == 1
    assert bar(10, 10) == "█" * len(bar(0, 10))
    assert amounts(shown(KEPT, LOST, Loss(9, 9))) == "0 to 9, 2/3"
    assert amounts(shown(KEPT, KEPT)) == "0, 0/2"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"target": "my.own:target"}, "one of our own"),
        ({"target": "redis", "config": "rdb-only"}, "leave --config out"),
    ],
)
def test_a_card_is_for_every_configuration_of_our_own(asked: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        subjects_of(CheckOptions(**asked, all_configs=True))


def test_a_failover_takes_what_no_ack_waited_for():
    wanted = {"asynchronous": ("postgres", "standby"), "holdfast at REPLICA": ("redis", "sentinel")}
    rows = {}
    for name, (kind, topology) in wanted.items():
        asked = CheckOptions(target=kind, topology=topology, all_configs=True)
        [subject] = [one for one in subjects_of(asked) if one.row == name]
        rows[name], _ = measure(subject, "failover", 6, 2)
    lost = {name: (row.level, len(row.losses), row.losing) for name, row in rows.items()}
    assert lost == {"asynchronous": ("DISK", 2, 2), "holdfast at REPLICA": ("REPLICA", 2, 0)}
    assert {name: row.verdict(Durability.REPLICA) for name, row in rows.items()} == {
        "asynchronous": Verdict.BROKEN,
        "holdfast at REPLICA": Verdict.KEPT,
    }
    assert rows["asynchronous"].verdict(Durability.DISK) is Verdict.NOT_CLAIMED
    assert all(loss.unsynced_bytes for loss in rows["asynchronous"].losses)


def test_a_card_of_a_topology_has_failovers_only():
    for faults, topology in ((("kill",), "standby"), (("failover",), None)):
        asked = CheckOptions(
            target="postgres", topology=topology, faults=faults, all_configs=True, seed=1
        )
        with pytest.raises(UsageError, match="a durability card needs a fault of"):
            make_card(asked, _Silent())
    with pytest.raises(UsageError, match="there are: patroni, standby"):
        subjects_of(CheckOptions(target="postgres", topology="sentinel", all_configs=True))


class _Silent:
    def say(self, words: str) -> None:
        """Nobody listens."""

    def done(self, scenario: str, verdict: str) -> None:
        """Nobody listens."""


@pytest.mark.usefixtures("can_cut")
def test_the_command_draws_the_card_and_writes_it(tmp_path: Path):
    file, page = tmp_path / "card.json", tmp_path / "card.html"
    words = ["postgres", "--all-configs", "--faults", "power", "--seed", "4", "--time", "6"]
    done = subprocess.run(
        [str(HOLDFAST), "check", *words, "--json", str(file), "--report", str(page)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lost by power cut" in done.stdout
    assert "█" in done.stdout
    assert "holdfast check postgres --faults power --time 6 --seed 4 --all-configs" in done.stdout
    result = json.loads(file.read_text())
    rows = {row["config"]: row for row in result["rows"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "default": "kept", "synchronous-commit-off": "broken", "fsync-off": "broken",
    }  # fmt: skip
    assert rows["default"]["lost"] == 0
    assert rows["synchronous-commit-off"]["window_ms"] > 0
    assert rows["fsync-off"]["lost"] > 0
    assert {row["mechanism"] for row in rows.values()} == {"block"}
    assert page.read_text("utf-8").strip() == html.render(result)
