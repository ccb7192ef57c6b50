"""Our store inside frameworks, beside the frameworks' own stores, each in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import holdfast
from bench.figure import Figure
from holdfast.verify.engines import start_engine

LANGGRAPH = (
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "apsw",
    "psycopg[binary,pool]",
)
INSTALL_TIMEOUT_S = 900
RUN_TIMEOUT_S = 3600


def run() -> Iterator[Figure]:
    """LangGraph's savers on SQLite and PostgreSQL. RedisSaver needs modules for JSON and search in its server."""
    place = Path(".cache").absolute()
    place.mkdir(exist_ok=True)
    with start_engine("postgres", storage="disk") as engine:
        yield from in_environment(
            "langgraph", LANGGRAPH, "langgraph_savers.py", str(place), engine.url
        )


def in_environment(
    name: str, packages: Sequence[str], script: str, *arguments: str
) -> Iterator[Figure]:
    """The figures of a script, with current releases; where they cannot be had, that is said."""
    place = Path(f".cache/frameworks-{name}").absolute()
    python = place / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        yield Figure("beside frameworks: not measured", 0, detail=f"not installed: {error}")
        return
    source = Path(holdfast.__file__).parents[1]
    done = subprocess.run(
        [python, Path(__file__).with_name(script), *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{source}:{Path.cwd()}", "PATH": "/usr/bin:/bin"},
        timeout=RUN_TIMEOUT_S,
    )
    for line in done.stdout.splitlines():
        yield Figure(**json.loads(line))
