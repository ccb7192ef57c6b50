"""LangGraph's conformance suite, of whatever version is first on the path, against our saver."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph_plugin import opened_async

from holdfast.integrations.langgraph import HoldfastSaver


async def _saver() -> AsyncIterator[HoldfastSaver]:
    async with opened_async() as saver:
        yield saver


def main() -> int:
    """Print how many tests of each capability passed; 1 unless all did."""
    report = asyncio.run(validate(checkpointer_test(name="HoldfastSaver")(_saver)))
    for name, one in report.results.items():
        total = one.tests_passed + one.tests_failed
        print(f"{name}: {one.tests_passed} of {total}" if total else f"{name}: not implemented")
    return 0 if all(one.passed for one in report.results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
