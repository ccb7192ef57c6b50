"""A client in a process of its own, so that it can be killed. Run: client.py URL SESSION NAME.

It appends turns of a question and an answer for as long as it lives, and says after each
ack, on its own unbuffered line, which turn was acknowledged and where it stands. With
`--count N` it ends after N turns.
"""

from __future__ import annotations

import argparse
import os
import sys

import holdfast
from holdfast import Message


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("url")
    arguments.add_argument("session")
    arguments.add_argument("name")
    arguments.add_argument("--count", type=int, default=sys.maxsize)
    chosen = arguments.parse_args()
    with holdfast.connect(chosen.url) as store:
        os.write(1, b"ready\n")
        for turn in range(chosen.count):
            name = f"{chosen.name}-{turn}"
            ack = store.append(
                chosen.session,
                [Message("user", f"{name}?"), Message("assistant", f"{name}!")],
                key=name,
            )
            os.write(1, f"{name} {ack.first} {ack.last}\n".encode())


if __name__ == "__main__":
    main()
