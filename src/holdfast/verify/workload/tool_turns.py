"""A turn with tool calls whose writer is killed in the middle, and what a model says to the rest.

A model's API refuses a history in which a call is not followed by its result, or a result has no
call. A session that is read like that can never be used again.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.verify.adapters import plain
from holdfast.verify.target import Target
from holdfast.verify.workload import plan
from holdfast.verify.workload.client import patiently, words_of
from holdfast.verify.workload.probes import LEFT_OUT, speak

NOT_CLAIMED: Final = "it does not claim whole turns: Target(whole_turns=…) says how a model reads"
_TURN: Final = ("ask", plan.CALL, *plan.RESULTS)


@dataclass(frozen=True, slots=True)
class Case:
    """A session, what is stored of its turn when the writer dies, and what is said afterwards."""

    session: str
    stored: tuple[str, ...]
    missing: tuple[str, ...]
    """The results that another process adds in the end, as one that does the work again."""
    later: tuple[str, ...]

    @classmethod
    def cut(cls, name: str, stored: int, later: int) -> Case:
        """With so many messages of the turn stored, and so many that come before its results."""
        session = f"{name}-{stored}-{later}"
        turn = tuple(f"{session}.{part}" for part in _TURN)
        return cls(session, turn[:stored], turn[stored:], (f"{session}.next",) * later)


def cases(name: str) -> list[Case]:
    """Killed before the first result and before the last; the talk goes on, or it does not."""
    return [Case.cut(name, stored, later) for stored in (2, 3, 4) for later in (0, 1)]


def begin(client: plain.Client, of: Sequence[Case]) -> None:
    """Store what was stored when the writer died, one message after another, as agents do."""
    for case in of:
        _append(client, case, case.stored)


def wrong(client: plain.Client, case: Case) -> str:
    """Why a model refuses the session from now on, in words; empty where it does not.

    Each state that a session passes is looked at: after the crash, when the talk has gone on,
    and when the results have come late.
    """
    whole = case.stored + case.missing
    states = (
        ("after SIGKILL between a call and its result", (), () if case.missing else whole),
        ("when the talk had gone on", case.later, case.later),
        # Behind something else they are no part of the turn any more, and a store may drop it.
        ("when the results had come late", case.missing, case.later or whole[:2]),
    )
    for when, added, must_be_shown in states:
        _append(client, case, added)
        try:
            seen = patiently(lambda: client.for_model(case.session)).messages
        except Exception as error:  # noqa: BLE001 - a user's store may raise anything
            return f"{when} the session cannot be read: {words_of(error)}"
        names = [plan.name_of(message) for message in seen]
        hidden = [name for name in must_be_shown if name not in names]
        why = refusal(seen) or (f"{hidden[0]!r} is not shown" if hidden else "")
        if why:
            return f"{when} {why}; handed to a model was {names}"
    return ""


def refusal(messages: Sequence[Mapping[str, Any]]) -> str:
    """Why a model's API refuses these, in words; empty where it takes them."""
    due: dict[str, None] = {}
    for message in messages:
        if message.get("role") == "tool":
            answered = message.get("tool_call_id")
            if answered not in due:
                return f"the result of the call {answered!r} does not stand behind its call"
            del due[answered]
        elif due:
            break
        else:
            due = dict.fromkeys(call["id"] for call in message.get("tool_calls") or ())
    return f"the call {next(iter(due))!r} is not followed by its result" if due else ""


def begun(surface: plain.Client, target: Target, seed: int) -> Iterator[dict[str, Any]]:
    """Probe: write half of each turn, say so, and wait for the end."""
    del target
    try:
        begin(surface, cases(f"turns-{seed}"))
    except Exception as error:
        if not surface.is_definite(error):
            raise
        yield speak("atomic", LEFT_OUT, f"it refuses a call without result: {words_of(error)}", 0)
        return
    yield speak("atomic", "unknown", "the writer was not killed", 0)
    signal.pause()  # it is killed here; otherwise its alarm ends it


def read(surface: plain.Client, target: Target, seed: int) -> Iterator[dict[str, Any]]:
    """Probe: what a model is handed of each, now and while it goes on."""
    del target
    cut = cases(f"turns-{seed}")
    found = [why for case in cut if (why := wrong(surface, case))]
    words = found[0] if found else f"{len(cut)} turns with tool calls: a model takes every history"
    yield speak("atomic", "broken" if found else "kept", words, len(cut))


PROBES: Final = {"turns-begun": begun, "turns-read": read}


def _append(client: plain.Client, case: Case, names: Sequence[str]) -> None:
    for name in names:
        message = plan.message(name)
        patiently(lambda: client.append(case.session, [message]), client.is_definite)  # noqa: B023
