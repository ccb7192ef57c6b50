"""The engine does what it was asked, and its answer is lost on the way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from holdfast.errors import FaultNotProven
from holdfast.verify.faults.proxy import Proxy
from holdfast.verify.faults.proxy_links import Armed
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.engine_faults import NO_NETWORK, engine_of
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.plan import Step

LOST_ACKS: Final = 4
"""At least so many, also where an append is one request."""
REQUESTS_MAX: Final = 12
"""An append that makes more of them has the answers of the first ones lost."""
CUT_MAX: Final = 4
"""So many requests of an append are cut in the middle, one after another."""
CUT_BATCH: Final = 8
CUT_AT: Final = 0.6
"""The part of a request that reaches the engine: of a batch some messages, and not all."""


class LostAck(Scenario):
    """The answer to each request of an append is lost, one after another; then it is cut itself.

    A store that asks for a key, writes, and then notes the key, is safe at two of the three. One
    that sends a batch message by message has a part of it written when the connection breaks.
    """

    name = "lost-ack"
    about = "answers of the engine are lost on their way, and the client asks again"
    fault = "lost-ack"
    tests = ("exactly-once", "durable", "atomic", "loud")

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine that is reached by TCP."""
        if context.spec.embedded or context.engine is None:
            return NO_NETWORK
        return context.alone or None

    def run(self, context: ScenarioContext) -> Outcome:
        """One append after another loses an answer, is looked for, and is sent again with its key."""
        keyed = context.shape(self.name).keyed
        with Proxy(engine_of(context).url) as proxy, context.clients(self) as clients:
            lost, requests = self._each_in_turn(context, clients, proxy, keyed)
            if not lost and not clients.trouble:
                raise FaultNotProven("lost-ack: no request of an append came by the proxy")
            cut = self._each_cut(context, clients, proxy, keyed, min(requests, CUT_MAX))
            kept = f"{lost} lost answers, {cut} requests cut in the middle"
            outcome = context.conclude(self, clients, kept)
            if not any(finding.promise == "loud" for finding in outcome.findings):
                outcome.findings.append(self._loud(clients, lost))
            return outcome

    def _each_in_turn(
        self, context: ScenarioContext, clients: ClientPool, proxy: Proxy, keyed: bool
    ) -> tuple[int, int]:
        """How many answers were lost, and how many an append has: one after another is lost."""
        lost, requests = 0, REQUESTS_MAX
        for number in range(REQUESTS_MAX + LOST_ACKS):
            if clients.trouble or not requests or (requests < REQUESTS_MAX and lost >= LOST_ACKS):
                break
            lay = functools.partial(proxy.swallow_reply, passes=lost % requests)
            if self._is_struck(context, clients, proxy, _lose_and_retry(number, keyed), lay):
                lost += 1
            else:
                requests = min(requests, lost)
        return lost, requests

    def _each_cut(
        self, context: ScenarioContext, clients: ClientPool, proxy: Proxy, keyed: bool, count: int
    ) -> int:
        """How many requests of a batch reached the engine in part."""
        cut = 0
        for number in range(count):
            script = _lose_and_retry(number, keyed, size=CUT_BATCH)
            lay = functools.partial(proxy.swallow_request, passes=number, keep=CUT_AT)
            if clients.trouble or not self._is_struck(context, clients, proxy, script, lay):
                break
            cut += 1
        return cut

    def _is_struck(
        self,
        context: ScenarioContext,
        clients: ClientPool,
        proxy: Proxy,
        script: list[Step],
        lay: Callable[[], Armed],
    ) -> bool:
        """Whether the second append of a script met what was laid for it."""
        for client in clients.start(scripts=[script], spec=context.spec.at(proxy.url)):
            client.go()
            clients.until(lambda: client.waiting > 0 or not client.alive)  # noqa: B023 - awaited
            trap = lay()
            client.go()
            clients.until(lambda: client.waiting > 1 or not client.alive)  # noqa: B023 - awaited
            proxy.heal()
            if trap.is_landed:
                context.landed(self.fault, trap.landed().seen, in_flight=1)
            client.go()
            clients.until(lambda: not client.alive)  # noqa: B023 - awaited
            return trap.is_landed
        return False

    def _loud(self, clients: ClientPool, lost: int) -> Finding:
        if clients.trouble:
            return Finding("loud", Verdict.UNKNOWN, clients.trouble[0], self.name)
        words = f"{lost} lost answers, and none was called not done"
        errors = sum(client.errors for client in clients.processes)
        return Finding("loud", Verdict.KEPT, words, self.name, {"errors": errors})


def _lose_and_retry(number: int, keyed: bool, *, size: int = 1) -> list[Step]:
    """An answer to the second append is going to be lost. Read before it is sent again.

    Only then a false "not done" can be told from a true one. Without a key nobody may send it
    again, neither this client nor a driver.
    """
    session = f"lost-ack-{number % 2}" if size == 1 else f"cut-{number}"

    def append(word: str) -> Step:
        name = f"{word}.{size}.{number}"
        ids = tuple(f"{name}.{part}" for part in range(size))
        return Step("append", session, ids, key=name if keyed else None)

    read, wait, lost = Step("history", session), Step("wait"), append("swallowed")
    again = [lost, lost] if keyed else []
    return [append("heard"), wait, lost, wait, read, read, *again, read]
