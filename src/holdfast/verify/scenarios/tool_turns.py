"""SIGKILL between a tool call and its result: a model must take what is read afterwards."""

from __future__ import annotations

from typing import Any

from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.scenarios.direct import run_probe
from holdfast.verify.workload import probes, tool_turns
from holdfast.verify.workload.client_process import ClientProcess


class ToolTurns(Scenario):
    """Of a store that claims whole turns; another process reads, and goes on with the session."""

    name = "tool-turns"
    about = "a process is ended by SIGKILL between a tool call and its result"
    fault = "kill"
    tests = ("atomic",)
    upon_clients = True

    def reason_not(self, context: ScenarioContext) -> str | None:
        """Only who claims it is asked."""
        return None if context.about.get("whole_turns") else tool_turns.NOT_CLAIMED

    def run(self, context: ScenarioContext) -> Outcome:
        """One writes half of each turn and is killed; another one reads."""
        with context.clients(self) as clients:
            for client in clients.start(probe="turns-begun"):
                client.go()
                clients.until(
                    lambda: not client.alive or _found(client) is not None,  # noqa: B023 - awaited here
                    within_s=context.bounds.recover_s,
                )
                was_there = client.alive
                client.read()  # one that is gone has said all by now
                said = _found(client)
                clients.kill(client)
                if said and said["verdict"] == probes.LEFT_OUT:
                    return Outcome(left_out=said["because"])
                if said and was_there:
                    context.landed("kill", f"{client.name} was ended between a call and its result")
                    return run_probe(self, context, "turns-read")
            why = [*clients.trouble, "no call was stored in time, so none was left without result"]
            return Outcome(context.unknown(self, f"{self.name}: {why[0]}"), hung=clients.hung)


def _found(client: ClientProcess) -> dict[str, Any] | None:
    """What the probe said when it had written, or could not."""
    return next((event for event in client.events if event["type"] == "found"), None)
