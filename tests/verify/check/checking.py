"""A check as a test makes it: quiet, with a seed."""

from __future__ import annotations

from typing import Any

from holdfast.verify.check import check
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult

STORES = "tests.verify.check.stores"
REDIS_STORES = "tests.verify.check.redis_stores"


class Notes:
    """Remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ended: list[tuple[str, str]] = []

    def say(self, words: str) -> None:
        self.said.append(words)

    def done(self, scenario: str, verdict: str) -> None:
        self.ended.append((scenario, verdict))


def run(name: str, engine: str | None = "sqlite", **asked: Any) -> CheckResult:
    stores = REDIS_STORES if engine == "redis" else STORES
    target = f"{stores}:{name}" if engine and ":" not in name else name
    return check(CheckOptions(target=target, engine=engine, **asked), Notes())


def broken(result: CheckResult) -> dict[str, str]:
    return {
        promise: one.because
        for promise, one in result.promises.items()
        if one.verdict is Verdict.BROKEN
    }


def tell(result: CheckResult) -> str:
    return "\n".join(f"{p}: {one.verdict}: {one.because}" for p, one in result.promises.items())
