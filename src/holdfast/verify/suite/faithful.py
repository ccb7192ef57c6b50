"""faithful: what comes back is exactly what went in, and one bad record hides nothing else."""

from __future__ import annotations

import secrets
from typing import Any, Final

from holdfast.verify.adapters.plain import Client, Read
from holdfast.verify.suite.judging import broken, cannot, hold, new_session
from holdfast.verify.suite.record import turn
from holdfast.verify.tamper import (
    UNKNOWN_RECORDS,
    OnlyAChecksum,
    damage_one,
    messages,
    wrong_with,
)
from holdfast.verify.target import Target

CONTENTS: Final[tuple[Any, ...]] = (
    "plain words", " spaces around ", "two\nlines\r\n\ttab", "小丽 e\u0301 é 🦑", "</script>&amp;", '{"v":1}',
    "it's \"quoted\" \\ back", "", "x" * 100_000, "0012", "null", "True",
    [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:…", "n": None}}],
)  # fmt: skip
"""Contents that every store has to take."""
ODD_CONTENTS: Final[tuple[Any, ...]] = (
    "a\0b", "\ud800", "\ufeffmark", "\u2028", None, [], [1, 0.1, -0.0, 2**63, True, None],
)  # fmt: skip
"""Contents that a store may refuse with an error, and may not change."""


def test_content_comes_back_exactly(target: Target) -> None:
    """Text of every kind and lists of parts, read by a client that did not write them."""
    sent = [(turn(f"m.{n}") | {"content": content}) for n, content in enumerate(CONTENTS)]
    session = new_session()
    with Client(target) as writer:
        for message in sent:
            writer.append(session, [message])
    with Client(target) as reader:
        _compare(sent, reader.history(session))


def test_odd_content_comes_back_exactly_or_is_refused(target: Target) -> None:
    """What a store cannot keep it has to refuse: to keep something else is worse."""
    for content in ODD_CONTENTS:
        session = new_session()
        message = turn("m.0") | {"content": content}
        with Client(target) as client:
            try:
                client.append(session, [message])
            except Exception:  # noqa: BLE001, S112 - refused, in whatever words
                continue
            _compare([message], client.history(session))


def test_roles_come_back_exactly(target: Target) -> None:
    """Who said what is part of what was said."""
    roles = ("system", "user", "assistant", "tool", "developer")
    sent = [turn(f"m.{number}") | {"role": role} for number, role in enumerate(roles)]
    session = new_session()
    with Client(target) as client:
        client.append(session, sent)
    with Client(target) as reader:
        _compare(sent, reader.history(session))


def test_a_damaged_record_is_named_and_hides_nothing_else(target: Target) -> None:
    """One stored record is damaged; `.damaged` of the answer, or a key `damaged`, names it."""
    session = new_session()
    sent = messages(f"m-{secrets.token_hex(8)}", 3)
    with Client(target) as writer:
        for message in sent:
            writer.append(session, [message])
    damage = damage_one(target, session, sent)
    if damage is None:
        cannot(UNKNOWN_RECORDS)
    try:
        with Client(target) as reader:
            wrong = wrong_with(damage, sent, _read(reader, session))
    except OnlyAChecksum as error:
        cannot(str(error))
    hold("faithful", wrong is None, str(wrong))


def test_records_of_the_previous_release_are_read(target: Target) -> None:
    """What the code of yesterday wrote, the code of today gives back."""
    if target.previous is None:
        cannot("no earlier release is given: Target(previous=…) opens the store of one")
    sent = [turn(f"m.{n}") | {"content": content} for n, content in enumerate(CONTENTS)]
    session = new_session()
    with Client(Target(open=target.previous, keeps=target.keeps)) as old:
        for message in sent:
            old.append(session, [message])
    with Client(target) as new:
        try:
            seen = new.history(session)
        except Exception as error:  # noqa: BLE001 - whatever it raises, the record is unreadable
            broken("faithful", f"records of the previous release cannot be read: {error!r}")
        _compare(sent, seen)


def _read(reader: Client, session: str) -> Read | Exception:
    """What it shows, or whatever it raises instead."""
    try:
        return reader.history(session)
    except Exception as error:  # noqa: BLE001 - whatever it raises, nothing is shown
        return error


def _compare(sent: list[dict[str, Any]], seen: Read) -> None:
    hold("faithful", len(seen.messages) == len(sent), f"{len(sent)} in, {len(seen.messages)} out")
    for message, back in zip(sent, seen.messages, strict=True):
        for name, value in seen.kept(message).items():
            same = back.get(name) == value and type(back.get(name)) is type(value)
            words = f"{name} {_short(value)} came back as {_short(back.get(name))}"
            hold("faithful", same, words)


def _short(value: object) -> str:
    words = ascii(value)
    return words if len(words) < 200 else f"{words[:100]}… ({len(words)} characters)"  # noqa: PLR2004
