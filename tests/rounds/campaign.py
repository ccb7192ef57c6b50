"""Rounds, one after the other, in a process of their own: `python -m tests.rounds.campaign --help`.

A process of its own, because a store that hangs must not take pytest with it. The last line of its
output is what it reached, as JSON; a finding comes with the command that repeats its round.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import holdfast
from tests.rounds.calls import NAMESPACE, Found, Ledger, Stuck, dump_stacks
from tests.rounds.elsewhere import Elsewhere
from tests.rounds.judge import DONE, Record, problems
from tests.rounds.plan import Operation, Plan, plan
from tests.rounds.tasks import run_round, within
from tests.rounds.threads import Crowd, Jitter


@dataclass
class Reached:
    """How far a campaign came. `next_round` is where another goes on."""

    next_round: int
    rounds: int = 0
    stuck: int = 0
    finding: str = ""
    outcomes: Counter[str] = field(default_factory=Counter)


@dataclass
class Campaign:
    """What was asked for, and what the rounds share."""

    url: str
    seed: int
    first: int
    rounds: int
    seconds: float
    reached: Reached
    clock: itertools.count[int]
    elsewhere: Elsewhere

    def plans(self) -> Any:
        """Round after round, until their number or the time is reached; at least one."""
        end_s = time.monotonic() + self.seconds
        for number in range(self.first, self.first + self.rounds):
            yield plan(self.seed, number)
            self.reached.rounds += 1
            self.reached.next_round = number + 1
            if time.monotonic() > end_s:
                return

    def begin(self, chosen: Plan) -> Ledger:
        """A ledger for the round; the second process has begun its part."""
        ledger = Ledger(chosen, self.clock, self.reached.outcomes)
        if chosen.elsewhere is not None:
            self.elsewhere.tell(chosen.elsewhere)
        return ledger

    def end(self, ledger: Ledger, began: int) -> None:
        """Put the second process' ack on record."""
        operation = ledger.plan.elsewhere
        if operation is not None:
            first, last, repeated = self.elsewhere.ack()
            ended = ledger.begin()
            ledger.records.append(Record(operation, began, ended, DONE, first, last, repeated))


def judge(ledger: Ledger) -> None:
    """Raise what is wrong with a round whose histories have been read."""
    for session in ledger.plan.sessions:
        found = problems([r for r in ledger.records if r.operation.session == session])
        if found:
            records = "\n  ".join(map(str, ledger.records))
            raise Found("\n".join(found) + f"\nrecords:\n  {records}")


async def of_tasks(campaign: Campaign) -> None:
    """Rounds through the async API."""
    jitter = Jitter()
    threading.setprofile(jitter)  # for the threads that a store starts
    stores = [await holdfast.connect_async(campaign.url, namespace=NAMESPACE) for _ in range(2)]
    for chosen in campaign.plans():
        jitter.on = chosen.jitter
        ledger = campaign.begin(chosen)
        began = ledger.begin()
        await run_round(chosen, stores, ledger)
        campaign.end(ledger, began)
        for at in chosen.closes:
            stores[at] = await holdfast.connect_async(campaign.url, namespace=NAMESPACE)
        await _task_within(_read_all(stores[0], ledger), "history")
        judge(ledger)
    await _task_within(_close_all(stores), "close")


async def _task_within(work: Any, what: str) -> None:
    task = asyncio.create_task(work)
    await within([task], what)
    task.result()


async def _close_all(stores: Sequence[Any]) -> None:
    for store in stores:
        await store.close()


async def _read_all(store: Any, ledger: Ledger) -> None:
    for session in ledger.plan.sessions:
        began = ledger.begin()
        ledger.done(Operation("history", session), began, await store.history(session))


def of_threads(campaign: Campaign) -> None:
    """Rounds through the sync API."""
    crowd = Crowd()
    stores = [holdfast.connect(campaign.url, namespace=NAMESPACE) for _ in range(2)]
    for chosen in campaign.plans():
        ledger = campaign.begin(chosen)
        began = ledger.begin()
        crowd.run_round(chosen, stores, ledger)
        campaign.end(ledger, began)
        for at in chosen.closes:
            stores[at] = holdfast.connect(campaign.url, namespace=NAMESPACE)
        for session in chosen.sessions:
            crowd.run([partial(_read, stores[0], session, ledger)], "history")
        judge(ledger)
    crowd.run([store.close for store in stores], "close")


def _read(store: Any, session: str, ledger: Ledger) -> None:
    began = ledger.begin()
    ledger.done(Operation("history", session), began, store.history(session))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("url")
    arguments.add_argument("api", choices=("sync", "async"))
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--rounds", type=int, default=10**9)
    arguments.add_argument("--seconds", type=float, default=5.0)
    asked = arguments.parse_args()
    campaign = Campaign(
        asked.url,
        asked.seed,
        asked.first,
        asked.rounds,
        asked.seconds,
        Reached(asked.first),
        itertools.count(),
        Elsewhere(asked.url),
    )
    if asked.api == "async":
        asyncio.run(_until_found(campaign))
    else:
        try:
            of_threads(campaign)
        except Exception as error:  # noqa: BLE001 - anything at all is a finding
            _report(campaign, asked.api, error)
    campaign.elsewhere.close()
    print(json.dumps(vars(campaign.reached)), flush=True)


async def _until_found(campaign: Campaign) -> None:
    try:
        await of_tasks(campaign)
    except Exception as error:  # noqa: BLE001 - as above; and here, where the tasks still are
        _report(campaign, "async", error)


def _report(campaign: Campaign, api: str, error: Exception) -> NoReturn:
    """Say what was found and how to repeat it. What hangs is not waited for."""
    reached = campaign.reached
    if isinstance(error, Stuck):
        reached.stuck = 1
        dump_stacks()
    else:
        traceback.print_exception(error)
    number = reached.next_round
    reached.finding = (
        f"seed {campaign.seed}, {error}\n{plan(campaign.seed, number)}\nrepeat: python -m "
        f"tests.rounds.campaign URL {api} --seed {campaign.seed} --first {number}"
    )
    print(json.dumps(vars(reached)), flush=True)
    os._exit(1)


if __name__ == "__main__":
    main()
