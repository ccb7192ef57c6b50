"""The commands that read and write a store: arguments only. What they print is in `terminal.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

import click

from holdfast import terminal
from holdfast.cli_options import (
    AGE,
    FILE,
    PrintingCommand,
    embedder_option,
    index_option,
    json_option,
    namespace_option,
    store_option,
)
from holdfast.connection import connect, existing, log_and_index
from holdfast.contract import Store
from holdfast.model import Message
from holdfast.secrets import SecretUrl

PAGE: Final = 1000


@contextmanager
def opened(url: SecretUrl, namespace: str, *, create: bool = False, **more: Any) -> Iterator[Store]:
    """The store of a command. To look at a file that is not there must not create it."""
    given = url.reveal() if create else existing(url.reveal())
    if (index := more.pop("index", None)) is not None:
        more["index"] = index.reveal()
    with connect(given, namespace=namespace, **more) as store:
        yield store


@click.command(cls=PrintingCommand)
@store_option
@namespace_option
@click.option("--prefix", default="", help="Only ids starting with this.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of results.")
@json_option
def sessions(
    url: SecretUrl, namespace: str, prefix: str, limit: int | None, *, json_to: Path | None
) -> None:
    """List live sessions, with their sizes and when they expire."""
    with opened(url, namespace) as store:
        names = islice(_names(store, prefix), limit)
        terminal.show_sessions((store.stat(name) for name in names), json_to)


def _names(store: Store, prefix: str) -> Iterator[str]:
    after: str | None = None
    while page := store.sessions(prefix=prefix, after=after, limit=PAGE):
        yield from page
        after = page[-1]


@click.command(cls=PrintingCommand)
@click.argument("session")
@store_option
@namespace_option
@click.option("--limit", type=click.IntRange(0), help="Number of messages: the newest.")
@click.option("--before", type=click.IntRange(0), help="Only numbers below this one.")
@click.option("--after", type=click.IntRange(0), help="Only numbers above this one.")
@json_option
def history(
    session: str, url: SecretUrl, namespace: str, *, json_to: Path | None, **page: Any
) -> None:
    """Show the messages of a session, oldest first."""
    with opened(url, namespace) as store:
        found = store.history(session, **page)
    terminal.show_history(session, found, json_to)


@click.command(cls=PrintingCommand)
@click.argument("session", required=False)
@store_option
@namespace_option
@click.option("--prefix", help="All sessions and scopes starting with this.")
@click.option("--older-than", type=AGE, help="Those not written to for this long: 90d, 12h, 30m.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--now", is_flag=True, help="Clean the engine's files at once, while others work.")
@click.option("--full", is_flag=True, help="Also in ways that keep others waiting (VACUUM FULL).")
@json_option
def forget(
    session: str | None,
    url: SecretUrl,
    namespace: str,
    *,
    prefix: str | None,
    older_than: timedelta | None,
    yes: bool,
    now: bool,
    full: bool,
    json_to: Path | None,
) -> None:
    """Erase a session for good, and say where copies are left.

    Without SESSION: all that --prefix and --older-than choose, one by one. Run it again after it was
    broken off.
    """
    many = prefix is not None or older_than is not None
    if many == (session is not None):
        raise click.UsageError("name a SESSION, or --prefix or --older-than")
    with opened(url, namespace) as store:
        if session is None:
            if not yes:
                whose = f"begins with {prefix!r}" if prefix else "is in this namespace"
                click.confirm(f"Erase for good what {whose}{_since(older_than)}?", abort=True)
            tell = None if json_to else terminal.show_progress
            erased = store.forget(
                prefix=prefix, older_than=older_than, now="full" if full else now, progress=tell
            )
            terminal.show_forgotten(erased, json_to)
            return
        if not yes:
            count = store.stat(session).count
            click.confirm(f"Erase {count} message(s) of {session!r} for good?", abort=True)
        terminal.show_erased(store.forget(session, now="full" if full else now), json_to)


def _since(older_than: timedelta | None) -> str:
    return "" if older_than is None else f" and was not written to for {older_than}"


@click.command(cls=PrintingCommand)
@store_option
@json_option
def compact(url: SecretUrl, *, json_to: Path | None) -> None:
    """Give the room of what was removed back to the disk (SQLite; nobody may have it open)."""
    log, _ = log_and_index(url.reveal(), None)
    if not log.startswith("sqlite:"):
        raise click.UsageError(
            "only the file of a SQLite store is compacted: Redis frees memory by itself, and "
            "PostgreSQL with VACUUM (holdfast forget --full runs one)"
        )
    from holdfast.backends.sqlite import address, compacting  # noqa: PLC0415 - loads when used

    terminal.show_compacted(*compacting.compact(address.path_of(log)), json_to)


@click.command(cls=PrintingCommand)
@store_option
@namespace_option
@click.option("--prefix", default="", help="Only ids starting with this.")
@click.option("-o", "--output", type=FILE, help="A file.")
def export(url: SecretUrl, namespace: str, prefix: str, output: Path | None) -> None:
    """Write every session as JSON Lines, exactly, for `holdfast load`."""
    with opened(url, namespace) as store:
        if output is None:
            terminal.write_lines(store.export(prefix=prefix), sys.stdout)
        else:
            terminal.write_file(store.export(prefix=prefix), output)


@click.command(cls=PrintingCommand)
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@store_option
@namespace_option
@json_option
def load(file: TextIO, url: SecretUrl, namespace: str, *, json_to: Path | None) -> None:
    """Read sessions from an export; each one is loaded whole or not at all."""
    with opened(url, namespace, create=True) as store:
        terminal.show_loaded(store.load(file), json_to)


@click.command(cls=PrintingCommand)
@click.argument("source")
@click.argument("target")
@click.option("--from", "kind", help="Which store SOURCE is, such as langchain-redis.")
@click.option("--to", help="Which store TARGET is, such as langgraph-sqlite; SOURCE is ours then.")
@click.option("--table", "place", help="Its table, or the prefix of its keys, if not the default.")
@click.option("--namespace", default="default", show_default=True, help="Of our store.")
@click.option("--dry-run", is_flag=True, help="Only read SOURCE, and say what would be moved.")
@json_option
@click.pass_context
def migrate(ctx: click.Context, /, *, json_to: Path | None, **asked: Any) -> None:
    """Bring what a framework's store has over, or back to it, and read it back.

    SOURCE is only read from. A second run adds what is new and nothing twice. Exit 0 all of it
    is in TARGET, 1 something is not, 2 wrong arguments, 3 unknown.
    """
    from holdfast.integrations import migration  # noqa: PLC0415 - loads when used

    moved = migration.migrate(**asked)
    terminal.show_moved(moved, json_to, dry_run=asked["dry_run"])
    ctx.exit(0 if moved.complete else 1)


@click.command(cls=PrintingCommand)
@click.argument("scope", required=False)
@store_option
@namespace_option
@embedder_option
@index_option
@json_option
def reindex(
    scope: str | None, url: SecretUrl, namespace: str, *, json_to: Path | None, **asked: Any
) -> None:
    """Rebuild the index of a scope, or of all, from the log."""
    with opened(url, namespace, **asked) as store:
        terminal.show_reindexed(store.reindex(scope), json_to)


@click.command(cls=PrintingCommand)
@click.argument("session")
@click.argument("content", required=False)
@store_option
@namespace_option
@click.option("--role", default="user", show_default=True, help="Who says it.")
@click.option("--key", help="A retry with the same key adds nothing.")
@click.option(
    "--ttl", "ttl_s", type=click.FloatRange(min=0, min_open=True), help="Seconds to live."
)
@json_option
def append(
    session: str,
    content: str | None,
    url: SecretUrl,
    namespace: str,
    *,
    role: str,
    json_to: Path | None,
    **more: Any,
) -> None:
    """Append a message to a session; CONTENT is read from standard input where it is left out."""
    text = sys.stdin.read() if content is None else content
    given = {name: value for name, value in more.items() if value is not None}
    with opened(url, namespace, create=True) as store:
        terminal.show_written(store.append(session, Message(role, text), **given), json_to)


@click.command(cls=PrintingCommand)
@click.argument("scope")
@click.argument("text")
@store_option
@namespace_option
@click.option("--key", help="A retry with the same key adds nothing.")
@json_option
def remember(
    scope: str, text: str, url: SecretUrl, namespace: str, *, key: str | None, json_to: Path | None
) -> None:
    """Keep a text for later questions in SCOPE, a user or a session."""
    with opened(url, namespace, create=True) as store:
        terminal.show_written(store.remember(scope, text, key=key), json_to)


@click.command(cls=PrintingCommand)
@click.argument("scope")
@click.argument("query")
@store_option
@namespace_option
@click.option("-k", "k", type=click.IntRange(1), default=5, show_default=True, help="Most results.")
@embedder_option
@index_option
@json_option
def recall(
    scope: str,
    query: str,
    url: SecretUrl,
    namespace: str,
    *,
    k: int,
    json_to: Path | None,
    **asked: Any,
) -> None:
    """Find by meaning what was said and remembered in SCOPE."""
    with opened(url, namespace, **asked) as store:
        terminal.show_recalled(store.recall(scope, query, k=k), json_to)


COMMANDS: Final = (
    sessions,
    history,
    append,
    remember,
    recall,
    forget,
    compact,
    export,
    load,
    migrate,
    reindex,
)
