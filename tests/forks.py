"""Processes that tests start by the dozen: forked from one that has its imports already.

A new process takes a third of a second of processor until it has them; a fork, milliseconds.
"""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.contract.client",
        "tests.sqlite.harm",
        "holdfast.backends.sqlite",
        "holdfast.backends.redis.opening",
        "holdfast.backends.postgres",
    ]
)
