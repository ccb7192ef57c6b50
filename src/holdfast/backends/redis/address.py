"""What a URL of Redis stands for. The password stays in here: it never goes into words. Pure.

redis://user:password@host:6379/0        rediss:// with TLS, valkey:// the same
unix:///run/redis/redis.sock?db=0
redis+cluster://host:7000,host:7001      plain redis:// finds out by itself, too
redis+sentinel://host:26379,host:26379/service/0
                                         ?sentinel_auth=yes: the sentinels want the same password
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from holdfast.commands import Settings
from holdfast.errors import Refused, UsageError
from holdfast.model import Durability

PORT: Final = 6379
SENTINEL_PORT: Final = 26_379
TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs")
SECONDS: Final = ("connect_timeout_s", "reply_timeout_s", "pool_timeout_s")
KNOWN: Final = ("db", "durability", "connections_max", "sentinel_auth", *SECONDS, *TLS_OPTIONS)
SCHEMES: Final = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}


@dataclass(frozen=True, slots=True)
class Server:
    """Where an engine listens."""

    host: str
    port: int = PORT
    path: str = ""

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """What to connect to, and how."""

    seeds: tuple[Server, ...]
    namespace: bytes
    require: Durability
    tls: bool = False
    cluster: bool = False
    service: str = ""
    """The name that sentinels know the primary by; empty without them."""
    sentinel_auth: bool = False
    """Whether sentinels are given the user name and password as well."""
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    stated: Durability | None = None
    tls_options: tuple[tuple[str, str], ...] = ()
    connections_max: int = 16
    connect_timeout_s: float = 5.0
    reply_timeout_s: float = 10.0
    pool_timeout_s: float = 10.0
    keys_kept_ms: int = 0


def read_address(asked: Settings) -> Address:
    """The address that a URL stands for, or `UsageError` naming what is wrong, never the whole URL."""
    if asked.replicas:
        raise Refused(
            "this backend reads from the primary only, so that no answer is stale. Leave replicas "
            "out; require=Durability.REPLICA makes a write wait for one"
        )
    text = asked.url.reveal()
    url = urlsplit(text)
    _check_userinfo(text, url)
    base, _, mode = url.scheme.partition("+")
    options = _options(url)
    settings: dict[str, Any] = {
        "namespace": asked.namespace,
        "require": asked.require,
        "keys_kept_ms": asked.keys_kept_ms,
        "cluster": mode == "cluster",
        "tls": SCHEMES.get(base, False),
        **_servers(url, base, mode),
        **options,
    }
    return Address(**settings)


def _check_userinfo(text: str, url: SplitResult) -> None:
    """An @ or / in a password moves it into the path, and from there into errors."""
    elsewhere = f"{url.path}{url.query}{url.fragment}"
    if "://" not in text or (url.scheme != "unix" and "@" in elsewhere) or url.fragment:
        raise UsageError(
            "the URL cannot be read as redis://user:password@host:port/0: write @ / : # and ? in a "
            "user name or password as %40 %2F %3A %23 and %3F; nothing was sent"
        )


def _servers(url: SplitResult, base: str, mode: str) -> dict[str, Any]:
    login, _, hosts = url.netloc.rpartition("@")
    username, _, password = login.partition(":")
    found: dict[str, Any] = {
        "username": unquote(username) or None,
        "password": unquote(password) or None,
    }
    if base == "unix":
        return found | {"seeds": (Server("", 0, unquote(url.path)),)}
    port = SENTINEL_PORT if mode == "sentinel" else PORT
    # One that is named twice is still one: of sentinels, most must answer.
    found["seeds"] = tuple(dict.fromkeys(_server(host, port) for host in hosts.split(",")))
    parts = [unquote(part) for part in url.path.split("/") if part]
    if mode == "sentinel":
        if not parts:
            raise UsageError(
                "a Sentinel URL names the service: redis+sentinel://host:26379/mymaster/0"
            )
        found["service"] = parts.pop(0)
    if parts:
        found["db"] = _whole("db", parts.pop(0))
    if parts:
        raise UsageError("the path of a Redis URL is the number of a database, as in /0")
    return found


def _server(host: str, default: int) -> Server:
    try:
        parts = urlsplit(f"//{host}")
        return Server(parts.hostname or "localhost", parts.port or default)
    except ValueError as error:
        raise UsageError(f"a port must be a number up to 65535, as in {default}") from error


def _options(url: SplitResult) -> dict[str, Any]:
    found: dict[str, Any] = {}
    tls: list[tuple[str, str]] = []
    pairs = parse_qsl(url.query, keep_blank_values=True)
    if len(dict(pairs)) < len(pairs):  # who looks whether it is for tests may go by the other one
        raise UsageError("the URL names an option twice")
    for name, value in pairs:
        if name in TLS_OPTIONS:
            tls.append((name, value))
        elif name in SECONDS:
            found[name] = _seconds(name, value)
        elif name in {"db", "connections_max"}:
            found[name] = _whole(name, value)
        elif name == "durability":
            found["stated"] = _durability(value)
        elif name == "sentinel_auth":
            found[name] = _yes("sentinel_auth", value)
        else:
            raise UsageError(f"redis does not know the option {name}; it knows {', '.join(KNOWN)}")
    return found | {"tls_options": tuple(tls)}


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0.001 <= seconds <= 3600:  # noqa: PLR2004 - an hour is more than anybody waits
        raise UsageError(f"{name} must be seconds from 0.001 to 3600, not {value!r}")
    return seconds


def _whole(name: str, value: str) -> int:
    least = 1 if name == "connections_max" else 0
    if not value.isascii() or not value.isdigit() or not least <= int(value) <= 100_000:  # noqa: PLR2004
        raise UsageError(f"{name} must be a whole number from {least}, not {value!r}")
    return int(value)


def _yes(name: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise UsageError(f"{name} is yes or no, not {value!r}")
    return value == "yes"


def _durability(value: str) -> Durability:
    known = {one.name.lower(): one for one in Durability if one < Durability.REPLICA}
    if value not in known:
        raise UsageError(f"durability must be one of {', '.join(known)}, not {value!r}")
    return known[value]
