"""An agent in LangGraph's shape: nodes, edges and a state. The state is the log.

    python examples/agent.py user-42 "Please book a table for two at eight"
    python examples/agent.py user-42        # after a crash: finish what was begun

Every node appends what it made before the next one starts, so that an agent that was killed
anywhere goes on from there: no tool is called again whose result is known, and nothing that
was said is lost. The model is any server that speaks the OpenAI protocol (OPENAI_BASE_URL,
OPENAI_API_KEY, OPENAI_MODEL); `python examples/model.py` is one that needs neither key nor network.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Conflict, Message, Store

Node = Callable[[Sequence[Message]], list[Message]]
"""What the session holds -> what the node adds to it."""

MODEL_URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8099/v1")
MODEL_TIMEOUT_S = 120.0
REMEMBERED = 100
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Book a table.",
            "parameters": {
                "type": "object",
                "properties": {"people": {"type": "string"}, "at": {"type": "string"}},
                "required": ["people", "at"],
            },
        },
    }
]


def book(call: str, *, people: str, at: str) -> str:
    """An effect on the world, named by the call: to do it twice is to do it once.

    A crash may come after the effect and before its result is kept. Then the call is repeated,
    and its name is what tells the world that it is the same one.
    """
    note = f"a table for {people} at {at}"
    folder = Path("bookings")
    folder.mkdir(exist_ok=True)
    (folder / call).write_text(note)
    return note


def ask_model(history: Sequence[Message]) -> list[Message]:
    """The node that thinks: everything that was said goes to the model."""
    said = [message.to_openai() for message in history]
    body = {"model": os.environ.get("OPENAI_MODEL", "any"), "messages": said, "tools": TOOLS}
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}",
    }
    request = urllib.request.Request(  # noqa: S310 - the address is the user's own
        f"{MODEL_URL}/chat/completions", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=MODEL_TIMEOUT_S) as reply:  # noqa: S310
        return [Message.from_openai(json.load(reply)["choices"][0]["message"])]


def call_tools(history: Sequence[Message]) -> list[Message]:
    """The node that acts: every call of the last message, and all results in one append."""
    return [_result(history[-1], call) for call in history[-1].extra["tool_calls"]]


def _result(asked: Message, call: Any) -> Message:
    wanted = call["function"]
    if wanted["name"] == "book":
        content = book(f"{asked.seq}-{call['id']}", **json.loads(wanted["arguments"]))
    else:
        content = f"there is no tool {wanted['name']}"
    return Message("tool", content, extra={"tool_call_id": call["id"]})


def edge(history: Sequence[Message]) -> Node | None:
    """Where to go from here, told by the last message alone; None is the end of a turn."""
    if not history:
        return None
    last = history[-1]
    if last.role == "assistant":
        return call_tools if last.extra.get("tool_calls") else None
    return ask_model


def run(store: Store, session: str) -> str | None:
    """Follow the edges to the end of the turn; the answer."""
    history = store.history(session, limit=REMEMBERED)
    while (node := edge(history)) is not None:
        last = history[-1].seq
        try:  # the key makes a repeated step one step, `expect` lets no other agent in between
            store.append(session, node(history), key=f"after-{last}", expect=last)
        except Conflict:
            print("another agent went on with this session: so do we, from where it is")
        history = store.history(session, limit=REMEMBERED)
    return str(history[-1].content) if history else None


def main(session: str, question: str | None = None) -> None:
    """Finish what was begun; then ask, if there is a question."""
    with holdfast.connect("sqlite:///agent.db") as store:
        try:
            answer = run(store, session)
            if question is not None:
                store.append(session, Message("user", question))
                answer = run(store, session)
        except urllib.error.URLError as error:
            sys.exit(
                f"no answer from the model at {MODEL_URL}: {error.reason}. What was said is kept"
            )
        print(answer or "nothing was said yet")


if __name__ == "__main__":
    main(*sys.argv[1:])
