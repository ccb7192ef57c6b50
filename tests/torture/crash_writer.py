"""A client of many tasks, in a process of its own: after a crash each goes on, by its key, where it was."""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection

import holdfast
from holdfast import AsyncStore, HoldfastError
from tests.contract.client import turns

SESSIONS = 4
TASKS = 4
"""For each session."""
AGAIN_S = 0.02


def main(url: str, name: str, pipe: Connection) -> None:
    asyncio.run(_write(url, name, pipe.fileno()))


async def _write(url: str, name: str, pipe: int) -> None:
    async with await holdfast.connect_async(url) as store, asyncio.TaskGroup() as tasks:
        for number in range(SESSIONS * TASKS):
            session = f"{name}.{number % SESSIONS}"
            tasks.create_task(_append(store, session, f"{session}.{number}", pipe))


async def _append(store: AsyncStore, session: str, writer: str, pipe: int) -> None:
    for key, messages in turns(writer):
        ack = None
        while ack is None:
            try:
                ack = await store.append(session, messages, key=key)
            except HoldfastError:
                await asyncio.sleep(AGAIN_S)  # while the engine is away
        os.write(pipe, f"{session} {key} {ack.first} {ack.last}\n".encode())
