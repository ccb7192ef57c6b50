"""A stored crash state, byte for byte, under the store of today: is the promise broken in it?"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from holdfast.errors import VerifyError
from holdfast.verify.check import started
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.crash_archive import HISTORY, unpack
from holdfast.verify.history import read_history
from holdfast.verify.power.trace import Recording
from holdfast.verify.power.trace.tree import Base
from holdfast.verify.rundir import RunDir
from holdfast.verify.scenarios.explore import PowerExplore, judge_state
from holdfast.verify.scenarios.states import Story, Visitor
from holdfast.verify.shrink import Quiet
from holdfast.verify.story import story_of

_READ_S: Final = 20.0


def replay(plan: CheckOptions, promise: str, file: Path) -> str:
    """Put a state into a new directory, open the store of the plan on it, read, and judge.

    In words what is broken, or why nothing could be seen; nothing where the store shows all that
    was acknowledged. `VerifyError` where the file is no crash state.
    """
    with contextlib.ExitStack() as stack:
        directory = RunDir("memory")
        stack.callback(directory.clear)
        state = unpack(file, directory.path)
        history = directory.path / HISTORY
        try:
            read_history(history)
        except VerifyError as error:
            raise VerifyError(f"{file} has no history of a check: {error}") from error
        engine, spec = started(plan, stack, Quiet())
        if engine is None:
            raise VerifyError(f"{file}: a crash state needs an engine that we start")
        story = Story(Recording(Base(state), {}, []), history, spec, state.name)
        at_ns = story.ended_ns
        promised = story.until(at_ns)
        folder = directory.path / "visitor"
        visitor = stack.enter_context(Visitor(story, folder, timeout_s=_READ_S))
        seen = visitor.visit(directory.path, promised.sessions)
        findings, unknown, _ = judge_state(PowerExplore(), story, at_ns, promised, seen, every=True)
    for finding in findings:
        if finding.promise == promise:
            words = story_of({"anomalies": finding.anomalies, "evidence": {}})
            return words or finding.because
    return unknown
