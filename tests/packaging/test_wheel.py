"""The wheel is whole, the source archive makes the same one, and it works where nothing else is."""

from __future__ import annotations

import json
import re
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

import holdfast
from holdfast.verify.shims import build as shims
from tests.packaging.dist import NO_COMPILER, PROJECT, ROOT, Clean, build, unpack

LIBRARIES = {f"holdfast/verify/shims/{shims.file_name(name)}" for name in shims.NAMES}
FIRST_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HINTS = [
    ("sessions --store redis://127.0.0.1:1", 2, "redis"),
    ("sessions --store postgresql://127.0.0.1:1/x", 2, "postgres"),
    ("doctor --manifest compose.yaml", 2, "doctor"),
    ("check --report report.html", 2, "verify"),
    ("chat", 2, "chat"),
    ("engines --provider docker", 0, "docker"),
]
FRAMEWORKS = ("adk", "agent-framework", "langchain", "langgraph", "llama-index", "openai-agents",
              "pydantic-ai")  # fmt: skip
INTEGRATIONS = {f"holdfast.integrations.{extra.replace('-', '_')}": extra for extra in FRAMEWORKS}
EACH = """
import contextlib, io, json, sys
import holdfast.doctor, holdfast.verify.check  # they load without any extra
from holdfast.cli import main
outcomes = []
for command in sys.argv[1:]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(command.split())
        except SystemExit as ended:
            outcomes.append((ended.code, said.getvalue()))
print(json.dumps(outcomes))
"""
"""Every command in one process: it is started once."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source archive: building there leaves the checkout alone."""
    folder = tmp_path_factory.mktemp("sdist")
    sdist, _ = build(ROOT, "sdist", folder / "dist")
    return unpack(sdist, folder / "source")


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(source, "wheel", tmp_path_factory.mktemp("wheel"))[0]


def test_the_wheel_has_every_file_of_the_package_and_the_libraries(wheel: Path):
    tree = ROOT / "src"
    files = {
        str(path.relative_to(tree))
        for path in (tree / "holdfast").rglob("*")
        if path.suffix not in (".so", ".part")
        and "__pycache__" not in path.parts
        and path.is_file()
    }
    assert {"holdfast/py.typed", "holdfast/backends/redis/scripts/append.lua"} <= files
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        (licence,) = (n for n in archive.namelist() if n.endswith(".dist-info/licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
        assert all(archive.read(name).startswith(b"\x7fELF") for name in LIBRARIES)
    assert inside == files | LIBRARIES


def test_the_wheel_says_what_it_is(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        about = BytesParser().parsebytes(archive.read(name))
    assert about["Version"] == holdfast.__version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Description-Content-Type"] == "text/markdown"
    assert set(about.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    needs = [one for one in about.get_all("Requires-Dist", []) if "extra ==" not in one]
    assert [re.split(r"\W", need)[0] for need in needs] == ["apsw", "click", "rich"]
    assert re.search(r"-py3-none-(many|musl)linux_\w+\.whl$", wheel.name)


def test_without_a_compiler_the_package_lacks_only_the_libraries(
    source: Path, wheel: Path, tmp_path: Path
):
    bare, said = build(source, "wheel", tmp_path, **NO_COMPILER)
    assert bare.name.endswith("-py3-none-any.whl")
    assert "preload libraries are left out: there is no C compiler" in said
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(bare) as archive:
        assert set(whole.namelist()) - set(archive.namelist()) == LIBRARIES


def test_the_core_works_alone_and_names_the_extra_of_what_it_lacks(wheel: Path, tmp_path: Path):
    clean = Clean(tmp_path / "clean")
    clean.install_core(wheel)
    (clean.work / "compose.yaml").write_text("services: {}")
    program = FIRST_BLOCK.findall((ROOT / "README.md").read_text("utf-8"))[0]
    first = clean("python", "-W", "error", "-c", program)
    assert first.stdout.splitlines()[0] == "1 2 DISK", first.stderr
    assert "user-42" in clean("holdfast", "sessions").stdout
    told = clean("python", "-c", EACH, *(command for command, _, _ in HINTS))
    assert told.returncode == 0, told.stderr
    outcomes = json.loads(told.stdout)
    for (command, code, extra), (ended, said) in zip(HINTS, outcomes, strict=True):
        assert ended == code, (command, said)
        assert f"pip install 'holdfast[{extra}]'" in said, command
    for module, extra in INTEGRATIONS.items():
        assert (
            f"pip install 'holdfast[{extra}]'" in clean("python", "-c", f"import {module}").stderr
        )
    recall = "import holdfast; holdfast.connect('sqlite:///memory.db').recall('user-42', 'name')"
    assert "pip install 'holdfast[recall]'" in clean("python", "-c", recall).stderr
