"""Scenarios that need no history: odd content, odd ids, damaged records, old records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Outcome, Scenario, ScenarioContext
from holdfast.verify.workload import probes
from holdfast.verify.workload.client_pool import ClientPool
from holdfast.verify.workload.client_process import ClientProcess


class OddContent(Scenario):
    """Messages that a careless serializer changes."""

    name = "odd-content"
    rank = 1
    about = "messages that a careless serializer changes go in, and must come out"
    tests = ("faithful",)

    def run(self, context: ScenarioContext) -> Outcome:
        """Write them, read them back through the same store and a new one."""
        return run_probe(self, context, "faithful")


class OddIds(Scenario):
    """Session ids that a careless key, pattern or path takes for one another."""

    name = "odd-ids"
    about = "sessions with confusing names must stay apart"
    tests = ("isolated",)

    def run(self, context: ScenarioContext) -> Outcome:
        """One message each; then one is forgotten, and its neighbours must not notice."""
        return run_probe(self, context, "isolated")


class Damage(Scenario):
    """One record is changed behind the store's back."""

    name = "damage"
    about = "one stored record is damaged; it must be named and hide nothing else"
    tests = ("faithful",)
    aloud = True

    def run(self, context: ScenarioContext) -> Outcome:
        """Write, damage, read; on an engine of its own, where there can be one.

        A store may fail for good on what is damaged, and other scenarios are not to blame it.
        """
        if context.engine is None or context.why_no_own_engine() is not None:
            return run_probe(self, context, "damaged")
        engine, spec = context.own_engine()
        with engine:
            return run_probe(self, replace(context, engine=engine, spec=spec), "damaged")


class OldRecords(Scenario):
    """Records that an earlier release wrote."""

    name = "old-records"
    about = "what the previous release wrote must be read by this one"
    tests = ("faithful",)
    aloud = True

    def run(self, context: ScenarioContext) -> Outcome:
        """Write with the code of yesterday, read with that of today."""
        return run_probe(self, context, "old")


def run_probe(scenario: Scenario, context: ScenarioContext, probe: str) -> Outcome:
    """Run a probe in a client process; without its answer nothing is known."""
    with context.clients(scenario) as clients:
        for client in clients.start(probe=probe):
            client.go()
            _until_ended(clients, client, context.bounds.recover_s)
        clients.stop()
        found = [event for event in clients.raw_events() if event["type"] == "found"]
        if not found:
            because = clients.trouble[0] if clients.trouble else "the probe gave no answer"
            return Outcome(context.unknown(scenario, because), hung=clients.hung)
        if found[0]["verdict"] == probes.LEFT_OUT:
            return Outcome(left_out=found[0]["because"])
        for event in found:
            if "landed" in event:
                context.landed(event.get("fault", scenario.name), event["landed"])
        tried = [event for event in found if event["verdict"] != probes.LEFT_OUT]
        # One that broke off has not asked everything, whatever it had found by then.
        broke_off = context.unknown(scenario, clients.trouble[0]) if clients.trouble else []
        return Outcome(
            [*(_finding(scenario, event) for event in tried), *broke_off],
            [_counts(event) for event in tried if "back" in event],
            hung=clients.hung,
            untried=[(e["promise"], e["because"]) for e in found if e not in tried],
        )


def _until_ended(clients: ClientPool, client: ClientProcess, silent_s: float) -> None:
    """A probe may ask many questions: it hangs if none is answered for so long."""
    heard = -1
    while client.alive and len(client.events) > heard:
        heard = len(client.events)
        clients.until(
            lambda: not client.alive or len(client.events) > heard,  # noqa: B023 - awaited here
            within_s=silent_s,
        )


def _counts(event: dict[str, Any]) -> dict[str, int]:
    """What a probe wrote and read back itself, for the sums of the check."""
    return {"acknowledged": event["tried"], "read_back": event["back"]}


def _finding(scenario: Scenario, event: dict[str, Any]) -> Finding:
    evidence = {"tried": event["tried"], "refused": event["refused"]}
    if event.get("examples"):
        evidence["examples"] = event["examples"]
    because, refused = event["because"], len(event["refused"])
    if refused and event["verdict"] == "kept":
        because += f", {refused} were refused by an error"
    return Finding(event["promise"], Verdict(event["verdict"]), because, scenario.name, evidence)
