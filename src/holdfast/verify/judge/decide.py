"""From a history to its verdict. Placeholder."""
from __future__ import annotations
from holdfast.verify.history import History
from holdfast.verify.judge.explain import explain

def judge(history: History):
    return [explain(history, s) for s in history.sessions.values()]
