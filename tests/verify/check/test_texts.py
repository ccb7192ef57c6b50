"""Stores of texts, without forget(), or for one task alone are judged for what they claim."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.verify import Target
from holdfast.verify.adapters.plain import Client
from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from tests.verify.check.checking import Notes
from tests.verify.check.text_stores import DECLINED, ForOneTask, Texts

SENT: list[dict[str, Any]] = [
    {"id": "a.0", "role": "user", "content": "a.0 hello", "metadata": {"n": 1}},
    {"id": "a b", "role": "assistant", "content": "a b"},
]
KEEPS = ("role", "content")


def test_only_what_is_kept_is_sent_and_compared_and_ids_come_from_the_text(tmp_path: Path):
    file = str(tmp_path / "t.db")
    target = Target(open=lambda: Texts(file), claims=DECLINED, keeps=KEEPS)
    with Client(target) as writer, Client(target) as other:
        writer.append("s", SENT)
        own, seen = writer.history("s"), other.history("s", limit=2)
    assert own.ids() == ["a.0", "a b"]
    assert seen.ids() == ["a.0", "a"]  # of another's text only the first word is known
    assert seen.kept(SENT[0]) == {"role": "user", "content": "a.0 hello"}
    with Client(Target(open=lambda: Texts(file), claims=DECLINED)) as whole:
        with pytest.raises(TypeError, match="metadata"):
            whole.append("s", SENT)
        assert whole.history("s").ids() == ["row-1", "row-2"]


@pytest.mark.parametrize("keeps", ["content", ("role",)])
def test_keeps_without_content_is_refused(keeps: Any):
    with pytest.raises(UsageError, match="content among them"):
        Target(open=list, keeps=keeps)


def test_forget_is_needed_only_where_it_is_claimed(tmp_path: Path):
    file = str(tmp_path / "t.db")
    with pytest.raises(UsageError, match=r"no forget.*forgotten=NotClaimed"):
        Client(Target(open=lambda: Texts(file)))


def test_a_store_for_one_task_is_called_by_the_task_that_opened_it(tmp_path: Path):
    async def open_it() -> ForOneTask:
        return ForOneTask(str(tmp_path / "t.db"))

    target = Target(open=open_it, claims=DECLINED, keeps=KEEPS, one_task=True)
    with Client(target) as client:
        assert not client.takes_many
        with pytest.raises(asyncio.CancelledError):
            client._wait(client.store.cancelled())  # type: ignore[attr-defined]
        with pytest.raises(SystemExit):
            client._wait(client.store.ended())  # type: ignore[attr-defined]
        client.append("s", SENT)
        with pytest.raises(TypeError):
            client.append("s", [{"id": "x", "role": "user", "content": 3}])
        assert client.history("s").ids() == ["a.0", "a b"]
    with (
        pytest.raises(RuntimeError, match="different task"),
        Client(replace(target, one_task=False)),
    ):
        pass  # to close it is a call, too


@pytest.mark.parametrize(
    ("name", "faithful"), [("texts", "kept"), ("trims", "broken"), ("for_one_task", "kept")]
)
def test_a_check_holds_it_to_what_it_keeps(name: str, faithful: str):
    options = CheckOptions(
        target=f"tests.verify.check.text_stores:{name}",
        engine="sqlite",
        seed=4,
        promises=("faithful", "ordered", "isolated"),
        faults=("none",),
        time_s=6,
    )
    found = check(options, Notes()).promises
    verdicts = {promise: str(one.verdict) for promise, one in found.items()}
    assert verdicts == {"ordered": "kept", "isolated": "kept", "faithful": faithful}, found
    refused = found["faithful"].evidence["scenarios"]["odd-content"]["refused"]
    assert "a large field of its own (not tried: it keeps role, content)" in refused
