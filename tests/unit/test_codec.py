"""Message to bytes and back, for every message that there can be."""

from __future__ import annotations

import contextlib
import json
import zlib
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Damaged, FormatTooNew, HoldfastError, InvalidMessage, Message, codec
from holdfast.transfer import _record_bytes, _record_field

text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
fields = st.dictionaries(text.filter(lambda name: name not in {"role", "content", "id", "at", "extra"}), json_values, max_size=4)  # fmt: skip
messages = st.builds(
    Message,
    text,
    st.none() | text | st.lists(json_values, max_size=4),
    id=text,
    created_at=st.none() | st.datetimes(timezones=offsets),
    extra=fields,
    unknown=fields,
)


@given(messages)
def test_every_message_comes_back_equal_and_of_the_same_types(message: Message):
    back = codec.decode(codec.encode(message), 7)
    assert back == message
    assert back.seq == 7
    # Equality alone would let 1 pass for 1.0 and for True.
    assert json.dumps([back.content, back.extra]) == json.dumps([message.content, message.extra])


@given(messages)
def test_a_record_is_json_that_any_program_can_read(message: Message):
    record = json.loads(codec.encode(message).decode("utf-8", "surrogatepass"))
    assert list(record) == ["v", "crc", "msg"]
    assert record["v"] == 1


@given(messages)
def test_an_export_keeps_the_bytes_of_a_record(message: Message):
    record = codec.encode(message)
    line = json.dumps(_record_field(record)).encode("utf-8")
    assert _record_bytes(json.loads(line)) == record


@given(messages, st.data())
def test_any_flipped_bit_is_noticed(message: Message, data: st.DataObject):
    record = bytearray(codec.encode(message))
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(HoldfastError):
        codec.decode(bytes(record))


@given(messages, st.integers(0, 10_000))
def test_any_truncation_is_noticed(message: Message, keep: int):
    record = codec.encode(message)
    if keep < len(record):
        with pytest.raises(Damaged):
            codec.decode(record[:keep])


@given(st.binary(max_size=80))
def test_no_bytes_make_the_reader_fail_in_another_way(data: bytes):
    with contextlib.suppress(Damaged, FormatTooNew):
        codec.decode(data)


def body(record: bytes) -> bytes:
    return record[len(b'{"v":1,"crc":"00000000","msg":') : -1]


def test_the_layout_of_version_one():
    at = datetime(2026, 11, 15, 12, tzinfo=timezone(timedelta(0)))
    record = codec.encode(
        Message("user", "hé", id="i", created_at=at, extra={"n": 1}, unknown={"x": 2})
    )
    expected = (
        '{"id":"i","role":"user","content":"hé","at":"2026-11-15T12:00:00+00:00",'
        '"extra":{"n":1},"x":2}'
    )
    assert body(record).decode() == expected
    assert record == b'{"v":1,"crc":"%08x","msg":%b}' % (
        zlib.crc32(expected.encode()),
        expected.encode(),
    )


def test_version_zero_is_read():
    message = codec.decode(b'{"role": "tool", "content": "42", "tool_call_id": "c"}', 3)
    assert message.to_openai() == {"role": "tool", "content": "42", "tool_call_id": "c"}
    assert (message.seq, message.created_at) == (3, None)
    assert message.id.startswith("v0-")


@pytest.mark.parametrize(
    "record",
    [b'{"role": 7, "content": "x"}', b'{"content": "no role"}', b'{"role": "user", "content": 1e999}',
     b'"text"', b"null", b'{"role": "user", "content": ' + b"[" * 5000],
)  # fmt: skip
def test_what_version_zero_could_not_have_written_is_damage(record: bytes):
    with pytest.raises(Damaged):
        codec.decode(record)


def forged(body: bytes) -> bytes:
    """A record whose checksum is right, whoever wrote it."""
    return b'{"v":1,"crc":"%08x","msg":%b}' % (zlib.crc32(body), body)


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    "fields",
    [b'"content":[NaN]', b'"content":[-Infinity]', b'"content":[1e999]', b'"content":7',
     b'"content":"x","extra":{"role":"system"}', b'"content":"x","extra":{"content":"y"}',
     b'"content":' + deep(102), b'"content":"x","extra":{"a":' + deep(101) + b"}",
     b'"content":"x","later":' + deep(900), b'"content":' + deep(100_000)],
    ids=lambda fields: fields[:40].decode(),
)  # fmt: skip
def test_what_no_message_can_be_is_damage_although_its_checksum_is_right(fields: bytes):
    """Otherwise a loaded file could show a role that was not stored, or stop who prints it."""
    with pytest.raises(Damaged):
        codec.decode(forged(b'{"id":"i","role":"user","at":null,' + fields + b"}"))


@given(text, json_values, json_values, json_values)
def test_what_can_be_read_can_be_written_again(
    name: str, content: object, at: object, more: object
):
    given = {"id": name, "role": "user", "content": content, "at": at, "extra": more, "later": more}
    with contextlib.suppress(Damaged):
        message = codec.decode(forged(codec.json_bytes(given)))
        assert codec.decode(codec.encode(message)) == message


def test_the_deepest_message_that_can_be_written_is_read():
    message = Message("user", json.loads(deep(100)), extra={"a": json.loads(deep(99))})
    assert codec.decode(codec.encode(message)) == message


def test_a_later_version_says_upgrade():
    with pytest.raises(FormatTooNew, match="version 2; this release reads up to 1"):
        codec.decode(b'{"v":2,"crc":"00000000","msg":{}}')


def test_a_message_changed_after_it_was_made_is_checked_again():
    content: list[object] = ["fine"]
    message = Message("user", content)
    content.append(("a", "tuple"))
    with pytest.raises(InvalidMessage, match=r"content\[1\]"):
        codec.encode(message)


def test_a_list_that_contains_itself_is_refused():
    content: list[object] = []
    content.append(content)
    with pytest.raises(InvalidMessage, match="nested deeper"):
        Message("user", content)
