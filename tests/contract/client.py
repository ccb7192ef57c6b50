"""A client in a process of its own, so that it can be killed.

It appends turns of a question and an answer for as long as it lives, and says after each
ack, on its own unbuffered line, which turn was acknowledged and where it stands. With a
`count` it ends after so many turns.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import holdfast
from holdfast import Ack, Message


def main(api: str, url: str, session: str, name: str, count: int | None, pipe: Connection) -> None:
    todo = itertools.islice(turns(name), count)
    if api == "async":
        asyncio.run(write_async(url, session, todo, pipe.fileno()))
    else:
        write(url, session, todo, pipe.fileno())


def write(url: str, session: str, todo: Iterator[tuple[str, list[Message]]], pipe: int) -> None:
    with holdfast.connect(url) as store:
        os.write(pipe, b"ready\n")
        for name, messages in todo:
            tell(pipe, name, store.append(session, messages, key=name))


async def write_async(
    url: str, session: str, todo: Iterator[tuple[str, list[Message]]], pipe: int
) -> None:
    async with await holdfast.connect_async(url) as store:
        os.write(pipe, b"ready\n")
        for name, messages in todo:
            tell(pipe, name, await store.append(session, messages, key=name))


def read(url: str, session: str, pipe: Connection) -> None:
    """Another process, which says what it reads."""
    with holdfast.connect(url) as store:
        pipe.send([message.content for message in store.history(session)])


def start(url: str, words: str, together: Barrier) -> None:
    """Several processes open a store at one moment, each for an append."""
    together.wait(60)
    with holdfast.connect(url) as store:
        store.append("s", Message("user", words))


def turns(writer: str) -> Iterator[tuple[str, list[Message]]]:
    for turn in itertools.count():
        name = f"{writer}-{turn}"
        yield name, [Message("user", f"{name}?"), Message("assistant", f"{name}!")]


def tell(pipe: int, name: str, ack: Ack) -> None:
    os.write(pipe, f"{name} {ack.first} {ack.last}\n".encode())
