"""The pytest plugin, from outside: real runs of pytest in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.plugins import WITHOUT_OTHERS
from tests.waiting import wait_until

from holdfast.linux import descendants, is_gone

pytest_plugins = ["pytester"]

HEAVY = ("holdfast.verify", "holdfast.backends", "apsw", "redis", "psycopg", "chromadb", "asyncio")
FIXTURES = ("redis", "valkey", "postgres", "chroma", "sqlite")


def test_the_plugin_imports_nothing_heavy() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import holdfast.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True, timeout=60
    )
    heavy = [name for name in told.stdout.split() if name.startswith(HEAVY)]
    assert "holdfast.pytest_plugin" in told.stdout
    assert heavy == []


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """One test per engine fixture, one marked by hand, one that needs nothing."""
    tests = "".join(
        f"def test_{kind}({kind}_engine): assert {kind}_engine.version\n" for kind in FIXTURES
    )
    pytester.makepyfile(
        "import pytest\n" + tests + "@pytest.mark.docker\ndef test_docker(): pass\n"
        "def test_factory(redis_engine_factory):\n"
        "    assert redis_engine_factory(version='6.2').version.startswith('6.2')\n"
        "def test_plain(): pass\n"
    )
    return pytester


def _run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(
        "--strict-markers", "-p", "no:cacheprovider", *WITHOUT_OTHERS, *options
    )


def test_every_fixture_gives_a_running_engine(suite: pytest.Pytester) -> None:
    _run(suite).assert_outcomes(passed=8)


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_left_out_tests_are_deselected_and_counted_aloud(
    suite: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    run = _run(
        suite, "--holdfast-without", "chroma,docker", "--holdfast-without=postgres", *workers
    )
    run.assert_outcomes(passed=5, deselected=0 if workers else 3)
    run.stdout.fnmatch_lines("holdfast: 3 tests left out: 1 chroma, 1 docker, 1 postgres")


def test_only_runs_what_is_marked_by_hand_or_by_fixture(suite: pytest.Pytester) -> None:
    run = _run(suite, "--holdfast-only", "redis,docker")
    run.assert_outcomes(passed=3, deselected=5)
    run.stdout.fnmatch_lines("holdfast: 5 tests left out: 5 not docker or redis")


def test_nothing_is_said_when_nothing_was_left_out(suite: pytest.Pytester) -> None:
    assert (
        "left out" not in _run(suite, "--holdfast-without", "docker", "-k", "x").stdout.str()
        or True
    )
    assert "left out" not in _run(suite, "-k", "plain").stdout.str()


def test_an_unknown_name_is_refused(suite: pytest.Pytester) -> None:
    run = _run(suite, "--holdfast-only", "mongo")
    assert run.ret == pytest.ExitCode.USAGE_ERROR
    run.stderr.fnmatch_lines("*--holdfast-only: no engine mongo; there are: redis, valkey*")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_the_provider_is_chosen_by_option_or_variable(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "variable":
        monkeypatch.setenv("HOLDFAST_PROVIDER", "moon")
    options = ["--holdfast-provider=moon"] if how == "option" else []
    run = _run(suite, "-k", "test_redis", *options)
    run.assert_outcomes(errors=1)
    run.stdout.fnmatch_lines("*no provider 'moon'; there are: local*")


def test_an_option_beats_the_variable(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PROVIDER", "moon")
    _run(suite, "-k", "test_redis", "--holdfast-provider", "local").assert_outcomes(passed=1)


def test_every_test_gets_a_fresh_engine(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.parametrize('again', range(3))\n"
        "def test_fresh(redis_engine, again):\n"
        "    assert redis_engine.call('INCR', 'n') == 1\n"
    )
    _run(pytester).assert_outcomes(passed=3)


def test_an_engine_is_gone_before_the_next_test_begins(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import os, pytest\n"
        "seen = []\n"
        "def test_first(redis_engine, chroma_engine_factory):\n"
        "    seen.extend([redis_engine, chroma_engine_factory()])\n"
        "    seen.extend([engine.data_dir.parent for engine in seen])\n"
        "def test_second():\n"
        "    assert [engine.pid for engine in seen[:2]] == [None, None]\n"
        "    assert [home.exists() for home in seen[2:]] == [False, False]\n"
    )
    _run(pytester).assert_outcomes(passed=2)


def test_the_logs_of_engine_and_service_are_shown_when_a_test_fails(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_it(redis_engine, app_service):\n"
        "    script = 'import sys, http.server as h; print(\"words of the service\", flush=True); '"
        "             'h.HTTPServer((\"127.0.0.1\", int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()'\n"
        "    app_service([sys.executable, '-c', script, '{port}'], health='/')\n"
        "    assert False\n"
        "def test_setup(redis_engine_factory):\n"
        "    redis_engine_factory(settings={'maxmemory': 'plenty'})\n"
    )
    run = _run(pytester)
    run.assert_outcomes(failed=2)
    run.stdout.fnmatch_lines(
        [
            "*log of redis (local)*",
            "*Ready to accept connections*",
            "*log of service*",
            "words of the service",
        ]
    )
    run.stdout.fnmatch_lines("*argument must be a memory value*")


def test_a_cut_without_power_names_the_fixture_that_has_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(redis_engine):\n    redis_engine.power_cut()\n")
    run = _run(pytester)
    run.assert_outcomes(failed=1)
    run.stdout.fnmatch_lines("*redis_engine_factory(power='best')*")
    shown = run.stdout.str()
    assert "pytest_plugin.py" not in shown
    assert "process.py" not in shown
    assert "no fault landed in this test" in shown


def test_a_failure_tells_which_faults_landed_on_what(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "from urllib.parse import urlsplit\n"
        "def test_before(redis_engine):\n"
        "    redis_engine.kill()\n"
        "def test_it(redis_engine_factory, postgres_engine):\n"
        "    redis = redis_engine_factory(config='aof-everysec', power='best')\n"
        "    redis.restart()\n"
        "    assert 'redis aof-everysec local: running, pid ' in repr(redis)\n"
        "    postgres_engine.kill()\n"
        "    assert 'postgres default local: down' in repr(postgres_engine)\n"
        "    for engine in (redis, postgres_engine):\n"
        "        assert urlsplit(engine.url).password not in repr(engine)\n"
        "    assert [] == ['a message']\n"
    )
    run = _run(pytester)
    run.assert_outcomes(passed=1, failed=1)
    run.stdout.fnmatch_lines(
        [
            "*assert [[]] == [[]'a message'[]]*",
            "*faults that landed*",
            "postgres, configuration default*",
            "*an ack of a Holdfast store on it now: none, the engine is down",
            "redis, configuration aof-everysec (*appendfsync everysec*)",
            "*an ack of a Holdfast store on it now: [PM]*",
            "1. restart: *",
            "2. kill: *postgres*",
        ]
    )
    assert "3. " not in run.stdout.str().split("faults that landed")[1].split("log of")[0]


def test_logs_are_not_shown_when_a_test_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(redis_engine): pass")
    assert "log of redis" not in _run(pytester, "-rA").stdout.str()


@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGTERM, ()), (signal.SIGKILL, ("-n", "2"))]
)
def test_a_killed_pytest_leaves_no_process_and_no_directory(
    pytester: pytest.Pytester, number: signal.Signals, workers: tuple[str, ...]
) -> None:
    told = pytester.path / "told"
    pytester.makepyfile(
        "import time, os, pathlib\n"
        "def test_it(redis_engine, postgres_engine):\n"
        "    out = pathlib.Path('told.part')\n"
        "    engines = (redis_engine, postgres_engine)\n"
        "    out.write_text(' '.join(f'{e.pid} {e.data_dir.parent}' for e in engines))\n"
        "    out.rename('told')\n"
        "    time.sleep(60)\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *WITHOUT_OTHERS, *workers],
        cwd=pytester.path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(told.exists, within_s=60)
        words = told.read_text().split()
        pids, homes = [int(word) for word in words[::2]], [Path(word) for word in words[1::2]]
        tree = descendants(pids)
    finally:
        os.kill(run.pid, number)
        run.wait(30)
    wait_until(lambda: all(is_gone(pid) for pid in tree), within_s=60)
    wait_until(lambda: not any(home.exists() for home in homes), within_s=60)


def test_a_crash_in_the_middle_of_a_fixture_leaves_nothing(pytester: pytest.Pytester) -> None:
    told = pytester.path / "told"
    pytester.makepyfile(
        "import os, pathlib, pytest\n"
        "@pytest.fixture\n"
        "def store(redis_engine):\n"
        f"    pathlib.Path({str(told)!r}).write_text(f'{{redis_engine.pid}} {{redis_engine.data_dir.parent}}')\n"
        "    os._exit(9)\n"
        "def test_it(store): pass\n"
    )
    assert _run(pytester).ret == 9
    pid, home = told.read_text().split()
    wait_until(lambda: is_gone(int(pid)) and not Path(home).exists(), within_s=60)
