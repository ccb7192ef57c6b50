"""What a result carries for whoever reads it: examples, and anomalies of every scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.verify import Target
from holdfast.verify.adapters import plain
from holdfast.verify.judge import Verdict
from holdfast.verify.result import ANOMALIES_MAX, Finding, combine
from holdfast.verify.workload import plan, probes, tool_turns
from holdfast.verify.workload.client import TRIES
from tests.verify.check.stores import KEEPS, ForgetsByPrefix, Lossy, OnlyWhole, Sound


def probe(kind: Callable[[str], Any], name: str, folder: Path) -> dict[str, Any]:
    target = Target(open=lambda: kind(str(folder / "memory.db")), claims=KEEPS)
    surface = plain.Client(target)
    try:
        [found] = probes.PROBES[name](surface, target, 1)
    finally:
        surface.close()
    return found


def test_a_message_that_came_back_changed_is_shown_as_it_went_in_and_as_it_came_out(tmp_path: Path):
    found = probe(Lossy, "faithful", tmp_path)
    example = found["examples"][0]
    assert example["what"] == "a list of parts"
    assert '"content": [{"text": "hi"' in example["sent"]
    assert "\"content\": \"[{'type': 'text'" in example["seen"]
    assert all(len(text) <= probes.EXAMPLE_CHARS_MAX for text in example.values())


def test_a_neighbour_hit_by_a_forget_is_shown_empty(tmp_path: Path):
    found = probe(ForgetsByPrefix, "isolated", tmp_path)
    assert found["examples"][0]["seen"] == "[]"
    assert found["examples"][0]["session"].startswith("user")


def test_what_was_odd_and_large_does_not_stay_to_slow_the_rest(tmp_path: Path):
    assert probe(Sound, "faithful", tmp_path)["back"] > len(probes.CONTENTS)
    target = Target(open=lambda: Sound(str(tmp_path / "memory.db")), claims=KEEPS)
    with plain.Client(target) as surface:
        left = [surface.history(f"odd-1-{n}").messages for n in range(len(probes.CONTENTS) + 4)]
    assert not any(left)


@pytest.mark.parametrize("kind", [Sound, OnlyWhole])
@pytest.mark.parametrize("name", ["faithful", "isolated"])
def test_a_sound_store_gives_no_examples(tmp_path: Path, name: str, kind: Callable[[str], Any]):
    found = probe(kind, name, tmp_path)
    assert (found["verdict"], found["examples"]) == ("kept", [])


class ShownLater(Sound):
    """Acknowledges, and shows it from the third read on, as a thread or a replica that lags does."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._hidden: dict[str, int] = {}

    def append(self, session: str, messages: list[dict[str, Any]], key: str | None = None) -> None:
        super().append(session, messages, key)
        self._hidden[session] = 2

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        self._hidden[session] = self._hidden.get(session, 0) - 1
        return [] if self._hidden[session] >= 0 else super().history(session, limit)


@pytest.mark.parametrize("name", ["faithful", "isolated"])
def test_what_is_shown_late_is_neither_changed_nor_another_sessions(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(probes, "LAG_S", 60.0)  # on a busy machine, too
    assert probe(ShownLater, name, tmp_path)["verdict"] == "kept"


class Away(Sound):
    """Cannot be read for a while, as where a primary has just changed."""

    refusals = 0

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        Away.refusals += 1
        if Away.refusals in range(3, 3 + 5 * TRIES):
            raise ConnectionError("not now")
        return super().history(session, limit)


@pytest.mark.parametrize("name", ["faithful", "isolated"])
def test_what_cannot_be_read_for_a_while_is_not_changed(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(probes, "LAG_S", 60.0)
    monkeypatch.setattr(Away, "refusals", 0)
    assert probe(Away, name, tmp_path)["verdict"] == "kept"


class CannotRead(Sound):
    """Takes one of the odd messages and never gives it back."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        if session == "odd-1-3":
            raise ValueError("cannot read that")
        return super().history(session, limit)


def test_what_can_never_be_read_did_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probes, "LAG_S", 0.5)
    found = probe(CannotRead, "faithful", tmp_path)
    assert (found["verdict"], len(found["examples"])) == ("broken", 1)


CALLED = {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}]}
ASKED = {"role": "user", "content": "and?"}
A, B = ({"role": "tool", "tool_call_id": name} for name in "ab")


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], ""),
        ([ASKED, CALLED, B, A, ASKED], ""),
        ([ASKED, CALLED], "'a' is not followed"),
        ([CALLED, A], "'b' is not followed"),
        ([CALLED, A, ASKED, B], "'b' is not followed"),
        ([CALLED, ASKED, A, B], "'a' is not followed"),
        ([ASKED, A], "'a' does not stand behind its call"),
        ([CALLED, A, A, B], "'a' does not stand behind its call"),
        ([CALLED, A, B, B], "'b' does not stand behind its call"),
        ([CALLED, CALLED, A, B], "'a' is not followed"),
        ([{"role": "tool", "content": "x"}], "None does not stand behind its call"),
    ],
)
def test_what_a_models_api_refuses(messages: list[Any], words: str):
    said = tool_turns.refusal(messages)
    assert words in said
    assert bool(words) == bool(said)


def test_a_scenario_with_many_anomalies_does_not_hide_those_of_another():
    many = tuple({"scenario": "loud one", "at": at} for at in range(2 * ANOMALIES_MAX))
    few = ({"scenario": "quiet one", "at": 0},)
    findings = [
        Finding("durable", Verdict.BROKEN, "x", "loud one", {}, many),
        Finding("durable", Verdict.BROKEN, "y", "quiet one", {}, few),
    ]
    one = combine(["durable"], {}, findings)["durable"]
    assert one.anomalies[:3] == (many[0], few[0], many[1])
    assert len(one.anomalies) == ANOMALIES_MAX
    assert one.evidence["anomalies"] == 2 * ANOMALIES_MAX + 1


def test_a_full_disk_is_a_fault_for_what_was_written_while_it_was_full():
    full = ({"scenario": "disk-full", "fault": "disk", "faults": []},)
    calm: tuple[dict[str, Any], ...] = ({"scenario": "concurrency", "fault": None, "faults": []},)
    findings = [
        Finding("durable", Verdict.BROKEN, "while the disk was full", "disk-full", {}, full),
        Finding("durable", Verdict.BROKEN, "without any fault", "concurrency", {}, calm),
    ]
    one = combine(["durable"], {}, findings)["durable"]
    assert one.because.startswith("without any fault")


def test_what_is_written_reads_like_a_conversation_and_names_its_message():
    asked, answered = plan.message("c1.7.0"), plan.message("c1.7.1")
    assert (asked["role"], answered["role"]) == ("user", "assistant")
    assert asked["content"].startswith("c1.7.0 ")
    assert plan.message("c1.7.0") == asked
    assert plan.name_of({"content": answered["content"]}) == "c1.7.1"
    assert plan.name_of({"id": "half \ud83d"}).encode()
