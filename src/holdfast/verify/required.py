"""What "kept" needs besides the absence of a finding: evidence that the store could have failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.linux import file_system_of
from holdfast.model import Durability
from holdfast.verify.judge import Verdict
from holdfast.verify.result import Finding
from holdfast.verify.rundir import IN_MEMORY
from holdfast.verify.scenarios import SCENARIOS, Scenario, ScenarioContext

_BY_NAME: Final[Mapping[str, Scenario]] = {scenario.name: scenario for scenario in SCENARIOS}
_FAULT_OF: Final = {
    Durability.DISK: ("power", "a power cut"),
    Durability.PROCESS: ("kill", "a SIGKILL of the process that has the data"),
    Durability.REPLICA: ("failover", "the loss of a whole machine"),
}
"""What puts an ack of this level to the test: its name for `--faults`, and in words."""


def missing_evidence(
    context: ScenarioContext,
    findings: Sequence[Finding],
    asked_faults: Sequence[str],
    acknowledged: int,
) -> Iterator[Finding]:
    """An unknown for each promise that was seen kept, and not under what could break it."""
    yield from _temporary(context)
    yield from _below(context)
    yield from _not_survived(context, findings, asked_faults)
    yield from _no_error(findings)
    if not acknowledged:
        words = "no append was acknowledged, so nothing was promised"
        kept = [f for f in findings if f.verdict is Verdict.KEPT]
        tried = {f.promise for f in kept if f.evidence.get("tried")}  # a probe counts its own
        rest = dict.fromkeys(f.promise for f in kept if f.promise not in tried)
        yield from (Finding(promise, Verdict.UNKNOWN, words, "acks") for promise in rest)


def strictly(context: ScenarioContext, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, where a fault that was asked for by name and never landed counts as missed."""
    return [
        replace(f, not_landed=f.not_landed and not _is_missed(context, f.scenario))
        for f in findings
    ]


def _is_missed(context: ScenarioContext, scenario: str) -> bool:
    fault = _BY_NAME[scenario].fault if scenario in _BY_NAME else None
    return fault in context.named and not context.has_landed(fault)


def _temporary(context: ScenarioContext) -> Iterator[Finding]:
    """Whatever an ack says, data in memory do not outlive the power."""
    place = context.spec.place
    kind = "unknown" if place is None else file_system_of(place)
    if kind in IN_MEMORY:
        words = f"its data are on temporary storage ({kind}): a power loss leaves nothing of them"
        evidence = {"file_system": kind, "place": str(place)}
        yield Finding("durable", Verdict.UNKNOWN, words, "storage", evidence)


def _below(context: ScenarioContext) -> Iterator[Finding]:
    """Acks that name less than is required cannot be called durable, even if nothing was lost."""
    level = context.about.get("level")
    if level is not None and Durability[level] < context.require:
        yield Finding(
            "durable",
            Verdict.UNKNOWN,
            f"its acks promise {level} only, and {context.require.name} is required: no loss was "
            "seen under the faults that were caused, and another fault may show one",
            "level",
            {"level": level, "required": context.require.name},
        )


def tested_to(context: ScenarioContext, findings: Sequence[Finding]) -> Durability:
    """What acks have survived here: every fault up to that level that was caused."""
    durable = [
        (f.verdict, _survived(context, f.scenario)) for f in findings if f.promise == "durable"
    ]
    lost = [level for verdict, level in durable if verdict is Verdict.BROKEN]
    kept = [level for verdict, level in durable if verdict is Verdict.KEPT]
    below = [level for level in kept if all(level < taken for taken in lost)]
    return max(below, default=Durability.MEMORY)


def _not_survived(
    context: ScenarioContext, findings: Sequence[Finding], asked_faults: Sequence[str]
) -> Iterator[Finding]:
    """`durable` is kept up to what was caused: what no power cut met may be gone after one."""
    survived = tested_to(context, findings)
    kept = any(f.promise == "durable" and f.verdict is Verdict.KEPT for f in findings)
    if not kept or survived >= context.require:
        return
    fault, words = _FAULT_OF[context.require]
    why, remedy = _why_not_caused(context, findings, fault, asked=fault in asked_faults)
    yield Finding(
        "durable",
        Verdict.UNKNOWN,
        f"nothing was lost, but {words} was never survived: {why}. To cause one: {remedy}; "
        f"--require {survived.name} accepts less",
        "level",
        {"survived": survived.name, "required": context.require.name},
    )


def _survived(context: ScenarioContext, name: str) -> Durability:
    scenario = _BY_NAME.get(name)
    if scenario is None or (scenario.upon_clients and not context.spec.embedded):
        return Durability.MEMORY  # nothing was struck, or the server that has the data lived on
    return scenario.survived


def _why_not_caused(
    context: ScenarioContext, findings: Sequence[Finding], fault: str, *, asked: bool
) -> tuple[str, str]:
    """Why the fault was not caused, and what to do so that it is."""
    if fault == "failover" and context.spec.engine is not None and not context.spec.engine.topology:
        return "there is one engine only", "give --topology, with more than one"
    if not asked:
        return "it was not asked for", f"add {fault} to --faults"
    missed = [f.because for f in findings if f.not_landed and _BY_NAME[f.scenario].fault == fault]
    tally = context.tallies.get(fault)
    reason = missed[0] if missed else (tally and tally.not_run) or "none landed"
    if context.engine is not None:
        return reason, "see what it lacks here"
    if context.spec.is_holdfast:
        return reason, "check this kind of store by its name, on an engine of the check's own"
    return reason, (
        "say where its files are, Target(data=…), or make the target a function of the engine "
        "that --engine starts"
    )


def _no_error(findings: Sequence[Finding]) -> Iterator[Finding]:
    """`loud` is about errors: where none was provoked and met, nothing shows how it tells them."""
    kept = [f for f in findings if f.promise == "loud" and f.verdict is Verdict.KEPT]
    if kept and not any(f.evidence.get("errors") for f in kept):
        words = (
            "no client met an error, so nothing shows that one would be told; faults that provoke "
            "one: disk, network, kill and connections of an engine, lost-ack"
        )
        yield Finding("loud", Verdict.UNKNOWN, words, "errors")
