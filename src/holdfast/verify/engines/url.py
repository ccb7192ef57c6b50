"""The provider of engines that already run: HOLDFAST_REDIS_URL, _VALKEY_URL, _POSTGRES_URL.

Each engine lives in a namespace of its own, which nobody else has: a word that is part of
every key, or a schema. Cleaning up is SCAN and UNLINK in batches, or DROP SCHEMA. What looks
like production is refused. We have no power over such a server: it is never killed, paused,
restarted or flushed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from holdfast.errors import EngineMissing, UsageError, VerifyError
from holdfast.verify.blocks import Block
from holdfast.verify.engines.configs import settings_of
from holdfast.verify.engines.drivers import (
    postgres_connection,
    redis_client,
    settings_by_url,
)
from holdfast.verify.engines.naming import describe
from holdfast.verify.engines.options import DEFAULT_CONFIG, EngineOptions, Found
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.engines.url_place import Place, is_permitted, looks_like_production, refusal
from holdfast.verify.engines.where import postgres_place, redis_place
from holdfast.verify.undo import Undo

if TYPE_CHECKING:
    import psycopg
    import redis

AS_IT_IS: Final = "as-it-is"
"""The configuration of a server whose settings fit none that was asked for."""
_MARK: Final = "holdfast"
_SCAN_COUNT: Final = 1000
_LOOK_KEYS_MAX: Final = 20_000
"""So many keys are looked at for some that are not of a check."""
_LOGIN: Final = ("authent", "password", "noauth")
"""What a server says to one whose name or password it does not take."""
_CLEAN: Final = "from holdfast.verify.engines.url import clean_up; clean_up()"
_UNDO_URL: Final = "HOLDFAST_UNDO_URL"
_UNDO_NAMESPACE: Final = "HOLDFAST_UNDO_NAMESPACE"


def open_engine(options: EngineOptions) -> Engine:
    """The server of HOLDFAST_<KIND>_URL; `EngineMissing` where the variable is not set."""
    if options.kind not in _CLASSES:
        raise EngineMissing(
            f"the provider url has no {options.kind}; it has {', '.join(_CLASSES)}. "
            f"For {options.kind} use the provider local.",
            backend=options.kind,
        )
    url = os.environ.get(url_variable(options.kind))
    if not url:
        raise EngineMissing(
            f"{url_variable(options.kind)} is not set. To get it: start a server for tests and "
            f"export {url_variable(options.kind)}={_EXAMPLES[options.kind]}",
            backend=options.kind,
        )
    return _CLASSES[options.kind](options, url)


def find_engines() -> list[Found]:
    """The servers whose URL is set and that answer; nothing is written to them."""
    return [_find(kind) for kind in _CLASSES]


def url_variable(kind: str) -> str:
    """The environment variable that says where the server of this kind is."""
    return f"HOLDFAST_{kind.upper()}_URL"


class UrlEngine(Block):
    """A running server of which we use one namespace, and over which we have no power."""

    kind: str
    provider = "url"
    data_dir = None

    def __init__(self, options: EngineOptions, url: str) -> None:
        self.kind, self.config = options.kind, options.config
        if options.port is not None or not isinstance(options.storage, str):
            raise UsageError("a server by URL has its own port and storage")
        wanted = settings_of(options.kind, options.config, options.settings)
        self._insists = bool(options.settings) or options.config != DEFAULT_CONFIG[options.kind]
        self._wanted = wanted
        self._options = options
        self._given = url
        self.namespace = f"{_MARK}_{os.urandom(12).hex()}"
        self.place = self._find_place()
        self._permitted = is_permitted(self.place)
        self._version = ""
        self._undo: Undo | None = None

    def __repr__(self) -> str:
        return describe(self, f"namespace {self.namespace}")

    @property
    def url(self) -> str:
        """Where it answers."""
        return self._given

    @property
    def version(self) -> str:
        """What the running engine says of itself."""
        return self._version

    def start(self) -> Self:
        """Make sure that it answers, is for tests, and is what was asked for; then move in."""
        if self._undo is None:
            # First what needs no connection, so that nothing is sent to such a place.
            self._refuse_production([])
            with self._reached():
                self._check()
            self._undo = Undo(
                sys.executable,
                *("-c", _CLEAN),
                environment={_UNDO_URL: self._given, _UNDO_NAMESPACE: self.namespace},
            )
            self._make_room()
        return self

    def stop(self) -> None:
        """Nothing: holdfast does not manage this server."""

    def close(self) -> None:
        """Remove what the namespace holds; `VerifyError` if the test wrote outside of it."""
        if self._undo is None:
            return
        lost: Exception | None = None
        try:
            clean_up(self._given, self.namespace)
        except self._driver_errors() as error:
            lost = error
        self._undo.cancel()
        self._undo = None
        if lost is not None:
            raise VerifyError(
                f"{self.place.name} does not answer any more ({lost}). What the test wrote is left "
                f"there, under names with {self.namespace}. To remove it: {self._by_hand()}",
                backend=self.kind,
            ) from lost
        others = [] if self._permitted else self._others()
        if others:
            shown = ", ".join(repr(name) for name in others[:3])
            raise VerifyError(
                f"the test wrote outside its namespace {self.namespace} on {self.place.name}, "
                f"such as {shown}; that was left alone",
                backend=self.kind,
            )

    def log(self, lines: int = 40) -> str:
        """Nothing: holdfast cannot read its log."""
        return f"({self.place.name} keeps its log; {lines} lines were asked for)"

    def _enter(self) -> object:
        return self.start()

    def _check(self) -> None:
        self._version = self._ask_version()
        if self._options.version and not self._version.startswith(self._options.version):
            raise EngineMissing(
                f"{self.place.name} is {self.kind} {self._version}, not {self._options.version}",
                backend=self.kind,
            )
        self._refuse_production(self._others())
        self._check_settings()

    def _refuse_production(self, others: list[str]) -> None:
        reason = looks_like_production(self.place, others)
        if reason and not self._permitted:
            raise UsageError(refusal(self.place, reason), backend=self.kind)

    def _check_settings(self) -> None:
        """A configuration that was asked for is there, or it is said that it is not."""
        try:
            there = settings_by_url(self._given)
        except Exception:  # noqa: BLE001 - a managed server may forbid the question in any way
            there = {}
        differ = {
            name: (value, there.get(name, "unknown"))
            for name, value in self._wanted.items()
            if there.get(name) != value
        }
        if differ and self._insists:
            raise UsageError(
                f"{self.place.name} does not run with {self.config!r} (wanted, found): {differ}. "
                "holdfast does not configure a server that it does not manage",
                backend=self.kind,
            )
        if differ:
            self.config = AS_IT_IS

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except self._driver_errors() as error:
            if any(word in str(error).lower() for word in _LOGIN):
                raise UsageError(
                    f"{self.place.name} refuses this user name or password, or asks for one "
                    f"({error}). Nothing was written. Put them into the URL: {self.kind}://NAME:PASSWORD@…",
                    backend=self.kind,
                ) from error
            raise EngineMissing(
                f"no {self.kind} answers at {self.place.name} ({error}). To get it: start it, or "
                f"set {url_variable(self.kind)} to one that runs",
                backend=self.kind,
            ) from error

    def _make_room(self) -> None:
        try:
            self._move_in()
        except self._driver_errors() as error:
            self.close()
            raise UsageError(
                f"{self.place.name}: this user can make no part of its own there ({error}). Nothing "
                "was written. Use a role or a database that may be written to",
                backend=self.kind,
            ) from error

    # What a kind supplies

    def _find_place(self) -> Place:
        raise NotImplementedError

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        raise NotImplementedError

    def _ask_version(self) -> str:
        raise NotImplementedError

    def _others(self) -> list[str]:
        """Names of things in the database that are in no namespace of ours."""
        raise NotImplementedError

    def _move_in(self) -> None:
        """Make the namespace, where it has to be made."""

    def _by_hand(self) -> str:
        """How a person removes what a namespace holds."""
        return f"redis-cli --scan --pattern '*{self.namespace}*' | xargs redis-cli unlink"


class RedisByUrl(UrlEngine):
    """A Redis; `namespace` is to be part of every key."""

    def _find_place(self) -> Place:
        return redis_place(self._given)

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        import redis  # noqa: PLC0415 - only who uses Redis needs its driver

        return (redis.RedisError, OSError)

    def _ask_version(self) -> str:
        with redis_client(self._given) as client:
            server: dict[str, Any] = client.info("server")
        if server.get("redis_mode") == "cluster":
            raise UsageError(
                f"{self.place.name} is of a cluster: it leads to servers that only it knows. Nothing "
                "was written. Write redis+cluster://host:port, if all of them are for tests",
                backend=self.kind,
            )
        return str(server.get("valkey_version") or server["redis_version"])

    def _others(self) -> list[str]:
        found = []
        with redis_client(self._given, decode=False) as client:
            for looked, key in enumerate(client.scan_iter(count=_SCAN_COUNT)):
                if looked >= _LOOK_KEYS_MAX:
                    break
                if f"{_MARK}_".encode() not in key:
                    found.append(key.decode("utf-8", "backslashreplace"))
        return found


class PostgresByUrl(UrlEngine):
    """A PostgreSQL; `namespace` is a schema, and the URL leads into it."""

    @property
    def url(self) -> str:
        """Where it answers: unqualified names are those of our schema."""
        from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - as above

        given = str(conninfo_to_dict(self._given).get("options", ""))
        # public stays in sight, because extensions are usually there.
        options = f"{given} -csearch_path={self.namespace},public".strip()
        return with_parameter(self._given, "options", options)

    def _find_place(self) -> Place:
        return postgres_place(self._given)

    def _driver_errors(self) -> tuple[type[Exception], ...]:
        import psycopg  # noqa: PLC0415 - only who uses PostgreSQL needs its driver

        return (psycopg.Error, OSError)

    def _ask_version(self) -> str:
        with postgres_connection(self._given) as connection:
            # A service file or a variable may have led elsewhere than the URL said.
            info = connection.info
            real = Place(info.hostaddr or info.host, info.port, info.dbname, self.place.user)
            if not real.is_here and not is_permitted(real):
                raise UsageError(refusal(real, f"{real.host} is not this machine"))
            return str(_one(connection, "SHOW server_version")).split()[0]

    def _others(self) -> list[str]:
        with postgres_connection(self._given) as connection:
            rows = connection.execute(_OTHER_TABLES).fetchall()
        return [str(name) for (name,) in rows]

    def _by_hand(self) -> str:
        return f'DROP SCHEMA IF EXISTS "{self.namespace}" CASCADE'

    def _move_in(self) -> None:
        with postgres_connection(self._given) as connection:
            connection.execute(_schema("CREATE SCHEMA {}", self.namespace))


_CLASSES: Final[dict[str, type[UrlEngine]]] = {
    "redis": RedisByUrl,
    "valkey": RedisByUrl,
    "postgres": PostgresByUrl,
}
_EXAMPLES: Final = {
    "redis": "redis://127.0.0.1:6379/9",
    "valkey": "redis://127.0.0.1:6379/9",
    "postgres": "postgresql://postgres@127.0.0.1:5432/scratch",
}
_OTHER_TABLES: Final = """
    SELECT n.nspname || '.' || c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'm', 'f')
      AND n.nspname <> 'information_schema'
      AND n.nspname NOT LIKE 'pg\\_%'
      AND n.nspname NOT LIKE 'holdfast\\_%'
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
    ORDER BY 1 LIMIT 10
"""


def clean_up(url: str | None = None, namespace: str | None = None) -> None:
    """Remove all that a namespace holds and nothing else; called again, it finds nothing.

    Without arguments it takes them from the environment: so it is run for a killed test.
    """
    url = url or os.environ[_UNDO_URL]
    namespace = namespace or os.environ[_UNDO_NAMESPACE]
    if not namespace.startswith(f"{_MARK}_"):
        raise UsageError(f"{namespace!r} is no namespace of a check: nothing was removed")
    if url.startswith("postgres"):
        with postgres_connection(url) as connection:
            connection.execute(_schema("DROP SCHEMA IF EXISTS {} CASCADE", namespace))
    else:
        with redis_client(url, decode=False) as client:
            _unlink(client, f"*{namespace}*")


def _unlink(client: redis.Redis, pattern: str) -> None:
    """SCAN and UNLINK in batches: the server serves others all the while."""
    cursor = 0
    while True:
        cursor, keys = client.scan(cursor, match=pattern, count=_SCAN_COUNT)
        if keys:
            client.unlink(*keys)
        if cursor == 0:
            return


def _schema(statement: str, name: str) -> Any:
    from psycopg import sql  # noqa: PLC0415 - only who uses PostgreSQL needs its driver

    return sql.SQL(statement).format(sql.Identifier(name))


def _one(connection: psycopg.Connection, statement: str) -> Any:
    row = connection.execute(statement).fetchone()
    return row[0] if row else None


def with_parameter(url: str, name: str, value: str) -> str:
    """The URL with this parameter, in place of one that it may have."""
    head, _, query = url.partition("?")  # not by urlunsplit: it drops the // of postgresql:///d
    others = [pair for pair in query.split("&") if pair and pair.partition("=")[0] != name]
    return f"{head}?{'&'.join([*others, f'{name}={quote(value)}'])}"


def _find(kind: str) -> Found:
    try:
        engine = _CLASSES[kind](
            EngineOptions(kind, DEFAULT_CONFIG[kind]), os.environ[url_variable(kind)]
        )
    except KeyError:
        variable = url_variable(kind)
        how = f"export {variable}={_EXAMPLES[kind]}"
        return Found(kind, "url", None, f"${variable}", how)
    except (UsageError, ImportError) as error:
        return Found(kind, "url", None, str(error), f"set {url_variable(kind)} to another")
    try:
        engine._refuse_production([])  # noqa: SLF001 - a place that is refused is not asked
        with engine._reached():  # noqa: SLF001
            version = engine._ask_version()  # noqa: SLF001
    except (EngineMissing, UsageError) as error:
        where, _, how = str(error).partition(" To get it: ")
        return Found(kind, "url", None, where, how or f"set {url_variable(kind)} to another")
    return Found(kind, "url", version, engine.place.name)
