"""The proxy does to real clients of real engines what it says, and proves it."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
import timeit
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.errors import FaultNotProven, UsageError
from holdfast.verify.engines import Engine
from holdfast.verify.faults import Proxy
from tests.waiting import wait_until


@pytest.fixture
def proxy(redis_server: Engine) -> Iterator[Proxy]:
    with Proxy(redis_server.url) as proxy:
        yield proxy


def client_of(url: str, timeout_s: float = 5) -> redis.Redis:
    return redis.Redis.from_url(
        url, retry=Retry(NoBackoff(), 0), socket_timeout=timeout_s, decode_responses=True
    )


def direct(engine: Engine) -> redis.Redis:
    return client_of(engine.url)


def raw_link(proxy: Proxy) -> socket.socket:
    """A connection without a driver; the engine knows its password by now."""
    raw = socket.create_connection((proxy.host, proxy.port), 10)
    raw.sendall(f"AUTH {urlsplit(proxy.url).password}\r\n".encode())
    assert raw.recv(100) == b"+OK\r\n"
    return raw


def test_it_forwards_and_counts(proxy: Proxy, redis_server: Engine) -> None:
    with client_of(proxy.url) as client, direct(redis_server) as engine:
        client.set("a", "x" * 300_000)
        assert client.get("a") == engine.get("a") == "x" * 300_000
        counters = proxy.counters
    assert counters.connections == counters.open == 1
    assert counters.bytes_to_engine > 300_000
    assert counters.bytes_to_client > 300_000
    assert counters.in_flight == 0


def test_an_async_client_in_this_process_is_served(proxy: Proxy) -> None:
    async def talk() -> str:
        async with redis.asyncio.Redis.from_url(proxy.url, decode_responses=True) as client:
            await client.set("a", "1")
            return str(await client.get("a"))

    assert asyncio.run(talk()) == "1"


def test_a_swallowed_reply_is_a_write_that_happened(proxy: Proxy, redis_server: Engine) -> None:
    with client_of(proxy.url) as client, direct(redis_server) as engine:
        client.ping()
        lost = proxy.swallow_reply(match=b"INCR")
        with pytest.raises(redis.ConnectionError):
            client.incr("n")
        evidence = lost.landed()
        assert engine.get("n") == "1"
        assert client.incr("n") == 2, "it lands once"
    assert evidence.facts["reply_bytes_dropped"] == len(b":1\r\n")
    assert evidence.facts["request_bytes"] > 0
    assert evidence.facts["pipelined"] is False


def test_a_large_request_reaches_the_engine_whole_before_its_reply_is_swallowed(
    proxy: Proxy, redis_server: Engine
) -> None:
    with client_of(proxy.url) as client, direct(redis_server) as engine:
        lost = proxy.swallow_reply(match=b"APPEND")
        with pytest.raises(redis.ConnectionError):
            client.append("a", "x" * 1_000_000)
        assert lost.landed().facts["request_bytes"] > 1_000_000
        assert engine.strlen("a") == 1_000_000


def test_a_request_behind_another_is_named_as_pipelined(proxy: Proxy) -> None:
    with raw_link(proxy) as raw:
        raw.sendall(b"BLPOP q 0.05\r\n")
        await_true(lambda: proxy.counters.in_flight == 1)
        lost = proxy.swallow_reply(match=b"INCR")
        raw.sendall(b"INCR n\r\n")
        assert lost.landed().facts["pipelined"] is True


def test_what_is_done_at_the_reply_is_done_before_the_client_has_it(
    proxy: Proxy, redis_server: Engine
) -> None:
    seen: list[object] = []

    def look(reply: bytes) -> str:
        with direct(redis_server) as engine:
            seen.extend([reply, engine.get("n"), client_has_it.is_set()])
        return "looked"

    client_has_it = threading.Event()
    with client_of(proxy.url) as client:
        armed = proxy.at_reply(look, match=b"INCR")
        assert client.incr("n") == 1
        client_has_it.set()
        assert armed.landed().facts["reply"] == ":1\r\n"
        assert client.incr("n") == 2  # it lands once
    assert seen == [b":1\r\n", "1", False]


def test_a_swallowed_request_is_a_write_that_did_not_happen(
    proxy: Proxy, redis_server: Engine
) -> None:
    with client_of(proxy.url) as client, direct(redis_server) as engine:
        lost = proxy.swallow_request(match=b"INCR")
        with pytest.raises(redis.ConnectionError):
            client.incr("n")
        lost.landed()
        assert engine.get("n") is None
        assert client.incr("n") == 1


def test_a_request_cut_in_the_middle_is_done_as_far_as_it_came(
    proxy: Proxy, redis_server: Engine
) -> None:
    with client_of(proxy.url) as client, direct(redis_server) as engine:
        cut = proxy.swallow_request(match=b"INCR", keep=0.6)
        with client.pipeline(transaction=False) as both, pytest.raises(redis.ConnectionError):
            both.incr("n").incr("m").execute()
        assert "of them went to the engine" in cut.landed().seen
        wait_until(lambda: engine.get("n") is not None)
        assert engine.get("m") is None
    with pytest.raises(UsageError, match="keep"):
        proxy.swallow_request(keep=1.0)


def test_the_match_is_found_across_two_chunks(proxy: Proxy, redis_server: Engine) -> None:
    lost = proxy.swallow_reply(match=b"INCR")
    with raw_link(proxy) as raw:
        before = proxy.counters.bytes_to_engine
        raw.sendall(b"*2\r\n$4\r\nIN")
        await_true(lambda: proxy.counters.bytes_to_engine == before + 10)
        raw.sendall(b"CR\r\n$1\r\nn\r\n")
        with pytest.raises(ConnectionResetError):
            raw.recv(100)
    lost.landed()
    with direct(redis_server) as engine:
        assert engine.get("n") == "1"


def test_a_fault_that_no_client_met_is_not_proven(proxy: Proxy) -> None:
    with client_of(proxy.url) as client:
        lost = proxy.swallow_reply(match=b"NEVER")
        client.set("a", "1")
        with pytest.raises(FaultNotProven, match="lost-ack was set"):
            lost.landed(timeout_s=0.05)
    proxy.heal()
    delayed = proxy.delay(0.01)
    with pytest.raises(FaultNotProven, match="delay was set"):
        delayed.landed(timeout_s=0.05)
    await_true(lambda: proxy.counters.open == 0)
    with pytest.raises(FaultNotProven, match="no connection was open"):
        proxy.cut()


def test_a_delay_holds_both_ways_and_says_how_long(proxy: Proxy) -> None:
    with client_of(proxy.url) as client:
        client.ping()
        armed = proxy.delay(0.1)
        began = time.monotonic()
        client.ping()
        took_s = time.monotonic() - began
        assert took_s >= 0.2
        assert armed.landed().facts["held_s"] >= 0.1
        proxy.heal()
        assert min(timeit.repeat(client.ping, number=1, repeat=20)) < 0.1


@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_ends_a_request_in_flight(proxy: Proxy, *, reset: bool) -> None:
    with raw_link(proxy) as raw:
        raw.sendall(b"*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n")
        await_true(lambda: proxy.counters.in_flight == 1)
        evidence = proxy.cut(reset=reset)
        assert evidence.facts == {"connections": 1, "in_flight": 1, "reset": reset}
        if reset:
            with pytest.raises(ConnectionResetError):
                raw.recv(1)
        else:
            assert raw.recv(1) == b""
    assert proxy.counters.open == 0


def test_a_cut_reaches_a_connection_whose_descriptor_a_fork_holds(proxy: Proxy) -> None:
    with socket.create_connection((proxy.host, proxy.port)) as raw:
        await_true(lambda: proxy.counters.open == 1)
        child = forked_sleeper()
        try:
            assert proxy.cut().facts["connections"] == 1
            with pytest.raises(ConnectionResetError):
                raw.recv(1)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)


def test_a_half_close_sends_eof_one_way_only(proxy: Proxy, redis_server: Engine) -> None:
    with raw_link(proxy) as raw:
        raw.sendall(b"PING\r\n")
        assert raw.recv(100) == b"+PONG\r\n"
        evidence = proxy.half_close(direction="to_client")
        assert evidence.facts["connections"] == 1
        assert raw.recv(100) == b"", "the client sees the end"
        raw.sendall(b"INCR n\r\n")
        with direct(redis_server) as engine:
            await_true(lambda: engine.get("n") == "1")
    await_true(lambda: proxy.counters.open == 0)
    with pytest.raises(FaultNotProven, match="none was open"):
        proxy.half_close()


def test_refusing_leaves_open_connections_and_keeps_the_port(proxy: Proxy) -> None:
    with client_of(proxy.url) as client, client_of(proxy.url) as late:
        client.ping()
        port = proxy.port
        proxy.refuse()
        with pytest.raises(redis.ConnectionError, match="refused"):
            late.ping()
        assert client.ping()
        with pytest.raises(OSError, match="in use"), socket.socket() as thief:
            thief.bind((proxy.host, port))
        proxy.heal()
        assert late.ping()
        assert proxy.port == port


def test_bytes_in_a_black_hole_arrive_late_even_if_the_client_gave_up(
    proxy: Proxy, redis_server: Engine
) -> None:
    with client_of(proxy.url, timeout_s=0.1) as client, direct(redis_server) as engine:
        client.ping()
        hole = proxy.black_hole()
        with pytest.raises(redis.TimeoutError):
            client.incr("n")
        assert hole.landed().facts["direction"] == "to_engine"
        assert engine.get("n") is None
        proxy.heal()
        await_true(lambda: engine.get("n") == "1")


def test_a_new_connection_meets_the_black_hole(proxy: Proxy) -> None:
    hole = proxy.black_hole()
    with client_of(proxy.url, timeout_s=0.1) as client:
        with pytest.raises(redis.TimeoutError):
            client.ping()
        hole.landed()
        proxy.heal()
        assert client.ping()


def test_an_engine_that_is_gone_resets_the_client(proxy: Proxy, redis_server: Engine) -> None:
    with client_of(proxy.url) as client:
        client.ping()
        redis_server.stop()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        assert proxy.counters.engine_unreachable >= 1
        redis_server.start()
        assert client.ping()


def test_a_client_in_another_process_is_cut(proxy: Proxy) -> None:
    program = (
        "import socket, sys\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "s.sendall(b'PING\\r\\n'); s.recv(100); print('ready', flush=True)\n"
        "try:\n    s.recv(1)\n"
        "except ConnectionResetError:\n    print('reset', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(proxy.port)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        proxy.cut()
        assert child.stdout.readline() == "reset\n"


def test_the_verbs_may_be_called_from_many_threads(proxy: Proxy) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with client_of(proxy.url) as client:
                for _ in range(20):
                    client.incr("n")
                    proxy.delay(0.0001)
                    proxy.heal()
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert proxy.counters.connections == 5


def test_a_commit_whose_reply_was_swallowed_is_committed(postgres_server: Engine) -> None:
    with Proxy(postgres_server.url) as proxy, psycopg.connect(proxy.url, autocommit=True) as client:
        client.execute("CREATE TABLE t (n int)")
        lost = proxy.swallow_reply(match=b"INSERT")
        with pytest.raises(psycopg.OperationalError):
            client.execute("INSERT INTO t VALUES (1)")
        lost.landed()
        with psycopg.connect(postgres_server.url) as engine:
            assert engine.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_http_is_served_and_its_reply_swallowed() -> None:
    seen: list[str] = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with Proxy(f"http://127.0.0.1:{server.server_port}") as proxy:
                lost = proxy.swallow_reply()
                client = http.client.HTTPConnection(proxy.host, proxy.port, timeout=5)
                client.request("POST", "/write")
                with pytest.raises(ConnectionError):
                    client.getresponse()
                client.close()
                lost.landed()
        finally:
            server.shutdown()
            thread.join()
    assert seen == ["/write"]


@pytest.mark.parametrize(
    ("url", "words"),
    [("sqlite:///x.db", "URL with a host"), ("foo://127.0.0.1", "which port")],
)
def test_a_target_without_an_address_is_refused(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Proxy(url)


def test_bad_orders_are_refused_and_nothing_is_sent(redis_server: Engine) -> None:
    with Proxy(redis_server.url) as proxy:
        with pytest.raises(UsageError, match="a delay lies between"):
            proxy.delay(-1)
        with pytest.raises(UsageError, match="at least one byte"):
            proxy.swallow_reply(match=b"")
    with pytest.raises(UsageError, match="not started"):
        proxy.cut()


def test_the_url_keeps_credentials_and_database(redis_server: Engine) -> None:
    port = redis_server.url.rpartition(":")[2].partition("/")[0]
    with Proxy(f"redis://me:p%40ss@127.0.0.1:{port}/3?protocol=3") as proxy:
        assert proxy.url == f"redis://me:p%40ss@127.0.0.1:{proxy.port}/3?protocol=3"


def test_nothing_is_left_after_close(redis_server: Engine) -> None:
    with Proxy(redis_server.url) as proxy, client_of(proxy.url) as client:
        client.ping()
        port = proxy.port
    proxy.close()
    assert "holdfast-proxy" not in [thread.name for thread in threading.enumerate()]
    with socket.socket() as heir:
        heir.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        heir.bind(("127.0.0.1", port))


def await_true(condition: object, timeout_s: float = 5) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.001)


def forked_sleeper() -> int:
    """A child by plain fork, which holds a copy of every descriptor of ours."""
    with warnings.catch_warnings():
        # From 3.12 on Python warns of a fork beside threads; that is what is wanted here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    return child
