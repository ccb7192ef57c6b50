"""The process that forwards between machines on loopback (`network.py`): one line in, one line out.

It ends when its input does, so it does not outlive the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any, Final

HOST: Final = "127.0.0.1"
CLIENTS: Final = -1
CHUNK_BYTES: Final = 65_536

Pair = tuple[int, int]


class Switch:
    """Who may talk to whom now. Nothing is refused or closed: bytes wait."""

    def __init__(self, hosts: list[str]) -> None:
        self._hosts = hosts
        self._cut: set[Pair] = set()
        self._changed = asyncio.Event()
        self._open: list[Pair] = []
        self._held_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what one line asks for."""
        if "serve" in asked:
            machine, port = asked["serve"]
            await asyncio.start_server(
                lambda reader, writer: self._link(machine, port, reader, writer),
                self._hosts[machine],
                port,
            )
            return {"port": port}
        if "cut" in asked:
            self._cut |= {(a, b) for a, b in asked["cut"]}
            held = sum(bool({pair, pair[::-1]} & self._cut) for pair in self._open)
            return {"connections": held}
        self._cut.clear()
        held, self._held_bytes = self._held_bytes, 0
        self._changed.set()
        self._changed = asyncio.Event()
        return {"held_bytes": held}

    async def _link(
        self,
        machine: int,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        caller = writer.get_extra_info("peername")[0]
        source = self._hosts.index(caller) if caller in self._hosts else CLIENTS
        there, back = (source, machine), (machine, source)
        self._open.append(there)
        with contextlib.suppress(OSError, asyncio.CancelledError):  # it ends while bytes are held
            await self._pass(there, 0)
            to_engine, from_engine = None, writer
            with contextlib.suppress(OSError):
                engine, to_engine = await asyncio.open_connection(HOST, port)
                await asyncio.gather(
                    self._pump(reader, to_engine, there), self._pump(engine, from_engine, back)
                )
            await self._pass(back, 0)  # that the engine has gone is not heard through a cut
            for end in (writer, to_engine):
                if end is not None:
                    end.close()
        self._open.remove(there)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: Pair
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                await self._pass(pair, len(chunk))
                writer.write(chunk)
                await writer.drain()
            await self._pass(pair, 0)
        writer.close()

    async def _pass(self, pair: Pair, size: int) -> None:
        if pair in self._cut:
            self._held_bytes += size
        while pair in self._cut:
            await self._changed.wait()


async def main(hosts: list[str]) -> None:
    """Answer lines until there are none."""
    switch = Switch(hosts)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        try:
            answer = await switch.answer(json.loads(line))
        except OSError as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
