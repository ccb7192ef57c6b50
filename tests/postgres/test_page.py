"""docs/howto/postgres.md: its examples are run, on a real server and a real replica."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

import holdfast
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say, texts
from tests.postgres.conftest import OpenStore
from tests.postgres.test_migration import GRANTS, RECALL_GRANTS
from tests.recall.models import Letters

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "postgres.md").read_text("utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_python_examples_work(postgres_engine: PostgresEngine):
    replica = postgres_engine.replica()
    program = "\n".join(blocks("python no-run"))
    for server, engine in (("db", postgres_engine), ("copy", replica)):
        program = program.replace(f"postgresql://app:secret@{server}.example/app", engine.url)
    assert program.count("127.0.0.1") == 3
    exec(program, {})


def test_the_grants_are_those_that_are_tested():
    [grants, more, _] = blocks("sql")
    assert tuple(line.rstrip(";") for line in grants.splitlines()) == GRANTS
    assert tuple(line.rstrip(";") for line in more.splitlines()) == RECALL_GRANTS


def test_a_split_table_keeps_every_promise(
    postgres_engine: PostgresEngine, admin: psycopg.Connection, connect: OpenStore
):
    store = connect(postgres_engine)
    for number in range(20):
        store.append(f"s{number}", [say("a"), say("b")], key="k")
    recalling = holdfast.connect(postgres_engine.url, embedder=Letters())
    assert len(recalling.recall("s0", "a")) == 2
    [_, _, split] = blocks("sql")
    admin.execute(split.encode())
    for number in range(20):
        assert store.append(f"s{number}", say("a"), key="k").repeated
        assert store.append(f"s{number}", say("c"), expect=2).last == 3
        assert texts(store.history(f"s{number}")) == ["a", "b", "c"]
    assert admin.execute("SELECT count(DISTINCT tableoid) FROM holdfast.messages").fetchone() == (
        4,
    )
    assert len(recalling.recall("s0", "c")) == 3
    recalling.close()
    assert store.forget("s0").messages == 3
    assert admin.execute("SELECT count(*) FROM holdfast.entries").fetchone() == (0,)
    assert store.rewrite("s1", [say("d")]).first == 4
    with holdfast.connect(f"{postgres_engine.url}?schema=copy") as copy:
        assert copy.load(store.export()).sessions == 20
