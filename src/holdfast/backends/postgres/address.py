"""A URL as settings: libpq's own, and ours. Pure; a password never comes back in words."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from psycopg import Error
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import UsageError

SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OPTIONS: Final = {
    "pool_max": (1, 1000),
    "pool_timeout_s": (0, 3600),
    "reply_timeout_s": (0, 3600),
    "failover_timeout_s": (0, 3600),
}
_DEFAULTS: Final = {
    "connect_timeout": "5",
    "fallback_application_name": "holdfast",
    # A peer that vanished without a word is noticed within half a minute.
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a PostgreSQL is, and how long we wait for it."""

    conninfo: dict[str, Any] = field(repr=False)
    schema: str = "holdfast"
    pool_max: int = 10
    """Connections of one store to one server, at most."""
    pool_timeout_s: float = 10.0
    """How long a command waits for a connection that others hold."""
    reply_timeout_s: float = 30.0
    """How long it waits for the server's answer; a lock is waited for a third of that."""

    failover_timeout_s: float = 30.0
    """How long it waits for another primary, where the URL names several servers."""

    @property
    def members(self) -> list[dict[str, Any]]:
        """The settings for each server that the URL names; one that is named twice is still one."""
        hosts, ports = (str(self.conninfo.get(name) or "").split(",") for name in ("host", "port"))
        if len(hosts) == 1:
            return [self.conninfo]
        ports = ports * len(hosts) if len(ports) == 1 else ports
        pairs = dict.fromkeys(zip(hosts, ports, strict=True))
        return [{**self.conninfo, "host": host, "port": port} for host, port in pairs]

    @property
    def lock_timeout_ms(self) -> int:
        """Shorter than the wait for an answer, so that a lock never makes an outcome unknown."""
        return max(1, round(self.reply_timeout_s * 1000 / 3))

    def scrub(self, words: str) -> str:
        """Words of the driver without the password, should they ever hold it."""
        password = str(self.conninfo.get("password") or "")
        return words.replace(password, "***") if password else words


def read_address(url: str) -> Address:
    """The address that a URL stands for; `UsageError` without the URL's own words otherwise."""
    parts = urlsplit(url)
    _check_userinfo(parts)
    options: dict[str, Any] = {}
    theirs: list[str] = []
    for pair in filter(None, parts.query.split("&")):  # not by parse_qsl: to libpq + is no blank
        name, _, value = map(unquote, pair.partition("="))
        if name == "schema":
            options["schema"] = _schema(value)
        elif name in _OPTIONS:
            options[name] = _number(name, value)
        else:
            theirs.append(pair)
    address = Address(_conninfo(parts._replace(query="&".join(theirs))), **options)
    try:
        address.members  # noqa: B018 - it can be read, or not
    except ValueError:
        raise UsageError("the URL names a different number of hosts and ports") from None
    return address


def _check_userinfo(parts: SplitResult) -> None:
    """An @ or / in a password moves it into the host's name, and from there into errors."""
    if parts.netloc.count("@") > 1 or "@" in parts.path + parts.fragment or parts.fragment:
        raise UsageError(
            "the URL cannot be read: write @ / : # and ? in a user name or password as %40 %2F "
            "%3A %23 and %3F; nothing was sent"
        )


def _conninfo(parts: SplitResult) -> dict[str, Any]:
    with contextlib.suppress(Error):  # its words may quote the password: it must not be a cause
        return {**_DEFAULTS, **conninfo_to_dict(parts.geturl())}
    raise UsageError(
        "the URL cannot be read as postgresql://user:password@host:port/database?schema=holdfast; "
        f"nothing was sent. Besides libpq's parameters it knows schema, {', '.join(_OPTIONS)}"
    )


def _schema(value: str) -> str:
    if not SCHEMA.fullmatch(value) or value.lower().startswith("pg_"):
        raise UsageError(
            f"schema must be a plain name of letters, digits and _, up to 63, not {value!r}"
        )
    return value


def _number(name: str, value: str) -> float:
    least, most = _OPTIONS[name]
    try:
        number = int(value) if name == "pool_max" else float(value)
    except ValueError:
        number = -1
    if not least <= number <= most:
        raise UsageError(f"{name} must be a number from {least} to {most}, not {value!r}")
    return number
