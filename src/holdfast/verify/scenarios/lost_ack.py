"""The engine does what it was asked, and its answer is lost on the way."""

from __future__ import annotations

from typing import Final

from holdfast.errors import FaultNotProven
from holdfast.verify.faults.proxy import Proxy
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


class LostAck(Scenario):
    """The answer to each request of an append is lost, one after another.

    A store that asks for a key, writes, and then notes the key, is safe at two of the three.
    """

    name = "lost-ack"
    about = "answers of the engine are lost on their way, and the client asks again"
    fault = "lost-ack"
    tests = ("exactly-once", "durable", "loud")

    def reason_not(self, context: ScenarioContext) -> str | None:
        """It needs an engine that is reached by TCP."""
        if context.spec.embedded or context.engine is None:
            return NO_NETWORK
        return context.alone or None

    def run(self, context: ScenarioContext) -> Outcome:
        """One append after another loses an answer, is looked for, and is sent again with its key."""
        keyed = context.shape(self.name).keyed
        with Proxy(engine_of(context).url) as proxy, context.clients(self) as clients:
            lost = self._each_in_turn(context, clients, proxy, keyed)
            if not lost and not clients.trouble:
                raise FaultNotProven("lost-ack: no request of an append came by the proxy")
            outcome = context.conclude(self, clients, f"{lost} lost answers")
            if not any(finding.promise == "loud" for finding in outcome.findings):
                outcome.findings.append(self._loud(clients, lost))
            return outcome

    def _each_in_turn(
        self, context: ScenarioContext, clients: ClientPool, proxy: Proxy, keyed: bool
    ) -> int:
        """How many answers were lost: that of the first request, of the second, until there is none."""
        through = context.spec.at(proxy.url)
        lost, requests = 0, REQUESTS_MAX
        for number in range(REQUESTS_MAX + LOST_ACKS):
            if clients.trouble or not requests or (requests < REQUESTS_MAX and lost >= LOST_ACKS):
                break
            script = _lose_and_retry(number, keyed)
            for client in clients.start(scripts=[script], spec=through):
                client.go()
                clients.until(lambda: client.waiting > 0 or not client.alive)  # noqa: B023 - awaited
                trap = proxy.swallow_reply(passes=lost % requests)
                client.go()
                clients.until(lambda: client.waiting > 1 or not client.alive)  # noqa: B023 - awaited
                proxy.heal()
                if trap.is_landed:
                    context.landed(self.fault, trap.landed().seen, in_flight=1)
                    lost += 1
                else:
                    requests = min(requests, lost)
                client.go()
                clients.until(lambda: not client.alive)  # noqa: B023 - awaited
        return lost

    def _loud(self, clients: ClientPool, lost: int) -> Finding:
        if clients.trouble:
            return Finding("loud", Verdict.UNKNOWN, clients.trouble[0], self.name)
        words = f"{lost} lost answers, and none was called not done"
        errors = sum(client.errors for client in clients.processes)
        return Finding("loud", Verdict.KEPT, words, self.name, {"errors": errors})


def _lose_and_retry(number: int, keyed: bool) -> list[Step]:
    """An answer to the second append is going to be lost. Read before it is sent again.

    Only then a false "not done" can be told from a true one. Without a key nobody may send it
    again, neither this client nor a driver.
    """
    session = f"lost-ack-{number % 2}"

    def append(word: str) -> Step:
        name = f"{word}.{number}"
        return Step("append", session, (name,), key=name if keyed else None)

    read, wait, lost = Step("history", session), Step("wait"), append("swallowed")
    again = [lost, lost] if keyed else []
    return [append("heard"), wait, lost, wait, read, read, *again, read]
