"""The wire of the proxy closes every socket that it has opened or accepted, whenever it is closed."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest

from holdfast.verify.faults.proxy_links import Wire

STEPS = range(8)
"""Turns of the event loop between a client's connect and the close: each meets another state."""


@pytest.mark.parametrize("reachable", [True, False], ids=["engine-answers", "engine-is-silent"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("verb", ["close", "refuse-then-close"])
def test_no_socket_is_left_open_by_a_close_at_any_turn(verb: str, steps: int, *, reachable: bool):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(_open_and_close(verb, steps, reachable=reachable))
        gc.collect()
    assert [str(one.message) for one in seen if one.category is ResourceWarning] == []


async def _open_and_close(verb: str, steps: int, *, reachable: bool) -> None:
    with socket.socket() as engine, socket.socket() as client:
        engine.bind(("127.0.0.1", 0))
        # A backlog that is full answers no one, so that a connect to it stays under way.
        engine.listen(0 if not reachable else 8)
        full = [] if reachable else [socket.socket() for _ in range(2)]
        for one in full:
            one.setblocking(False)
            one.connect_ex(engine.getsockname())
        wire = Wire(engine.getsockname(), socket.AF_INET)
        wire.listen()
        await asyncio.sleep(0)
        client.connect(("127.0.0.1", wire.port))
        for _ in range(steps):
            await asyncio.sleep(0)
        if verb == "refuse-then-close":
            await wire.refuse()
        await wire.close()
        for one in full:
            one.close()
