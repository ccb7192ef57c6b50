"""Asking a Chroma: a server over HTTP with GET only, or a directory without opening it for writing."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import apsw

from holdfast.backends.sqlite.address import path_of
from holdfast.connection import log_and_index
from holdfast.doctor import ask_sqlite, books, chroma_rules
from holdfast.doctor.ask_sqlite import read_only
from holdfast.doctor.books import Books
from holdfast.doctor.budget import Budget
from holdfast.doctor.chroma_rules import THRESHOLD, ChromaSeen, Collection
from holdfast.doctor.finding import Audit, Hazard, Severity, ordered
from holdfast.doctor.storage import LOCAL, openers, storage_of
from holdfast.errors import EngineUnreachable, UsageError
from holdfast.linux import listeners, open_names
from holdfast.recall.chroma_index import collection_name

COLLECTIONS_MAX: Final = 20
REPLY_BYTES_MAX: Final = 16 * 1024 * 1024
_HOME: Final = "/api/v2/tenants/default_tenant/databases/default_database/collections"
_COUNTS: Final = """
    SELECT c.name, c.config_json_str, c.schema_str, (
        SELECT count(*) FROM embeddings e JOIN segments s ON s.id = e.segment_id
        WHERE s.collection = c.id)
    FROM collections c LIMIT ?1
"""
_NOTES: Final = """
    SELECT c.name, u.int_value, f.int_value FROM collections c
    JOIN collection_metadata u ON u.collection_id = c.id AND u.key = 'upto'
    JOIN collection_metadata f ON f.collection_id = c.id AND f.key = 'floor'
"""
_DERIVED: Final = "the index is derived, and is rebuilt from the log"


def look(url: str, namespace: bytes, budget: Budget) -> Audit:
    """The audit of a server or of a directory."""
    if urlsplit(url).scheme == "chroma":
        path = Path(unquote(urlsplit(url).path[1:])).absolute()
        log, index = log_and_index(url, None)
        if (path / "chroma.sqlite3").exists() or not path_of(log).exists():
            return _directory(path)
        return _store(log, Path(unquote(urlsplit(index or "").path[1:])), namespace, budget)
    return _server(url.rstrip("/"), budget)


def _server(url: str, budget: Budget) -> Audit:
    version = _get(f"{url}/api/v2/version", budget)
    unseen = ["the data directory, and who else has it open: a server does not say"]
    collections: list[Collection] | None = None
    try:
        listed = _get(f"{url}{_HOME}?limit={COLLECTIONS_MAX}", budget)
        collections = [_served(url, one, budget) for one in listed]
    except EngineUnreachable as error:
        unseen.append(f"the collections: {error}")
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    where, facts = f"{parts.hostname}:{port}", {"API version": str(version)}
    directory = _directory_of(port) if parts.hostname in LOCAL else None
    if directory is None:
        return _audit(where, ChromaSeen(collections), facts, unseen)
    looked = _directory(directory)
    return replace(
        looked, where=where, facts={**facts, "directory": str(directory), **looked.facts}
    )


def _served(url: str, listed: Any, budget: Budget) -> Collection:
    count = None if budget.is_spent else _get(f"{url}{_HOME}/{listed['id']}/count", budget)
    return Collection(listed["name"], count, _threshold(listed.get("configuration_json")))


def _directory_of(port: int) -> Path | None:
    """The directory of the server that listens here, if it is a process of this machine."""
    for pid in listeners(port):
        for name in open_names(pid):
            if name.endswith("/chroma.sqlite3"):
                return Path(name).parent
    return None


def _store(log: str, index: Path, namespace: bytes, budget: Budget) -> Audit:
    """Our own store with a Chroma index: the log decides, and what is derived may be lost."""
    log_audit = ask_sqlite.look(log, namespace, budget)
    if not (index / "chroma.sqlite3").is_file():
        return replace(
            log_audit, facts={**log_audit.facts, "index": "none yet: made by the first recall"}
        )
    looked = _directory(index)
    notes = [
        replace(one, severity=Severity.NOTE, hazards=(), loses=f"nothing but time; {_DERIVED}")
        for one in looked.findings
        if {Hazard.DAMAGE, Hazard.CONCURRENCY} & set(one.hazards)
    ]
    facts = {**log_audit.facts, **{f"index: {name}": value for name, value in looked.facts.items()}}
    unseen = [*log_audit.unseen, *looked.unseen]
    found = Books(0, 0)
    try:
        _count_lag(found, path_of(log), index / "chroma.sqlite3", namespace)
    except apsw.Error as error:
        unseen.append(f"how far the index is: {type(error).__name__}: {error}")
    if found.index_lag is not None:
        facts["holdfast index lag"] = f"{found.index_lag} record(s)"
    notes += [books.behind(found.index_lag)] if found.index_lag else []
    return replace(
        log_audit,
        findings=ordered([*log_audit.findings, *notes]),
        facts=facts,
        unseen=tuple(unseen),
        measures=(*log_audit.measures, *found.measures(str(index))),
    )


def _count_lag(found: Books, log: Path, index: Path, namespace: bytes) -> None:
    """How far each collection is behind its log, by the notes that it carries."""
    with read_only(index) as connection:
        rows: list[Any] = connection.execute(_NOTES).fetchall()
    notes = {name: (upto, floor) for name, upto, floor in rows}
    for name, floor, last in ask_sqlite.ends(log, namespace):
        if (position := notes.get(collection_name(namespace, name))) is not None:
            found.count_lag(last, floor, *position)


def _directory(path: Path) -> Audit:
    database = path / "chroma.sqlite3"
    if not database.is_file():
        raise UsageError(f"{path} holds no chroma.sqlite3: it is no directory of Chroma")
    files = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    empty = [file for file in files if file.parent != path and not file.stat().st_size]
    # link_lists.bin is empty by right as long as the index has one level.
    empty = [file for file in empty if file.name != "link_lists.bin"]
    processes, hidden = openers(files)
    unseen = ["which processes of other users have it open"] if hidden else []
    facts = {}
    collections: list[Collection] | None = None
    try:
        with read_only(database) as connection:
            rows: list[Any] = connection.execute(_COUNTS, (COLLECTIONS_MAX,)).fetchall()
            collections = [_collection(*row) for row in rows]
            [(steps,)] = connection.execute("SELECT count(*) FROM migrations").fetchall()
            facts["migrations"] = str(steps)
    except apsw.Error as error:
        unseen.append(f"the collections: {type(error).__name__}: {error}")
    seen = ChromaSeen(
        collections,
        storage_of(path),
        processes,
        [str(file.relative_to(path)) for file in empty],
    )
    facts["file system"] = storage_of(path).kind
    facts["open in"] = ", ".join(f"{one.name} ({one.pid})" for one in processes) or "no process"
    return _audit(str(path), seen, facts, unseen)


def _collection(name: str, config: str | None, schema: str | None, count: int) -> Collection:
    settings = {**json.loads(schema or "{}"), **json.loads(config or "{}")}
    return Collection(name, count, _threshold(settings))


def _threshold(config: Any) -> int:
    """`sync_threshold`, wherever this release of Chroma keeps it."""
    if isinstance(config, dict):
        for name, value in config.items():
            if name in ("sync_threshold", "hnsw:sync_threshold") and isinstance(value, int):
                return value
        found = [_threshold(value) for value in config.values() if isinstance(value, dict)]
        return next((one for one in found if one != THRESHOLD), THRESHOLD)
    return THRESHOLD


def _audit(where: str, seen: ChromaSeen, facts: dict[str, str], unseen: list[str]) -> Audit:
    opinion = chroma_rules.judge(seen)
    for one in seen.collections or ():
        facts[f"collection {one.name}"] = (
            f"{one.count} record(s), index persisted after {one.threshold}"
        )
    return Audit(
        engine="chroma",
        where=where,
        findings=ordered(opinion.findings),
        sound=opinion.sound(),
        facts=facts,
        unseen=tuple(unseen),
    )


def _get(url: str, budget: Budget) -> Any:
    """The JSON of a page; `EngineUnreachable` without the URL's user or password otherwise."""
    try:
        with urllib.request.urlopen(url, timeout=budget.question_s) as reply:  # noqa: S310 - http(s) by dispatch
            return json.loads(reply.read(REPLY_BYTES_MAX))
    except (OSError, ValueError, http.client.HTTPException) as error:
        words = (
            f"{error.code} {error.reason}" if isinstance(error, urllib.error.HTTPError) else error
        )
        raise EngineUnreachable(f"no Chroma answers there ({words})", backend="chroma") from error
