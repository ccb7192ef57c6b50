"""An agent of two steps, of which a process does the first and is killed in the second."""

from __future__ import annotations

import operator
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast.integrations.langgraph import HoldfastSaver


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def graph(saver: HoldfastSaver, second: Callable[[], AbstractContextManager[None]]) -> Any:
    def one(_: State) -> dict[str, list[str]]:
        return {"said": ["one"]}

    def two(_: State) -> dict[str, list[str]]:
        with second():
            return {"said": ["two"]}

    plan: Any = StateGraph(State)
    plan.add_node("one", one)
    plan.add_node("two", two)
    plan.add_edge(START, "one")
    plan.add_edge("one", "two")
    plan.add_edge("two", END)
    return plan.compile(checkpointer=saver)


@contextmanager
def waiting() -> Any:
    print("step 1 is done", flush=True)
    signal.pause()
    yield


def main() -> None:
    with holdfast.connect(sys.argv[1]) as store:
        about: Any = {"configurable": {"thread_id": "user-42"}}
        graph(HoldfastSaver(store), waiting).invoke({"said": ["hello"]}, about, durability="sync")
