"""`connect`: from a URL to an open store whose level of durability is at least what is required."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from holdfast import limits, operations
from holdfast.commands import Settings, Setup
from holdfast.contract import AsyncStore, Store
from holdfast.errors import Refused, StorageWarning, UsageError
from holdfast.model import Durability, Retention
from holdfast.runner import Index
from holdfast.secrets import SecretUrl

if TYPE_CHECKING:
    from holdfast.recall.embedders import Embedder
    from holdfast.recall.memory_operations import Models
    from holdfast.recall.summaries import Summarizer

BACKENDS: Final = {
    "sqlite": ("holdfast.backends.sqlite", "holdfast"),
    **dict.fromkeys(
        (
            "redis",
            "rediss",
            "valkey",
            "valkeys",
            "unix",
            "redis+cluster",
            "rediss+cluster",
            "redis+sentinel",
            "rediss+sentinel",
        ),
        ("holdfast.backends.redis", "holdfast[redis]"),
    ),
    "postgresql": ("holdfast.backends.postgres", "holdfast[postgres]"),
    "postgres": ("holdfast.backends.postgres", "holdfast[postgres]"),
}
"""URL scheme -> the module of its backend, and what to install for its driver."""


def connect(
    url: str,
    *,
    namespace: str = "default",
    require: Durability = Durability.DISK,
    ttl_s: float | None = None,
    replicas: Sequence[str] = (),
    embedder: Embedder | str | None = None,
    index: str | None = None,
    summarizer: Summarizer | None = None,
    background_indexing: bool | None = None,
    retention: Retention | None = None,
    keys_kept_s: float | None = limits.KEYS_KEPT_S,
) -> Store:
    """Open a store. Every ack is at least of the level `require`, or the setup is refused.

    `namespace` keeps applications on one engine apart. `ttl_s` is the time to live that
    each write gives its session, unless the write names another. `replicas` are URLs of copies
    that histories may be read from: never without what was acknowledged to anybody before this
    store was opened, what it wrote itself, and the ack that a read names as `seen`. What others
    write later may be missing for as long as the copy lags. `embedder` (minilm by default), `index`
    (where vectors are kept: in the log's engine, or chroma:///dir, chroma+http://host:port) and
    `summarizer` are for long-term memory; they are loaded when it is first used. From then on
    a thread indexes what is appended; at once with `background_indexing=True` or where an embedder
    or an index is named, never with `background_indexing=False`: then only `recall` and `wait_for` do.
    `retention` says how much of each session is kept by appends that name no other; None: all of it.
    `keys_kept_s` (90 days) bounds what is kept of what is gone: a key protects as long as its messages
    are there and at least so long after its use; a session that was forgotten or has expired is known
    as such for so long, then its name is as good as new. None: both for ever.
    """
    url, index = log_and_index(url, index)
    module, settings = _prepare(url, namespace, require, ttl_s, replicas)
    settings.keys_kept_ms = operations.kept_ms(keys_kept_s)
    operations.check_retention(retention)
    models = _models(embedder, summarizer)
    apart = _index(index, settings)
    backend = module.open_backend(settings)
    try:
        _check_level(backend, require)
    except BaseException:
        backend.close()
        raise
    if background_indexing is None and (embedder is not None or apart is not None):
        background_indexing = True
    return Store(
        backend,
        ttl_s=ttl_s,
        models=models,
        index=apart,
        background_indexing=background_indexing,
        retention=retention,
    )


async def connect_async(
    url: str,
    *,
    namespace: str = "default",
    require: Durability = Durability.DISK,
    ttl_s: float | None = None,
    replicas: Sequence[str] = (),
    embedder: Embedder | str | None = None,
    index: str | None = None,
    summarizer: Summarizer | None = None,
    background_indexing: bool | None = None,
    retention: Retention | None = None,
    keys_kept_s: float | None = limits.KEYS_KEPT_S,
) -> AsyncStore:
    """Open a store for the running event loop; see `connect`."""
    url, index = log_and_index(url, index)
    module, settings = _prepare(url, namespace, require, ttl_s, replicas)
    settings.keys_kept_ms = operations.kept_ms(keys_kept_s)
    operations.check_retention(retention)
    models = _models(embedder, summarizer)
    apart = None if index is None else await _index_in_a_thread(index, settings)
    backend = await module.open_backend_async(settings)
    try:
        _check_level(backend, require)
    except BaseException:
        await backend.close()
        raise
    if background_indexing is None and (embedder is not None or apart is not None):
        background_indexing = True
    return AsyncStore(
        backend,
        ttl_s=ttl_s,
        models=models,
        index=apart,
        background_indexing=background_indexing,
        retention=retention,
    )


def existing(url: str) -> str:
    """The URL of a store that is only looked at: a file that is not there is not created."""
    if not url.startswith(("sqlite:", "chroma:")) or "mode=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}mode=rw"


def scheme_of(url: str) -> str:
    """What comes before ://, of a URL that can be taken apart; `UsageError` where it cannot."""
    try:
        return urlsplit(url).scheme
    except ValueError:  # its words may quote the password: it must not be a cause
        raise UsageError(
            "the URL cannot be read: write @ / : # ? [ ] and letters beyond ASCII in a user name or "
            "password as %40, and so on; an IPv6 address stands in [ ]. Nothing was sent"
        ) from None


def _prepare(
    url: object, namespace: object, require: object, ttl_s: float | None, replicas: object
) -> tuple[ModuleType, Settings]:
    if not isinstance(url, str):
        raise UsageError(f"url must be text such as sqlite:///memory.db, not {url!r}")
    if not isinstance(require, Durability):
        raise UsageError(f"require must be a Durability such as Durability.DISK, not {require!r}")
    operations.default_ttl_ms(ttl_s)
    space = operations.text_bytes(namespace, "namespace", limits.NAMESPACE_BYTES_MAX)
    if not space:
        raise UsageError("namespace must not be empty")
    if isinstance(replicas, str) or not isinstance(replicas, Sequence):
        raise UsageError("replicas must be a list of URLs")
    for one in replicas:
        scheme_of(str(one))
    secret = tuple(SecretUrl(str(one)) for one in replicas)
    return _backend_module(scheme_of(url)), Settings(SecretUrl(url), space, require, secret)


def log_and_index(url: str, index: str | None) -> tuple[str, str | None]:
    """`chroma:///dir` is the log in that directory, with a Chroma index beside it."""
    if not isinstance(url, str) or not url.startswith("chroma://"):
        return url, index
    if index is not None:
        raise UsageError(
            "a chroma:// URL names log and index in one: leave `index` out, or name the log's URL"
        )
    directory, query = url.removeprefix("chroma://").partition("?")[::2]
    here = directory.rstrip("/")
    return f"sqlite://{here}/memory.db{query and '?' + query}", f"chroma://{here}/chroma"


def _models(embedder: object, summarizer: object) -> Models | None:
    """None for the defaults: then nothing of recall is imported before it is used."""
    if embedder is None and summarizer is None:
        return None
    from holdfast.recall import memory_operations  # noqa: PLC0415 - as above

    return memory_operations.models(embedder, summarizer)


def _index(index: object, settings: Settings) -> Index | None:
    if index is None:
        return None
    if not isinstance(index, str) or not index.startswith(("chroma://", "chroma+http://")):
        shown = str(SecretUrl(index)) if isinstance(index, str) else index
        raise UsageError(
            "index is chroma:///dir or chroma+http://host:port; left out, vectors are kept in the "
            f"log's own engine. Not {shown!r}"
        )
    from holdfast.recall.chroma_index import ChromaIndex  # noqa: PLC0415 - an extra

    scheme_of(index)
    return ChromaIndex(index, settings.namespace)


async def _index_in_a_thread(index: str, settings: Settings) -> Index | None:
    """To import a driver may take a second, for which no event loop should stand still."""
    import asyncio  # noqa: PLC0415 - the sync API does without it

    return await asyncio.to_thread(_index, index, settings)


def _backend_module(scheme: str) -> ModuleType:
    if scheme not in BACKENDS:
        known = ", ".join(f"{name}://" for name in sorted(BACKENDS))
        raise UsageError(
            f"no store for {scheme + '://' if scheme else 'a URL without a scheme'}; "
            f"known are: {known}. The embedded default is sqlite:///memory.db"
        )
    module, requirement = BACKENDS[scheme]
    try:
        found = importlib.import_module(module)
        found.open_backend  # noqa: B018 - now is the time to miss its driver
    except ImportError as error:
        raise UsageError(
            f"{scheme}:// needs a driver that is not installed ({error}). "
            f"Run: pip install '{requirement}'"
        ) from error
    return found


def _check_level(backend: Setup, require: Durability) -> None:
    if backend.durability < require:
        raise Refused(
            f"this setup keeps {backend.durability.name} at most, and {require.name} is required: "
            f"{backend.weakness(require)}. Nothing was written",
            operation="connect",
            backend=backend.name,
        )
    risk = backend.risk()
    if risk is not None:
        warnings.warn(risk, StorageWarning, stacklevel=3)
