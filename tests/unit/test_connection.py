"""From a URL to a backend: a driver that is missing is named with the command that brings it."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules[{driver!r}] = None  # as if it were not installed
import holdfast
try:
    holdfast.connect({url!r})
except holdfast.UsageError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("driver", "url", "extra"),
    [
        ("redis", "redis://:secret@127.0.0.1:1/0", "holdfast[redis]"),
        ("psycopg", "postgresql://me:secret@127.0.0.1:1/db", "holdfast[postgres]"),
        ("apsw", "sqlite:///x.db", "holdfast"),
    ],
)
def test_a_missing_driver_is_named_with_its_remedy_and_no_secret(driver: str, url: str, extra: str):
    code = WITHOUT.format(driver=driver, url=url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install '{extra}'" in done.stdout
    assert "secret" not in done.stdout
