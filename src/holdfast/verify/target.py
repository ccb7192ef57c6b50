"""What you supply to test your store: how to open it, and its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import UsageError
from holdfast.model import Retention
from holdfast.verify.claims import Claims
from holdfast.verify.engines.protocol import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """How the index of a store is reached past the store, where it claims `recallable`.

    What is left out is not tried, and that is said. `lose`, `count` and `derived` are called
    while no client has the store open.
    """

    lose: Callable[[str], object] | None = None
    """Takes the index of a scope away, as a bad disk or a power cut does; the log stays."""
    count: Callable[[str], int] | None = None
    """How many vectors it holds of a scope."""
    derived: Callable[[str], int] | None = None
    """How many memories and summaries are stored of a scope."""
    other_model: Callable[[], Any] | None = None
    """Opens the store on the same data with another embedding model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A store under test, its `engine` if it has one, and what it claims.

    `open()` returns a store on the same data each time: ours, sync or async, or any object
    with `append(session, messages)`, `history(session, limit)` and, where `forgotten` is claimed,
    `forget(session)`, sync or async (messages are dictionaries with `role`, `content` and `id` for
    such an object, or with the fields that it `keeps`). It is
    called in other processes, so it must not depend on what only this one has. `definite`
    are the errors of that object which mean "the write did not happen"; every other error
    leaves it unknown.

    Who claims `recallable` has `remember(scope, text)` and `recall(scope, query, k)` too: the
    best k of what was said and remembered there, as texts or as anything with a `text` or a
    `content`, and with `behind` on the answer where the index has not followed all of it.
    `remember(scope, text, key)` is held to `exactly-once` where that is claimed. Who keeps
    summaries has `summarize(session)`, which brings them up to the last message, and
    `summaries(session)`: each with its `text` and the places of the `first` and the `last`
    message that it adds, counted from 1. One that replaces the others adds all of theirs.
    """

    open: Callable[[], Any]
    engine: Engine | None = None
    """A running one. Without it, tests that would kill or cut it say that they could not run."""
    data: str | Path | None = None
    """Where a store without an engine keeps its files: an empty directory of its own, in which
    its power is cut and its disk fails. While it is checked the name is a link."""
    claims: Claims = field(default_factory=Claims)
    """What it promises; everything, unless it says `NotClaimed`."""
    name: str = ""
    """As it is called in reports."""
    ttl_s: float | None = None
    """The time to live that `open()`'s store gives its sessions, where it claims `expiring`."""
    retention: Retention | None = None
    """What `open()`'s store keeps of a session, where it cuts off old messages by itself: at least the
    last so many, and only whole appends go. Whatever else is missing counts as lost."""
    definite: tuple[type[BaseException], ...] = ()
    thread_safe: bool = False
    """One opened store may be used by several threads at once, and is then tested like that. Of an
    async store many tasks at once are always tried: a service does nothing else."""
    one_task: bool = False
    """An async store that must be used by the task that opened it, as libraries on anyio demand
    (the MCP SDK): each call is made by that task, one at a time."""
    keeps: tuple[str, ...] = ()
    """The fields of a message that it keeps, such as `("role", "content")` for a store of texts;
    all where empty. Only these are sent and compared, and a message without `id` is known by the
    first word of its content."""
    whole_turns: Callable[[Any, str], Any] | None = None
    """What a model is handed of a session, given the store and its id, where the store claims that a
    model takes it after any crash: no tool call without its result, no result without its call.
    Of ours: `lambda store, session: store.history(session, turns="whole")`. Judged under `atomic`."""
    previous: Callable[[], Any] | None = None
    """Opens the store of an earlier release on the same data, to see that its records are read."""
    code: tuple[str, ...] = ()
    """Modules or packages in whose lines a crash is tried; by default those of the store's class."""
    tamper: Callable[[str], None] | None = None
    """Damages one stored record of a session behind the store's back, as a bad disk does; for a
    store of which a record is not a JSON object that the kit finds in the engine by itself."""
    index: Index = field(default_factory=Index)
    """How its index is reached past the store, where it claims `recallable`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What to write into the report about how it was set up."""

    def __post_init__(self) -> None:
        if not callable(self.open):
            raise UsageError("Target(open=…) needs a function that opens the store")
        if self.data is not None and self.engine is not None:
            raise UsageError("Target(data=…) is for a store without an engine")
        if self.keeps and "content" not in tuple(self.keeps):  # a text is a tuple of letters
            raise UsageError(
                f"Target(keeps={self.keeps!r}) names the fields of a message that are kept, "
                'content among them: keeps=("role", "content")'
            )
