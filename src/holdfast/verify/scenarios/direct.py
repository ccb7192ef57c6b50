"""Scenarios that need no history: odd content, odd ids, a damaged record."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from holdfast.errors import FaultNotProven, VerifyError
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.scenarios.base import Bench, Outcome, Scenario
from holdfast.verify.spec import TargetSpec
from holdfast.verify.workload import probes
from holdfast.verify.workload.plan import Step


class OddContent(Scenario):
    """Messages that a careless serializer changes."""

    name = "odd-content"
    about = "messages that a careless serializer changes go in, and must come out"
    tests = ("faithful",)

    def run(self, bench: Bench) -> Outcome:
        """Write them, read them back through the same store and a new one."""
        return _probe(self, bench, "faithful")


class OddIds(Scenario):
    """Session ids that a careless key, pattern or path takes for one another."""

    name = "odd-ids"
    about = "sessions with confusing names must stay apart"
    tests = ("isolated",)

    def run(self, bench: Bench) -> Outcome:
        """One message each; then one is forgotten, and its neighbours must not notice."""
        return _probe(self, bench, "isolated")


class Damage(Scenario):
    """One record is changed behind the store's back."""

    name = "damage"
    about = "one stored record is damaged; it must be named and hide nothing else"
    tests = ("faithful",)

    def reason_not(self, bench: Bench) -> str | None:
        """Only where the kit knows how records are stored."""
        if bench.spec.ours and bench.spec.embedded:
            return None
        return "how this store keeps its records is not known to the kit"

    def run(self, bench: Bench) -> Outcome:
        """Write, damage, read in a new process."""
        session = probes.damage_session(bench.seed)
        script = [Step("append", session, (name,)) for name in probes.damage_ids(bench.seed)]
        with bench.crew(self) as crew:
            for client in crew.hire(scripts=[script]):
                client.go()
            crew.until(lambda: not any(client.alive for client in crew.clients))
            if crew.acknowledged() != len(script):
                raise VerifyError("damage: the records could not be written")
        _damage_sqlite(bench.spec, session, probes.DAMAGE_AT)
        bench.landed("damage", f"a bit of record {probes.DAMAGE_AT} of {len(script)} was flipped")
        return _probe(self, bench, "damaged")


def _probe(scenario: Scenario, bench: Bench, probe: str) -> Outcome:
    """Run a probe in a client process; without its answer nothing is known."""
    with bench.crew(scenario) as crew:
        for client in crew.hire(probe=probe):
            client.go()
            crew.until(lambda: not client.alive, within_s=bench.bounds.recover_s)  # noqa: B023
        crew.stop()
        found = [event for event in crew.raw_events() if event["type"] == "found"]
        if not found:
            because = crew.trouble[0] if crew.trouble else "the probe gave no answer"
            return Outcome(bench.unknown(scenario, because), hung=crew.hung)
        return Outcome([_finding(scenario, event) for event in found], hung=crew.hung)


def _finding(scenario: Scenario, event: dict[str, Any]) -> Finding:
    evidence = {"tried": event["tried"], "refused": event["refused"]}
    if event.get("examples"):
        evidence["examples"] = event["examples"]
    because, refused = event["because"], len(event["refused"])
    if refused and event["verdict"] == "kept":
        because += f", {refused} were refused by an error"
    return Finding(event["promise"], Verdict(event["verdict"]), because, scenario.name, evidence)


def _damage_sqlite(spec: TargetSpec, session: str, number: int) -> None:
    """Flip a bit in the middle of one record, through a connection of our own."""
    import apsw  # noqa: PLC0415 - the driver, used past the store on purpose

    path = Path(unquote(urlsplit(spec.url).path[1:]))
    place = "(SELECT id FROM sessions WHERE namespace = ? AND name = ?) << 32 | ?"
    asked = (spec.namespace.encode(), session.encode(), number)
    connection = apsw.Connection(str(path))
    try:
        [(record,)] = connection.execute(
            f"SELECT record FROM messages WHERE place = {place}",  # noqa: S608 - our own words
            asked,
        ).fetchall()
        changed = bytearray(cast("bytes", record))
        changed[len(changed) // 2] ^= 1
        connection.execute(
            f"UPDATE messages SET record = ? WHERE place = {place}",  # noqa: S608 - our own words
            (bytes(changed), *asked),
        )
        if connection.changes() != 1:
            raise FaultNotProven("damage: no record was changed")
    finally:
        connection.close()
