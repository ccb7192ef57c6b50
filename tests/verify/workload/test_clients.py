"""Client processes: what they record, how they are ended, what a kill closes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import holdfast
from holdfast import Durability
from holdfast.errors import VerifyError
from holdfast.linux import is_gone
from holdfast.verify.engines import Pausable, start_engine
from holdfast.verify.faults import tree
from holdfast.verify.history import Header, read_history
from holdfast.verify.judge import judge
from holdfast.verify.process_tree import Child, kill_tree
from holdfast.verify.proof import Evidence, await_true
from holdfast.verify.spec import TargetSpec, view_of
from holdfast.verify.workload import client_pool, client_process
from holdfast.verify.workload.client_pool import Bounds, ClientPool
from holdfast.verify.workload.fork_server import Forked, open_fork_server
from holdfast.verify.workload.plan import Shape, Step
from tests.waiting import wait_until

BOUNDS = Bounds(open_s=60, operation_s=30, recover_s=60)


@pytest.fixture(params=["started", "forked"])
def clients(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ClientPool]:
    with ExitStack() as stack:
        engine = stack.enter_context(start_engine("sqlite"))
        spec = TargetSpec("sqlite", engine=view_of(engine))
        fork_server = None
        if request.param == "forked":
            fork_server = open_fork_server(["holdfast.backends.sqlite"], tmp_path)
            assert fork_server is not None
            stack.enter_context(fork_server)
        yield stack.enter_context(
            ClientPool(spec, tmp_path, name="test", seed=1, bounds=BOUNDS, fork_server=fork_server)
        )


def test_a_script_becomes_a_history_in_the_order_of_time(clients: ClientPool, tmp_path: Path):
    script = [
        Step("append", "s", ("a", "b"), key="k"),
        Step("append", "s", ("a", "b"), key="k"),
        Step("history", "s", limit=1),
        Step("forget", "s"),
        Step("history", "s"),
    ]
    (client,) = clients.start(scripts=[script])
    client.go()
    assert clients.until(lambda: not client.alive)
    clients.write(tmp_path / "h.jsonl", Header("x"))
    history = read_history(tmp_path / "h.jsonl")
    done = [(o.f, o.status, o.ids() if o.messages else []) for o in history.operations.values()]
    assert done == [
        ("append", "ok", ["a", "b"]),
        ("append", "ok", ["a", "b"]),
        ("history", "ok", ["b"]),
        ("forget", "ok", []),
        ("history", "ok", []),
    ]
    assert history.retries == 1
    assert history.numbered == {"s"}
    assert not clients.trouble


def test_what_was_answered_without_power_is_worth_nothing(clients: ClientPool, tmp_path: Path):
    script = [Step("append", "s", ("a",)), Step("wait"), Step("append", "s", ("b",))]
    (client,) = clients.start(scripts=[script])
    client.go()
    assert clients.until(lambda: client.waiting == 1)
    cut_ns = time.monotonic_ns()
    client.go()
    assert clients.until(lambda: not client.alive)
    clients.lost_power(cut_ns)
    clients.write(tmp_path / "h.jsonl", Header("x"))
    history = read_history(tmp_path / "h.jsonl")
    done = [(append.ids(), append.status) for append in history.operations.values()]
    assert done == [(["a"], "ok"), (["b"], "info")]


def test_clients_wait_until_they_are_let_go(clients: ClientPool):
    started = clients.start(2, shape=Shape("x"))
    assert len(started) == 2
    assert [client.events[-1]["type"] for client in started] == ["ready", "ready"]
    for client in started:
        client.go()
    assert clients.until_acknowledged(10)
    clients.stop()
    assert not clients.trouble
    assert all(client.events[-1]["type"] == "done" for client in started)
    assert not clients.in_flight()


def test_what_was_done_before_and_not_read_yet_does_not_count_as_tried(clients: ClientPool):
    """A cut that ends at once, on a busy machine, would have asked nothing of the store."""
    done = [Step("append", "s", (str(number),)) for number in range(9)]
    (client,) = clients.start(scripts=[[*done, Step("wait")]])
    client.go()
    assert clients.spec.engine is not None
    with holdfast.connect(clients.spec.engine.url, require=Durability.PROCESS) as store:
        wait_until(lambda: len(store.history("s")) == len(done))
    assert client.ended == 0
    assert not clients.until_tried([client], 5, within_s=0.1)


def test_the_operations_of_a_killed_client_are_closed_when_it_is_gone(
    clients: ClientPool, tmp_path: Path
):
    started = clients.start(3, shape=Shape("x"))
    for client in started:
        client.go()
    caught = 0
    for client in started:
        assert clients.until_acknowledged(5)
        caught += clients.kill(client)
        assert client.process.returncode == -9
    clients.write(tmp_path / "h.jsonl", Header("x"))
    history = read_history(tmp_path / "h.jsonl")
    ends = {fault.time_ns for fault in history.faults}
    open_ones = [o for o in history.operations.values() if o.status == "info"]
    assert len(open_ones) == caught
    assert all(operation.completed_ns in ends for operation in open_ones)
    assert len(history.faults) == 3


def test_leaving_the_block_ends_every_client(tmp_path: Path):
    with start_engine("sqlite") as engine:
        spec = TargetSpec("sqlite", engine=view_of(engine))
        with ClientPool(spec, tmp_path, name="test", seed=1, bounds=BOUNDS) as clients:
            started = clients.start(2, shape=Shape("x"))
            started[0].go()
        assert not any(client.alive for client in started)


def test_a_client_stops_by_itself_when_its_parent_lets_go(clients: ClientPool):
    (client,) = clients.start(shape=Shape("x"))
    client.go()
    assert clients.until_acknowledged(3)
    client.stop()
    assert clients.until(lambda: not client.alive)
    assert client.process.returncode == 0


def test_a_client_does_not_outlive_its_alarm(tmp_path: Path):
    bounds = Bounds(open_s=60, operation_s=30, life_s=1.5)
    with start_engine("sqlite") as engine:
        spec = TargetSpec("sqlite", engine=view_of(engine))
        with ClientPool(spec, tmp_path, name="test", seed=1, bounds=bounds) as clients:
            for client in clients.start(shape=Shape("x")):
                assert clients.until(lambda: not client.alive)  # noqa: B023
                assert client.process.returncode == -14


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_on_a_server_they_are_closed_when_the_server_has_given_the_client_up(
    kind: str, tmp_path: Path
):
    with start_engine(kind) as engine:
        spec = TargetSpec(kind, engine=view_of(engine))
        with ClientPool(spec, tmp_path, name="test", seed=1, bounds=BOUNDS) as clients:
            started = clients.start(3, shape=Shape("x"))
            for client in started:
                client.go()
            for client in started:
                assert clients.until_acknowledged(5)
                clients.kill(client)
            clients.stop()
            clients.write(tmp_path / "h.jsonl", Header("x"))
    history = read_history(tmp_path / "h.jsonl")
    settled = {fault.time_ns for fault in history.faults if fault.name == "kill over"}
    assert len(settled) == 3
    open_ones = [o for o in history.operations.values() if o.status == "info"]
    assert all(operation.completed_ns in settled for operation in open_ones)


def test_a_server_may_carry_out_what_a_dead_client_asked_so_that_stays_open(tmp_path: Path):
    with start_engine("redis") as engine:
        assert isinstance(engine, Pausable)
        spec = TargetSpec("redis", engine=view_of(engine))
        with ClientPool(spec, tmp_path, name="test", seed=1, bounds=BOUNDS) as clients:
            (doomed,) = clients.start(scripts=[[Step("append", "s", ("late",))]])
            engine.pause()
            doomed.go()
            assert clients.until(lambda: unread_bytes(engine.url) > 0)
            assert clients.kill(doomed) == 1
            resumed_ns = time.monotonic_ns()
            engine.resume()
            (reader,) = clients.start(scripts=[[Step("history", "s")]])
            reader.go()
            assert clients.until(lambda: not reader.alive)
            clients.write(
                tmp_path / "h.jsonl", Header("x", claims=("durable", "snapshot", "fresh"))
            )
    history = read_history(tmp_path / "h.jsonl")
    append, read = history.operations.values()
    assert read.ids() == ["late"], "it was dead when its request was carried out"
    assert append.completed_ns > resumed_ns
    assert not judge(history).anomalies


def unread_bytes(url: str) -> int:
    """What lies in the sockets of a server and was not read by it yet."""
    port = urlsplit(url).port
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = [row[4] for row in rows if int(row[1].rpartition(":")[2], 16) == port]
    return sum(int(queues.rpartition(":")[2], 16) for queues in mine)


def test_where_an_import_starts_a_thread_clients_are_not_forked(tmp_path: Path):
    (tmp_path / "restless.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        assert open_fork_server(["restless"], tmp_path) is None


@pytest.mark.parametrize(
    "import_of_it",
    [
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
        "raise SystemExit(1)",
        "import os\nos._exit(1)",
    ],
    ids=["starts a thread", "exits", "ends the process"],
)
def test_a_module_that_spoils_the_forking_leaves_clients_that_are_started(
    tmp_path: Path, import_of_it: str
):
    (tmp_path / "spoils.py").write_text(import_of_it)
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).syspath_prepend(tmp_path)
        spec = TargetSpec("sqlite", engine=view_of(stack.enter_context(start_engine("sqlite"))))
        fork_server = open_fork_server(spec.likely_modules, tmp_path)
        assert fork_server is not None
        stack.enter_context(fork_server)
        pool = ClientPool(
            spec, tmp_path, name="test", seed=1, bounds=BOUNDS, fork_server=fork_server
        )
        with pool:
            fork_server.learn([f"no_module_of_this_name_{n}" for n in range(5000)])
            [first] = pool.start()
            fork_server.learn(["json", "spoils"])
            assert not fork_server.can_fork
            [second] = pool.start()
            assert isinstance(first.process, Forked)
            assert isinstance(second.process, subprocess.Popen)
            for client in (first, second):
                client.go()
            assert pool.until(lambda: not (first.alive or second.alive))


def test_the_modules_that_a_client_needed_are_told(clients: ClientPool):
    (client,) = clients.start(look=True)
    assert client.ready is not None
    assert "holdfast.backends.sqlite.backend" in client.ready["modules"]


def test_a_client_is_a_process_of_its_own(clients: ClientPool):
    (client,) = clients.start()
    assert os.getsid(client.process.pid) == client.process.pid
    assert tree(client.process.pid) == [client.process.pid]
    # Only the parent holds the other end of its leash: when that is gone, it ends.
    client.stop()
    assert clients.until(lambda: not client.alive)


def test_without_its_fork_server_a_client_is_ended_and_no_other_is_forked(tmp_path: Path):
    with ExitStack() as stack:
        spec = TargetSpec("sqlite", engine=view_of(stack.enter_context(start_engine("sqlite"))))
        fork_server = open_fork_server(["holdfast.backends.sqlite"], tmp_path)
        assert fork_server is not None
        stack.enter_context(fork_server)
        pool = ClientPool(
            spec, tmp_path, name="test", seed=1, bounds=BOUNDS, fork_server=fork_server
        )
        with pool:
            started = pool.start(2)
            fork_server._process.kill()
            fork_server._process.wait()
            with pytest.raises(VerifyError, match="has ended"):
                pool.start(1)
        assert [is_gone(client.process.pid) for client in started] == [True, True]


def test_a_client_that_ends_by_itself_while_all_are_killed_is_as_good_as_killed(
    clients: ClientPool, monkeypatch: pytest.MonkeyPatch
):
    working = clients.start(2, shape=Shape("two"))
    first = working[0].process.pid

    def ends_in_that_instant(process: Child) -> Evidence:
        if process.pid == first:
            os.kill(first, signal.SIGKILL)
            assert await_true(lambda: not tree(first), 30)
        return kill_tree(process)

    monkeypatch.setattr(client_process, "kill_tree", ends_in_that_instant)
    client_process.kill_all(working)
    assert [client.alive for client in working] == [False, False]


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("fails_at_open", "open() raised ConnectionError: nobody is at home"),
        ("dies_at_open", "(exit 7), and printed nothing"),
    ],
)
def test_why_a_client_ended_is_told_although_it_ended_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, words: str
):
    """The first look finds nothing yet; when the next comes, it has said why and is gone."""
    gone = property(lambda self: self.process.wait(60) is None)
    monkeypatch.setattr(client_process.ClientProcess, "alive", gone)
    with start_engine("sqlite") as engine:
        spec = TargetSpec(f"tests.verify.check.stores:{store}", engine=view_of(engine))
        with ClientPool(spec, tmp_path, name="test", seed=1, bounds=BOUNDS) as clients:
            assert clients.start() == []
            assert len(clients.trouble) == 1
            assert clients.trouble[0].endswith(words)


def test_a_machine_that_is_busy_for_ever_is_conceded_five_times_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """However long its clients have waited for a processor, a check ends."""
    waited = itertools.count(0, 1_000_000)
    monkeypatch.setattr(client_pool, "waited_for_cpu_s", lambda _: float(next(waited)))
    with start_engine("sqlite") as engine:
        spec = TargetSpec("sqlite", engine=view_of(engine))
        with ClientPool(spec, tmp_path, name="test", seed=1, bounds=BOUNDS) as clients:
            clients.start()
            began = time.monotonic()
            assert not clients.until(lambda: False, within_s=0.05)
            assert time.monotonic() - began < 30
