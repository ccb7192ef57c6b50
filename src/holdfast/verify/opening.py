"""The first calls of a check: does the target open, write and read at all?"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from holdfast.errors import UsageError, VerifyError
from holdfast.verify.scenarios import ScenarioContext
from holdfast.verify.workload.client_pool import Bounds, ClientPool
from holdfast.verify.workload.client_process import ClientProcess
from holdfast.verify.workload.fork_server import open_fork_server
from holdfast.verify.workload.plan import Step


class TargetFailed(UsageError, VerifyError):
    """The target's own code, or what it says of itself, is in the way: not the kit's failure."""


TRIES: Final = 12
"""So often a first call is made: a store that refuses one in three is not taken for a dead one."""
_TRIES_MIN: Final = 3
_GIVE_UP_S: Final = 5.0
"""After so long a few tries are enough: each may wait for a time-out of its own."""
_SESSION: Final = "holdfast-first-calls"
_FIRST_CALLS: Final = (
    Step("append", _SESSION, ("first.0", "first.1")),
    Step("history", _SESSION),
    Step("wait"),
    Step("forget", _SESSION),
)
_SECOND_CALLS: Final = (
    Step("append", _SESSION, ("second.0", "second.1")),
    Step("history", _SESSION),
)
_SECOND_OPEN_S: Final = 5.0
_NEEDED: Final = ("append", "history")


def open_target(context: ScenarioContext, shown: str) -> str | None:
    """Learn what the target says of itself, from another process; why it hangs, or None.

    `VerifyError` where it cannot be opened, `UsageError` where its first calls all raise.
    """
    context.fork_server = open_fork_server(context.spec.likely_modules, context.folder)
    with _clients(context, "opening", context.bounds) as clients:
        for client in clients.start(scripts=[_FIRST_CALLS], attempts=TRIES, look=True):
            context.about = client.ready or context.about
            if context.fork_server is not None:
                context.fork_server.learn(context.about.get("modules", []))
            return _first_calls(context, clients, client, shown)
        if not clients.hung:
            raise _why_not_opened(clients, shown)
        return clients.trouble[0]


def _clients(context: ScenarioContext, name: str, bounds: Bounds) -> ClientPool:
    fork_server = context.fork_server
    return ClientPool(
        context.spec, context.folder, name=name, seed=0, bounds=bounds, fork_server=fork_server
    )


def _why_not_opened(clients: ClientPool, shown: str) -> VerifyError:
    """With the line of the target that raised, where it is one."""
    failed = clients.processes[0].failed
    at = (failed or {}).get("at", "")
    trouble = clients.trouble[0]
    words = (trouble if shown in trouble else f"{shown}: {trouble}") + (
        f"\n  at {at}" if at else ""
    )
    return VerifyError(words) if failed is None else TargetFailed(words)


def _first_calls(
    context: ScenarioContext, clients: ClientPool, client: ClientProcess, shown: str
) -> str | None:
    began = time.monotonic()
    client.go()
    within_s = len(_FIRST_CALLS) * context.bounds.operation_s

    def over() -> bool:
        late = time.monotonic() - began > _GIVE_UP_S
        gave_up = late and bool(_refused(client, _TRIES_MIN))
        return bool(client.waiting) or not client.alive or gave_up

    ended = clients.until(over, within_s=within_s)
    if words := _refused(client, _TRIES_MIN):
        raise UsageError(f"{shown}: {words}")
    if client.waiting:
        context.alone = _why_alone(context)
        client.go()
        ended = clients.until(lambda: not client.alive)
    if ended:  # one that died by itself is looked at by the scenarios
        return None
    asked = next(iter(client.open.values()), {"f": "close"})
    return f"the store hangs: {asked['f']}() did not return within {within_s:g} s"


def _why_alone(context: ScenarioContext) -> str:
    """Why a second process cannot write and read while the first has the store open; or nothing."""
    bounds = replace(context.bounds, open_s=min(_SECOND_OPEN_S, context.bounds.open_s))
    with _clients(context, "second", bounds) as clients:
        for second in clients.start(scripts=[_SECOND_CALLS], attempts=TRIES):
            second.go()
            ended = clients.until(lambda: not second.alive)  # noqa: B023 - awaited in this turn
            words = _refused(second, _TRIES_MIN)
            if ended and words is None:
                return ""
            return f"it serves one process at a time: {_first_line(words or 'a second one waits')}"
        return f"it serves one process at a time: {_first_line(clients.trouble[0])}"


def _first_line(words: str) -> str:
    return words.partition("\n")[0]


def _refused(client: ClientProcess, tries_min: int) -> str | None:
    """Of which call every try raised, and what; None where each was answered once."""
    asked = {e["op"]: e["f"] for e in client.events if e["type"] == "invoke"}
    for name in _NEEDED:
        ended = [
            e for e in client.events if asked.get(e.get("op")) == name and e["type"] != "invoke"
        ]
        errors = [event for event in ended if "error" in event]
        if len(errors) >= tries_min and len(errors) == len(ended):
            last = errors[-1]
            where = f"\n  at {last['at']}" if last.get("at") else ""
            return (
                f"{name}() raised {last['error']} (each of {len(errors)} times){where}\n"
                "The check ends here: a store that takes or shows nothing cannot be judged."
            )
    return None
