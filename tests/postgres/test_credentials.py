"""A password is in no error, no repr, no log and no record of what went wrong."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback

import psycopg
import pytest

import holdfast
from holdfast import EngineUnreachable, HoldfastError
from holdfast.backends.postgres.address import read_address
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines.postgres import PostgresEngine
from tests.contract.harness import say

SECRET = "Tr0ub4dor&3"
QUOTED = "Tr0ub4dor%263"


@pytest.fixture
def guarded(postgres_engine: PostgresEngine, admin: psycopg.Connection) -> PostgresEngine:
    """A server that asks the role `app` for its password."""
    admin.execute(f"CREATE ROLE app LOGIN SUPERUSER PASSWORD '{SECRET}'".encode())
    rules = postgres_engine.data_dir / "pg_hba.conf"
    rules.write_text(f"host all app all scram-sha-256\n{rules.read_text()}")
    admin.execute("SELECT pg_reload_conf()")
    return postgres_engine


def everything(error: BaseException) -> str:
    """All that a log, a report or another process could see of an error."""
    words = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    return words + repr(pickle.loads(pickle.dumps(error)).__cause__) + repr(error.__context__)


def url(engine: PostgresEngine, password: str, query: str = "") -> str:
    return engine.url.replace(f"postgres:{engine.password}@", f"app:{password}@") + query


def test_the_right_password_works_and_is_shown_nowhere(
    guarded: PostgresEngine, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    with holdfast.connect(url(guarded, QUOTED)) as store:
        store.append("s", say("a"))
        shown = repr(store) + repr(store._backend) + repr(read_address(url(guarded, QUOTED)))
        guarded.kill()
        with pytest.raises(EngineUnreachable) as caught:
            store.append("s", say("b"))
    for secret in (SECRET, QUOTED):
        assert secret not in shown + everything(caught.value) + caplog.text


@pytest.mark.parametrize(
    "given",
    [
        "wrong-s3cret",
        "s3cret@with-at",
        "s3cret/with-slash",
        "s3cret#with-hash",
        "s3cret?with=question",
        "s3cret:with-colon",
        "s3cret%ZZ",
        "s3cret with space",
        "s3cret%00",
    ],
)
@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_wrong_or_badly_written_password_is_in_no_error(
    guarded: PostgresEngine, given: str, api: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(HoldfastError) as caught:
        if api == "sync":
            holdfast.connect(url(guarded, given))
        else:
            asyncio.run(holdfast.connect_async(url(guarded, given)))
    assert "s3cret" not in everything(caught.value) + caplog.text


@pytest.mark.parametrize("rest", ["nonsense=1", "pool_max=0", "sslmode=x", "port=1"])
def test_a_password_among_the_parameters_is_in_no_error(guarded: PostgresEngine, rest: str):
    with pytest.raises(HoldfastError) as caught:
        holdfast.connect(f"{guarded.url}?password={QUOTED}&{rest}")
    words = everything(caught.value)
    assert SECRET not in words
    assert QUOTED not in words


def test_a_wrong_password_is_named_as_the_reason(guarded: PostgresEngine):
    with pytest.raises(EngineUnreachable, match="password authentication failed"):
        holdfast.connect(url(guarded, "wrong"))


def test_a_missing_database_is_named_as_the_reason(postgres_engine_factory: EngineFactory):
    engine = postgres_engine_factory()
    with pytest.raises(EngineUnreachable, match='"nowhere" does not exist'):
        holdfast.connect(engine.url.removesuffix("/postgres") + "/nowhere")


@pytest.mark.parametrize(
    "query", ["pool_max=0", "pool_max=x", "reply_timeout_s=-1", "pool_timeout_s=nan", "tuesday=1"]
)
def test_parameters_that_make_no_sense_are_refused(query: str):
    with pytest.raises(holdfast.UsageError):
        holdfast.connect(f"postgresql://127.0.0.1:1/x?{query}")


def test_what_is_meant_for_the_driver_reaches_it_as_it_was_written() -> None:
    """libpq takes %20 for a blank, and + as it is."""
    found = read_address("postgresql://h/x?options=-c%20a%3D1&schema=s&application_name=a+b%2Bc")
    assert found.conninfo["options"] == "-c a=1"
    assert found.conninfo["application_name"] == "a+b+c"
    assert found.schema == "s"
