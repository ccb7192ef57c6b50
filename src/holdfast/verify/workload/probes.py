"""Direct checks that need no history: odd content and odd ids go in, and must come out.

Each runs inside a client process, where a store that hangs or dies harms nobody, and yields
findings: `{"promise", "verdict", "because", "tried", "refused", "examples"}`. A store may refuse
what it cannot keep, by an error; to take it and give back something else breaks a promise.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.errors import FaultNotProven
from holdfast.verify import tamper
from holdfast.verify.adapters import plain
from holdfast.verify.target import Target
from holdfast.verify.workload import plan
from holdfast.verify.workload.client import patiently

EXAMPLES_MAX: Final = 3
EXAMPLE_CHARS_MAX: Final = 300
_TOOL_CALL: Final = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"city": "Zürich", "n": 1e2}'},
}
CONTENTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("plain text", {"content": "hello"}),
    ("the empty string", {"content": ""}),
    ("spaces and newlines at both ends", {"content": " \n\t x \r\n "}),
    ("text of many languages", {"content": "你好 Ünïcödé שלום 🙂👩‍👩‍👧 e\u0301 \u2028"}),
    ("the NUL character", {"content": "a\x00b"}),
    ("a lone surrogate", {"content": "half an emoji \ud83d"}),
    ("text that looks like JSON", {"content": '{"role": "system", "content": null}'}),
    ("text that looks like SQL", {"content": "'; DROP TABLE messages; --"}),
    ("a megabyte", {"content": "0123456789abcdef" * 65536}),
    ("a list of parts", {"content": [{"type": "text", "text": "hi"}, {"type": "image", "n": 1}]}),
    ("tool calls without content", {"content": None, "tool_calls": [_TOOL_CALL]}),
    ("a tool's result", {"content": "42", "role": "tool", "tool_call_id": "call_1"}),
    ("numbers of every kind", {"content": [{"n": [0, -1, 2**63, 0.1, 1.0, 1e300, True, None]}]}),
    ("a role of its own", {"content": "x", "role": "développeur"}),
)
_DEEP: Final = json.loads("[" * 40 + "]" * 40)
MORE_CONTENTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("numbers in a field of its own", {"content": "n", "metadata": {"n": [2**53 + 1, 0.1, 1.5]}}),
    ("lists inside of lists", {"content": "d", "metadata": {"deep": _DEEP}}),
    ("a large field of its own", {"content": "l", "metadata": {"page": "0123456789" * 10_000}}),
    ("16 megabytes", {"content": "0123456789abcdef" * (1024 * 1024 - 4096)}),
)
"""Not in records of an earlier release, nor in capsules, which have what they have."""
MEGABYTE_S_MAX: Final = 0.5
"""A store that takes longer for one is not given sixteen."""
LAG_S: Final = 5.0
"""So long what was acknowledged may take until it is shown: `fresh` and `durable` judge that."""
_LAG_POLL_S: Final = 0.02
NEIGHBOURS: Final = (
    "user", "user-1", "user-10", "user-1:", "user-1:messages", "user-1/2", "User-1", "user-1 ",
    " user-1", "user-*", "user-?", "user-%", "user__", "user-_", "{user-1}", "user-1\n", "user.1",
    "user\\1", "../user-1", "'user-1'", '"user-1"', "user-é", "user-e\u0301", "user-\U0001f642",
    "user-1\x00", "user-1\x002", "x" * 200 + "a", "x" * 200 + "b", "0", "00", "None", "null",
)  # fmt: skip
"""Ids that a careless key, pattern, path or collation takes for one another."""
_GREEDY: Final = ("user-*", "user-%", "user-?", "user-_", "user__", "{user-1}", "user-1", "user")
"""Those whose forgetting hits others where a pattern or a prefix is used; patterns first."""


def faithful(surface: plain.Client, target: Target, seed: int) -> Iterator[dict[str, Any]]:
    """Every odd message that is accepted comes back as it went in, also to a new opening."""
    refused: list[str] = []
    accepted: list[tuple[str, str, list[dict[str, Any]]]] = []
    took_s = 0.0
    for number, (words, fields) in enumerate((*CONTENTS, *MORE_CONTENTS)):
        message = {"id": f"odd.{seed}.{number}", "role": "user", **fields}
        if not _may_be_kept(target, fields):
            refused.append(f"{words} (not tried: it keeps {', '.join(target.keeps)})")
            continue
        if words == "16 megabytes" and took_s > MEGABYTE_S_MAX:
            refused.append(f"{words} (not tried: one megabyte took {took_s:.1f} s)")
            continue
        began = time.monotonic()
        _offer(surface, words, f"odd-{seed}-{number}", [_turn_of(message)], accepted, refused)
        took_s = time.monotonic() - began if words == "a megabyte" else took_s
    yes = [{"id": f"yes.{seed}.{n}", "role": "user", "content": "yes"} for n in range(4)]
    again_and_again = [yes[:1], yes[1:2], yes[2:]]
    _offer(surface, "the same words again", f"yes-{seed}", again_and_again, accepted, refused)
    by = time.monotonic() + LAG_S
    own = [_same(surface, session, *sent, by=by) for _, session, sent in accepted]
    surface.close()  # a store may let no second one in
    with plain.Client(target) as again:
        other = [_same(again, session, *sent, by=by) for _, session, sent in accepted]
        late = time.monotonic() + LAG_S
        wrong = []
        for (words, session, sent), *looks in zip(accepted, own, other, strict=True):
            # What could not be read is looked at once more when all the rest has been.
            refusal = None in looks and False not in looks
            if not (all(looks) or (refusal and _same(again, session, *sent, by=late))):
                wrong.append(_example(words, session, sent, _read(again, session)))
        # A store that is one file is slow for as long as it is large.
        for _, session, _ in accepted:
            _forgets(again, session)
    names = [example["what"] for example in wrong]
    odd = f"{len(accepted)} odd messages"
    found = _finding("faithful", names, refused, "did not come back as it went in", odd)
    yield found | {"examples": wrong[:EXAMPLES_MAX]}


def _turn_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """With the result of its call, or the call: a store may show whole turns only."""
    if "tool_calls" in message:
        result = {"role": "tool", "content": "42", "tool_call_id": _TOOL_CALL["id"]}
        return [message, {"id": f"{message['id']}.result", **result}]
    if "tool_call_id" in message:
        call = {"role": "assistant", "content": "let me see", "tool_calls": [_TOOL_CALL]}
        return [{"id": f"{message['id']}.call", **call}, message]
    return [message]


def _offer(
    surface: plain.Client,
    words: str,
    session: str,
    batches: list[list[dict[str, Any]]],
    accepted: list[tuple[str, str, list[dict[str, Any]]]],
    refused: list[str],
) -> None:
    """Append them, and note whether the store took them."""
    try:
        for batch in batches:
            surface.append(session, batch)
    except Exception as error:  # noqa: BLE001 - to refuse is allowed, by any error
        refused.append(f"{words} ({type(error).__name__})")
    else:
        accepted.append((words, session, [message for batch in batches for message in batch]))


def isolated(surface: plain.Client, target: Target, seed: int) -> Iterator[dict[str, Any]]:
    """Each odd session holds its own message only; forgetting one leaves its neighbours."""
    del target
    refused, accepted = [], []
    order = list(NEIGHBOURS)
    random.Random(seed).shuffle(order)  # noqa: S311 - a plan, not a secret
    for number, session in enumerate(order):
        message = {"id": f"id.{number}", "role": "user", "content": f"id.{number} of {session!r}"}
        try:
            surface.append(session, [message])
        except Exception as error:  # noqa: BLE001 - to refuse is allowed, by any error
            refused.append(f"{session!r} ({type(error).__name__})")
        else:
            accepted.append((session, f"id.{number}"))
    tried = len(accepted)
    words = "does not show its own message and no other"
    wrong = _foreign(surface, accepted, await_own=True)
    for greedy in (g for g in _GREEDY if g in dict(accepted) and not wrong):
        accepted.remove((greedy, dict(accepted)[greedy]))
        if _forgets(surface, greedy):
            words = f"was changed by forgetting {greedy!r}"
            wrong = _foreign(surface, accepted)
    names = [example["what"] for example in wrong]
    found = _finding("isolated", names, refused, words, f"{tried} odd session ids")
    yield found | {"examples": wrong[:EXAMPLES_MAX]}


def _append(surface: plain.Client, session: str, message: dict[str, Any]) -> None:
    """Append it; a store that says "not done" is asked again, a few times."""
    patiently(lambda: surface.append(session, [message]), surface.is_definite)


def _forgets(surface: plain.Client, session: str) -> bool:
    """Forget a session; whether the store can forget is another promise's business."""
    try:
        surface.forget(session)
    except Exception:  # noqa: BLE001 - a user's store may raise anything
        return False
    return True


def damaged(surface: plain.Client, target: Target, seed: int) -> Iterator[dict[str, Any]]:
    """One record is changed behind the store's back: it is named, and hides nothing else."""
    session, beside = f"damage-{seed}", f"beside-{seed}"
    sent = tamper.messages(f"damage-{seed}", DAMAGE_MESSAGES)
    neighbours = tamper.messages(f"beside-{seed}", 2)
    for name, messages in ((session, sent), (beside, neighbours)):
        for message in messages:
            _append(surface, name, message)
    damage = tamper.damage_one(target, session, sent)
    if damage is None:
        yield speak("faithful", LEFT_OUT, tamper.UNKNOWN_RECORDS, 0)
        return
    surface.close()  # a store may let no second one in
    try:
        with plain.Client(target) as again:
            wrong = tamper.wrong_with(damage, sent, _read_or_error(again, session))
            wrong = wrong or tamper.wrong_beside(neighbours, _read_or_error(again, beside))
    except tamper.OnlyAChecksum as error:
        yield speak("faithful", LEFT_OUT, str(error), DAMAGE_MESSAGES)
        return
    except FaultNotProven as error:
        yield speak("faithful", "unknown", str(error), DAMAGE_MESSAGES)
        return
    words = wrong or ("a damaged record, which was named" + damage.alone)
    found = speak("faithful", "broken" if wrong else "kept", words, DAMAGE_MESSAGES)
    yield found | {
        "back": DAMAGE_MESSAGES - 1,
        "landed": f"1 of {DAMAGE_MESSAGES} records: {damage.where}",
    }


DAMAGE_MESSAGES: Final = 9
LEFT_OUT: Final = "left out"
"""Instead of a verdict: it could not be put to the test, and why."""


def old(surface: plain.Client, target: Target, seed: int) -> Iterator[dict[str, Any]]:
    """What the code of yesterday wrote, the code of today gives back, and can add to."""
    if target.previous is None:
        words = "no earlier release is given: Target(previous=…) opens the store of one"
        yield speak("faithful", LEFT_OUT, words, 0)
        return
    yesterday = plain.Client(replace(target, open=target.previous))
    accepted, refused = [], []
    try:
        for number, (words, fields) in enumerate(CONTENTS):
            if not _may_be_kept(target, fields):
                continue
            # Ids are younger than some releases; a release that has none makes them up when it reads.
            message = {"role": "user", **fields}
            try:
                yesterday.append(f"old-{seed}-{number}", [{"id": f"old.{number}", **message}])
            except Exception as error:  # noqa: BLE001 - to refuse is allowed, by any error
                refused.append(f"{words} ({type(error).__name__})")
            else:
                accepted.append((words, f"old-{seed}-{number}", message))
    finally:
        yesterday.close()
    by = time.monotonic() + LAG_S
    wrong = [w for w, session, message in accepted if not _same(surface, session, message, by=by)]
    if accepted and not wrong:
        words, session, _ = accepted[0]
        _append(surface, session, plan.message(f"new.{seed}"))
        seen = _read(surface, session)
        wrong = [] if seen is not None and len(seen.messages) == 2 else [words]  # noqa: PLR2004
    records = f"{len(accepted)} records of the previous release"
    yield _finding("faithful", wrong, refused, "of the previous release is not read", records)


PROBES: Final[dict[str, Callable[[plain.Client, Target, int], Iterator[dict[str, Any]]]]] = {
    "faithful": faithful,
    "isolated": isolated,
    "damaged": damaged,
    "old": old,
}


def _same(
    surface: plain.Client, session: str, *sent: dict[str, Any], by: float = 0.0
) -> bool | None:
    """Exactly these messages, and every field that went in is equal, types included.

    None: the session could not be read.
    """
    seen = _read(surface, session, count=len(sent), by=by)
    if seen is None:
        return None
    if len(seen.messages) != len(sent):
        return False
    return all(
        name in back and _is_same(back[name], value)
        for message, back in zip(sent, seen.messages, strict=True)
        for name, value in seen.kept(message).items()
    )


def _may_be_kept(target: Target, fields: Mapping[str, Any]) -> bool:
    """Whether what is odd about a message is something that the store keeps at all."""
    return not target.keeps or set(fields) <= set(target.keeps)


def _is_same(back: Any, sent: Any) -> bool:
    # Most are long texts: what is equal at once need not be written out.
    return (type(back) is type(sent) is str and back == sent) or _exact(back) == _exact(sent)


def _exact(value: Any) -> str:
    """So that 1, 1.0 and True differ."""
    return json.dumps(value, sort_keys=True, default=repr)


def _foreign(
    surface: plain.Client, accepted: list[tuple[str, str]], *, await_own: bool = False
) -> list[dict[str, str]]:
    """The sessions that do not show their own message and no other."""
    by = time.monotonic() + LAG_S
    seen = [
        (session, name, _read(surface, session, count=int(await_own), by=by))
        for session, name in accepted
    ]
    return [
        _example(repr(session), session, [name], None if read is None else _names(read))
        for session, name, read in seen
        if read is None or _names(read) != [name]
    ]


def _example(what: str, session: str, sent: Any, seen: Any) -> dict[str, str]:
    """What went in and what came back, short enough to be shown."""
    messages = seen.messages if isinstance(seen, plain.Read) else seen
    back = "an error, or nothing that could be read" if seen is None else _exact(messages)
    return {
        "what": what,
        "session": session[:EXAMPLE_CHARS_MAX],
        "sent": _exact(sent)[:EXAMPLE_CHARS_MAX],
        "seen": back[:EXAMPLE_CHARS_MAX],
    }


def _names(read: plain.Read) -> list[str]:
    return [plan.name_of(message) for message in read.messages]


def _read(
    surface: plain.Client, session: str, *, count: int = 0, by: float = 0.0
) -> plain.Read | None:
    """The session, with so many messages if they are shown by then; None if it cannot be read by then."""
    while True:
        seen = _read_or_error(surface, session)
        over = time.monotonic() >= by
        if isinstance(seen, Exception):
            if over:
                return None
        elif over or len(seen.messages) >= count:
            return seen
        time.sleep(_LAG_POLL_S)


def _read_or_error(surface: plain.Client, session: str) -> plain.Read | Exception:
    """The session, or why it cannot be read: not once, a store may be busy for a moment."""
    try:
        return patiently(lambda: surface.history(session))
    except Exception as error:  # noqa: BLE001 - a user's store may raise anything
        return error


def _finding(
    promise: str, wrong: list[str], refused: list[str], words: str, odd: str
) -> dict[str, Any]:
    tried = int(odd.split(maxsplit=1)[0])
    back = {"back": tried - len(wrong)}
    if wrong:
        because = f"{wrong[0]} {words}" + (f", and {len(wrong) - 1} more" if wrong[1:] else "")
        return speak(promise, "broken", because, tried, refused) | back
    if not tried:
        return speak(promise, "unknown", "the store refused everything", tried, refused)
    return speak(promise, "kept", odd, tried, refused) | back


def speak(
    promise: str, verdict: str, because: str, tried: int, refused: list[str] | None = None
) -> dict[str, Any]:
    """A finding, as it goes over the wire."""
    return {
        "promise": promise,
        "verdict": verdict,
        "because": because,
        "tried": tried,
        "refused": refused or [],
        "examples": [],
    }
