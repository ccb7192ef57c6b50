"""Names of targets: a short name, a URL, or `package.module:attribute`; good in any process."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from holdfast import connection
from holdfast.errors import UsageError, VerifyError, did_you_mean
from holdfast.model import Durability
from holdfast.secrets import SecretUrl
from holdfast.verify import indexes, records
from holdfast.verify.adapters import frameworks
from holdfast.verify.blocks import Block
from holdfast.verify.claims import Claims
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.target import Index, Target

_NO_TARGET: Final = (
    "the target is neither package.module:attribute nor a URL such as redis://host/0"
)

HOLDFAST_TARGETS: Final = ("sqlite", "redis", "valkey", "postgres")
"""Our stores by short name: each on a fresh engine of that kind."""
_DRIVERS: Final = {"redis": "redis", "valkey": "redis", "postgres": "psycopg"}
"""What most stores of an engine are written with."""


@dataclass(slots=True)
class EngineView(Block):
    """An engine as a client process sees it: where it is, not how to end it."""

    kind: str
    provider: str
    config: str
    url: str = field(repr=False)
    version: str
    data_dir: Path | None
    topology: str | None = None
    """Several engines that are one service: by which name; None is one engine."""
    replicas: tuple[EngineView, ...] = ()
    """Copies of it that can be read from, with configuration `replica`; a scenario that needs an
    engine of its own starts that without one."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The other end of the wire to a client process."""
        folder = value["data_dir"]
        copies = tuple(cls.from_json(one) for one in value["replicas"])
        path = None if folder is None else Path(folder)
        return cls(**{**value, "data_dir": path, "replicas": copies})

    def to_json(self) -> dict[str, Any]:
        """For the wire to a client process."""
        copies = [one.to_json() for one in self.replicas]
        return {**asdict(self), "data_dir": _text(self.data_dir), "replicas": copies}

    def start(self) -> Self:
        """It runs already."""
        return self

    def stop(self) -> None:
        """Not from here: it belongs to the process that runs the check."""
        raise UsageError("a target may not stop its engine: the check does that")

    def close(self) -> None:
        """Nothing: it belongs to the process that runs the check."""

    def log(self, lines: int = 40) -> str:  # noqa: ARG002 - the protocol's signature
        """Empty here; the check has it."""
        return ""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """A target by name, such that another process can open the same store."""

    name: str = field(repr=False)
    """What the user typed."""
    engine: EngineView | None = None
    namespace: str = "default"
    ttl_s: float | None = None
    """For our own stores: the time to live that they are opened with."""
    use_async: bool = False
    """For our own stores: through their async API."""
    require: str = "MEMORY"
    """For our own stores: what each ack has to be on before it is given."""
    data: str | None = None
    """The name under which a store without an engine finds its files, wherever they are now."""

    @property
    def is_holdfast(self) -> bool:
        """One of our own stores, by short name or by URL."""
        return self.name in HOLDFAST_TARGETS or "://" in self.name

    @property
    def maker(self) -> str:
        """Whose store it is: `holdfast`, `framework` or `user`."""
        if self.is_holdfast:
            return "holdfast"
        return "user" if frameworks.engine_of(self.name) is None else "framework"

    @property
    def url(self) -> str:
        """Where our own store is."""
        return self.engine.url if self.engine is not None else self.name

    @property
    def embedded(self) -> bool:
        """No server holds requests: what a killed client had not done will never be done."""
        if self.engine is not None:
            return self.engine.kind == "sqlite"
        return self.is_holdfast and urlsplit(self.name).scheme in ("sqlite", "chroma")

    @property
    def place(self) -> Path | None:
        """Where its data are on this machine; None where that is not known."""
        if self.engine is not None:
            return self.engine.data_dir
        return Path(unquote(urlsplit(self.name).path[1:])) if self.embedded else None

    @property
    def likely_modules(self) -> list[str]:
        """What a client is going to import besides the kit and a user's own module."""
        if self.is_holdfast:
            found = connection.BACKENDS.get(urlsplit(self.url).scheme.lower())
            return [f"{found[0]}.backend"] if found else []
        return [_DRIVERS[self.engine.kind]] if self.engine and self.engine.kind in _DRIVERS else []

    def at(self, url: str) -> TargetSpec:
        """The same target, with its engine found at another address, as behind a proxy."""
        if self.engine is None:
            raise UsageError(f"{self.name} has no engine of which the address could be changed")
        return replace(self, engine=replace(self.engine, url=url))

    def to_json(self) -> dict[str, Any]:
        """For the wire to a client process."""
        return {**asdict(self), "engine": self.engine and self.engine.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TargetSpec:
        """The other end of that wire."""
        engine = value["engine"]
        return cls(**{**value, "engine": engine and EngineView.from_json(engine)})


def view_of(engine: Engine) -> EngineView:
    """What a client process may know of an engine."""
    return EngineView(
        engine.kind,
        engine.provider,
        engine.config,
        engine.url,
        engine.version,
        engine.data_dir,
        getattr(engine, "topology", None),
        tuple(view_of(copy) for copy in getattr(engine, "replicas", ())),
    )


def kind_of(name: str, asked: str | None) -> str | None:
    """The kind of engine to start for this target, or None if it brings its own.

    `UsageError` where the name is none, or no store of ours is there for it.
    """
    if "://" in name:
        _check_scheme(name.partition("://")[0].lower())
        if asked is not None:
            raise UsageError("a URL says where the engine is: leave --engine out")
        return None
    if (kind := frameworks.engine_of(name)) is not None:
        if asked not in (None, kind):
            raise UsageError(f"{name} names its engine: leave --engine out")
        return kind
    if ":" in name:
        return asked
    if name not in HOLDFAST_TARGETS:
        raise UsageError(
            f"no target {str(SecretUrl(name))!r}{did_you_mean(name, HOLDFAST_TARGETS)}: give one of "
            f"{', '.join(HOLDFAST_TARGETS)}, a URL, package.module:target, or "
            "a framework's store such as openai-agents:sqlite"
        )
    if asked not in (None, name):
        raise UsageError(f"{name} runs on its own engine: leave --engine out")
    _check_scheme({"valkey": "redis", "postgres": "postgresql"}.get(name, name))
    return name


def _check_scheme(scheme: str) -> None:
    if scheme not in connection.BACKENDS and scheme != "chroma":
        known = ", ".join(sorted(connection.BACKENDS))
        raise UsageError(f"this release has no store of ours for {scheme}://; it has: {known}")


def load_target(spec: TargetSpec) -> Target:
    """The target of this name, in this process; `VerifyError` where it cannot be had."""
    return _holdfast(spec) if spec.is_holdfast else _imported(spec)


def _holdfast(spec: TargetSpec) -> Target:
    def open_store(embedder: Any = None) -> Any:
        # Whatever the engine gives: the check compares it with what is required (--require).
        connect = connection.connect_async if spec.use_async else connection.connect
        return connect(
            spec.url,
            namespace=spec.namespace,
            require=Durability[spec.require],
            ttl_s=spec.ttl_s,
            embedder=embedder,
        )

    def other_model() -> Any:
        return open_store(indexes.Hashes())

    url, namespace = spec.url, spec.namespace
    # Of a cluster each node has some of the records; we do not follow them there.
    cluster = spec.engine is not None and spec.engine.config == "cluster"
    reachable = records.are_reachable(url) and not cluster
    return Target(
        open=open_store,
        engine=spec.engine,
        claims=Claims(recallable=indexes.claim(url)),
        name=str(SecretUrl(spec.name)),
        ttl_s=spec.ttl_s,
        whole_turns=whole_turns,
        previous=(lambda: records.VersionZero(url, namespace)) if reachable else None,
        tamper=(lambda session: records.flip_one(url, namespace, session)) if reachable else None,
        index=indexes.index_of(url, namespace, other_model)
        if reachable
        else Index(other_model=other_model),
    )


def whole_turns(store: Any, session: str) -> Any:
    """What our stores hand to a model."""
    return store.history(session, turns="whole")


def _imported(spec: TargetSpec) -> Target:
    if spec.engine is not None and frameworks.engine_of(spec.name) is not None:
        return frameworks.target_of(spec.name, spec.engine)
    found = _attribute(spec.name)
    if isinstance(found, Target):
        return found
    if not callable(found):
        raise VerifyError(f"{spec.name} is {type(found).__name__}, not a Target nor a function")
    given = () if spec.engine is None else (spec.engine,)
    call = f"{spec.name}({'engine' if given else ''})"
    try:
        inspect.signature(found).bind(*given)
    except TypeError as error:
        way = f"takes no engine: leave --engine out ({error})"
        if not given:
            way = "is a function of an engine: name one with --engine"
        raise VerifyError(f"{spec.name} {way}") from error
    except ValueError:
        pass  # what is not written in Python need not say what it takes
    try:
        target = found(*given)
    except Exception as error:
        raise VerifyError(f"{call} raised {_words(error)}") from error
    if not isinstance(target, Target):
        raise VerifyError(f"{call} returned {type(target).__name__}, not a Target")
    return target


def _attribute(name: str) -> Any:
    module, _, attribute = name.rpartition(":")
    folder = Path.cwd()  # as `python -m` does: a target is often a file of this directory
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise VerifyError(f"the target {name}: there is no file {module} in {folder}")
        folder, module = Path(module).resolve().parent, Path(module).stem
    if os.fspath(folder) not in sys.path:
        sys.path.insert(0, os.fspath(folder))
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # a module may raise anything while it is imported
        if "@" in name:  # a URL that is written wrong; the words of the error would repeat it
            raise VerifyError(_NO_TARGET) from None
        raise VerifyError(f"the target {name} cannot be imported: {_words(error)}") from error


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
