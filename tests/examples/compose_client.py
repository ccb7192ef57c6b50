"""A client of a compose file's service: it appends at REPLICA and says what it saw, as JSON lines."""

from __future__ import annotations

import json
import re
import sys
import time

import holdfast
from holdfast import Durability, HoldfastError, Message
from holdfast.doctor import audit

WITHIN_S = 60.0


def append(url: str, key: str) -> str:
    """The level of the ack, as soon as there is one at REPLICA."""
    give_up_s = time.monotonic() + WITHIN_S
    while True:
        try:
            with holdfast.connect(url, require=Durability.REPLICA) as store:
                return store.append("s", Message("user", key), key=key).durability.name
        except HoldfastError:
            if time.monotonic() > give_up_s:
                raise
        time.sleep(0.1)


def members(url: str, lines: dict[str, int]) -> tuple[str, ...]:
    """What the doctor sees, as soon as so many lines match each of these."""
    give_up_s = time.monotonic() + WITHIN_S
    while True:
        found = audit(url).topology
        counts = {word: sum(bool(re.match(word, line)) for line in found) for word in lines}
        if counts == lines or time.monotonic() > give_up_s:
            return found
        time.sleep(0.1)


def main(url: str, key: str, lines: str) -> None:
    """Append, and print the ack, the history and what the doctor sees."""
    level = append(url, key)
    with holdfast.connect(url, require=Durability.REPLICA) as store:
        texts = [str(one.content) for one in store.history("s")]
    print(json.dumps({"level": level, "texts": texts, "topology": members(url, json.loads(lines))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
