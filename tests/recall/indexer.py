"""A process that appends, lets it be indexed, and is ended by SIGKILL between two batches."""

from __future__ import annotations

import os
import signal
import sys

import holdfast
from holdfast import Message
from tests.recall.models import Letters


def main() -> None:
    model = Letters()
    with holdfast.connect(sys.argv[1], embedder=model, background_indexing=False) as store:
        ack = store.append("u", [Message("user", f"item {n}") for n in range(200)])
        os.write(1, f"{ack.last}\n".encode())
        model.before = lambda call: os.kill(os.getpid(), signal.SIGKILL) if call == 3 else None
        store.wait_for("u")


if __name__ == "__main__":
    main()
