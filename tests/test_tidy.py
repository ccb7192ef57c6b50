"""Style is a test: rooms, cycles, sizes, words, public names."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from token import NAME

import pytest

import holdfast

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
FILES = sorted(SOURCE.rglob("*.py"))
STORE_ROOMS = {"contract", "model", "errors", "codec", "limits", "backends", "recall", "commands",
               "operations", "runner", "transfer", "connection"}  # fmt: skip
KIT_ROOMS = {"verify", "doctor", "chat", "integrations"}
DRIVERS = {"apsw": "backends.sqlite", "redis": "backends.redis", "psycopg": "backends.postgres",
           "psycopg_pool": "backends.postgres", "sqlite_vec": "backends.sqlite", "chromadb": "recall.chroma",
           "onnxruntime": "recall.embedders", "wordllama": "recall.embedders"}  # fmt: skip
BANNED = re.compile(r"\b(manager|helper|util|utils|handler|successfully)\b", re.IGNORECASE)

ODD_ENGLISH = re.compile(r"\b(anew|whoever|thereof)\b", re.IGNORECASE)
"""Words of nobody's English, in any prose; DESIGN's own sentence of `fresh` and names of sessions aside."""
ODD_ENGLISH_MAY = {"verify/promises.py", "verify/capsule/seeded.py"}

RETIRED = {
    "door", "doors", "course", "courses", "lane", "lanes", "walk", "walks", "walker", "follow", "follows",
    "followed", "follower", "following", "mind", "minds", "edge", "edges", "lend", "lending", "told", "ours", "anew",
}  # fmt: skip
"""Words that a plainer one has replaced: none may be part of a name."""
RETIRED_NAMES = {
    "Take", "Put", "Look", "Pick", "Promise", "Level", "Target", "Mind", "Request", "Requests",
}  # fmt: skip
PLAIN = ("backends", "chat", "doctor", "recall", "integrations", "contract.py", "connection.py", "commands.py",
         "operations.py", "transfer.py", "transfer_checks.py", "runner.py", "model.py", "codec.py")  # fmt: skip
"""Folders and modules whose names are free of retired words."""
LINES_MAX = 450
FUNCTION_LINES_MAX = 60

PUBLIC = {
    "Ack", "AsyncStore", "Conflict", "Context", "Damaged", "DamagedRecord", "Durability", "EngineFull",
    "EngineUnreachable", "Erased", "Forgotten", "FormatTooNew", "History", "Hit", "HoldfastError", "InvalidMessage",
    "LimitExceeded", "Loaded", "Message", "NotApplied", "OutcomeUnknown", "Recalled", "Refused",
    "Retention", "SessionState",
    "Source", "Stat", "StorageWarning", "Store", "StoreClosed", "StoredDataError", "UsageError", "VerifyError",
    "__version__", "connect", "connect_async",
}  # fmt: skip


def module_name(file: Path) -> str:
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def text_of(file: Path) -> str:
    return file.read_text("utf-8")


@functools.cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Every node of a file; each file is parsed once, whatever number of rules it is held to."""
    return tuple(ast.walk(ast.parse(text_of(file))))


@pytest.fixture(scope="module", autouse=True)
def _parsed_for_these_tests_only() -> Iterator[None]:
    yield
    nodes.cache_clear()
    text_of.cache_clear()


def holding(words: re.Pattern[str], files: Iterable[Path]) -> dict[str, list[str]]:
    """Files that have any of these words, and which."""
    found = {module_name(file): words.findall(text_of(file)) for file in files}
    return {name: hits for name, hits in found.items() if hits}


def imports(file: Path) -> Iterator[str]:
    """Modules that a file imports, also those that it imports later."""
    for node in nodes(file):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports_of(node)


def imports_of(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, f"relative import: {ast.unparse(node)}"
    inner = [f"{node.module}.{alias.name}" for alias in node.names]
    yield from inner
    if not MODULES.issuperset(inner):  # it takes names from the package itself
        yield node.module or ""


MODULES = {module_name(file) for file in FILES}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "holdfast" else ""


def functions(file: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_public_names_are_these_and_no_others():
    assert set(holdfast.__all__) == PUBLIC
    assert all(hasattr(holdfast, name) for name in PUBLIC)


BACKENDS_SHARE = {"answers", "group_commit", "loops", "queries", "slots", "writes"}
JUDGE_MAY = ("holdfast.verify.judge", "holdfast.verify.history", "holdfast.verify.promises",
             "holdfast.model", "holdfast.errors")  # fmt: skip
REPORT_MAY = ("holdfast.verify.report", "holdfast.verify.result", "holdfast.verify.story",
              "holdfast.verify.promises", "holdfast.errors")  # fmt: skip


def out_of_room(here: str, target: str) -> str:
    """Why a module may not import that one; empty where it may."""
    if room(here) in STORE_ROOMS and room(target) in KIT_ROOMS:
        return "the store imports the kit"
    if here.startswith("holdfast.backends.") and target.startswith("holdfast.backends."):
        other = target.split(".")[2:3]
        if other and other[0] not in {here.split(".")[2], *BACKENDS_SHARE}:
            return "a backend imports another"
    ours = target.startswith("holdfast.")
    if here.startswith("holdfast.verify.judge") and ours and not target.startswith(JUDGE_MAY):
        return "the judge imports what it judges"
    if here.startswith("holdfast.verify.report") and ours and not target.startswith(REPORT_MAY):
        return "a report reads results only"
    driver = target.partition(".")[0]
    if driver in DRIVERS and room(here) in STORE_ROOMS:
        return "" if here.startswith(f"holdfast.{DRIVERS[driver]}") else "a driver out of its room"
    return ""


def test_a_file_keeps_to_its_room():
    found = [
        f"{here} imports {target}: {why}"
        for here, file in zip(map(module_name, FILES), FILES, strict=True)
        for target in imports(file)
        if (why := out_of_room(here, target))
    ]
    assert not found


@pytest.mark.parametrize(
    ("here", "target"),
    [
        ("holdfast.codec", "holdfast.verify.check"),
        ("holdfast.backends.redis.store", "holdfast.backends.sqlite.store"),
        ("holdfast.verify.judge.rules", "holdfast.verify.check"),
        ("holdfast.verify.report.html", "holdfast.verify.engines"),
        ("holdfast.transfer", "redis.asyncio"),
    ],
)
def test_an_import_out_of_its_room_is_seen(here: str, target: str):
    assert out_of_room(here, target)
    assert not out_of_room(here, "holdfast.errors")


ALLOWED_CYCLE = "# cycle: "
"""Ends the line of an import, or of a name, that closes a cycle, and says why it has to."""


def reached(file: Path) -> Iterator[str]:
    """Our modules that a file needs at any time: imported at the top, later, or by their name."""
    lines = text_of(file).splitlines()
    allowed = {n for n, line in enumerate(lines, 1) if line.partition(ALLOWED_CYCLE)[2].strip()}
    for node in nodes(file):
        if getattr(node, "lineno", 0) in allowed:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imports_of(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]  # for importlib, or `module:name`
            yield from [name] if "." in name else []


def needs(files: Sequence[Path], whole: Callable[[str], str]) -> dict[str, set[str]]:
    """Who needs whom; `whole` says of what a module is a part."""
    graph: dict[str, set[str]] = {}
    for file in files:
        name = whole(module_name(file))
        found = {whole(target) for target in reached(file) if target in MODULES}
        graph.setdefault(name, set()).update(found - {name})
    return graph


def cycle_in(graph: dict[str, set[str]]) -> str:
    """The first cycle of a graph, in words; empty where there is none."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> str:
        if name in path:
            return " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return ""
        found = next(filter(None, (visit(to, (*path, name)) for to in sorted(graph[name]))), "")
        done.add(name)
        return found

    return next(filter(None, (visit(name, ()) for name in sorted(graph))), "")


def test_there_are_no_import_cycles_lazy_ones_included():
    assert not cycle_in(needs(FILES, lambda module: module))


def test_the_folders_of_the_kit_need_each_other_one_way_only():
    folders = needs(FILES, lambda module: ".".join(module.split(".")[:3]))
    kit = {name for name in folders if name.startswith("holdfast.verify.")}
    assert not cycle_in({name: folders[name] & kit for name in kit})


def test_a_cycle_is_seen_through_others_and_a_tree_is_none():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == "b -> c -> b"
    assert not cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_one_module_reads_proc():
    readers = {
        module_name(file)
        for file in FILES
        for node in nodes(file)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("/proc")
    }
    assert readers == {"holdfast.linux"}


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def test_files_and_functions_stay_short():
    lines = {module_name(file): len(text_of(file).splitlines()) for file in FILES}
    assert not {name: count for name, count in lines.items() if count > LINES_MAX}
    found = {
        f"{module_name(file)}.{function.name}": lines_of(function)
        for file in FILES
        for function in functions(file)
        if lines_of(function) > FUNCTION_LINES_MAX
    }
    assert not found


def test_the_usual_function_is_short():
    lengths = sorted(lines_of(function) for file in FILES for function in functions(file))
    assert lengths[len(lengths) // 2] <= 12


def test_banned_words_are_not_used():
    assert not holding(BANNED, FILES)


def test_prose_is_plain_english():
    files = [file for file in FILES if str(file.relative_to(SOURCE)) not in ODD_ENGLISH_MAY]
    assert not holding(ODD_ENGLISH, files)


def test_prose_names_who_acts():
    """ "Another client", "by default": not "somebody", not "unless told"."""
    files = [f for f in FILES if "verify" not in f.parts and f.name != "group_commit.py"]
    assert not holding(re.compile(r"(?i)\bsomebody\b|\bunless told\b"), files)


def defined(file: Path) -> Iterator[str]:
    """Names that a file defines; those of other libraries, such as `ast.walk`, are not ours."""
    yield file.stem
    for node in nodes(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


def retired(name: str) -> bool:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return name in RETIRED_NAMES or not RETIRED.isdisjoint(word.lower() for word in words)


@pytest.mark.parametrize("place", PLAIN)
def test_no_name_has_a_retired_word(place: str):
    here = [file for file in FILES if file.relative_to(SOURCE).parts[0] == place]
    assert here, f"{place} is not there"
    found = {
        f"{module_name(file)}: {name}" for file in here for name in defined(file) if retired(name)
    }
    assert not found, sorted(found)


@pytest.mark.parametrize(
    "name", ["door", "ThreadLanes", "_follow_steps", "FOLLOWED", "Put", "an_edge"]
)
def test_a_retired_word_is_seen_in_any_spelling(name: str):
    assert retired(name)
    assert not retired("indexing")


def test_importing_the_package_imports_no_driver_and_no_kit():
    code = "import holdfast, sys; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"apsw", "asyncio", "click", "rich", "redis", "psycopg", "pytest", "holdfast.verify"}
    assert not heavy & set(loaded.stdout.split())


def test_no_machine_path_or_pickle_in_the_source():
    for file in FILES:
        source = text_of(file)
        assert "/root/" not in source, file
        assert "/home/" not in source, file
        if file.name != "errors.py":
            assert "pickle" not in source, f"{file}: records are JSON, never pickle"


RETIRED_IN_VERIFY = {
    "Crew", "crew", "hire", "Bench", "bench", "Order", "keeper", "Keeper", "forge", "Forge", "zygote",
    "moments", "course", "courses", "Follower", "stranger", "told", "ours",
}  # fmt: skip
"""See the names that replaced them: ClientPool, ScenarioContext, CheckOptions, reaper, ForkServer."""


def names_in(file: Path) -> set[str]:
    with file.open("rb") as source:
        names = {token.string for token in tokenize.tokenize(source.readline) if token.type == NAME}
    return {file.stem, *(name.lstrip("_") for name in names)}


def test_retired_names_of_the_kit_stay_retired():
    files = (SOURCE / "verify").rglob("*.py")
    found = {module_name(file): RETIRED_IN_VERIFY & names_in(file) for file in files}
    assert not {name: hits for name, hits in found.items() if hits}
