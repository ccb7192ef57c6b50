"""What is in the log is found by meaning: in peace, without its index, after SIGKILL in between."""

from __future__ import annotations

from typing import Any, Final

from holdfast.verify.judge import Verdict
from holdfast.verify.process_tree import pause_tree
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.direct import run_probe
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess
from holdfast.verify.workload.memories import CATCH_UP_S, NO_RECALL, K
from holdfast.verify.workload.plan import Step, message

ROUNDS: Final = 2
"""After so many the process dies, mostly while the index of the next one is made."""
ROUNDS_MAX: Final = 200
ATTEMPTS_MAX: Final = 50
SAID: Final = 12
REMEMBERED: Final = 4
CATCH_UP_ASKS: Final = 5
"""So often a new client is asked before it counts: it may be behind, as long as it says so."""
_NOT_CLAIMED: Final = "the target does not claim recallable"


class _Recalls(Scenario):
    def reason_not(self, context: ScenarioContext) -> str | None:
        """Only who claims it is asked."""
        return None if "recallable" in context.claimed else _NOT_CLAIMED


class Recall(_Recalls):
    """Facts are asked for; the index is lost, another model comes; a scope is forgotten."""

    name = "recall"
    about = "what was said and remembered is asked for by meaning, and its index is lost"
    tests = ("recallable", "forgotten")

    def run(self, context: ScenarioContext) -> Outcome:
        """In one client: to load an embedding model takes longer than all the rest."""
        return run_probe(self, context, "recall")


class RecallAfterKill(_Recalls):
    """SIGKILL between an append and its index; then everything acknowledged is asked for."""

    name = "recall-kill"
    about = "a process is ended by SIGKILL while the index follows the log"
    fault = "kill"
    tests = ("recallable",)

    def run(self, context: ScenarioContext) -> Outcome:
        """One dies while it recalls or writes; another one asks."""
        scope = f"{self.name}-{context.seed}"
        with context.clients(self) as clients:
            for client in clients.start(scripts=[list(_writing(scope))]):
                if not client.ready or not client.ready["recalls"]:
                    return Outcome(context.unknown(self, NO_RECALL))
                caught = self._kill(context, clients, client)
                found = self._asked(clients, scope, _acknowledged(client))
                return Outcome([self._finding(caught, found, clients)], hung=clients.hung)
            return Outcome(context.unknown(self, clients.trouble[0]), hung=clients.hung)

    def _kill(
        self, context: ScenarioContext, clients: ClientPool, client: ClientProcess
    ) -> str | None:
        """Some rounds later, inside whatever it does; None if it never was in anything."""
        client.go()
        clients.until(
            lambda: _begun(client, "recall") > ROUNDS or not client.alive,
            within_s=context.bounds.recover_s,
        )
        for _ in range(ATTEMPTS_MAX if client.alive else 0):
            # Stopped first: otherwise what it is in may be over when the signal comes.
            pause_tree(client.process)
            client.read()
            if client.open:
                break
            recorded = len(client.events)
            client.resume()
            clients.until(lambda: len(client.events) > recorded)  # noqa: B023 - awaited in this turn
        in_flight = [asked["f"] for asked in client.open.values()]
        clients.kill(client)
        context.landed("kill", f"{client.name} was ended by SIGKILL", in_flight=len(in_flight))
        return in_flight[0] if in_flight else None

    @staticmethod
    def _asked(clients: ClientPool, scope: str, names: list[str]) -> dict[str, dict[str, Any]]:
        """What a new client finds for each of these, once it had time to catch up."""
        steps = [Step("recall", scope, (name,), limit=K) for name in names]
        steps = [*steps[:1] * CATCH_UP_ASKS, *steps]
        answers: dict[str, dict[str, Any]] = {}
        for reader in clients.start(scripts=[steps]):
            reader.go()
            clients.until(lambda: not reader.alive, within_s=CATCH_UP_S)  # noqa: B023 - awaited here
            asked = {e["op"]: e["messages"][0] for e in reader.events if e["type"] == "invoke"}
            for event in reader.events:
                if event["type"] in ("ok", "fail", "info"):
                    answers[asked[event["op"]]] = event
        return answers

    def _finding(
        self, caught: str | None, found: dict[str, dict[str, Any]], clients: ClientPool
    ) -> Finding:
        evidence = {"asked": len(found), "killed_in": caught}
        missing = [(name, answer) for name, answer in found.items() if not _is_in(name, answer)]
        short = [(name, answer) for name, answer in missing if not answer.get("behind")]
        if short:
            name, answer = short[0]
            seen = answer.get("error") or f"found were {answer['texts']}"
            words = (
                f"after SIGKILL {len(short)} of {len(found)} acknowledged texts are not found, "
                f"the first is {message(name)['content']!r}: {seen}"
            )
            return Finding("recallable", Verdict.BROKEN, words, self.name, evidence)
        why = clients.trouble[0] if clients.trouble else "no SIGKILL met it in an operation"
        if missing:
            why = f"the index is {missing[0][1]['behind']} records behind, and says so"
        if missing or caught is None or not found:
            return Finding("recallable", Verdict.UNKNOWN, f"{self.name}: {why}", self.name)
        kept = f"all {len(found)} after SIGKILL inside {caught}()"
        return Finding("recallable", Verdict.KEPT, kept, self.name, evidence)


def _writing(scope: str) -> list[Step]:
    """Say some, remember some, recall; the first recall loads the model."""
    steps = [Step("recall", scope, (f"{scope}.0",), limit=1)]
    for turn in range(ROUNDS_MAX):
        said = tuple(f"{scope}.{turn}.{number}" for number in range(SAID))
        steps.append(Step("append", scope, said))
        steps += [Step("remember", scope, (f"{scope}.m{turn}.{n}",)) for n in range(REMEMBERED)]
        steps.append(Step("recall", scope, said[-1:], limit=K))
    return steps


def _begun(client: ClientProcess, f: str) -> int:
    return sum(event["type"] == "invoke" and event["f"] == f for event in client.events)


def _acknowledged(client: ClientProcess) -> list[str]:
    """The names of all that was acknowledged."""
    done = {event["op"] for event in client.events if event["type"] == "ok"}
    return [
        name
        for event in client.events
        if event["type"] == "invoke" and event["f"] in ("append", "remember")
        for name in event["messages"]
        if event["op"] in done
    ]


def _is_in(name: str, answer: dict[str, Any]) -> bool:
    return message(name)["content"] in answer.get("texts", ())
