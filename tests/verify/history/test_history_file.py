"""What is written comes back; what no run can have recorded is refused with its line."""

from __future__ import annotations

import gc
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import NotAHistory, VerifyError
from holdfast.verify import _lines, history
from holdfast.verify.history import (
    NEVER_NS,
    Event,
    Header,
    HistoryWriter,
    event_json,
    read_history,
    write_history,
)

HEADER: dict[str, Any] = {"holdfast_history": 1, "target": "t", "ttl_s": None, "claims": None}
APPEND = {"type": "invoke", "op": 1, "process": 0, "time_ns": 1, "f": "append", "session": "s"}
APPEND |= {"messages": ["a"]}
ACK = {"type": "ok", "op": 1, "time_ns": 2}
READ = {"type": "invoke", "op": 2, "process": 0, "time_ns": 3, "f": "history", "session": "s"}
SHOWN = {"type": "ok", "op": 2, "time_ns": 4, "messages": ["a"]}


@pytest.fixture(params=["fast", "plain"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is read the same way with `msgspec` and without."""
    if request.param == "plain":
        monkeypatch.setattr(history, "_DECODER", _lines.PlainDecoder())


def written(path: Path, *values: Any) -> Path:
    lines = [value if isinstance(value, str) else json.dumps(value) for value in values]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_what_a_recorder_writes_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    header = Header("mine", ttl_s=2.5, clock_error_s=0.1, claims=("fresh",))
    with HistoryWriter(path, header) as writer:
        writer.append(Event("invoke", 1, 1, 7, "append", "é\n", ("a", 'q"\\'), key="k"))
        writer.append(Event("ok", 2, 1, seqs=(4, 5)))
        writer.append(Event("invoke", 3, 2, "p", "history", "é\n", limit=9))
        writer.append(Event("ok", 4, 2, messages=("a", 'q"\\')))
        writer.append(Event("invoke", 5, 3, 7, "forget", "é\n"))
        writer.append(Event("fault", 6, name="kill", closes=(3,), landed=False))

    read = read_history(path)

    assert read.header == header
    append, shown, forget = (read.operations[number] for number in (1, 2, 3))
    assert (append.ids(), append.seqs, append.key) == (["a", 'q"\\'], [4, 5], "k")
    assert (append.invoked_ns, append.completed_ns, append.status) == (1, 2, "ok")
    assert (shown.ids(), shown.limit, shown.process) == (["a", 'q"\\'], 9, "p")
    assert (forget.status, forget.completed_ns) == ("info", 6)
    assert [(fault.name, fault.landed) for fault in read.faults] == [("kill", False)]
    assert read.sessions["é\n"].appends == [append]


def test_what_a_killed_recorder_wrote_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    child = os.fork()
    if child == 0:
        HistoryWriter(path, Header("t")).append(Event("invoke", 1, 1, 0, "append", "s", ("a",)))
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)

    assert read_history(path).operations[1].ids() == ["a"]


def test_a_second_process_adds_to_the_file_and_a_second_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    with HistoryWriter(path, Header("t")), HistoryWriter(path, None) as second:
        second.append(Event("invoke", 1, 1, 0, "append", "s", ("a",)))

    assert read_history(path).operations.keys() == {1}
    with pytest.raises(FileExistsError):
        HistoryWriter(path, Header("t"))


def test_events_in_any_order_are_written_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    events = [Event("ok", 2, 1), Event("invoke", 1, 1, 0, "append", "s", ("a",))]

    write_history(path, Header("t"), events)

    assert read_history(path).operations[1].status == "ok"


def test_without_a_completion_an_operation_is_unknown_for_ever(tmp_path: Path) -> None:
    read = read_history(written(tmp_path / "h", HEADER, APPEND))

    assert (read.operations[1].status, read.operations[1].completed_ns) == ("info", NEVER_NS)


def test_the_first_fault_that_closes_an_operation_counts(tmp_path: Path) -> None:
    kill = {"type": "fault", "name": "kill", "closes": [1]}
    faults = [kill | {"time_ns": 5}, kill | {"time_ns": 9}]

    read = read_history(written(tmp_path / "h", HEADER, APPEND, *faults))

    assert read.operations[1].completed_ns == 5


def test_fields_of_later_releases_are_no_obstacle(tmp_path: Path) -> None:
    read = read_history(written(tmp_path / "h", HEADER | {"new": 1}, APPEND | {"new": [1]}, ACK))

    assert read.operations[1].status == "ok"


def test_a_file_of_many_blocks_is_read_whole_and_errors_name_the_line(tmp_path: Path) -> None:
    count = 20_000
    many = [APPEND | {"op": n, "messages": [f"m{n}"], "time_ns": n} for n in range(count)]
    good = written(tmp_path / "good", HEADER, *many)
    bad = written(tmp_path / "bad", HEADER, *many, "{")

    assert good.stat().st_size > 2 << 20
    assert len(read_history(good).operations) == count
    with pytest.raises(NotAHistory, match=f"^line {count + 2}: "):
        read_history(bad)


def test_reading_leaves_the_garbage_collector_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path / "h", HEADER, "{")
    assert gc.isenabled()

    with pytest.raises(NotAHistory):
        read_history(path)

    assert gc.isenabled()


BAD: dict[str, tuple[int, str, tuple[Any, ...]]] = {
    "empty": (1, "header", ("",)),
    "another format": (1, "header", ("hello",)),
    "a JSON file of another kind": (1, "begins with", ({"a": 1},)),
    "a list": (1, "begins with", ("[1]",)),
    "a newer version": (1, "version 2", (HEADER | {"holdfast_history": 2},)),
    "a ttl that is no number": (1, "ttl_s", (HEADER | {"ttl_s": "1"},)),
    "a ttl that is not a number": (1, "ttl_s", ('{"holdfast_history": 1, "ttl_s": NaN}',)),
    "claims that are no list": (1, "claims", (HEADER | {"claims": "durable"},)),
    "no JSON": (2, "not an event", (HEADER, "oops", APPEND)),
    "no object": (2, "not an event", (HEADER, "[]")),
    "two events on a line": (2, "not an event", (HEADER, json.dumps(APPEND) + json.dumps(ACK))),
    "an empty line": (3, "not an event", (HEADER, APPEND, "", ACK)),
    "no time": (2, "not an event", (HEADER, {"type": "invoke", "op": 1})),
    "a time that is true": (2, "not an event", (HEADER, APPEND | {"time_ns": True})),
    "an op that is a string": (2, "not an event", (HEADER, APPEND | {"op": "1"})),
    "unknown type": (2, "unknown type 'done'", (HEADER, APPEND | {"type": "done"})),
    "unknown operation": (2, "unknown operation 'pop'", (HEADER, APPEND | {"f": "pop"})),
    "no session": (2, "session", (HEADER, APPEND | {"session": None})),
    "no messages": (2, "list of strings", (HEADER, APPEND | {"messages": None})),
    "messages of numbers": (2, "list of strings", (HEADER, APPEND | {"messages": [1]})),
    "out of order": (3, "out of order", (HEADER, APPEND, ACK | {"time_ns": 0})),
    "invoked twice": (3, "invoked before", (HEADER, APPEND, APPEND)),
    "not invoked": (2, "not in flight", (HEADER, ACK)),
    "completed twice": (4, "not in flight", (HEADER, APPEND, ACK, ACK)),
    "another session's completion": (3, "differs", (HEADER, APPEND, ACK | {"session": "t"})),
    "a read that shows nothing at all": (3, "list of", (HEADER, READ, SHOWN | {"messages": None})),
    "a negative limit": (2, "limit", (HEADER, READ | {"limit": -1})),
    "an id twice": (4, "already written", (HEADER, APPEND, ACK, APPEND | {"op": 3, "time_ns": 3})),
    "an id twice in a batch": (2, "twice", (HEADER, APPEND | {"messages": ["a", "a"]})),
    "a key for other messages": (
        3, "key 'k'",
        (HEADER, APPEND | {"key": "k"}, APPEND | {"key": "k", "op": 3, "messages": ["b"]}),
    ),
    "numbers for other messages": (3, "length", (HEADER, APPEND, ACK | {"seqs": [1, 2]})),
    "a fault without a name": (2, "name", (HEADER, {"type": "fault", "time_ns": 1})),
    "closes what never was": (
        2, "never invoked",
        (HEADER, {"type": "fault", "time_ns": 1, "name": "kill", "closes": [4]}),
    ),
    "acknowledged after the fault that closed it": (
        4, "closed by a fault",
        (HEADER, APPEND, {"type": "fault", "time_ns": 2, "name": "kill", "closes": [1]}, ACK),
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", BAD)
def test_what_is_no_history_is_refused_with_the_line(why: str, tmp_path: Path) -> None:
    line, words, values = BAD[why]

    with pytest.raises(NotAHistory, match=words) as caught:
        read_history(written(tmp_path / "h.jsonl", *values))

    assert caught.value.line == line
    assert str(caught.value).startswith(f"line {line}: ")


def test_messages_of_a_read_that_are_no_strings_are_refused_when_they_are_looked_at(
    tmp_path: Path,
) -> None:
    read = read_history(written(tmp_path / "h", HEADER, READ, SHOWN | {"messages": [1]}))

    with pytest.raises(NotAHistory, match=r"^line 3: .*list of strings"):
        read.operations[2].ids()


def test_a_last_line_that_is_half_written_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    whole = "\n".join(json.dumps(value) for value in (HEADER, APPEND, ACK))
    path.write_text(whole, encoding="utf-8")
    assert read_history(path).operations[1].status == "ok"

    path.write_text(whole[:-9], encoding="utf-8")
    with pytest.raises(NotAHistory, match=r"^line 3: half written"):
        read_history(path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "h", HEADER)
    path.write_bytes(path.read_bytes() + json.dumps(APPEND).encode()[:-1] + b'\xff"}\n')

    with pytest.raises(NotAHistory, match=r"^line 2: "):
        read_history(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAHistory, match="cannot be read"):
        read_history(tmp_path / "none")


def test_the_refusal_is_an_error_of_the_kit_and_crosses_processes() -> None:
    assert issubclass(NotAHistory, VerifyError)
    error = NotAHistory("bad", line=3)

    again = pickle.loads(pickle.dumps(error))

    assert isinstance(again, NotAHistory)
    assert (str(again), again.line) == ("line 3: bad", 3)


def test_an_event_names_only_what_applies() -> None:
    assert event_json(Event("ok", 2, 1)) == {"type": "ok", "time_ns": 2, "op": 1}
