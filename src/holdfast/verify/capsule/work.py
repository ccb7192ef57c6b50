"""Make a capsule, and read one with the code and the engine of today."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast import linux
from holdfast._version import __version__
from holdfast.connection import connect, scheme_of
from holdfast.errors import (
    Damaged,
    EngineFailed,
    EngineMissing,
    FormatTooNew,
    HoldfastError,
    NotApplied,
    OutcomeUnknown,
    StorageWarning,
    UsageError,
)
from holdfast.model import Durability
from holdfast.secrets import SecretUrl
from holdfast.verify import spec as names
from holdfast.verify.adapters import frameworks, plain
from holdfast.verify.capsule import data, kept, seeded
from holdfast.verify.capsule.differences import Difference, compare
from holdfast.verify.capsule.kept import Capsule
from holdfast.verify.capsule.stores import HoldfastStore, UserStore
from holdfast.verify.engines import Engine, start_engine

_EXPORT: Final = "export.jsonl"
_FILE: Final = "memory.db"
_FAMILY: Final = {"valkey": "redis"}
"""Engines that read one another's files."""
_EXPORT_ENGINE: Final = "sqlite"
"""Where an export is read, unless another is asked for."""
VERIFY_S: Final = 120.0
"""How long the engine of one capsule may run."""
DATA_BYTES_MAX: Final = 1 << 30
"""What its files may take; they are in memory."""
OWN_BYTES_MAX: Final = 1 << 30
"""What this process may take besides, for what the engine of a capsule answers."""
_LOOK_S: Final = 0.1
_BLOCK_BYTES: Final = 512

CapsuleStore = HoldfastStore | UserStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What goes into a capsule: a store of which we write the content, or `url` as it is."""

    target: str = "sqlite"
    url: SecretUrl | None = None
    """A holdfast store with a user's data, or a file that `holdfast export` wrote."""
    engine: str | None = None
    engine_version: str | None = None
    config: str | None = None
    namespace: str = "default"
    prefix: str = ""
    seed: int = 0
    about: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one capsule: same, differs, or cannot (and why)."""

    capsule: str
    verdict: str
    because: str
    differences: tuple[Difference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "capsule": self.capsule,
            "verdict": self.verdict,
            "because": self.because,
            "differences": [
                {"session": each.session, "place": each.place, "what": each.what}
                for each in self.differences
            ],
        }


EXIT_CODES: Final = {"same": 0, "cannot": 3, "differs": 1}


def worst(reports: list[Report]) -> int:
    """The exit code of all: one that differs is worse than one that cannot be read here."""
    codes = {EXIT_CODES[report.verdict] for report in reports}
    return next((code for code in (1, 3) if code in codes), 0)


def create(folder: Path, origin: Origin) -> tuple[Capsule, list[str]]:
    """Make a capsule in an empty directory; returns it, and what the store refused to keep."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StorageWarning)  # it is kept for a moment only
        capsule, files, refused = _from_url(origin) if origin.url is not None else _written(origin)
    kept.write(folder, capsule, files)
    return capsule, refused


def _written(origin: Origin) -> tuple[Capsule, dict[str, bytes], list[str]]:
    """Write a seeded set of sessions through the target's store on a fresh engine."""
    kind = names.kind_of(origin.target, origin.engine)
    if kind is None:
        raise UsageError("name the engine that the target writes to: --engine")
    with start_engine(kind, config=origin.config, version=origin.engine_version) as engine:
        with _opened(origin.target, engine, origin.namespace) as store:
            plan = list(seeded.writes(origin.seed, keyed=store.keyed, rewrites=store.rewrites))
            refused = store.fill(plan)
            sessions = [store.tell(name) for name in dict.fromkeys(_sessions(plan, store))]
            retries = list(store.acks(plan))
        described = {"kind": kind, "version": engine.version, "config": engine.config}
        form, files = data.keep(engine)
    capsule = Capsule(
        target=origin.target,
        form=form,
        holdfast=__version__,
        engine=described,
        namespace=origin.namespace,
        about=origin.about,
        sessions=sessions,
        retries=retries,
    )
    return capsule, files, refused


def _sessions(plan: list[seeded.Write], store: CapsuleStore) -> Iterator[str]:
    yield from (
        store.names() if isinstance(store, HoldfastStore) else (write.session for write in plan)
    )


def _from_url(origin: Origin) -> tuple[Capsule, dict[str, bytes], list[str]]:
    """Keep a user's data, with all that is read from them now."""
    url = origin.url.reveal() if origin.url is not None else ""
    if "://" not in url:
        return _from_export(origin, Path(url))
    kind = scheme_of(url)
    with connect(url, namespace=origin.namespace, require=Durability.MEMORY) as store:
        view = HoldfastStore(store)
        sessions = [view.tell(name) for name in view.names(origin.prefix)]
        lines = list(store.export(prefix=origin.prefix))
    form, files = "export", {_EXPORT: _text(lines)}
    if kind == "sqlite" and not origin.prefix:
        form, files = "files", {_FILE: data.copy_of(Path(unquote(urlsplit(url).path[1:])))}
    capsule = Capsule(
        target=kind,
        form=form,
        holdfast=__version__,
        engine={"kind": kind},
        namespace=origin.namespace,
        about=origin.about,
        sessions=sessions,
    )
    return capsule, files, []


def _from_export(origin: Origin, file: Path) -> tuple[Capsule, dict[str, bytes], list[str]]:
    """Keep a file that `holdfast export` wrote."""
    try:
        files = {_EXPORT: file.read_bytes()}
    except OSError as error:
        raise UsageError(
            f"--from takes a URL or an export; {origin.url}: {error.strerror}"
        ) from None
    capsule = Capsule(
        target="export", form="export", holdfast=__version__, engine={}, about=origin.about
    )
    with _brought(capsule, files, Today()) as (_, store):
        sessions = [store.tell(name) for name in _sessions([], store)]
    return replace(capsule, sessions=sessions), files, []


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """With what a capsule is read; what is not named is as it was, in the newest version here."""

    target: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    config: str | None = None


def verify(folder: Path, today: Today | None = None) -> Report:
    """Read a capsule back, and write on it; `VerifyError` where the capsule itself is damaged."""
    try:
        capsule, files = kept.read(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StorageWarning)
            return _report(folder, capsule, files, today or Today())
    except (EngineMissing, FormatTooNew) as error:
        return Report(str(folder), "cannot", str(error))


def _report(folder: Path, capsule: Capsule, files: dict[str, bytes], today: Today) -> Report:
    try:
        with _brought(capsule, files, today) as (engine, store):
            found = tuple(_differences(capsule, store))
            reader = f"{engine.kind} {engine.version}"
    except EngineFailed as error:
        return Report(str(folder), "differs", f"today's engine does not take it: {error}")
    except (NotApplied, OutcomeUnknown, Damaged) as error:
        return Report(str(folder), "differs", f"today's store does not take it: {error}")
    except HoldfastError:
        raise
    except Exception as error:  # noqa: BLE001 - functions that a dump replaced may answer anything
        words = f"{type(error).__name__}: {error}"
        return Report(str(folder), "differs", f"today's store cannot work with it: {words}")
    if found:
        return Report(str(folder), "differs", f"{len(found)} differences on {reader}", found)
    whole = f"{len(capsule.sessions)} sessions, {capsule.messages} messages"
    return Report(str(folder), "same", f"{whole}, read and written on by {reader}")


def _differences(capsule: Capsule, store: CapsuleStore) -> Iterator[Difference]:
    """First everything is read; then old keys are used again, and each session is written on."""
    for session in capsule.sessions:
        yield from compare(session, store.tell(session["session"]))
    for retry in capsule.retries:
        if wrong := _attempted(lambda: store.retry(retry)):  # noqa: B023 - called in this turn
            yield Difference(retry["session"], "", wrong)
    for session in capsule.sessions:
        yield from _written_on(session, store)


def _written_on(session: dict[str, Any], store: CapsuleStore) -> Iterator[Difference]:
    """What is wrong with one more message, beyond what was said of the session before."""
    name = session["session"]
    before = store.tell(name)
    if "error" in before or not before["messages"]:
        return
    added: list[dict[str, Any]] = []
    if wrong := _attempted(lambda: added.append(store.add(name))):
        yield Difference(name, "", f"cannot be written on: {wrong}")
        return
    now = store.tell(name)
    shown = now.get("messages", [])
    if len(shown) != len(before["messages"]) + 1 or not _holds(shown[-1], added[0]):
        yield Difference(name, "", "one more message was acknowledged, and is not its last")
    elif "seq" in added[0] and added[0]["seq"] <= before["last"]:
        yield Difference(name, "", f"the number {added[0]['seq']} was given before")


def _attempted(attempt: Callable[[], str | None]) -> str:
    """What is wrong, in words; an error is that too."""
    try:
        return attempt() or ""
    except Exception as error:  # noqa: BLE001 - a user's store may raise anything
        return f"{type(error).__name__}: {error}"


def _holds(message: dict[str, Any], added: dict[str, Any]) -> bool:
    return all(message.get(name) == value for name, value in added.items())


@contextlib.contextmanager
def _brought(
    capsule: Capsule, files: dict[str, bytes], today: Today
) -> Iterator[tuple[Engine, CapsuleStore]]:
    """The data of a capsule under an engine of today, and a store of today on them."""
    exported = capsule.form == "export"
    kind = today.engine or (_EXPORT_ENGINE if exported else capsule.engine["kind"])
    if not exported and _FAMILY.get(kind, kind) != _FAMILY.get(
        wrote := capsule.engine["kind"], wrote
    ):
        raise UsageError(
            f"files of {wrote} are not for {kind}: keep an export to move between them"
        )
    config = today.config or capsule.engine.get("config")
    target = today.target or (kind if exported else _own_target(capsule, kind))
    with (
        start_engine(
            kind,
            config=config,
            version=today.engine_version,
            settings=data.locked(kind),
            instruments=[data.MemoryBound()],
        ) as engine,
        _ended_after(VERIFY_S, engine),
    ):
        url = engine.url if exported else data.bring(engine, capsule.form, files)
        if kind == "sqlite" and not exported:
            database = Path(unquote(urlsplit(url).path[1:]))
            data.check_code(engine.data_dir, database, is_holdfast=target in names.HOLDFAST_TARGETS)
        with _opened(target, engine, capsule.namespace, url) as store:
            if exported and isinstance(store, HoldfastStore):
                _load(store, files[_EXPORT])
            yield engine, store


def _own_target(capsule: Capsule, kind: str) -> str:
    """The store that a capsule may name by itself; to import another one is to run its code."""
    if capsule.target in names.HOLDFAST_TARGETS:
        return kind
    if frameworks.engine_of(capsule.target) is not None:
        return capsule.target
    raise UsageError(
        f"{capsule.target!r} wrote it, and a capsule cannot make us import that. "
        "Name the store to read it with: --target"
    )


def _load(store: HoldfastStore, export: bytes) -> None:
    try:
        # Not splitlines(): U+2028 may stand inside a line.
        store.load(export.decode().split("\n"))
    except (UsageError, ValueError) as error:
        raise EngineFailed(str(error)) from error


@contextlib.contextmanager
def _ended_after(seconds: float, engine: Engine) -> Iterator[None]:
    """Kill a server whose data keep it busy for ever, or grow; what waits for it then gets an error."""
    end = getattr(engine, "kill", None)
    if end is None:
        yield
        return
    end_s, over = time.monotonic() + seconds, threading.Event()
    own_bytes_max = _own_bytes() + OWN_BYTES_MAX

    def watch() -> None:
        while not over.wait(_LOOK_S):
            is_late, is_large = time.monotonic() > end_s, _own_bytes() > own_bytes_max
            if is_late or is_large or _bytes_in(engine.data_dir) > DATA_BYTES_MAX:
                end()
                return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def _own_bytes() -> int:
    """Memory of this process: an answer is kept whole, and a line of a dump makes one without an end."""
    return 1024 * int(linux.status(os.getpid())["VmRSS"].split()[0])


def _bytes_in(folder: Path | None) -> int:
    """Of all files that are there; one that goes meanwhile has none."""
    found = 0
    for path, _, files in os.walk(folder or ""):
        for name in files:
            with contextlib.suppress(OSError):
                found += os.lstat(f"{path}/{name}").st_blocks * _BLOCK_BYTES
    return found


@contextlib.contextmanager
def _opened(
    target: str, engine: Engine, namespace: str, url: str | None = None
) -> Iterator[CapsuleStore]:
    """The store of a target, holdfast's or a user's."""
    spec = names.TargetSpec(target, engine=names.view_of(engine), namespace=namespace)
    spec = spec.at(url or engine.url)
    if spec.is_holdfast:
        with connect(spec.url, namespace=namespace, require=Durability.MEMORY) as store:
            yield HoldfastStore(store)
    else:
        found = names.load_target(spec)
        with plain.Client(found) as client:
            yield UserStore(client, keyed="exactly-once" in found.claims.claimed())
