"""What the commands print, for people and (with --json) for machines."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from holdfast.errors import HoldfastError, StoredDataError, UsageError
from holdfast.linux import sync_directory
from holdfast.model import Ack, Erased, Forgotten, History, Loaded, Message, Recalled, Stat
from holdfast.secrets import without_passwords

if TYPE_CHECKING:
    from holdfast.integrations.migration import Moved
    from holdfast.verify.capsule import Capsule, Report
    from holdfast.verify.engines import Found

LINES_MAX: Final = 100
"""Lines about single sessions that are shown to people."""

# rich is imported where a table is drawn: `holdfast --help` and --json do without it.


def complain(error: HoldfastError, given: Sequence[str] = ()) -> None:
    """One error, in its own words, on the error stream. `given` are the arguments of the command."""
    words = without_passwords(str(error), given)
    print(f"holdfast: {type(error).__name__}: {_printable(words)}", file=sys.stderr)


def say(words: str) -> None:
    """One line of a command that goes on running, on the error stream, at once."""
    print(f"holdfast: {_printable(words)}", file=sys.stderr, flush=True)


def show_sessions(listed: Iterable[Stat], json_to: Path | None) -> None:
    """A line a session."""
    stats = list(listed)
    if _wrote_json([_plain(stat) for stat in stats], json_to):
        return
    table = _table("session", "messages", "bytes", "last", "expires")
    for stat in stats:
        expires = "never" if stat.expires_at is None else f"{stat.expires_at:%Y-%m-%d %H:%M:%S} UTC"
        table.add_row(
            _printable(stat.session), str(stat.count), str(stat.bytes), str(stat.last), expires
        )
    _print(table)


def show_history(session: str, history: History, json_to: Path | None) -> None:
    """A line a message; damaged ones are named where they stand."""
    if _wrote_json(
        {
            "session": session,
            "state": history.state.value,
            "last": history.last,
            "messages": [_message(message) for message in history],
            "damaged": [asdict(damage) for damage in history.damaged],
        },
        json_to,
    ):
        return
    if not history.messages and not history.damaged:
        print(f"{_printable(session)}: no messages here ({history.state.value})")
        return
    table = _table("number", "role", "content")
    for number, role, content in sorted(_rows(history)):
        table.add_row(str(number), role, content)
    _print(table)


def show_erased(erased: Erased, json_to: Path | None) -> None:
    """What a forget removed."""
    if _wrote_json(asdict(erased), json_to):
        return
    files = "no copy is left in the files" if erased.scrubbed else "copies are left in:"
    print(f"forgotten: {erased.messages} message(s), {erased.bytes} bytes; {files}")
    for place in erased.left:
        print(f"  {place}")


def show_forgotten(receipt: Forgotten, json_to: Path | None) -> None:
    """The receipt of a forget of many."""
    if _wrote_json(asdict(receipt), json_to):
        return
    for name in receipt.sessions:
        print(f"  {_printable(name)}")
    print(
        f"forgotten: {len(receipt.sessions)} session(s), {receipt.messages} message(s), "
        f"{receipt.memories} memory record(s), {receipt.bytes} bytes; {receipt.before} were forgotten "
        f"before, {receipt.kept} are too young, of {receipt.unknown} the age is not known"
    )
    for place in receipt.left:
        print(f"  copies are left in: {place}")


def show_progress(receipt: Forgotten) -> None:
    """How far a forget of many is, on standard error."""
    print(f"{len(receipt.sessions)} session(s) forgotten so far", file=sys.stderr)


def show_compacted(before: int, after: int, json_to: Path | None) -> None:
    """What a compaction gave back."""
    if _wrote_json({"bytes_before": before, "bytes_after": after}, json_to):
        return
    print(f"{before - after:,} bytes given back: {before:,} before, {after:,} now")


def show_loaded(loaded: Loaded, json_to: Path | None) -> None:
    """What a load wrote."""
    if _wrote_json(asdict(loaded), json_to):
        return
    print(
        f"loaded: {loaded.sessions} session(s), {loaded.messages} message(s); "
        f"{loaded.present} were there already"
    )


def show_moved(moved: Moved, json_to: Path | None, *, dry_run: bool) -> None:
    """What a migration did, and what it could not bring over."""
    if _wrote_json(moved.to_json(), json_to):
        return
    verb = "would move" if dry_run else "moved"
    counted = "memories" if moved.unit == "memory" else f"{moved.unit}(s)"
    print(f"{verb}: {moved.messages} {counted} of {moved.sessions} session(s)", end="")
    if dry_run:
        print("; nothing was written")
    else:
        print(f"; {moved.present} were there already; {moved.verified} read back and equal")
    if moved.expiring:
        print(f"{moved.expiring} session(s) keep what was left of their time to live")
    lines = [f"not brought back: {name} was forgotten or has expired" for name in moved.gone]
    lines += [f"no history: {name}" for name in moved.foreign]
    for left in moved.left_out:
        place = "" if left.place is None else f", {moved.unit} {left.place}"
        lines.append(f"left out: {left.session}{place}: {left.reason}")
    lines += [f"differs: {one.session}: {one.reason}" for one in moved.differences]
    for line in lines[:LINES_MAX]:
        print(_printable(line))
    if len(lines) > LINES_MAX:
        print(f"and {len(lines) - LINES_MAX} more: --json shows all")


def show_reindexed(records: int, json_to: Path | None) -> None:
    """How much an index was built from."""
    if not _wrote_json({"records": records}, json_to):
        print(f"indexed again: {records} record(s)")


def show_written(ack: Ack, json_to: Path | None) -> None:
    """Where a write stands, and what it survives."""
    if _wrote_json(asdict(ack) | {"durability": ack.durability.name}, json_to):
        return
    numbers = str(ack.first) if ack.first == ack.last else f"{ack.first} to {ack.last}"
    again = "; it was there already, by its key" if ack.repeated else ""
    print(f"written: {_printable(ack.session)} {numbers}, {ack.durability.name}{again}")


def show_recalled(found: Recalled, json_to: Path | None) -> None:
    """A line a hit, best first; and how much the index has not seen yet."""
    hits = [
        asdict(hit) | {"message": _message(hit.message), "meta": dict(hit.meta)} for hit in found
    ]
    if _wrote_json({"hits": hits, "behind": found.behind, "model": found.model}, json_to):
        return
    table = _table("score", "kind", "number", "text")
    for hit in found:
        table.add_row(f"{hit.score:.2f}", hit.kind, str(hit.seq), _printable(hit.text))
    if found.hits:
        _print(table)
    else:
        print("nothing was found")
    if found.behind:
        print(f"{found.behind} record(s) are not indexed yet: ask again")


def show_engines(engines: Iterable[Found], json_to: Path | None) -> None:
    """The engines of this machine, then how to get the others."""
    found = list(engines)
    if _wrote_json([asdict(engine) for engine in found], json_to):
        return
    table = _table("engine", "version", "provider", "where, or how to get it")
    for engine in found:
        place = engine.where if engine.version else engine.how_to_get or engine.where
        table.add_row(engine.kind, engine.version or "missing", engine.provider, place)
    _print(table)


def show_verdict(words: str, verdict: dict[str, Any], json_to: Path | None) -> None:
    """A verdict in words, and whole as JSON where `--json` says."""
    if _wrote_json(verdict, json_to):
        return
    encoding = sys.stdout.encoding or "utf-8"  # of a terminal that may know ASCII only
    print(_printable(words).encode(encoding, "backslashreplace").decode(encoding))


def show_started(files: list[Path], engine: str) -> None:
    """What `holdfast init` wrote, and what to run."""
    for file in files:
        print(f"written: {file}")
    print(f"next: holdfast check {files[0]}:target --engine {engine} --report report.html")


def show_reproduced(file: Path, promise: str, command: str) -> None:
    """A test that was written, and the plan inside it."""
    print(f"written: {file}: {promise} breaks by: {_printable(command)}")
    print(f"next: pytest {file}")


def show_capsule(folder: Path, made: Capsule, refused: list[str]) -> None:
    """What a capsule holds."""
    for words in refused:
        print(f"refused: {_printable(words)}")
    print(
        f"made: {folder}: {len(made.sessions)} session(s), {made.messages} message(s) as "
        f"{made.form}, written by holdfast {made.holdfast}"
    )


def show_reports(reports: list[Report], json_to: Path | None) -> None:
    """A line a capsule, and one for each difference."""
    if _wrote_json([report.to_json() for report in reports], json_to):
        return
    for report in reports:
        print(f"{report.verdict}: {report.capsule}: {_printable(report.because)}")
        for difference in report.differences:
            print(f"  {_printable(str(difference))}")


def write_lines(lines: Iterable[str], out: TextIO) -> None:
    """Lines to a stream, as UTF-8 whatever the locale says."""
    for line in lines:
        out.buffer.write(f"{line}\n".encode())
    out.flush()


def ensure_writable(path: Path) -> None:
    """`UsageError` where a file cannot be written, as long as that can still be changed."""
    partial = _partial(path)
    try:
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def write_file(lines: Iterator[str], path: Path) -> None:
    """Lines to a file that appears whole and on disk, or not at all.

    What an export had to leave out is named after its last line: the file is kept then, too.
    """
    partial = _partial(path)
    left_out: StoredDataError | None = None
    with partial.open("w", encoding="utf-8", newline="\n") as out:
        try:
            out.writelines(f"{line}\n" for line in lines)
        except StoredDataError as error:
            left_out = error
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)
    sync_directory(path.parent)
    if left_out is not None:
        raise left_out


def write_bytes(data: bytes, path: Path) -> None:
    """A file that appears whole and on disk, or not at all."""
    partial = _partial(path)
    with partial.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)
    sync_directory(path.parent)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _rows(history: History) -> Iterator[tuple[int, str, str]]:
    for message in history:
        content = message.content if isinstance(message.content, str) else _json(message.content)
        extra = f" {_json(message.extra)}" if message.extra else ""
        yield message.seq or 0, _printable(message.role), _printable(content + extra)
    for damage in history.damaged:
        yield damage.seq, "DAMAGED", damage.reason


def _message(message: Message) -> dict[str, Any]:
    at = None if message.created_at is None else message.created_at.isoformat()
    return {
        "seq": message.seq,
        "id": message.id,
        "role": message.role,
        "content": message.content,
        "created_at": at,
        "extra": message.extra,
    }


def _plain(stat: Stat) -> dict[str, Any]:
    expires = None if stat.expires_at is None else stat.expires_at.isoformat()
    return asdict(stat) | {"state": stat.state.value, "expires_at": expires}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


STDOUT: Final = Path("-")
"""As the file of `--json`: standard output, with nothing else on it."""


@contextlib.contextmanager
def to_whoever_listens() -> Iterator[None]:
    """Print inside; that a reader has hung up (`| head`) changes nothing of how a command ends."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Whatever is printed later, at the exit of Python too, goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(value: Any, json_to: Path | None) -> None:
    """Where `--json` says, if it was given. ASCII: lone surrogates have no other way out."""
    if json_to == STDOUT:
        print(json.dumps(value, indent=2))
    elif json_to is not None:
        write_file(iter([json.dumps(value, indent=2)]), json_to)


def _wrote_json(value: Any, json_to: Path | None) -> bool:
    """Whether that is all that is to be printed."""
    write_json(value, json_to)
    return json_to == STDOUT


def _printable(text: str) -> str:
    """Text that a terminal shows as text: no control codes, no lone surrogates."""
    return "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print(table: Any) -> None:
    from rich.console import Console

    Console(markup=False, emoji=False, highlight=False).print(table)
