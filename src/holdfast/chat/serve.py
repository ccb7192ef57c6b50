"""`holdfast chat`: what was asked for becomes a service."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.errors import EngineUnreachable, UsageError
from holdfast.model import Durability
from holdfast.secrets import SecretUrl
from holdfast.terminal import say

if TYPE_CHECKING:
    from holdfast.chat.answers import Answerer
    from holdfast.chat.connections import Addresses
    from holdfast.chat.link import Link

MODEL_KEY: Final = "HOLDFAST_MODEL_KEY"
STOP_TIMEOUT_S: Final = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of the command."""

    url: SecretUrl
    namespace: str
    require: str
    host: str
    port: int
    token: str | None = field(repr=False)
    model_url: SecretUrl | None
    model: str | None
    embedder: str | None
    index: SecretUrl | None
    rate: float
    secure_cookies: bool = False
    proxy: str | None = None
    chaos: str | None = None


def run(asked: Asked) -> int:
    """Serve until stopped; the exit code."""
    try:
        import fastapi  # noqa: F401, PLC0415
        import uvicorn  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            f"the chat page needs what is not installed ({error}). Run: pip install 'holdfast[chat]'"
        ) from error
    check(asked)
    if asked.chaos is not None:
        from holdfast.chat.chaos import supervise  # noqa: PLC0415 - the kit loads when used

        return supervise(asked.chaos, asked.port, _options(asked))
    return asyncio.run(_serve(asked))


def _options(asked: Asked) -> list[str]:
    """What a service under a supervisor is started with, besides its store."""
    given = {
        "--model-url": asked.model_url and asked.model_url.reveal(),
        "--model": asked.model,
        "--embedder": asked.embedder,
        "--rate": str(asked.rate),
        "--require": asked.require,
    }
    return [word for name, value in given.items() if value for word in (name, value)]


def check(asked: Asked) -> None:
    """Refuse what would show a person's memory to others."""
    if not is_loopback(asked.host) and not asked.token:
        raise UsageError(
            f"others can reach {asked.host}, so a token is needed: set HOLDFAST_CHAT_TOKEN or "
            "--token. Without one the page is served on 127.0.0.1 only"
        )
    if asked.token is not None and len(asked.token) < 16:  # noqa: PLR2004 - said in the sentence
        raise UsageError("a token of fewer than 16 characters can be guessed")
    if asked.chaos is not None and (not is_loopback(asked.host) or asked.token or asked.index):
        raise UsageError("--chaos is for this machine only: without --host, --token and --index")
    if asked.proxy is not None:
        from holdfast.chat.request_guard import Proxies  # noqa: PLC0415 - an extra

        try:
            Proxies(asked.proxy)
        except ValueError as error:
            raise UsageError(f"--proxy takes addresses or networks: {error}") from error
    if (asked.model_url is None) != (asked.model is None):
        raise UsageError("--model-url and --model go together")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _serve(asked: Asked) -> int:
    import uvicorn  # noqa: PLC0415 - an extra

    from holdfast.chat import bounds  # noqa: PLC0415
    from holdfast.chat.app import Setting, build  # noqa: PLC0415 - needs the extra
    from holdfast.chat.connections import Addresses, bounded, raise_descriptors  # noqa: PLC0415
    from holdfast.chat.control import Control  # noqa: PLC0415
    from holdfast.chat.link import ChatOptions, Link  # noqa: PLC0415
    from holdfast.chat.people import Access  # noqa: PLC0415
    from holdfast.chat.request_guard import LOOPBACK, Proxies  # noqa: PLC0415

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    require = Durability[asked.require.upper()]
    link = Link(ChatOptions(asked.url, asked.namespace, require, asked.embedder, asked.index))
    await _open(link)
    access = Access(asked.token)
    hosts = LOOPBACK | {asked.host} if access.open else None
    setting = Setting(access, hosts, asked.rate, asked.secure_cookies, Control.here())
    app = build(link, _answerer(asked), setting)
    addresses = Addresses(asked.rate, Proxies(asked.proxy or ""))
    listening = _listening(asked.host, asked.port, addresses)
    raise_descriptors()
    config = uvicorn.Config(
        app,
        backlog=bounds.BACKLOG,
        http=bounded(addresses),
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        # Without it anybody on this machine could say to be any address.
        proxy_headers=asked.proxy is not None,
        forwarded_allow_ips=asked.proxy or "",
        timeout_graceful_shutdown=STOP_TIMEOUT_S,
    )
    _greet(asked, listening.getsockname()[1])
    await uvicorn.Server(config).serve(sockets=[listening])
    return 0


async def _open(link: Link) -> None:
    """A setup that is too weak ends here; one that is away is waited for by the page."""
    try:
        store = await link.store()
    except EngineUnreachable as error:
        say(f"the store cannot be reached yet: {error}. The page says so and waits")
        return
    say(
        f"{store.backend}: every message is saved to {store.durability.name} before it is shown as saved"
    )
    for risk in link.risks:
        say(f"risk: {risk}")


def _answerer(asked: Asked) -> Answerer:
    if asked.model_url is not None and asked.model is not None:
        from holdfast.chat.remote_model import Model  # noqa: PLC0415 - an extra

        return Model(asked.model_url.reveal(), asked.model, api_key=os.environ.get(MODEL_KEY))
    from holdfast.chat.answers import Companion  # noqa: PLC0415 - as above

    return Companion()


def _listening(host: str, port: int, addresses: Addresses) -> socket.socket:
    from holdfast.chat.connections import Listening  # noqa: PLC0415 - an extra

    listening = Listening.at(socket.AF_INET6 if ":" in host else socket.AF_INET, addresses)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()  # now: a client that opens the address printed next must not be refused
    except OSError as error:
        listening.close()
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return listening


def _greet(asked: Asked, port: int) -> None:
    name = f"[{asked.host}]" if ":" in asked.host else asked.host
    say(f"open http://{name}:{port}/ (Ctrl-C ends it)")
    if not is_loopback(asked.host):
        say("others can reach this page and need the token; put TLS in front of it")
