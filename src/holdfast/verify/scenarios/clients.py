"""Faults upon the clients: SIGKILL in mid-write, a pause in mid-write."""

from __future__ import annotations

import random
from typing import Final

from holdfast.errors import FaultNotProven
from holdfast.model import Durability
from holdfast.verify.process_tree import pause_tree
from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess

CLIENTS: Final = 4
KILLS: Final = 8
PAUSES: Final = 3
ATTEMPTS_MAX: Final = 200
PAUSED_S: Final = 0.3


class KillClients(Scenario):
    """SIGKILL processes in the middle of whatever they do, and read everything back."""

    name = "kill-clients"
    rank = 2
    about = "processes are ended by SIGKILL in the middle of whatever they do"
    fault = "kill"
    tests = ("durable", "atomic")
    survived = Durability.PROCESS
    upon_clients = True

    def run(self, context: ScenarioContext) -> Outcome:
        """Kill one after another; each is replaced by a new one."""
        chance = random.Random(f"{context.seed}/{self.name}")  # noqa: S311 - a plan, not a secret
        shape = context.shape(self.name)
        kills = context.amount(KILLS)
        in_flight = 0
        with context.clients(self) as clients:
            # Those who come later are opened now: to start a process takes longer than to kill it.
            # Where there may be one only, it is opened when the one before it is dead.
            at_once = context.at_once(CLIENTS)
            lazy = bool(context.alone)
            waiting = context.start_mixed(clients, at_once + kills, shape=shape, lazy=lazy)
            random.Random(context.seed).shuffle(waiting)  # noqa: S311 - as above
            working = [self._next(waiting) for _ in range(min(at_once, len(waiting)))]
            for number in range(min(kills, len(waiting))):
                if not clients.until_acknowledged(chance.randint(5, 40)):
                    break
                in_flight += self._kill(
                    context, clients, working.pop(chance.randrange(len(working)))
                )
                context.say(f"{self.about}: {number + 1} of {kills}")
                working.append(self._next(waiting))
            if not in_flight:
                clients.missed = "no SIGKILL met a client in the middle of an operation"
            killed = sum(client.killed for client in clients.processes)
            kept = f"{killed} SIGKILLs, {in_flight} in the middle of an operation"
            return context.conclude(self, clients, kept)

    @staticmethod
    def _next(waiting: list[ClientProcess]) -> ClientProcess:
        client = waiting.pop()
        client.go()
        return client

    def _kill(self, context: ScenarioContext, clients: ClientPool, client: ClientProcess) -> int:
        caught = clients.kill(client)
        context.landed("kill", f"{client.name} was ended by SIGKILL", in_flight=caught)
        return caught


class PauseClient(Scenario):
    """SIGSTOP a process in mid-write, so that what it holds stays held; then let it go on."""

    name = "pause-client"
    about = "a process is stopped in mid-write, the others go on, and it wakes up late"
    fault = "pause"
    tests = ("ordered", "atomic")

    def reason_not(self, context: ScenarioContext) -> str | None:
        """An engine of its own is paused instead."""
        return None if context.spec.embedded else "the engine is paused instead"

    def run(self, context: ScenarioContext) -> Outcome:
        """Pause the first client inside an operation, several times."""
        with context.clients(self) as clients:
            working = clients.start(context.at_once(3), shape=context.shape(self.name))
            for client in working:
                client.go()
            for _ in range(PAUSES if working else 0):
                clients.until_acknowledged(20)
                self._pause(context, clients, working[0])
            kept = f"{PAUSES} pauses in the middle of an operation"
            return context.conclude(self, clients, kept)

    def _pause(self, context: ScenarioContext, clients: ClientPool, client: ClientProcess) -> None:
        for _ in range(ATTEMPTS_MAX):
            evidence = pause_tree(client.process)
            client.read()
            if client.open:
                try:
                    # The others go on or wait: either way time passes for the one that sleeps.
                    clients.watch(PAUSED_S)
                finally:
                    client.resume()
                clients.note_fault("pause")
                context.landed("pause", evidence.seen, in_flight=len(client.open))
                return
            recorded = len(client.events)
            client.resume()
            # On a busy machine it may not run at all before the next attempt: wait for a sign.
            clients.until(lambda: len(client.events) > recorded)  # noqa: B023 - awaited in this turn
        raise FaultNotProven("pause: the client was never caught in the middle of an operation")
