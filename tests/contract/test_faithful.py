"""8 faithful: what comes back is exactly what went in, and one bad record hides nothing else."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from holdfast import InvalidMessage, LimitExceeded, Message, SessionState, codec, limits
from tests.contract.harness import AnyStore, Opener, say, texts

CONTENTS: list[Any] = [
    "", " ", "\0", "a\0b", "\n\r\t\x1b\x7f", "\ud800", "\udfff\ud800", "\ud83e\udd91", "🦑", "小丽", "e\u0301",
    "\ufeff", "\u2028", "</script>", '{"v":1}', "x" * 1_048_576, "\\u0000", None, [], [{}],
    [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:…", "n": None}}],
    [1, -1, 0, 2**63, -(2**64), 10**400, 0.1, -0.0, 1e-320, 1.7976931348623157e308, True, False, None, ""],
]  # fmt: skip


def test_content_comes_back_exactly(store: AnyStore):
    for number, content in enumerate(CONTENTS):
        message = Message("user", content, extra={"deep": [{"again": content}]})
        store.append(f"s{number}", message)
        [back] = store.history(f"s{number}")
        assert back == message
        assert json.dumps(back.content) == json.dumps(content), "as equal values of other types"


def test_every_field_comes_back_exactly(open_store: Opener):
    message = Message(
        "assistant",
        None,
        id="chosen-id \ud800",
        created_at=datetime(
            2024, 2, 29, 23, 59, 59, 999999, timezone(timedelta(hours=5, minutes=45))
        ),
        extra={
            "tool_calls": [{"id": "call_1", "function": {"name": "f", "arguments": '{"a": 1}'}}],
            "name": "x",
            "": {"": [[]]},
            "\ud83e\udd91": 1,
        },
        unknown={"from_the_future": [1, {"a": 2.5}]},
    )
    with open_store() as store:
        store.append("s", message)
    [back] = open_store().history("s")
    assert back == message
    assert back.created_at is not None
    assert message.created_at is not None
    assert back.created_at.utcoffset() == message.created_at.utcoffset()
    assert back.to_openai() == message.to_openai()
    assert back.unknown == message.unknown


BERLIN = ZoneInfo("Europe/Berlin")
ODD = timezone(timedelta(hours=-3, minutes=-17, seconds=-42, microseconds=-5))


class NoZone(tzinfo):
    """A time zone that knows no offset: by Python's own rule such a time is naive."""

    def utcoffset(self, _when: datetime | None) -> None:
        return None

    def dst(self, _when: datetime | None) -> None:
        return None

    def tzname(self, _when: datetime | None) -> None:
        return None


TIMES = [
    (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), "2026-10-25T00:30:00+00:00"),
    (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), "2026-10-25T01:30:00+00:00"),
    (datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), "2026-03-29T01:30:00+00:00"),
    (datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN, fold=1), "2026-03-29T00:30:00+00:00"),
    (datetime(1890, 7, 1, tzinfo=BERLIN), "1890-06-30T23:06:32+00:00"),
    (datetime(2026, 1, 1, tzinfo=ODD, fold=1), "2026-01-01T03:17:42.000005+00:00"),
    (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))), None),
    (datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))), None),
]


def test_a_time_comes_back_equal_whatever_its_zone_does(store: AnyStore):
    for number, (at, instant) in enumerate(TIMES):
        message = Message("user", "x", created_at=at)
        store.append(f"s{number}", message)
        [back] = store.history(f"s{number}")
        assert back == message
        assert back.created_at is not None
        assert back.created_at.utcoffset() == at.utcoffset()
        assert back.created_at.replace(tzinfo=None) == at.replace(tzinfo=None)
        if instant is not None:
            assert back.created_at.astimezone(UTC).isoformat() == instant


def test_openai_dictionaries_go_in_and_come_out_the_same(store: AnyStore):
    dictionaries: list[dict[str, Any]] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "xiao"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
        {"role": "tool", "content": "42", "tool_call_id": "1", "id": "not ours", "created_at": 17},
    ]
    store.append("s", [Message.from_openai(dictionary) for dictionary in dictionaries])
    assert [message.to_openai() for message in store.history("s")] == dictionaries


NO_JSON = [
    b"bytes", ("tuple",), {1, 2}, object(), float("nan"), float("inf"), [b"x"], [("t",)], {1: "a"},
    datetime.now(UTC), 2**20_000,
]  # fmt: skip


FORMS: list[Callable[[Any], Message]] = [
    lambda value: Message("user", value),
    lambda value: Message("user", [value]),
    lambda value: Message("user", "x", extra={"field": [{"deep": value}]}),
    lambda value: Message("user", "x", unknown={"field": value}),
    lambda value: Message(value, "x"),
    lambda value: Message("user", "x", id=value),
]


def test_what_could_not_come_back_the_same_is_refused(store: AnyStore):
    for value, form in itertools.product(NO_JSON, FORMS):
        with pytest.raises(InvalidMessage):
            store.append("s", form(value))
    assert store.stat("s").state is SessionState.NEVER


@pytest.mark.parametrize(
    "make",
    [
        lambda: Message("user", 7),  # type: ignore[arg-type]
        lambda: Message("user", {"a": 1}),  # type: ignore[arg-type]
        lambda: Message("user", "x", created_at=datetime(2026, 1, 1)),  # noqa: DTZ001
        lambda: Message("user", "x", created_at=datetime(2026, 1, 1, tzinfo=NoZone())),
        lambda: Message("user", "x", created_at=17.5),  # type: ignore[arg-type]
        lambda: Message("user", "x", extra={"role": "system"}),
        lambda: Message("user", "x", unknown={"id": "7"}),
        lambda: Message("user", "x", extra=[]),  # type: ignore[arg-type]
        lambda: Message.from_openai({"content": "no role"}),
        lambda: Message("user", [deep(101)]),
    ],
)
def test_a_message_of_the_wrong_shape_is_refused(make: Callable[[], Message]):
    with pytest.raises(InvalidMessage):
        make()


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_no_message_is_refused_with_a_hint(store: AnyStore):
    wrongs: list[Any] = [
        "text",
        {"role": "user", "content": "x"},
        7,
        None,
        [say("a"), "text"],
        [[]],
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidMessage, match="essage"):
            store.append("s", wrong)
    assert store.stat("s").state is SessionState.NEVER


def test_a_message_above_the_limit_is_refused_and_nothing_is_lost(store: AnyStore):
    store.append("s", say("before"))
    with pytest.raises(LimitExceeded, match="16,777,216 is the most"):
        store.append("s", [say("small"), say("x" * limits.MESSAGE_BYTES_MAX)])
    store.append("s", say("after"))
    assert texts(store.history("s")) == ["before", "after"]


def test_a_batch_above_the_limit_is_refused(store: AnyStore):
    with pytest.raises(LimitExceeded, match="10,000 messages"):
        store.append("s", (say("x") for _ in range(limits.BATCH_MESSAGES_MAX + 1)))
    assert len(store.history("s")) == 0


def test_one_damaged_record_is_named_and_hides_nothing_else(open_store: Opener):
    with open_store() as store:
        store.append("s", [say("a"), say("b"), say("c")])
    harness = open_store.harness
    record = bytearray(harness.raw("s", 2))
    record[-4] ^= 1
    harness.tamper("s", 2, bytes(record))
    history = open_store().history("s")
    assert texts(history) == ["a", "c"]
    [damage] = history.damaged
    assert damage.seq == 2
    assert "checksum" in damage.reason
    assert history.last == 3
    assert history != [history[0], history[1]], "a damaged history equals no list"


GARBAGE = [b"", b"\0", b"{", b"[]", b"not json", b'{"v":1,"crc":"0', b"\xff\xfe"]


def test_whatever_stands_in_a_record_s_place_is_only_damage(open_store: Opener):
    with open_store() as store:
        for number in range(len(GARBAGE)):
            store.append(f"s{number}", [say("a"), say("b")])
    store = open_store()
    for number, garbage in enumerate(GARBAGE):
        open_store.harness.tamper(f"s{number}", 1, garbage)
        history = store.history(f"s{number}")
        assert texts(history) == ["b"], garbage
        assert [damage.seq for damage in history.damaged] == [1], garbage


def test_a_record_of_a_later_release_is_named_as_such(open_store: Opener):
    with open_store() as store:
        store.append("s", [say("a"), say("b")])
    record = open_store.harness.raw("s", 1)
    open_store.harness.tamper("s", 1, record.replace(b'{"v":1,', b'{"v":7,', 1))
    [damage] = open_store().history("s").damaged
    assert "version 7" in damage.reason
    assert "Upgrade" in damage.reason


def test_records_from_before_the_first_release_are_read(open_store: Opener):
    with open_store() as store:
        store.append("s", [say("a"), say("b")])
    old = {"role": "assistant", "content": "written long ago", "tool_calls": [{"id": "1"}]}
    open_store.harness.tamper("s", 1, json.dumps(old).encode())
    store = open_store()
    history = store.history("s")
    assert history[0].to_openai() == old
    assert history[0].created_at is None
    assert history[0] == store.history("s")[0], "its id must not change from read to read"
    store.rewrite("s", history)
    assert store.history("s") == history


def test_unknown_fields_survive_being_written_again(open_store: Opener):
    with open_store() as store:
        store.append("s", [say("a")])
    newer = codec.encode(Message("user", "from 1.1", unknown={"mood": {"v": 3}}))
    open_store.harness.tamper("s", 1, newer)
    store = open_store()
    store.rewrite("s", store.history("s"))
    [back] = store.history("s")
    assert back.unknown == {"mood": {"v": 3}}
    assert b'"mood":{"v":3}' in open_store.harness.raw("s", 2)


def test_missing_expired_forgotten_and_live_are_different_answers(open_store: Opener):
    store = open_store()
    store.append("live", say("x"))
    store.append("forgotten", say("x"))
    store.forget("forgotten")
    for state in (SessionState.NEVER, SessionState.LIVE, SessionState.FORGOTTEN):
        assert store.history(state.value).state is state
        assert store.stat(state.value).state is state
