"""Every file of a database deleted, replaced or cut: an ack is only given for what is kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Damaged, EngineUnreachable, HoldfastError, OutcomeUnknown, Store
from holdfast.backends.sqlite.backend import Database
from tests.contract.harness import say, texts


@pytest.fixture
def path(disk_path: Path) -> Path:
    return disk_path / "memory.db"


def part(path: Path, name: str) -> Path:
    return Path(f"{path}-{name}")


def replace(file: Path) -> None:
    """By a copy with the same bytes."""
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    copy.replace(file)


def left(path: Path) -> list[str]:
    """What another process finds, as after SIGKILL of this one: its files, and no more."""
    elsewhere = path.with_name("elsewhere")
    elsewhere.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        if not file.name.endswith("-shm"):  # it goes with the last process
            shutil.copy(file, elsewhere)
    with holdfast.connect(f"sqlite:///{elsewhere / path.name}?mode=rw") as store:
        found = texts(store.history("s"))
    shutil.rmtree(elsewhere)
    return found


@pytest.mark.parametrize("name", ["wal", "shm"])
@pytest.mark.parametrize("harm", [Path.unlink, replace])
def test_a_log_or_index_that_lost_its_name_is_put_back_with_all_acks(
    path: Path, name: str, harm: Any
):
    with holdfast.connect(f"sqlite:///{path}") as store:
        said = [f"{turn}" for turn in range(20)]
        for text in said:
            store.append("s", say(text))
        harm(part(path, name))
        for text in ("after", "and on"):
            store.append("s", say(text))
        assert left(path) == [*said, "after", "and on"]
        assert texts(store.history("s")) == [*said, "after", "and on"]


def test_log_and_index_deleted_together(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        part(path, "wal").unlink()
        part(path, "shm").unlink()
        store.append("s", say("after"))
        assert left(path) == ["before", "after"]


def test_a_link_that_somebody_put_there_is_not_written_through(path: Path):
    """In a directory that others can write to, they know the pid of this process."""
    theirs = path.with_name("not ours")
    theirs.write_text("not ours")
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        part(path, f"wal-{os.getpid()}").symlink_to(theirs)
        part(path, "wal").unlink()
        store.append("s", say("after"))
        assert theirs.read_text() == "not ours"
        part(path, f"wal-{os.getpid()}").unlink(missing_ok=True)
        assert left(path) == ["before", "after"]


def test_a_store_that_only_reads_puts_the_log_back_too(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        part(path, "wal").unlink()
        store._backend._database.watch._seen_s = -1.0  # type: ignore[attr-defined]  # long ago
        assert texts(store.history("s")) == ["before"]
        assert left(path) == ["before"]


def test_a_store_that_is_closed_puts_the_log_back_too(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        part(path, "wal").unlink()
    assert left(path) == ["before"]


@pytest.mark.parametrize("name", ["wal", "shm"])
def test_deleted_exactly_between_the_commit_and_the_look(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        writer = store._backend._database.writer  # type: ignore[attr-defined]
        commit = writer.commit

        def and_delete(group: Any) -> None:
            commit(group)
            part(path, name).unlink()

        monkeypatch.setattr(writer, "commit", and_delete)
        assert store.append("s", say("acknowledged")).first == 2
        assert left(path) == ["before", "acknowledged"]


def test_the_log_deleted_while_it_is_being_put_back(path: Path, monkeypatch: pytest.MonkeyPatch):
    """`rm memory.db-shm memory.db-wal` takes two steps; the store may act between them."""
    retire = Database.retire
    once = [part(path, "wal")]

    def and_delete(database: Database) -> None:
        retire(database)
        while once:
            once.pop().unlink()

    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        monkeypatch.setattr(Database, "retire", and_delete)
        part(path, "shm").unlink()
        store.append("s", say("after"))
        assert once == []
        assert left(path) == ["before", "after"]


def test_a_database_replaced_after_the_commit_is_no_ack(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    holdfast.connect(f"sqlite:///{path}").close()
    backup = path.with_name("backup")
    shutil.copy(path, backup)
    with holdfast.connect(f"sqlite:///{path}") as store:
        writer = store._backend._database.writer  # type: ignore[attr-defined]
        commit = writer.commit

        def and_replace(group: Any) -> None:
            commit(group)
            part(path, "wal").unlink()
            backup.replace(path)

        monkeypatch.setattr(writer, "commit", and_replace)
        with pytest.raises(OutcomeUnknown, match="retry it with the same key"):
            store.append("s", say("where?"), key="k")
        assert store.append("s", say("where?"), key="k").first == 1
        assert texts(store.history("s")) == ["where?"] == left(path)


OPENS = """
import sys, holdfast
try:
    store = holdfast.connect(sys.argv[1])
    store.append("s", holdfast.Message("user", "from elsewhere"))
    print("acknowledged", flush=True)
except holdfast.HoldfastError as error:
    print(type(error).__name__, flush=True)
sys.stdin.read()
"""


def test_another_process_opens_the_file_while_its_log_has_no_name(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        part(path, "wal").unlink()
        with subprocess.Popen(
            [sys.executable, "-c", OPENS, f"sqlite:///{path}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as other:  # fmt: skip
            assert other.stdout is not None
            said = other.stdout.readline().strip()
            acks = ["before"]
            for text in ("meanwhile", "and on"):
                with suppress(HoldfastError):
                    store.append("s", say(text))
                    acks.append(text)
            other.send_signal(signal.SIGKILL)
        assert said in {"Damaged", "EngineUnreachable"}, "it wrote into a file that is half there"
        store.append("s", say("after"))
        assert set(left(path)) >= {*acks, "after"}


def held_by_raw_sqlite(path: Path) -> subprocess.Popen[str]:
    code = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute('PRAGMA user_version').fetchall();"
        "print('open', flush=True); sys.stdin.read()"
    )
    held = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert held.stdout is not None
    assert held.stdout.readline() == "open\n"
    return held


def test_nothing_is_written_while_another_process_holds_the_old_files_and_later_all_is_there(
    path: Path,
):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        with held_by_raw_sqlite(path) as other:
            part(path, "wal").unlink()
            store._backend._database.watch._looked_s = -1.0  # type: ignore[attr-defined]
            for _ in range(3):
                with pytest.raises(
                    EngineUnreachable, match="another process has the database open"
                ):
                    store.append("s", say("refused"))
            other.kill()
        store.append("s", say("after"))
        assert texts(store.history("s")) == ["before", "after"] == left(path)


THEIRS = """
import apsw, os, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("CREATE TABLE theirs (x)")
os._exit(0)  # without folding it in
"""


def test_a_log_that_another_program_began_is_not_overwritten_and_the_loss_is_said(path: Path):
    holdfast.connect(f"sqlite:///{path}").close()  # the tables are in the database now
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        part(path, "wal").unlink()
        part(path, "shm").unlink()
        subprocess.run([sys.executable, "-c", THEIRS, str(path)], check=True)
        theirs = part(path, "wal").read_bytes()
        assert theirs
        with pytest.raises(HoldfastError, match=r"acknowledged lately may be lost"):
            store.append("s", say("unknown"))
        assert part(path, "wal").read_bytes() == theirs
        store.append("s", say("after"))
        assert left(path)[-1] == "after"


@pytest.mark.parametrize("to", [0, 32, 5000])
def test_a_log_that_was_cut_is_no_ack_and_what_comes_later_is_kept(path: Path, to: int):
    holdfast.connect(f"sqlite:///{path}").close()  # the tables are in the database now
    with holdfast.connect(f"sqlite:///{path}") as store:
        for turn in range(5):
            store.append("s", say(f"{turn}"))
        os.truncate(part(path, "wal"), to)
        with pytest.raises(OutcomeUnknown, match="since it was last folded in may be lost"):
            store.append("s", say("unknown"))
        store.append("s", say("after"))
        store.append("s", say("and on"))
        assert left(path)[-2:] == ["after", "and on"]
        assert left(path) == texts(store.history("s"))


def test_a_log_cut_inside_its_last_page_is_noticed(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        for turn in range(5):
            store.append("s", say(f"{turn}"))
        os.truncate(part(path, "wal"), part(path, "wal").stat().st_size - 2000)
        with pytest.raises(OutcomeUnknown, match="cut short"):
            store.append("s", say("unknown"))


def fill(store: Store) -> None:
    for turn in range(120):
        store.append("s", say(f"{turn} " + "x" * 50_000))


CHANGES = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("CREATE TABLE t (x)")
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
"""


def test_the_log_is_not_put_back_over_a_database_that_another_program_has_changed(path: Path):
    with holdfast.connect(f"sqlite:///{path}"):
        pass  # its tables are in the database itself now
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"), key="k")
        part(path, "wal").unlink()
        part(path, "shm").unlink()
        subprocess.run([sys.executable, "-c", CHANGES, str(path)], timeout=60, check=True)
        assert part(path, "wal").stat().st_size == 0, "the other program folded its own log in"
        with pytest.raises(EngineUnreachable, match=r"another program has changed .* may be lost"):
            store.append("s", say("after"))
        store.append("s", say("later"))
        assert left(path) == ["later"]


def test_a_log_that_is_put_back_has_the_mode_of_its_database(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        path.chmod(0o640)
        part(path, "wal").unlink()
        store.append("s", say("after"))
        assert part(path, "wal").stat().st_mode & 0o777 == 0o640


def test_a_log_that_was_cut_and_then_deleted_is_not_put_back_as_if_it_were_whole(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        for turn in range(5):
            store.append("s", say(f"{turn}"))
        os.truncate(part(path, "wal"), part(path, "wal").stat().st_size - 100)
        part(path, "wal").unlink()
        with pytest.raises(EngineUnreachable, match=r"cut short.*may be lost"):
            store.append("s", say("after"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_database_that_was_cut_is_named_to_writers_and_readers(path: Path, share: float):
    with holdfast.connect(f"sqlite:///{path}") as store:
        fill(store)
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("in the log"))
        os.truncate(path, round(path.stat().st_size * share))
        store._backend._database.watch._looked_s = -1.0  # type: ignore[attr-defined]
        for _ in range(2):
            with pytest.raises(Damaged, match="damaged|cut it short"):
                store.append("s", say("refused"))
            with pytest.raises(Damaged):
                store.history("s")
    with pytest.raises(Damaged), holdfast.connect(f"sqlite:///{path}") as store:
        store.history("s")


def test_a_database_that_shrank_by_vacuum_is_no_damage(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        fill(store)
        store.forget("s")
        store._backend._database.watch._looked_s = -1.0  # type: ignore[attr-defined]
        store.append("t", say("before"))
        code = (
            "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute('VACUUM');"
            "c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()"
        )
        before = path.stat().st_size
        subprocess.run([sys.executable, "-c", code, str(path)], check=True)
        assert path.stat().st_size < before
        store._backend._database.watch._looked_s = -1.0  # type: ignore[attr-defined]
        store.append("t", say("after"))
        assert texts(store.history("t")) == ["before", "after"]


def test_an_empty_file_with_a_log_is_damage_and_stays_as_it_is(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        log = part(path, "wal").read_bytes()
    path.write_bytes(b"")
    part(path, "wal").write_bytes(log)
    with pytest.raises(Damaged, match="is empty, and it was not before"):
        holdfast.connect(f"sqlite:///{path}")
    assert part(path, "wal").read_bytes() == log


def test_a_link_to_the_database_is_watched_where_it_leads(path: Path):
    real = path.parent / "real"
    real.mkdir()
    path.symlink_to(real / "x.db")
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        (real / "x.db-wal").unlink()
        store.append("s", say("after"))
        assert texts(store.history("s")) == ["before", "after"] == left(real / "x.db")


def test_two_stores_of_one_process_both_go_on(path: Path):
    with (
        holdfast.connect(f"sqlite:///{path}") as one,
        holdfast.connect(f"sqlite:///{path}") as two,
    ):
        one.append("s", say("before"))
        two.append("s", say("before"))
        part(path, "wal").unlink()
        for text in ("a", "b", "c"):
            for number, store in enumerate((one, two)):
                try:
                    store.append("s", say(text), key=f"{text}{number}")
                except OutcomeUnknown:
                    store.append("s", say(text), key=f"{text}{number}")
                except EngineUnreachable:
                    continue
        assert texts(one.history("s")) == texts(two.history("s")) == left(path)
        assert texts(one.history("s"))[-2:] == ["c", "c"]


def test_a_copy_of_the_log_from_before_it_was_begun_again_does_not_bring_old_pages_back(path: Path):
    old = path.with_name("old")
    with holdfast.connect(f"sqlite:///{path}") as store:
        fill(store)
        shutil.copy(part(path, "wal"), old)
        fill(store)
        old.replace(part(path, "wal"))
        store.append("s", say("after"))
        said = texts(store.history("s"))
        assert len(said) == 241
        assert left(path) == said


def test_a_copy_of_the_log_from_before_a_forget_does_not_bring_it_back(path: Path):
    old = path.with_name("old")
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("secret"))
        shutil.copy(part(path, "wal"), old)
        assert store.forget("s").scrubbed
        old.replace(part(path, "wal"))
        store.append("t", say("after"))
        assert left(path) == []
        assert b"secret" not in path.read_bytes() + part(path, "wal").read_bytes()
