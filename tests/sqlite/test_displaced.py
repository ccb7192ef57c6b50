"""A database replaced while several processes use it: nobody goes on with the old one's pages."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import EngineUnreachable, OutcomeUnknown
from holdfast.backends.sqlite.writer import Pending
from holdfast.codec import encode
from holdfast.commands import Append
from tests.contract.harness import say, texts
from tests.sqlite.test_files import left, replace


@pytest.fixture
def path(disk_path: Path) -> Path:
    return disk_path / "memory.db"


FOLDS_IN = """
import os, sys, holdfast
store = holdfast.connect(sys.argv[1])
for turn in range(200):
    store.append("s", holdfast.Message("user", f"{turn} " + "x" * 50_000))
os._exit(0)  # its acks are in the database and in the -wal file that both share
"""


def test_a_database_replaced_while_a_write_waits_for_its_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would write pages of the old database into the log that is the new one's by now."""
    url = f"sqlite:///{path}"
    with holdfast.connect(url) as store:
        store.append("s", say("before"))
        watch = store._backend._database.watch  # type: ignore[attr-defined]
        look = watch.harm_now
        first = [True]

        def look_and_wait() -> Any:
            found = look()
            while first:
                first.pop()
                replace(path)
                subprocess.run([sys.executable, "-c", FOLDS_IN, url], check=True)
            return found

        monkeypatch.setattr(watch, "harm_now", look_and_wait)
        with suppress(EngineUnreachable):  # it says that the database is another one
            store.append("s", say("refused"), key="k")
        store.append("s", say("refused"), key="k")
        said = [text.split()[0] for text in texts(store.history("s"))]
        assert said == ["before", *map(str, range(200)), "refused"]
        assert [text.split()[0] for text in left(path)] == said


def test_a_database_replaced_before_a_forget_empties_the_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would move what others have acknowledged into the old database, and cut the log."""
    url = f"sqlite:///{path}"
    with holdfast.connect(url) as store:
        store.append("old", say("before"))
        writer = store._backend._database.writer  # type: ignore[attr-defined]
        scrub = writer._scrub

        def wait_and_scrub(group: Any) -> None:
            replace(path)
            subprocess.run([sys.executable, "-c", ACKS, url], check=True)
            scrub(group)

        monkeypatch.setattr(writer, "_scrub", wait_and_scrub)
        with pytest.raises(OutcomeUnknown):
            store.forget("old")
        assert texts(store.history("s")) == ["acknowledged"] == left(path)


ACKS = """
import os, sys, holdfast
holdfast.connect(sys.argv[1]).append("s", holdfast.Message("user", "acknowledged"))
os._exit(0)
"""


def test_a_group_whose_writes_go_one_by_one_is_not_written_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One was committed alone when the files lose their names: the next one must not take it along."""
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        backend: Any = store._backend
        writer = backend._database.writer
        group = [Pending(Append(b"s", [encode(say(text))])) for text in ("one", "two")]
        apply, in_place = writer._apply, iter((True, True, False))

        def too_large(pending: Any) -> None:
            if len(pending) > 1:
                raise apsw.FullError
            apply(pending)

        monkeypatch.setattr(writer, "_apply", too_large)
        monkeypatch.setattr(writer, "_in_place", lambda: next(in_place))
        backend._commit(group)
        assert isinstance(group[1].error, EngineUnreachable)
        assert texts(store.history("s")) == ["before", "one"]
