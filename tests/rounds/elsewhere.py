"""A second process on the same engine: it appends what it is told to, and says what it was told."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Message
from tests.rounds.calls import BOUND_S, NAMESPACE, Stuck
from tests.rounds.plan import Operation

ROOT = Path(__file__).parents[2]


class Elsewhere:
    """The second process, as seen from the first."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rounds.elsewhere", url, NAMESPACE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def tell(self, operation: Operation) -> None:
        """Begin an append over there."""
        assert self._process.stdin is not None
        line = {"session": operation.session, "texts": operation.texts, "key": operation.key}
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def ack(self) -> tuple[int, int, bool]:
        """What it was told: first and last number, and whether the key was known."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], BOUND_S)[0]:
            raise Stuck(f"a second process got no ack within {BOUND_S:g} s")
        first, last, repeated = json.loads(self._process.stdout.readline())
        return first, last, repeated

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(BOUND_S)
        self._process.stdout.close()


def main() -> None:
    with holdfast.connect(sys.argv[1], namespace=sys.argv[2]) as store:
        for line in sys.stdin:
            told: dict[str, Any] = json.loads(line)
            messages = [Message("user", text) for text in told["texts"]]
            ack = store.append(told["session"], messages, key=told["key"])
            print(json.dumps([ack.first, ack.last, ack.repeated]), flush=True)


if __name__ == "__main__":
    main()
