"""The stores of frameworks, by name: `openai-agents:sqlite` is a framework and an engine.

Each framework has a module here with one function per engine, `target(engine)` as a
user would write it. The framework itself is imported only when a store is opened.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from holdfast import connection
from holdfast.contract import Store
from holdfast.errors import UsageError, VerifyError
from holdfast.model import Durability
from holdfast.verify import records
from holdfast.verify.claims import Claims, NotClaimed
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.target import Target


class Framework(NamedTuple):
    """Where its stores are described, on which engines, and what has to be installed."""

    module: str
    engines: tuple[str, ...]
    package: str
    kinds: Mapping[str, str] = MappingProxyType({})
    """The kind of an engine that goes by another name here."""


HOLDFAST_ENGINES: Final = MappingProxyType(
    {"holdfast": "sqlite", "holdfast-redis": "redis", "holdfast-postgres": "postgres"}
)
"""Our own store through a framework's interface, and the kind of engine below it."""

FRAMEWORKS: Final = {
    "openai-agents": Framework(
        "holdfast.verify.adapters.openai_agents_store",  # cycle: a registry; its adapter asks it what to install
        ("sqlite", "redis", *HOLDFAST_ENGINES),
        "openai-agents",
        HOLDFAST_ENGINES,
    ),
    "langchain": Framework(
        "holdfast.verify.adapters.langchain_store",  # cycle: a registry; its adapter asks it what to install
        ("sqlite", "redis", "postgres", *HOLDFAST_ENGINES),
        "langchain-community",
        HOLDFAST_ENGINES,
    ),
    "llama-index": Framework(
        "holdfast.verify.adapters.llama_index_store",  # cycle: a registry; its adapter asks it what to install
        ("redis", *HOLDFAST_ENGINES),
        "llama-index-storage-chat-store-redis",
        HOLDFAST_ENGINES,
    ),
    "chroma": Framework(
        "holdfast.verify.adapters.chroma_store",  # cycle: a registry; its adapter asks it what to install
        ("client", "server"),
        "'holdfast[chroma,recall]'",
        {"client": "sqlite", "server": "chroma"},
    ),
}

CLAIMS: Final = Claims(
    exactly_once=NotClaimed("its append takes no key"),
    expiring=NotClaimed("opened without a time to live"),
    recallable=NotClaimed("it is a chat history: nothing is found by meaning"),
)
"""What a framework's chat history says of itself. Everything else it is held to."""

OUR_CLAIMS: Final = Claims(
    expiring=NotClaimed("opened without a time to live"),
    recallable=NotClaimed("the framework's interface has no recall; the store itself has"),
)
"""Of our store through a framework's interface."""

OUR_CODE: Final = ("holdfast.integrations", "holdfast.contract")
"""Where a crash at a line is tried: the way from the framework to the log."""


def engine_of(name: str) -> str | None:
    """The kind of engine that `framework:engine` needs; None where it names no framework."""
    framework, _, kind = name.partition(":")
    if framework not in FRAMEWORKS:
        return None
    known = FRAMEWORKS[framework].engines
    if kind not in known:
        raise UsageError(f"no store {name!r}; of {framework} there are: {', '.join(known)}")
    return FRAMEWORKS[framework].kinds.get(kind, kind)


def target_of(name: str, engine: Engine) -> Target:
    """The target of this name on a running engine."""
    framework, _, kind = name.partition(":")
    module = importlib.import_module(FRAMEWORKS[framework].module)
    make: Callable[[Engine], Target] = getattr(
        module, "holdfast" if kind in HOLDFAST_ENGINES else kind
    )
    return make(engine)


def holdfast_target(engine: Engine, through: Callable[[Store], Any], name: str) -> Target:
    """Our store on this engine, through what a framework makes of it."""
    url = engine.url
    return Target(
        open=lambda: through(connection.connect(url, require=Durability.MEMORY)),
        engine=engine,
        claims=OUR_CLAIMS,
        code=OUR_CODE,
        name=name,
        tamper=lambda session: records.flip_one(url, "default", session),
    )


class Shown(list[dict[str, Any]]):
    """Messages in the kit's words; `damaged` is what the store says cannot be read."""

    damaged: tuple[Any, ...] = ()


def newest(found: list[Any], limit: int | None, said: Callable[[Any], dict[str, Any]]) -> Shown:
    """The newest `limit` of all that a framework read."""
    cut = found if limit is None else found[len(found) - min(limit, len(found)) :]
    shown = Shown(said(message) for message in cut)
    shown.damaged = getattr(found, "damaged", ())
    return shown


def imported(module: str, framework: str) -> Any:
    """A module of a framework; `VerifyError` with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = FRAMEWORKS[framework].package
        raise VerifyError(f"{error}. To have it: pip install {package}") from error
