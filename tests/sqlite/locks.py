"""Whether a database is locked, asked from outside of this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHANGE = """
import sqlite3, sys
try:
    [(mode,)] = sqlite3.connect(sys.argv[1], timeout=0).execute("PRAGMA journal_mode=DELETE")
    print(mode)
except sqlite3.OperationalError as error:
    print("locked" if "locked" in str(error) else error)
"""


def change_of_journal(file: Path) -> str:
    """ "locked" while somebody has it open; otherwise the -wal file is folded in and gone."""
    done = subprocess.run(
        [sys.executable, "-c", CHANGE, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()
