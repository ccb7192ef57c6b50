"""A client in a process of its own, so that it can be killed. Run: client.py API URL SESSION NAME.

It appends turns of a question and an answer for as long as it lives, and says after each
ack, on its own unbuffered line, which turn was acknowledged and where it stands. With
`--count N` it ends after N turns.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator

import holdfast
from holdfast import Ack, Message


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("api", choices=("sync", "async"))
    arguments.add_argument("url")
    arguments.add_argument("session")
    arguments.add_argument("name")
    arguments.add_argument("--count", type=int, default=sys.maxsize)
    chosen = arguments.parse_args()
    if chosen.api == "async":
        asyncio.run(write_async(chosen))
    else:
        write(chosen)


def write(chosen: argparse.Namespace) -> None:
    with holdfast.connect(chosen.url) as store:
        os.write(1, b"ready\n")
        for name, messages in turns(chosen):
            tell(name, store.append(chosen.session, messages, key=name))


async def write_async(chosen: argparse.Namespace) -> None:
    async with await holdfast.connect_async(chosen.url) as store:
        os.write(1, b"ready\n")
        for name, messages in turns(chosen):
            tell(name, await store.append(chosen.session, messages, key=name))


def turns(chosen: argparse.Namespace) -> Iterator[tuple[str, list[Message]]]:
    for turn in range(chosen.count):
        name = f"{chosen.name}-{turn}"
        yield name, [Message("user", f"{name}?"), Message("assistant", f"{name}!")]


def tell(name: str, ack: Ack) -> None:
    os.write(1, f"{name} {ack.first} {ack.last}\n".encode())


if __name__ == "__main__":
    main()
