"""A directory that vanished, moved, turned read-only or is memory: named, not ignored."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import holdfast
from holdfast import (
    Durability,
    EngineUnreachable,
    Message,
    Refused,
    StorageWarning,
    Store,
    UsageError,
)
from holdfast.backends.sqlite.durability import SqliteSetup, durability_on
from holdfast.linux import file_system_of, mount_of, parse_mounts
from tests.contract.harness import say, texts
from tests.sqlite.namespaces import run_in_namespace
from tests.waiting import wait_until


@pytest.fixture
def path(disk_path: Path) -> Path:
    folder = disk_path / "data"
    folder.mkdir()
    return folder / "memory.db"


def refuses_to_read(store: Store) -> bool:
    """Readers look at the place again a moment after all was well."""
    try:
        store.history("s")
    except EngineUnreachable:
        return True
    return False


def refuses_to_write(store: Store) -> bool:
    """A name that leads elsewhere is noticed a moment later than one that leads nowhere."""
    try:
        store.append("s", say("lost"))
    except EngineUnreachable:
        return True
    return False


def test_a_directory_moved_away_is_named_and_the_store_works_again_when_it_is_back(path: Path):
    away = path.parent.with_name("away")
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        path.parent.rename(away)
        for _ in range(3):
            with pytest.raises(EngineUnreachable, match=r"Nothing was written|nothing was written"):
                store.append("s", say("lost"), key="k")
        wait_until(lambda: refuses_to_read(store))
        assert not path.parent.exists(), "an empty directory was put in its place"
        away.rename(path.parent)
        wait_until(lambda: not refuses_to_read(store))
        assert store.append("s", say("after"), key="k").first == 2
        assert texts(store.history("s")) == ["before", "after"]


def test_a_deleted_file_is_named_and_never_replaced_by_an_empty_one(path: Path):
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("before"))
        for file in path.parent.iterdir():
            file.unlink()
        for _ in range(3):
            with pytest.raises(EngineUnreachable, match=r"memory\.db"):
                store.append("s", say("lost"))
        assert list(path.parent.iterdir()) == []


def test_a_restored_backup_is_taken_up_after_it_was_said_once(path: Path):
    backup = path.with_name("backup.db")
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("in the backup"))
    shutil.copy(path, backup)
    with holdfast.connect(f"sqlite:///{path}") as store:
        store.append("s", say("later"))
        for name in (path, f"{path}-wal", f"{path}-shm"):
            Path(name).unlink()
        backup.rename(path)
        wait_until(lambda: refuses_to_write(store))
        assert texts(store.history("s")) == ["in the backup"]
        assert store.append("s", say("new")).first == 2


def test_a_missing_directory_is_not_created(disk_path: Path):
    with pytest.raises(EngineUnreachable, match="does not exist; nothing was written"):
        holdfast.connect(f"sqlite:///{disk_path}/no/such/memory.db")
    assert list(disk_path.iterdir()) == []


def test_a_directory_in_the_place_of_the_file(disk_path: Path):
    with pytest.raises(EngineUnreachable, match="is a directory"):
        holdfast.connect(f"sqlite:///{disk_path}")


def test_mode_rw_refuses_to_create(path: Path):
    with pytest.raises(EngineUnreachable, match="mode=rw"):
        holdfast.connect(f"sqlite:///{path}?mode=rw")
    assert not path.exists()
    holdfast.connect(f"sqlite:///{path}").close()
    holdfast.connect(f"sqlite:///{path}?mode=rw").close()


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/x.db", "sqlite:///x.db?mode=ro",
     "sqlite:///x.db?cache=shared", "sqlite:///x.db?busy_timeout_s=never", "sqlite:///a%00b",
     "sqlite:///x#1.db"],
)  # fmt: skip
def test_a_url_that_names_no_file_or_an_unknown_setting_is_refused(url: str):
    with pytest.raises(UsageError, match="sqlite|busy_timeout_s|path|%23"):
        holdfast.connect(url)
    assert not Path("x.db").exists()


def test_a_relative_url_and_a_percent_encoded_one(disk_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(disk_path)
    with holdfast.connect("sqlite:///two%20words.db") as store:
        store.append("s", say("x"))
        monkeypatch.chdir("/")
        assert texts(store.history("s")) == ["x"], "the path must not follow the working directory"
    assert (disk_path / "two words.db").exists()


def test_memory_is_refused_as_a_disk_and_named_in_the_ack():
    shm = Path("/dev/shm")
    assert file_system_of(shm) == "tmpfs", "this test needs the usual /dev/shm"
    path = shm / f"holdfast-test-{os.getpid()}.db"
    try:
        with pytest.raises(Refused, match="tmpfs, which is memory and gone at power loss"):
            holdfast.connect(f"sqlite:///{path}")
        with holdfast.connect(f"sqlite:///{path}", require=Durability.PROCESS) as store:
            assert store.append("s", say("x")).durability is Durability.PROCESS
    finally:
        for file in shm.glob(f"{path.name}*"):
            file.unlink()


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /tmp rw shared:5 - tmpfs tmpfs rw
31 22 0:26 / /srv/two\\040words rw - xfs /dev/vdb rw
35 22 0:30 / /srv/größe rw - btrfs /dev/vde rw
32 22 0:27 / /srv/over rw - ext4 /dev/vdc rw
33 22 0:28 / /srv/over rw - overlay overlay rw
34 22 0:29 / /tmp/deep ro - ext4 /dev/vdd ro
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/x.db", "ext4"),
        ("/tmp/x.db", "tmpfs"),
        ("/tmpx/x.db", "ext4"),
        ("/tmp/deep/x.db", "ext4"),
        ("/srv/two words/x.db", "xfs"),
        ("/srv/größe/x.db", "btrfs"),
        ("/srv/over/x.db", "overlay"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(path: str, kind: str):
    mount = mount_of(Path(path), parse_mounts(MOUNTS.splitlines()))
    assert mount is not None
    assert mount.kind == kind


def test_only_memory_lowers_the_level():
    assert durability_on("tmpfs") is Durability.PROCESS
    assert durability_on("ext4") is Durability.DISK


def test_a_container_s_own_layer_is_a_named_risk():
    setup = SqliteSetup()
    setup.path, setup.file_system, setup.durability = Path("/data/x.db"), "overlay", Durability.DISK
    assert "removed together with the container" in str(setup.risk())
    setup.file_system = "ext4"
    assert setup.risk() is None
    assert issubclass(StorageWarning, UserWarning)


READ_ONLY = """
import subprocess, sys
import holdfast
from holdfast import Message
def mount(*options): subprocess.run(["mount", *options], check=True)
folder = sys.argv[1]
url = f"sqlite:///{folder}/memory.db"
mount("--bind", folder, folder)
with holdfast.connect(url) as store:
    store.append("s", Message("user", "before"))
mount("-o", "remount,ro,bind", folder)
try:
    holdfast.connect(url)
except holdfast.Refused as error:
    print(error)
mount("-o", "remount,rw,bind", folder)
with holdfast.connect(url) as store:
    store.append("s", Message("user", "after"))
    print([m.content for m in store.history("s")])
"""


def test_a_read_only_directory_is_refused_and_works_again_when_it_is_writable(disk_path: Path):
    refusal, after = run_in_namespace(READ_ONLY, str(disk_path)).splitlines()
    assert "is read-only for this process; nothing can be written" in refusal
    assert after == "['before', 'after']"


FULL = """
import json, os, subprocess, sys
from pathlib import Path
import holdfast
from holdfast import Durability, EngineFull, Message
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
ballast = folder / "ballast"
ballast.write_bytes(b"x" * 1_000_000)
store = holdfast.connect(f"sqlite:///{folder}/memory.db", require=Durability.PROCESS)
acks, fulls = [], 0
for turn in range(2000):
    try:
        acks.append(store.append("s", [Message("user", f"{turn}" + "x" * 2000)] * 2).last)
    except EngineFull as error:
        fulls += 1
        assert error.operation == "append" and "nothing was written" in str(error)
        if fulls == 3:
            break
there = len(store.history("s"))
ballast.unlink()
more = store.append("s", Message("user", "room again"))
store.close()
again = holdfast.connect(f"sqlite:///{folder}/memory.db", require=Durability.PROCESS)
history = again.history("s")
print(json.dumps([fulls, acks[-1], there, more.first, [m.seq for m in history][-1], len(history)]))
"""


def test_a_full_disk_is_said_loses_nothing_and_is_over_when_there_is_room(disk_path: Path):
    fulls, last, there, after, end, count = json.loads(run_in_namespace(FULL, str(disk_path)))
    assert fulls == 3
    assert last > 10
    assert there == last, "an acknowledged message is missing, or a refused one is there"
    assert (after, end, count) == (last + 1, last + 1, last + 1)


def test_the_message_of_a_refusal_says_what_to_do(disk_path: Path):
    with pytest.raises(Refused, match="Use PostgreSQL or Redis") as caught:
        holdfast.connect(f"sqlite:///{disk_path}/x.db", require=Durability.REPLICA)
    assert caught.value.backend == "sqlite"
    with holdfast.connect(f"sqlite:///{disk_path}/x.db") as store:
        store.append("s", Message("user", "usable all the same"))
