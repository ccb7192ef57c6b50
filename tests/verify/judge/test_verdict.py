"""Kept needs evidence, broken needs a witness, and everything else is unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.errors import VerifyError
from holdfast.verify.history import Event, Header, write_history
from holdfast.verify.judge import Verdict, judge
from holdfast.verify.judge.judge_command import EXIT_CODES, judge_file, render, to_json
from holdfast.verify.judge.recheck import Recheck, confirmed
from tests.verify.judge.random_histories import to_history
from tests.verify.judge.writing import append, forget, lost_reply, named, read

SOUND = [append(1, 1, 2, "a", "b"), append(2, 3, 4, "c"), read(9, 5, 6, "a", "b", "c")]
KILL = Event("fault", 7, name="kill")


def test_nothing_is_kept_in_an_empty_history() -> None:
    assert judge(to_history([])).verdict is Verdict.UNKNOWN


def test_nothing_is_kept_where_nothing_was_acknowledged() -> None:
    assert judge(to_history([lost_reply(1, 1, "a"), read(9, 2, 3)])).verdict is Verdict.UNKNOWN


def test_a_session_that_nobody_read_is_unknown() -> None:
    result = judge(to_history([*SOUND, append(3, 3, 4, "x", session="other")]))

    assert result.verdict is Verdict.UNKNOWN
    assert result.unknown_sessions == 1
    assert "not read" in result.because


def test_a_session_that_nobody_read_after_the_last_fault_is_unknown() -> None:
    before = judge(to_history(SOUND, faults=(KILL,)))
    after = judge(to_history([*SOUND, read(10, 8, 9, "a", "b", "c")], faults=(KILL,)))

    assert (before.verdict, before.unknown_sessions) == (Verdict.UNKNOWN, 1)
    assert after.verdict is Verdict.KEPT


def test_a_fault_that_did_not_land_leaves_everything_unknown() -> None:
    missed = replace(KILL, landed=False)
    ops = [*SOUND, read(10, 8, 9, "a", "b", "c")]

    result = judge(to_history(ops, faults=(missed,)))

    assert result.verdict is Verdict.UNKNOWN
    assert set(result.promises.values()) == {Verdict.UNKNOWN}


def test_broken_outweighs_unknown() -> None:
    ops = [append(1, 1, 2, "a"), read(9, 3, 4), append(3, 3, 4, "x", session="other")]

    result = judge(to_history(ops))

    assert result.verdict is Verdict.BROKEN
    assert result.promises["durable"] is Verdict.BROKEN
    assert result.promises["fresh"] is Verdict.UNKNOWN


def test_a_promise_that_was_not_put_to_the_test_is_not_kept() -> None:
    result = judge(to_history(SOUND))

    assert result.verdict is Verdict.KEPT
    kept = {promise for promise, verdict in result.promises.items() if verdict is Verdict.KEPT}
    assert kept == {"durable", "fresh", "snapshot", "ordered", "atomic"}


def test_a_promise_that_nobody_made_cannot_be_broken() -> None:
    tries = [append(1, 1, 2, "a", key="k"), append(2, 3, 4, "a", key="k")]
    twice = [*tries, read(9, 5, 6, "a", "a")]

    claimed = judge(to_history(twice, Header("t", claims=("exactly_once",))))
    unclaimed = judge(to_history(twice, Header("t", claims=())))

    assert claimed.verdict is Verdict.BROKEN
    assert unclaimed.verdict is Verdict.KEPT
    assert unclaimed.promises["exactly-once"] is Verdict.NOT_CLAIMED
    assert named(unclaimed.unclaimed) == {("duplicate", "a")}


def test_what_was_appended_once_and_is_shown_twice_counts_whatever_is_claimed() -> None:
    twice = [append(1, 1, 2, "a"), read(9, 3, 4, "a", "a")]

    claimed = judge(to_history(twice, Header("t", claims=("exactly_once",))))
    unclaimed = judge(to_history(twice, Header("t", claims=())))

    assert claimed.promises["exactly-once"] is Verdict.BROKEN
    assert "faithful" not in claimed.promises
    assert unclaimed.verdict is Verdict.BROKEN
    assert unclaimed.promises["faithful"] is Verdict.BROKEN
    assert unclaimed.promises["exactly-once"] is Verdict.NOT_CLAIMED


def test_what_a_read_showed_without_an_ack_and_no_later_one_does_is_lost_in_a_long_session() -> (
    None
):
    """Too long for every order to be tried, so that the rules alone have to know it."""
    said = [f"m{number}" for number in range(24)]
    ops = [append(number, 10 * number, 10 * number + 5, name) for number, name in enumerate(said)]
    shown = [lost_reply(30, 300, "x"), read(31, 310, 320, *said, "x"), read(32, 330, 340, *said)]
    result = judge(to_history([*ops, *shown]))
    assert result.promises["durable"] is Verdict.BROKEN
    assert "x" in {anomaly.message for anomaly in result.roots}
    assert "'x' was shown by read 31" in result.roots[0].because  # a rule, and no search


def test_no_store_can_decline_to_be_durable() -> None:
    result = judge(to_history([append(1, 1, 2, "a"), read(9, 3, 4)], Header("t", claims=())))

    assert result.promises["durable"] is Verdict.BROKEN


def test_counts_say_what_was_seen() -> None:
    ops = [
        *SOUND,
        append(3, 5, 7, "d"),
        append(4, 5, 7, "e", status="fail"),
        lost_reply(5, 5, "f"),
        append(10, 1, 2, "x", session="gone"),
        forget(11, 3, 4, session="gone"),
        read(12, 5, 6, session="gone"),
    ]

    counts = judge(to_history(ops)).counts

    assert counts == {
        "sessions": 2, "operations": 9, "acknowledged": 4, "never_read": 2, "reads": 2,
        "forgets": 1, "failed": 1, "unknown": 1, "faults": 0, "lost": 0, "undecided": 0,
    }  # fmt: skip


LOSS = [
    append(1, 1, 2, "a"), append(2, 3, 4, "b"), read(8, 5, 6, "a", "b"), read(9, 7, 8, "a"),
]  # fmt: skip


def test_the_re_checker_refuses_a_forged_witness() -> None:
    history = to_history(LOSS)
    (loss,) = judge(history).anomalies
    assert confirmed(history, loss)

    assert not confirmed(history, replace(loss, witness=(1, 9)))
    assert not confirmed(history, replace(loss, witness=(2, 8)))
    assert not confirmed(history, replace(loss, witness=()))
    assert not confirmed(history, replace(loss, witness=(1, 2, 8, 9, 1, 2)))
    assert not confirmed(history, replace(loss, session="other"))
    assert not confirmed(history, replace(loss, witness=(2, 77)))


@pytest.mark.parametrize("name", ["seq-clash", "expired-late", "duplicate", "leak", "phantom"])
def test_the_re_checker_refuses_a_name_that_the_witness_does_not_prove(name: str) -> None:
    history = to_history(SOUND, Header("t", ttl_s=60.0))
    forged = replace(judge(to_history(LOSS)).anomalies[0], name=name, witness=(1, 9), message="a")

    assert not confirmed(history, forged)


@pytest.mark.parametrize("name", ["duplicate", "phantom", "leak", "resurrected"])
def test_the_re_checker_refuses_another_name_for_the_same_loss(name: str) -> None:
    history = to_history(LOSS)
    (loss,) = judge(history).anomalies

    assert not confirmed(history, replace(loss, name=name, witness=(2, 9)))


def test_a_finding_that_nothing_confirms_is_a_fault_of_the_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Recheck, "confirms", lambda *_: False)
    long = [append(n, 2 * n, 2 * n + 1, f"m{n}") for n in range(20)]

    with pytest.raises(VerifyError, match="could not confirm"):
        judge(to_history([*long, read(90, 90, 91)]))


def test_the_command_gives_json_text_and_an_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    events = [
        Event("invoke", 1, 1, 0, "append", "s", ("a",)),
        Event("ok", 2, 1),
        Event("invoke", 3, 2, 0, "history", "s"),
        Event("ok", 4, 2, messages=()),
    ]
    write_history(path, Header("t"), events)

    result = judge_file(path)
    value = to_json(result)

    assert value["verdict"] == "broken"
    (anomaly,) = value["anomalies"]
    assert anomaly == {
        "name": "lost", "promise": "durable", "session": "s", "message": "a", "witness": [1, 2],
        "because": anomaly["because"], "confirmed": True, "follows_from": None,
    }  # fmt: skip
    assert (value["unknown_sessions"], value["counts"]["lost"]) == (0, 1)
    assert value["promises"]["durable"] == "broken"
    assert "lost (session 's'): 'a' was acknowledged (append 1) before read 2" in render(result)
    assert EXIT_CODES[result.verdict] == 1


def test_text_shows_the_first_findings_and_says_how_many_more() -> None:
    ops = [append(n, 1, 2, f"m{n}") for n in range(30)]

    text = render(judge(to_history([*ops, read(90, 3, 4)])))

    assert text.count("witness:") == 20
    assert "and 10 more" in text
