"""The stores of frameworks, by name: `openai-agents:sqlite` is a framework and an engine.

Each framework has a module here with one function per engine, `target(engine)` as a
stranger would write it. The framework itself is imported only when a store is opened.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from holdfast.errors import UsageError, VerifyError
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


FRAMEWORKS: Final = {
    "openai-agents": Framework(
        "holdfast.verify.adapters.openai_agents", ("sqlite", "redis"), "openai-agents"
    ),
    "langchain": Framework(
        "holdfast.verify.adapters.langchain",
        ("sqlite", "redis", "postgres"),
        "langchain-community",
    ),
    "llama-index": Framework(
        "holdfast.verify.adapters.llama_index",
        ("redis",),
        "llama-index-storage-chat-store-redis",
    ),
    "chroma": Framework(
        "holdfast.verify.adapters.chroma",
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
    make: Callable[[Engine], Target] = getattr(module, kind)
    return make(engine)


def imported(module: str, framework: str) -> Any:
    """A module of a framework; `VerifyError` with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = FRAMEWORKS[framework].package
        raise VerifyError(f"{error}. To have it: pip install {package}") from error
