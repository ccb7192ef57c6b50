"""A network between machines on loopback that can be cut: a process of its own forwards every byte.

Each machine has an address of its own out of 127.0.0.0/8, from which its processes connect
(`bind-source-addr`) and at which others find them. There the process `switch.py` listens, knows by the
address who calls, and passes on or holds what is said. Clients come from 127.0.0.1. No root is needed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any, Final

from holdfast.errors import EngineFailed, FaultNotProven, UsageError
from holdfast.verify.proof import Evidence

CLIENTS: Final = -1
WAYS: Final = {
    "both": "",
    "out": ", of what it says: it hears and is not heard",
    "in": ", of what it is told: it is heard and hears nothing",
}
"""Which bytes of a machine are held, and how that is said."""
_END_S: Final = 10.0


class Network:
    """So many machines, of which each can be cut off from others and from clients."""

    def __init__(self, machines: int) -> None:
        net = f"127.{random.randint(16, 250)}.{random.randint(0, 250)}"  # noqa: S311 - no secret
        self.hosts = [f"{net}.{number}" for number in range(1, machines + 1)]
        self._switch = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", f"{__package__}.switch", *self.hosts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def serve(self, machine: int, port: int) -> None:
        """Forward what comes to this port of a machine to the same port of loopback."""
        self._ask(serve=[machine, port])

    def cut(self, machine: int, from_: str, way: str = "both") -> Evidence:
        """Hold every byte between a machine and the others, the clients, or both; or one way only."""
        others = [other for other in range(len(self.hosts)) if other != machine]
        apart = {"members": others, "clients": [CLIENTS], "all": [*others, CLIENTS]}
        for name, value, known in (("from_", from_, apart), ("way", way, WAYS)):
            if value not in known:
                raise UsageError(f"{name}: one of {', '.join(known)}, not {value!r}")
        out = [(machine, other) for other in apart[from_]]
        in_ = [(other, machine) for other in apart[from_]]
        held = self._ask(cut={"both": [*out, *in_], "out": out, "in": in_}[way])
        if not held["connections"]:
            raise FaultNotProven(f"partition: nobody is connected from {from_} to the machine")
        words = (
            f"{held['connections']} connections between {self.hosts[machine]} and {from_} are held"
            f"{WAYS[way]}"
        )
        facts = {"machine": self.hosts[machine], "from": from_, "way": way, **held}
        return Evidence("partition", words, facts)

    def heal(self) -> Evidence:
        """Let all pass again."""
        seen = self._ask(heal=True)
        return Evidence("heal", f"{seen['held_bytes']} bytes had been held", seen)

    def close(self) -> None:
        """End the process that forwards. Closing twice does nothing."""
        if self._switch.poll() is None:
            self._switch.communicate(timeout=_END_S)

    def _ask(self, **what: Any) -> dict[str, Any]:
        stdin, stdout = self._switch.stdin, self._switch.stdout
        assert stdin is not None  # noqa: S101 - both are pipes
        assert stdout is not None  # noqa: S101
        try:
            stdin.write(json.dumps(what) + "\n")
            stdin.flush()
            answer: dict[str, Any] = json.loads(stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if not answer or "error" in answer:
            raise EngineFailed(
                f"the network between the members: {answer.get('error', 'it ended')}"
            )
        return answer
