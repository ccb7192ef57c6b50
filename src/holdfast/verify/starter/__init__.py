"""`holdfast init`: a store, its target and its tests, to begin with."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from holdfast.errors import UsageError

ENGINES: Final = ("sqlite", "redis", "postgres")
STORE: Final = "my_memory.py"
TESTS: Final = "test_my_memory.py"


def write(folder: Path, engine: str) -> list[Path]:
    """Write both files, or neither: what is there already is left as it is."""
    files = {
        folder / STORE: _text(f"{engine}.py.txt"),
        folder / TESTS: _text("tests.py.txt").replace("ENGINE", engine),
    }
    if there := [path.name for path in files if path.exists()]:
        raise UsageError(f"{there[0]} is there already, and is left as it is. Nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
    return list(files)


def _text(name: str) -> str:
    common = resources.files(__name__)
    return (
        (common / name)
        .read_text("utf-8")
        .replace("COMMON\n", (common / "common.py.txt").read_text("utf-8"))
    )
