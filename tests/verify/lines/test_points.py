"""`crash_at` and `engine.kill_at`: a chosen line, reached and proven, or an error that says not."""

from __future__ import annotations

import inspect
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.lines import Code, Point, Trail, code_of, find_point, watching
from tests.verify.lines import stores
from tests.verify.lines.stores import OneCommit, TwoCommits

APPEND = "tests.verify.lines.stores:TwoCommits.append"
TURN = [{"id": "0", "role": "user", "content": "?"}, {"id": "1", "role": "user", "content": "!"}]


def write(path: Path) -> None:
    TwoCommits(str(path)).append("s", TURN)


def left(path: Path) -> int:
    with sqlite3.connect(path) as db:
        [(count,)] = db.execute("SELECT count(*) FROM turns").fetchall()
    return int(count)


@pytest.mark.parametrize(
    ("line", "messages"),
    [("question, *answers", 0), ("bodies = map", 1), ("# the last one", 1)],
)
def test_a_process_dies_before_the_line_is_executed(
    crash_at: Any, tmp_path: Path, line: str, messages: int
):
    evidence = crash_at(APPEND, line).run(write, tmp_path / "db")
    assert "ended by SIGKILL at stores.py:" in evidence.seen
    assert line in evidence.seen
    assert left(tmp_path / "db") == messages


def test_a_line_is_named_by_its_number_too_and_counted(crash_at: Any, tmp_path: Path):
    texts, first = inspect.getsourcelines(OneCommit.append)
    [number] = [n for n, text in enumerate(texts, first) if "INSERT" in text]

    def twice() -> None:
        OneCommit(str(tmp_path / "db")).append("s", TURN)

    where = "tests.verify.lines.stores:OneCommit.append"
    evidence = crash_at(where, number, hit=2).run(twice)
    assert evidence.facts["line"] == number
    with pytest.raises(FaultNotProven, match="never reached: the code ended before"):
        crash_at(where, number, hit=3).run(twice)


def test_a_line_that_is_never_reached_is_not_proven(crash_at: Any, tmp_path: Path):
    def only_opens() -> None:
        TwoCommits(str(tmp_path / "db"))

    with pytest.raises(FaultNotProven, match="never reached"):
        crash_at(APPEND, "# the last one").run(only_opens)
    with pytest.raises(FaultNotProven, match="ZeroDivisionError"):
        crash_at(APPEND, "# the last one").run(lambda: 1 // 0)


@pytest.mark.parametrize(
    ("where", "line", "words"),
    [
        ("tests.verify.lines.stores:TwoCommits.append", 1, "has no line 1"),
        ("tests.verify.lines.stores:TwoCommits.append", "self.db.commit()", "has 2 lines with"),
        ("tests.verify.lines.stores:TwoCommits.nothing", 1, "no attribute"),
        ("no.such:thing", 1, "No module"),
        ("tests.verify.lines.stores:INSERT", 1, "not a Python function"),
    ],
)
def test_what_names_no_line_is_a_usage_error(where: str, line: int | str, words: str):
    with pytest.raises(UsageError, match=words):
        find_point(where, line)


def push(client: redis.Redis) -> None:
    client.rpush("turn", "question")
    client.rpush("turn", "answer")


def test_an_engine_dies_at_a_line_and_the_code_goes_on(redis_engine: Any):
    client = redis.Redis.from_url(redis_engine.url)
    with (
        redis_engine.kill_at(f"{__name__}:push", '"answer"') as killed,
        pytest.raises(redis.ConnectionError),
    ):
        push(client)
    assert "ended by SIGKILL" in killed[0].seen
    redis_engine.start()
    assert client.lrange("turn", 0, -1) == [b"question"]


def test_an_engine_that_was_not_killed_is_said_so(redis_engine: Any):
    with pytest.raises(FaultNotProven, match="never reached"):
        with redis_engine.kill_at(f"{__name__}:push", '"answer"'):
            pass
    assert redis_engine.pid is not None


def test_every_thread_is_watched_and_only_the_code_that_is_asked_for():
    trail = Trail()
    trail.armed = True
    with watching(Code((stores.__file__,)), trail):
        thread = threading.Thread(target=lambda: left_over(TwoCommits(":memory:")))
        thread.start()
        thread.join()
    assert {file for file, _ in trail.passed} == {stores.__file__}
    _, first = inspect.getsourcelines(TwoCommits.append)
    assert (stores.__file__, first + 1) in trail.passed
    assert Point(stores.__file__, first + 1) in trail.points()


def left_over(store: TwoCommits) -> None:
    store.append("s", TURN)


def test_the_code_of_a_store_is_its_package_and_no_driver():
    code = code_of(TwoCommits(":memory:"))
    assert code.has(stores.__file__)
    assert not code.has(sqlite3.__file__)
    assert not code.has(redis.__file__)
    assert code.short(stores.__file__) == "tests/verify/lines/stores.py"
