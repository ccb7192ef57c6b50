"""Fixtures with real engines for pytest. Nothing of the kit is imported until one is used.

    def test_it_survives(redis_engine):                     # fresh, on a free port
        MyStore(redis_engine.url).append(...)
        redis_engine.kill()
        redis_engine.start()

Every engine is new for every test, and gone after it: starting one is cheaper than proving
that a used one is clean.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast.verify.browser import ChatPage
    from holdfast.verify.engines import Engine
    from holdfast.verify.engines.service import Service
    from holdfast.verify.faults.crash import CrashAt

ENGINES = ("redis", "valkey", "postgres", "chroma", "sqlite")
MARKERS = {
    **{
        kind: f"needs a real {kind}; set by itself where a fixture of it is used"
        for kind in ENGINES
    },
    "docker": "needs a Docker daemon",
}

EngineFactory = Callable[..., Any]
"""`(config=…, version=…, settings=…, storage=…, port=…, power=…, topology=…) -> Engine`, started; closed after
the test."""

__tracebackhide__ = True  # a test that fails shows its own lines
_opened_key = pytest.StashKey[list[list[Any]]]()
_left_out_key = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which engines, and from where."""
    group = parser.getgroup("holdfast", "real engines (holdfast)")
    names = ", ".join(MARKERS)
    group.addoption(
        "--holdfast-only",
        action="append",
        metavar="NAMES",
        help=f"run only tests marked with one of these, comma separated: {names}",
    )
    group.addoption(
        "--holdfast-without",
        action="append",
        metavar="NAMES",
        help="leave out the tests marked with any of these, comma separated",
    )
    group.addoption(
        "--holdfast-provider",
        metavar="NAME",
        help="who supplies engines: local (default), docker, compose or url; "
        "otherwise the environment variable HOLDFAST_PROVIDER",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known, and check the names given."""
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.stash[_left_out_key] = Counter()
    for option in ("--holdfast-only", "--holdfast-without"):
        unknown = _names(config, option) - set(MARKERS)
        if unknown:
            raise pytest.UsageError(
                f"{option}: no engine {', '.join(sorted(unknown))}; there are: {', '.join(MARKERS)}"
            )


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> None:
    """Under pytest-xdist: refuse a changed suite here, where a worker can still report it."""
    worker = hasattr(collector.config, "workerinput")
    if worker and name == "holdfast_suite" and isinstance(collector, pytest.Module):
        try:
            _check_suite(collector)
        except pytest.UsageError as error:
            raise collector.CollectError(str(error)) from error


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses an engine's fixture, then leave out what was not asked for."""
    for module in {item.getparent(pytest.Module) for item in items}:
        _check_suite(module)
    only, without = _names(config, "--holdfast-only"), _names(config, "--holdfast-without")
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        reason = _why_left_out(_mark(item), only, without)
        (left_out if reason else kept).append(item)
        config.stash[_left_out_key].update([reason] if reason else [])
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say aloud what was left out: a test that did not run has not passed."""
    left_out = config.stash[_left_out_key]
    if left_out:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(left_out.items()))
        terminalreporter.write_line(
            f"holdfast: {left_out.total()} tests left out: {counts}", yellow=True
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under pytest-xdist: hand the counts of this worker to the controller."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        left_out = session.config.stash[_left_out_key]
        output["holdfast_left_out"] = dict(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker of pytest-xdist leaves out the same tests: keep the largest count."""
    counts = getattr(node, "workeroutput", {}).get("holdfast_left_out", {})
    left_out: Counter[str] = node.config.stash[_left_out_key]
    left_out |= Counter(counts)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Faults count from the beginning of a test; where the kit is not loaded, none landed."""
    if kit := sys.modules.get("holdfast.verify.proof"):
        kit.forget_landed()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of a test that failed, show which faults landed, and the log of every engine and service."""
    report = yield
    every = [one for opened in item.stash.get(_opened_key, []) for one in opened]
    if report.failed and call.when != "teardown" and every:
        from holdfast.verify import landed  # noqa: PLC0415 - who uses none pays nothing

        report.sections.append(("faults that landed", landed.words(every)))
        for one in every:
            report.sections.append((f"log of {one.kind} ({one.provider})", one.log(200)))
    return report


@pytest.fixture
def engine_factory(request: pytest.FixtureRequest) -> Iterator[EngineFactory]:
    """Starts engines of any kind: `engine_factory("redis", config="aof-always")`."""
    from holdfast.verify.engines import open_engine  # noqa: PLC0415 - who uses none pays nothing

    def start(kind: str, **wanted: Any) -> Engine:
        wanted.setdefault("provider", request.config.getoption("--holdfast-provider"))
        engine = open_engine(kind, **wanted)
        opened.append(engine)
        return engine.start()

    opened: list[Any] = []
    request.node.stash.setdefault(_opened_key, []).append(opened)
    yield start
    _close_all(opened)


def _factory_of(kind: str) -> Any:
    def factory(engine_factory: EngineFactory) -> EngineFactory:
        return functools.partial(engine_factory, kind)

    factory.__doc__ = (
        f"Starts {kind} as wanted: config, version, settings, storage, port, power, topology."
    )
    return pytest.fixture(name=f"{kind}_engine_factory")(factory)


def _engine_of(kind: str) -> Any:
    def engine(engine_factory: EngineFactory) -> Any:
        return engine_factory(kind)

    engine.__doc__ = f"A real {kind}, fresh for this test."
    return pytest.fixture(name=f"{kind}_engine")(engine)


redis_engine_factory, redis_engine = _factory_of("redis"), _engine_of("redis")
valkey_engine_factory, valkey_engine = _factory_of("valkey"), _engine_of("valkey")
postgres_engine_factory, postgres_engine = _factory_of("postgres"), _engine_of("postgres")
chroma_engine_factory, chroma_engine = _factory_of("chroma"), _engine_of("chroma")
sqlite_engine_factory, sqlite_engine = _factory_of("sqlite"), _engine_of("sqlite")


@pytest.fixture
def app_service(request: pytest.FixtureRequest) -> Iterator[Callable[..., Service]]:
    """Starts any command as a service: `app_service([...], health="/health", env={...})`.

    It returns when the health URL answers. `{port}`, `{data_dir}` and `{url}` are filled in;
    `kill()`, `restart()`, `pause()` and `resume()` keep port and data.
    """
    from holdfast.verify.engines.service import Service  # noqa: PLC0415 - as above

    def start(command: Any, **wanted: Any) -> Service:
        service = Service(command, **wanted)
        opened.append(service)
        return service.start()

    opened: list[Any] = []
    request.node.stash.setdefault(_opened_key, []).append(opened)
    yield start
    _close_all(opened)


@pytest.fixture(scope="module")
def browser_driver(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Playwright; that of pytest-playwright where it is installed.

    Not for longer than a module: while it runs, its event loop is the one of this thread, and
    no other test could run a loop of its own.
    """
    from holdfast.verify.browser import start_playwright  # noqa: PLC0415 - as above

    if request.config.pluginmanager.has_plugin("playwright"):
        yield request.getfixturevalue("playwright")
        return
    driver = start_playwright()
    yield driver
    driver.stop()


@pytest.fixture
def chat_page(browser_driver: Any) -> Iterator[Callable[..., ChatPage]]:
    """Opens anybody's chat page: `chat_page(service, box="#text", message=".message")`.

    Further selectors: `send` (a button), `saved` (inside a message), `path`. What else is given
    goes to the browser, such as `viewport`. See `holdfast.verify.browser`.
    """
    from holdfast.verify.browser import ChatPage, Selectors  # noqa: PLC0415 - as above

    def visit(service: Any, **given: Any) -> ChatPage:
        names = [name for name in Selectors.__dataclass_fields__ if name in given]
        selectors = Selectors(**{name: given.pop(name) for name in names})
        page = ChatPage(browser_driver, service, selectors, **given)
        opened.append(page)
        return page

    opened: list[Any] = []
    yield visit
    _close_all(opened)


@pytest.fixture
def crash_at() -> Callable[..., CrashAt]:
    """A crash at a line: `crash_at("mypkg.memory:Store.append", 42).run(write, …)`.

    `write(…)` runs in a child of this process, which is ended by SIGKILL at that line. The
    line may be a piece of its text. A line that is never reached fails the test.
    """
    from holdfast.verify.faults.crash import crash_at  # noqa: PLC0415 - as above

    return crash_at


def _check_suite(module: pytest.Module | None) -> None:
    """Refuse a module that took the contract suite and replaced or silenced a test of it."""
    if module is not None and hasattr(module.obj, "holdfast_suite"):
        from holdfast.verify.suite.guard import check_module  # noqa: PLC0415 - as above

        check_module(module.obj)


def _close_all(opened: list[Any]) -> None:
    """Close the last opened first; all of them, also when one of them fails."""
    errors = []
    while opened:
        try:
            opened.pop().close()
        except Exception as error:  # noqa: BLE001 - the others are still to be closed
            errors.append(error)
    if errors:
        raise errors[0]


def _names(config: pytest.Config, option: str) -> set[str]:
    given = config.getoption(option) or []
    return {name.strip() for value in given for name in value.split(",") if name.strip()}


def _why_left_out(marks: set[str], only: set[str], without: set[str]) -> str:
    """The word for the summary; empty where the test is to run."""
    if marks & without:
        return min(marks & without)
    if only and not marks & only:
        return f"not {' or '.join(sorted(only))}"
    return ""


def _mark(item: pytest.Item) -> set[str]:
    """Add the marks that its fixtures imply; returns all of ours that it has."""
    used = set(getattr(item, "fixturenames", ()))
    for kind in ENGINES:
        if used & {f"{kind}_engine", f"{kind}_engine_factory"}:
            item.add_marker(kind)
    return {mark.name for mark in item.iter_markers()} & set(MARKERS)
