"""Through PgBouncer in transaction mode every statement may meet another backend."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import Durability
from holdfast.doctor import Hazard, Soundness, audit
from holdfast.verify.engines.ports import HOST
from holdfast.verify.engines.postgres import PostgresEngine
from holdfast.verify.run_as import run_as_ids, run_as_user
from tests.contract.harness import say, texts
from tests.waiting import wait_until

CONFIG = """
[databases]
postgres = host={host} port={engine_port} dbname=postgres user=postgres password={password}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
server_reset_query_always = 1
server_reset_query = DISCARD ALL
logfile = {folder}/log
"""


@pytest.fixture
def bouncer(postgres_engine: PostgresEngine) -> Iterator[str]:
    """The URL of a PgBouncer before the engine; three backends for all clients.

    By default the database commits without waiting, so that what a client sets can be seen.
    """
    postgres_engine.query("ALTER DATABASE postgres SET synchronous_commit = off")
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    assert program, "pgbouncer is missing: make setup installs it"
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    with contextlib.ExitStack() as after:
        folder = Path(after.enter_context(tempfile.TemporaryDirectory()))
        shutil.chown(folder, *run_as_ids())  # it does not run as root, either
        config = folder / "pgbouncer.ini"
        config.write_text(
            CONFIG.format(
                host=HOST,
                port=port,
                engine_port=postgres_engine.port,
                password=postgres_engine.password,
                folder=folder,
            )
        )
        process = subprocess.Popen(
            run_as_user([program, str(config)]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        after.callback(process.wait, 10)
        after.callback(process.terminate)
        url = postgres_engine.url.replace(str(postgres_engine.port), str(port))
        wait_until(lambda: _answers(url))
        yield url


def _answers(url: str) -> bool:
    with (
        contextlib.suppress(psycopg.OperationalError),
        psycopg.connect(url, prepare_threshold=None),
    ):
        return True
    return False


def test_every_operation_works(bouncer: str):
    with holdfast.connect(bouncer) as store:
        first = store.append("s", [say("a"), say("b")], key="k", ttl_s=60)
        assert store.append("s", say("a"), key="k") == first
        store.rewrite("s", [say("c")])
        assert texts(store.history("s", limit=5)) == ["c"]
        assert store.stat("s").count == 1
        lines = list(store.export())
        assert store.forget("s").messages == 1
        with holdfast.connect(bouncer, namespace="copy") as copy:
            copy.load(lines)
            assert texts(copy.history("s")) == ["c"]


def test_a_full_forget_rewrites_the_tables_through_it_or_says_that_it_did_not(
    bouncer: str, postgres_engine: PostgresEngine
):
    """Each statement may meet another backend; a transaction that needs old rows may be anybody's."""
    postgres_engine.query("ALTER SYSTEM SET autovacuum = off")  # it would need old rows, too
    postgres_engine.query("SELECT pg_reload_conf()")
    with holdfast.connect(bouncer) as store, psycopg.connect(bouncer) as other:
        store.append("s", say("a secret"))
        other.execute("SELECT pg_current_xact_id()")  # and stays open, on a backend of its own
        assert "base/" in " ".join(store.forget("s", now="full").left)
        other.rollback()
        store.append("s", say("a secret"))
        wait_until(lambda: "base/" not in " ".join(store.forget("s", now="full").left))
    tables = Path(str(postgres_engine.data_dir)) / "base"
    postgres_engine.query("CHECKPOINT")
    assert not [
        file for file in tables.rglob("*") if file.is_file() and b"a secret" in file.read_bytes()
    ]


def test_many_clients_share_few_backends_and_nothing_of_one_reaches_another(bouncer: str):
    """Levels differ from client to client, and are set for one transaction each."""
    holdfast.connect(bouncer).close()
    levels: list[tuple[Durability, Durability]] = []

    def write(number: int) -> None:
        require = (Durability.MEMORY, Durability.DISK)[number % 2]
        with holdfast.connect(bouncer, require=require) as store:
            for turn in range(30):
                ack = store.append(
                    f"s{number % 3}", say(f"{number}:{turn}"), key=f"{number}:{turn}"
                )
                levels.append((require, ack.durability))
                assert f"{number}:{turn}" in texts(store.history(f"s{number % 3}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(levels) == 240
    assert set(levels) == {
        (Durability.MEMORY, Durability.MEMORY),
        (Durability.DISK, Durability.DISK),
    }


def test_the_async_api_works(bouncer: str):
    async def scenario() -> None:
        async with await holdfast.connect_async(bouncer) as store:
            await asyncio.gather(*(store.append(f"s{n % 4}", say(str(n))) for n in range(60)))
            assert sum([len(await store.history(f"s{n}")) for n in range(4)]) == 60

    asyncio.run(scenario())


def test_the_doctor_looks_through_it(bouncer: str):
    found = audit(bouncer)
    assert found.sound[Hazard.SIGKILL] is Soundness.UNSOUND, "this database commits without waiting"
    assert found.ack_durability is Durability.DISK
