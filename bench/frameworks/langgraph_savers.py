"""Run in an environment with LangGraph in it: its savers beside ours on the same engine, taking turns.

Prints a figure a line as JSON. A turn is an `invoke` of a graph with one node: a message comes in,
one is answered. The state grows with each, or is bounded to the newest few.
"""

from __future__ import annotations

import functools
import importlib
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

import holdfast
from bench.figure import side_by_side
from holdfast import Durability, Store
from holdfast.integrations.langgraph import HoldfastSaver

Name = TypeVar("Name")
SHORT, LONG = 200, 2000
ROUNDS = 25
BOUNDED = 20
THREAD: Any = {"configurable": {"thread_id": "t"}}
CHANCE = random.Random(1)
WORDS = ["".join(CHANCE.choices("abcdefghijklmnopqrstuvwxyz", k=2 + n % 8)) for n in range(2000)]


class Growing(TypedDict):
    """Every message that was ever said."""

    messages: Annotated[list[Any], add_messages]


class Bounded(TypedDict):
    """The newest few."""

    messages: Annotated[list[Any], lambda old, new: (old + new)[-BOUNDED:]]


def text(words: int) -> str:
    return " ".join(CHANCE.choices(WORDS, k=words))


def graph(state: type, saver: Any) -> Any:
    plan: Any = StateGraph(state)
    plan.add_node("answer", lambda _: {"messages": [AIMessage(text(60))]})
    plan.add_edge(START, "answer")
    plan.add_edge("answer", END)
    return plan.compile(checkpointer=saver)


def turn(agent: Any) -> None:
    agent.invoke({"messages": [HumanMessage(text(30))]}, THREAD)


def size_mb(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def on_sqlite(folder: Path) -> None:
    """Each in a file of its own."""
    sqlite_saver = importlib.import_module("langgraph.checkpoint.sqlite").SqliteSaver
    theirs, ours = folder / "theirs", folder / "ours"
    for place in (theirs, ours):
        place.mkdir()
    with sqlite_saver.from_conn_string(f"{theirs}/memory.db") as saver:
        beside(
            saver,
            f"sqlite:///{ours}/memory.db",
            lambda: {"theirs": size_mb(theirs), "ours": size_mb(ours)},
        )


def on_postgres(url: str) -> None:
    """Each in a schema of its own, on one server."""
    postgres_saver = importlib.import_module("langgraph.checkpoint.postgres").PostgresSaver
    with postgres_saver.from_conn_string(url) as saver:
        saver.setup()

        def sizes() -> dict[str, float]:
            query = (
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) AS bytes FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'"
            )
            schemas = {"theirs": "public", "ours": "holdfast"}
            return {
                whose: float(saver.conn.execute(query, (schema,)).fetchone()["bytes"]) / 1e6
                for whose, schema in schemas.items()
            }

        beside(saver, url, sizes)


def beside(saver: Any, url: str, sizes: Callable[[], dict[str, float]]) -> None:
    """A thread whose state grows, 200 turns, on a disk: each of theirs beside each of ours."""
    their_name = type(saver).__name__
    with holdfast.connect(url) as store:
        savers = {"theirs": saver, "ours": HoldfastSaver(store)}
        agents = {name: graph(Growing, one) for name, one in savers.items()}
        ways: dict[str, Callable[[], object]] = {
            name: functools.partial(turn, agent) for name, agent in agents.items()
        }
        in_process = url.startswith("sqlite:")  # a server's time is not that of this process
        side_by_side(ways, rounds=SHORT - 2 * ROUNDS)
        show(their_name, "a turn", side_by_side(ways, rounds=ROUNDS), at_most=1.0)
        if in_process:
            show(their_name, "a turn, of the processor", medians(ways), at_most=1.0)
        gets: dict[str, Callable[[], object]] = {
            name: functools.partial(one.get_tuple, THREAD) for name, one in savers.items()
        }
        gets["cold"] = lambda: HoldfastSaver(store).get_tuple(THREAD)
        taken = medians(gets) if in_process else side_by_side(gets, rounds=ROUNDS)
        cold_s = taken.pop("cold")
        show(their_name, "get_tuple", taken, at_most=1.0)
        show(their_name, "get_tuple in a new process", taken | {"ours": cold_s}, at_most=None)
        show(their_name, "size", sizes(), at_most=1.0, unit="MB", factor=1)


def longer(folder: Path, state: type, name: str, at_most: float) -> None:
    """Our saver alone: a thread of 2,000 turns beside one of 200, taking turns."""
    with ExitStack() as opened:
        stores = {
            turns: opened.enter_context(filled(folder, state, turns)) for turns in (SHORT, LONG)
        }
        sizes = {turns: store.stat("t").bytes / turns / 1e6 for turns, store in stores.items()}
        savers = {turns: HoldfastSaver(store) for turns, store in stores.items()}
        ways: dict[str, dict[int, Callable[[], object]]] = {
            "get_tuple": {n: functools.partial(one.get_tuple, THREAD) for n, one in savers.items()},
            "get_tuple in a new process": {
                n: functools.partial(cold, one) for n, one in stores.items()
            },
            "a turn": {n: functools.partial(turn, graph(state, one)) for n, one in savers.items()},
        }
        times = {what: medians(each) for what, each in ways.items()}
    for what, taken in (times | {"size a turn": sizes}).items():
        share = LONG / SHORT if state is Growing and what in times else 1
        long, short = taken[LONG] / share, taken[SHORT]
        about = ", a message of the state" if share > 1 else ""
        detail = f"{LONG:,} turns {long * 1e3:.2f}, {SHORT} turns {short * 1e3:.2f} (ms, kB)"
        figure = f"{name}: {what}{about}, {LONG:,} turns beside {SHORT}"
        print_figure(figure, long / short, at_most, detail)


@contextmanager
def filled(folder: Path, state: type, turns: int) -> Iterator[Store]:
    url = f"sqlite:///{folder}/{state.__name__}-{turns}.db"
    with holdfast.connect(url, require=Durability.PROCESS) as store:
        agent = graph(state, HoldfastSaver(store))
        for _ in range(turns):
            turn(agent)
        yield store


def cold(store: Store) -> None:
    HoldfastSaver(store).get_tuple(THREAD)


def medians(ways: Mapping[Name, Callable[[], object]]) -> dict[Name, float]:
    taken: dict[Name, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, work in ways.items():
            taken[name].append(timed(work))
    return {name: statistics.median(times) for name, times in taken.items()}


def timed(work: Callable[[], object]) -> float:
    """Of the processor: in memory nothing is waited for, and other programs do not count."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def show(
    their_name: str,
    what: str,
    taken: Mapping[str, float],
    *,
    at_most: float | None,
    unit: str = "ms",
    factor: float = 1e3,
) -> None:
    theirs, ours = taken["theirs"] * factor, taken["ours"] * factor
    name = f"LangGraph, {SHORT} turns of a growing state: {what}, ours beside {their_name}"
    print_figure(
        name, ours / theirs, at_most, f"ours {ours:.1f} {unit}, theirs {theirs:.1f} {unit}"
    )


def print_figure(name: str, value: float, at_most: float | None, detail: str) -> None:
    print(
        json.dumps({"name": name, "value": value, "at_most": at_most, "detail": detail}), flush=True
    )


@contextmanager
def folder_in(place: str | None) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=place))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def main(place: str, postgres: str) -> None:
    with folder_in(place) as folder:
        on_sqlite(folder)
    on_postgres(postgres)
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with folder_in(memory) as folder:
        longer(folder, Bounded, "bounded state", 1.5)
        longer(folder, Growing, "growing state", 1.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
