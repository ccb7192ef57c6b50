"""LangGraph's threads, from its own checkpointers to ours and back: all of them, once, and as they were."""

from __future__ import annotations

import json
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

import holdfast
from holdfast import UsageError, limits
from holdfast.cli import main
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.migration import migrate

THREADS = ("t1", "t/ü", "t3")
SPACE = "agents"


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    total: Annotated[int, operator.add]


@dataclass
class Secret:
    """A class of the application, which a migration never sees."""

    word: str


def graph(saver: BaseCheckpointSaver[Any]) -> Any:
    plan: Any = StateGraph(State)
    plan.add_node("one", lambda _: {"messages": [AIMessage("one")], "total": 1})
    plan.add_node("two", lambda _: {"messages": [AIMessage("two")], "total": 2})
    plan.add_node("ask", lambda _: {"messages": [AIMessage(interrupt("who?"))]})
    plan.add_edge(START, "one")
    plan.add_edge(START, "two")
    plan.add_edge(["one", "two"], "ask")
    plan.add_edge("ask", END)
    return plan.compile(checkpointer=saver)


def config(thread: str, ns: str = "", checkpoint_id: str | None = None) -> Any:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, **named}}


def talk(saver: BaseCheckpointSaver[Any], *, turns: int = 3) -> None:
    """Turns of a graph that waits for a person in the end, and what graphs rarely store."""
    agent = graph(saver)
    for thread in THREADS:
        for turn in range(turns):
            agent.invoke({"messages": [HumanMessage(f"{turn} ü")], "total": 0}, config(thread))
    side = saver.put(config("t3", "side"), {**empty_checkpoint(), "id": "0" * 36}, {"step": 0}, {})
    made: Any = {**empty_checkpoint(), "id": "1" * 36}
    made["channel_values"] = {"delta": _DeltaSnapshot([1, 2]), "raw": b"\0\xff", "it": Secret("x")}
    made["channel_versions"] = dict.fromkeys(made["channel_values"], f"{1:032}.1")
    at = saver.put(side, made, {"step": 1, "run_id": "r"}, made["channel_versions"])
    saver.put_writes(at, [("messages", Secret("b")), ("total", 1)], "task-b", "~1")
    saver.put_writes(at, [("messages", "a")], "task-a", "~2")
    saver.put_writes(at, [("__error__", "no")], "task-a", "~2")


def seen(saver: BaseCheckpointSaver[Any]) -> dict[str, list[Any]]:
    """All that its interface tells of each thread, of each namespace the newest first."""
    found: dict[str, list[Any]] = {}
    for thread in THREADS:
        for ns in ("", "side"):
            found[f"{thread} {ns}"] = [
                (
                    one.config["configurable"]["checkpoint_id"],
                    (one.parent_config or {}).get("configurable", {}).get("checkpoint_id"),
                    one.checkpoint,
                    one.metadata,
                    one.pending_writes,
                )
                for one in saver.list(config(thread, ns))
                if one.config["configurable"]["checkpoint_ns"] == ns
            ]
    return found


@dataclass
class Theirs:
    kind: str
    url: str

    @contextmanager
    def opened(self) -> Iterator[Any]:
        if self.kind == "langgraph-sqlite":
            with SqliteSaver.from_conn_string(self.url.removeprefix("sqlite:///")) as saver:
                yield saver
        else:
            with PostgresSaver.from_conn_string(self.url) as saver:
                saver.setup()
                yield saver


@pytest.fixture(params=["langgraph-sqlite", "langgraph-postgres"])
def theirs(request: pytest.FixtureRequest, disk_path: Path) -> Theirs:
    if request.param == "langgraph-sqlite":
        return Theirs(request.param, f"sqlite:///{disk_path}/theirs #1.db")
    return Theirs(request.param, request.getfixturevalue("postgres_engine").url)


def test_threads_go_over_and_back_as_they_were_and_go_on(theirs: Theirs, url: str, disk_path: Path):
    with theirs.opened() as saver:
        talk(saver)
        before = seen(saver)
    assert len(before["t1 "]) >= 3 * 3
    moved = migrate(theirs.url, url, kind=theirs.kind, namespace=SPACE)
    count = sum(map(len, before.values()))
    assert (moved.sessions, moved.messages, moved.verified) == (3, count, count)
    assert moved.complete
    with holdfast.connect(url, namespace=SPACE) as store:
        assert seen(HoldfastSaver(store)) == before
    back = Theirs("langgraph-sqlite", f"sqlite:///{disk_path}/back %41 #2.db")
    assert migrate(url, back.url, to=back.kind, namespace=SPACE).verified == count
    with back.opened() as saver:
        assert seen(saver) == before
        agent = graph(saver)
        assert [one.value for one in agent.get_state(config("t1")).interrupts] == ["who?"]
    for again in (
        migrate(theirs.url, url, kind=theirs.kind, namespace=SPACE),
        migrate(url, back.url, to=back.kind, namespace=SPACE),
    ):
        assert (again.messages, again.present, again.verified) == (0, count, count)
    with holdfast.connect(url, namespace=SPACE) as store:
        size = store.stat("t1").count
        agent = graph(HoldfastSaver(store))
        agent.invoke({"messages": [HumanMessage("on")], "total": 0}, config("t1"))
        assert agent.get_state(config("t1")).values["total"] == 3 * 4
        assert store.stat("t1").count > size
    went_on = migrate(theirs.url, url, kind=theirs.kind, namespace=SPACE)
    assert (went_on.messages, went_on.complete) == (0, True)


def test_a_source_is_only_read_and_a_target_that_differs_is_left_alone(theirs: Theirs, url: str):
    with theirs.opened() as saver:
        talk(saver, turns=2)
        before = seen(saver)
    with holdfast.connect(url, namespace=SPACE) as store:
        saver = HoldfastSaver(store)
        saver.put(config("t1"), {**empty_checkpoint(), "id": "own"}, {"step": 0}, {})
        saver.put(config("t/ü"), {**empty_checkpoint(), "id": "own"}, {"step": 0}, {})
        saver.delete_thread("t/ü")
    moved = migrate(theirs.url, url, kind=theirs.kind, namespace=SPACE)
    assert [one.session for one in moved.differences] == ["t1"]
    assert (moved.gone, moved.sessions, moved.complete) == (["t/ü"], 1, False)
    with holdfast.connect(url, namespace=SPACE) as store:
        saver = HoldfastSaver(store)
        assert [
            one.config["configurable"]["checkpoint_id"] for one in saver.list(config("t1"))
        ] == ["own"]
        assert not list(saver.list(config("t/ü")))
    with theirs.opened() as saver:
        assert seen(saver) == before


KILLED = """
import os, signal, sys
from holdfast import Store
from holdfast.integrations.migration import migrate
left = int(sys.argv[4])
real = Store.append
def dying(*args, **more):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)
Store.append = dying
migrate(sys.argv[1], sys.argv[2], kind=sys.argv[3], namespace="agents")
"""


def test_what_a_store_cannot_hold_is_named_and_stops_nothing_else(disk_path: Path, url: str):
    there = Theirs("langgraph-sqlite", f"sqlite:///{disk_path}/theirs #1.db")
    large: Any = {**empty_checkpoint(), "id": "2" * 36}
    large["channel_values"] = {"raw": os.urandom(limits.MESSAGE_BYTES_MAX)}
    large["channel_versions"] = {"raw": f"{1:032}.1"}
    with there.opened() as saver:
        for thread in ("", "t" * 2000, "fits"):
            saver.put(config(thread), {**empty_checkpoint(), "id": "1" * 36}, {"step": 0}, {})
        saver.put(config("fits"), large, {"step": 1}, large["channel_versions"])
        saver.put(config("z"), {**empty_checkpoint(), "id": "1" * 36}, {"step": 0}, {})
    for count in (2, 0):
        moved = migrate(there.url, url, kind=there.kind, namespace=SPACE)
        named = [(one.session[:4], one.place) for one in moved.left_out]
        assert sorted(named) == [("", None), ("fits", 2), ("tttt", None)]
        assert (moved.messages, moved.verified) == (count, 2)


def test_a_checkpoint_that_cannot_be_read_is_named_and_stops_nothing_else(theirs: Theirs, url: str):
    """The last one of a thread, of which all others come over."""
    deep = "[" * 3000 + "]" * 3000
    with theirs.opened() as saver:
        talk(saver, turns=1)
        count = sum(map(len, seen(saver).values()))
        mark = "?" if theirs.kind == "langgraph-sqlite" else "%s"
        names = "thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata"
        for thread, stored in (("t1", deep), ("t/ü", "null")):
            row = (thread, "", "x", "json", stored, "{}")
            marks = ", ".join([mark] * len(row))
            saver.conn.execute(f"INSERT INTO checkpoints ({names}) VALUES ({marks})", row)
        if theirs.kind == "langgraph-sqlite":
            saver.conn.commit()
    moved = migrate(theirs.url, url, kind=theirs.kind, namespace=SPACE)
    assert [one.session for one in moved.left_out] == ["t/ü", "t1"]
    assert (moved.verified, moved.differences) == (count, [])


def test_a_migration_that_was_killed_goes_on_and_doubles_nothing(disk_path: Path, url: str):
    theirs = Theirs("langgraph-sqlite", f"sqlite:///{disk_path}/theirs #1.db")
    with theirs.opened() as saver:
        talk(saver, turns=2)
        before = seen(saver)
    for writes in (2, 9):
        command = [sys.executable, "-c", KILLED, theirs.url, url, theirs.kind, str(writes)]
        done = subprocess.run(command, env={**os.environ}, capture_output=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, done.stderr
    moved = migrate(theirs.url, url, kind=theirs.kind, namespace=SPACE)
    assert moved.complete
    assert moved.present > 0
    with holdfast.connect(url, namespace=SPACE) as store:
        assert seen(HoldfastSaver(store)) == before


def test_from_the_command_line(disk_path: Path, url: str, capsys: pytest.CaptureFixture[str]):
    source = f"sqlite:///{disk_path}/theirs.db"
    with Theirs("langgraph-sqlite", source).opened() as saver:
        talk(saver, turns=1)
    for more in (["--dry-run"], []):
        with pytest.raises(SystemExit) as end:
            main(["migrate", source, url, "--from", "langgraph-sqlite", "--json", "-", *more])
        assert end.value.code == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["unit"], shown["sessions"]) == ("checkpoint", 3)
    with pytest.raises(UsageError, match="has no checkpoints of LangGraph"):
        migrate(url, f"sqlite:///{disk_path}/x.db", kind="langgraph-sqlite")
    with pytest.raises(UsageError, match="--from or --to"):
        migrate(source, url, kind="langgraph-sqlite", to="langgraph-sqlite")
