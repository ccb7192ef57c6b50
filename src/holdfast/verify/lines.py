"""Lines of code while they are executed: which belong to a store, and a call before each.

`sys.monitoring` where Python has it (3.12 and later), `sys.settrace` before. Every thread is
watched; with `settrace` those that were started inside the block.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import linecache
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Protocol

from holdfast.errors import FaultNotProven, UsageError, VerifyError

_PACKAGE: Final = "holdfast"
_KIT: Final = str(Path(__file__).parent) + os.sep
_TOOLS: Final = range(6)
"""So many tools `sys.monitoring` serves."""

Seen = Callable[[str, int], None]
"""Told of a file and a line, before that line is executed."""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """The moment before a line is executed for the `hit`-th time."""

    file: str
    line: int
    hit: int = 1

    @property
    def source(self) -> str:
        """The line itself."""
        return linecache.getline(self.file, self.line).strip()

    def name(self, code: Code | None = None) -> str:
        """`memory.py:42`, from the package on where the code is known."""
        file = Path(self.file).name if code is None else code.short(self.file)
        times = "" if self.hit == 1 else f" (time {self.hit})"
        return f"{file}:{self.line}{times}"


@dataclass(frozen=True, slots=True)
class Code:
    """The files of a store itself: each root is a file, or a directory with all below it."""

    roots: tuple[str, ...]

    def has(self, file: str) -> bool:
        """Whether the file is one of them. The kit's own never is."""
        return not file.startswith(_KIT) and any(
            file == root or file.startswith(root + os.sep) for root in self.roots
        )

    def short(self, file: str) -> str:
        """The file as a person names it: from its package on."""
        found = [root for root in self.roots if file == root or file.startswith(root + os.sep)]
        return os.path.relpath(file, Path(found[0]).parent) if found else Path(file).name


def code_of(store: object, modules: tuple[str, ...] = ()) -> Code:
    """The code of a store: the packages of its class and of what it inherits from.

    Not the standard library's, and not holdfast's beneath a user's class. `modules` names others
    instead, for a store that only passes on what another one does.
    """
    names = modules or tuple(dict.fromkeys(kind.__module__ for kind in type(store).__mro__))
    is_holdfast = names[0].split(".")[0] == _PACKAGE
    roots: list[str] = []
    for name in names:
        top = name.split(".")[0]
        if modules or not (top in sys.stdlib_module_names or (top == _PACKAGE and not is_holdfast)):
            roots += _root(name if modules else top)
    if not roots:
        raise VerifyError(f"{type(store).__name__} has no source of its own to stop in")
    return Code(tuple(dict.fromkeys(roots)))


def _root(name: str) -> Iterator[str]:
    """Where a module or package is; one that cannot be imported by its name has no place."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return
    if hasattr(module, "__path__"):
        yield from (str(Path(place)) for place in module.__path__)
    elif getattr(module, "__file__", None):
        yield str(module.__file__)


class Trail:
    """Counts every line that is passed while it is `armed`, and calls `at` with the point."""

    def __init__(self, at: Callable[[Point], None] | None = None) -> None:
        self.armed = False
        self.passed: Counter[tuple[str, int]] = Counter()
        """In the order of the first time."""
        self._at = at
        self._turn = threading.Lock()

    def __call__(self, file: str, line: int) -> None:
        """Take one line."""
        if not self.armed:
            return
        with self._turn:
            self.passed[file, line] += 1
            hit = self.passed[file, line]
        if self._at is not None:
            self._at(Point(file, line, hit))

    def points(self) -> list[Point]:
        """Every line passed, for the first, the second and the last time that it was."""
        return [
            Point(*line, hit)
            for line, times in self.passed.items()
            for hit in sorted({1, min(2, times), times})
        ]


class _Watch(Protocol):
    def begin(self) -> None: ...
    def end(self) -> None: ...


@contextlib.contextmanager
def watching(code: Code, seen: Seen) -> Iterator[None]:
    """Inside the block `seen` is told of every line of that code, before it is executed."""
    known: dict[str, bool] = {}

    def has(file: str) -> bool:
        if file not in known:
            known[file] = code.has(file)
        return known[file]

    watch: _Watch = _Monitored(has, seen) if sys.version_info >= (3, 12) else _Traced(has, seen)
    watch.begin()
    try:
        yield
    finally:
        watch.end()


class _Traced:
    """By `sys.settrace`: this thread, and those that are started from now on."""

    def __init__(self, has: Callable[[str], bool], seen: Seen) -> None:
        self._has, self._seen = has, seen
        self._before: tuple[Any, Any] = (None, None)

    def begin(self) -> None:
        self._before = sys.gettrace(), threading.gettrace()
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def end(self) -> None:
        mine, others = self._before
        sys.settrace(mine)
        threading.settrace(others)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        del event, arg
        return self._line if self._has(frame.f_code.co_filename) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        del arg
        if event == "line":
            self._seen(frame.f_code.co_filename, frame.f_lineno)
        return self._line


class _Monitored:
    """By `sys.monitoring`: every thread."""

    def __init__(self, has: Callable[[str], bool], seen: Seen) -> None:
        self._has, self._seen = has, seen
        self._events: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore] # 3.12
        self._tool = -1

    def begin(self) -> None:
        free = [tool for tool in _TOOLS if self._events.get_tool(tool) is None]
        if not free:
            raise VerifyError("sys.monitoring serves six tools, and none is free for this one")
        self._tool = free[-1]
        line = self._events.events.LINE
        self._events.use_tool_id(self._tool, _PACKAGE)
        self._events.register_callback(self._tool, line, self._line)
        self._events.restart_events()  # a line that was switched off by an earlier watch counts
        self._events.set_events(self._tool, line)

    def end(self) -> None:
        self._events.set_events(self._tool, 0)
        self._events.register_callback(self._tool, self._events.events.LINE, None)
        self._events.free_tool_id(self._tool)

    def _line(self, code: CodeType, line: int) -> Any:
        if not self._has(code.co_filename):
            return self._events.DISABLE
        self._seen(code.co_filename, line)
        return None


def find_point(where: str, line: int | str, *, hit: int = 1) -> Point:
    """The point of `crash_at("package.module:Class.method", 42)`.

    The line is its number in the file, or a piece of its text that no other line of the
    function has. `UsageError` where the function has no such line.
    """
    function = _function(where)
    try:
        texts, first = inspect.getsourcelines(function)
    except OSError as error:
        raise UsageError(f"{where} has no source to stop in: {error}") from error
    lines = dict(enumerate(texts, first))
    found = (
        [number for number, text in lines.items() if line in text]
        if isinstance(line, str)
        else [number for number in lines if number == line]
    )
    if len(found) != 1:
        shown = repr(line) if isinstance(line, str) else f"line {line}"
        what = f"has {len(found)} lines with" if len(found) > 1 else "has no"
        raise UsageError(f"{where} (lines {first} to {max(lines)}) {what} {shown}")
    return Point(function.__code__.co_filename, found[0], hit)


def _function(where: str) -> Any:
    module, _, path = where.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{where!r} is no package.module:function: {error}") from error
    found = inspect.unwrap(found)
    if not hasattr(found, "__code__"):
        raise UsageError(f"{where} is {type(found).__name__}, not a Python function")
    return found


@contextlib.contextmanager
def at_point(point: Point, strike: Callable[[], object]) -> Iterator[list[Any]]:
    """Inside the block, `strike` is called when that point is reached, once; its answer is kept.

    `FaultNotProven` at the end of the block where it was not reached, and whatever the strike
    itself raised: the code under test never sees that.
    """
    answers: list[Any] = []
    errors: list[Exception] = []

    def at(here: Point) -> None:
        if here != point:
            return
        try:
            answers.append(strike())
        except Exception as error:  # noqa: BLE001 - raised below, in the caller's own code
            errors.append(error)

    trail = Trail(at)
    trail.armed = True
    with watching(Code((point.file,)), trail):
        yield answers
    if errors:
        raise errors[0]
    if not answers:
        raise FaultNotProven(f"{point.name()} was never reached: {point.source}")
