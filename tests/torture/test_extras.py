"""Each extra in an environment of its own: its feature works with it and says so without it.

`make dist-check`; it takes a few minutes, and the network or uv's cache.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.dist import NO_COMPILER, PROJECT, ROOT, Clean, build, unpack, uv

ENGINE = """
import holdfast
from holdfast.verify.engines import start_engine
with start_engine("{kind}"{more}) as engine, holdfast.connect(engine.url) as store:
    assert store.append("s", holdfast.Message("user", "kept")).durability.name == "DISK"
    assert store.history("s")[0].content == "kept"
"""
REMEMBERS = """
import holdfast
with holdfast.connect("{url}") as store:
    store.append("s", [holdfast.Message("user", "My name is Xiao Li"),
                       holdfast.Message("user", "The weather is fine")])
    assert "Xiao" in store.recall("s", "what is the user called?", k=1)[0].text
"""
SERVES = """
import re, signal, subprocess, sys, urllib.request
from pathlib import Path
command = [Path(sys.executable).with_name("holdfast"), "chat", "--port", "0"]
page = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
try:
    address = next(found[0] for line in page.stdout if (found := re.search(r"http://\\S+:\\d+", line)))
    assert b"<html" in urllib.request.urlopen(address, timeout=30).read()
finally:
    page.send_signal(signal.SIGINT)
    page.wait(30)
"""
DRIVES = """
from holdfast.verify.browser import find_browser, start_playwright
playwright = start_playwright()
browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
page = browser.new_page()
page.set_content("<h1>here</h1>")
assert page.inner_text("h1") == "here"
browser.close()
playwright.stop()
"""
LOOKS = """
import subprocess, sys
from pathlib import Path
Path("compose.yaml").write_text("services: {m: {image: redis, command: redis-server}}")
look = [Path(sys.executable).with_name("holdfast"), "doctor", "--manifest", "compose.yaml"]
done = subprocess.run(look, capture_output=True, text=True)
assert done.returncode == 1 and "volume" in done.stdout, done
import holdfast
holdfast.connect("sqlite:///memory.db").close()
watch = [*look[:2], "sqlite:///memory.db", "--watch", "--metrics", "0", "--rounds", "1"]
assert subprocess.run(watch).returncode == 0
"""
REPORTS = """
import subprocess, sys
from pathlib import Path
check = [Path(sys.executable).with_name("holdfast"), "check", "--report", "r.html", "--time", "5",
         "--faults", "kill", "--promises", "durable"]
assert subprocess.run(check).returncode == 0
assert "durable" in Path("r.html").read_text()
Path("test_it.py").write_text("from holdfast.verify.suite import *")
done = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "test_it.py"],
                      capture_output=True, text=True)
assert "test_it.py" in done.stdout, done.stdout
"""
FINDS = """
from holdfast.verify.engines import find_engines
assert any(one.kind == "valkey" and one.version for one in find_engines("local"))
"""
ASKS = """
from holdfast.verify.engines import find_engines
assert all("holdfast[docker]" not in str(one.how_to_get) for one in find_engines("docker"))
"""
INDEXES = """
from holdfast.verify.engines import start_engine
import chromadb, urllib.parse
with start_engine("chroma") as engine:
    at = urllib.parse.urlsplit(engine.url)
    chromadb.HttpClient(at.hostname, at.port).heartbeat()
"""
PUBLISHES = f"""
import subprocess, sys
site = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", "{ROOT}/mkdocs.yml", "-d"]
assert subprocess.run([*site, __import__("os").getcwd() + "/site"]).returncode == 0
"""
FRAMES = """
import asyncio, holdfast
store = holdfast.connect("sqlite:///memory.db")
{body}
"""
LANGCHAIN = """
from holdfast.integrations.langchain import HoldfastChatMessageHistory
from langchain_core.messages import HumanMessage
history = HoldfastChatMessageHistory("user-42", store)
history.add_messages([HumanMessage("hello")])
assert history.messages[0].content == "hello"
"""
LANGGRAPH = """
from holdfast.integrations.langgraph import HoldfastSaver
assert list(HoldfastSaver(store).list({"configurable": {"thread_id": "t"}})) == []
"""
LLAMA_INDEX = """
from holdfast.integrations.llama_index import HoldfastChatStore
from llama_index.core.llms import ChatMessage
chats = HoldfastChatStore(store)
chats.add_messages("user-44", [ChatMessage("hello")])
assert chats.get_messages("user-44")[0].content == "hello"
"""
OPENAI_AGENTS = """
from holdfast.integrations.openai_agents import HoldfastSession
session = HoldfastSession("user-43", store)
asyncio.run(session.add_items([{"role": "user", "content": "hello"}]))
assert len(store.history("user-43")) == 1
"""
AGENT_FRAMEWORK = """
from agent_framework import Message
from holdfast.integrations.agent_framework import HoldfastHistoryProvider
history = HoldfastHistoryProvider(store)
asyncio.run(history.save_messages("user-45", [Message("user", ["hello"])]))
assert store.history("user-45")[0].content == "hello"
"""
PYDANTIC_AI = """
from holdfast.integrations.pydantic_ai import HoldfastMessageHistory
from pydantic_ai.messages import ModelRequest, UserPromptPart
history = HoldfastMessageHistory("user-46", store)
history.add([ModelRequest([UserPromptPart("hello")])])
assert history.load()[0].parts[0].content == "hello"
"""
ADK = """
from holdfast.integrations.adk import HoldfastSessionService
sessions = HoldfastSessionService(store)
made = asyncio.run(sessions.create_session(app_name="a", user_id="u", state={"x": 1}))
assert made.state == {"x": 1}
"""
USES = {
    "adk": FRAMES.format(body=ADK),
    "agent-framework": FRAMES.format(body=AGENT_FRAMEWORK),
    "pydantic-ai": FRAMES.format(body=PYDANTIC_AI),
    "langchain": FRAMES.format(body=LANGCHAIN),
    "langgraph": FRAMES.format(body=LANGGRAPH),
    "llama-index": FRAMES.format(body=LLAMA_INDEX),
    "openai-agents": FRAMES.format(body=OPENAI_AGENTS),
    "redis": ENGINE.format(kind="redis", more=", config='aof-always'"),
    "postgres": ENGINE.format(kind="postgres", more=""),
    "recall": REMEMBERS.format(url="sqlite:///memory.db"),
    "chroma": INDEXES,
    "chroma,recall": REMEMBERS.format(url="chroma:///"),
    "chat": SERVES,
    "browser": DRIVES,
    "doctor": LOOKS,
    "verify": REPORTS,
    "engines": FINDS,
    "docker": ASKS,
    "docs": PUBLISHES,
    "dev": "import mypy, ruff, xdist, agents, langchain_community",
}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, "sdist", folder / "sdist")
    build(ROOT, "wheel", folder / "wheel")
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (made,) = (dist / "wheel").iterdir()
    return made


def test_every_extra_has_a_use_here():
    assert set(PROJECT["optional-dependencies"]) <= set(USES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("extra", USES)
def test_with_the_extra_its_feature_works(extra: str, wheel: Path, disk_path: Path):
    clean = Clean(disk_path / "clean")
    clean.install("--constraint", str(ROOT / "requirements.lock"), f"{wheel}[{extra}]")
    done = clean("python", "-c", USES[extra].replace("chroma:///", f"chroma:///{clean.work}"))
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(clean.folder)


@pytest.mark.timeout(600)
def test_the_lowest_versions_that_are_named_work(wheel: Path, tmp_path: Path):
    clean = Clean(tmp_path / "clean")
    clean.install("--resolution", "lowest-direct", f"{wheel}[redis,postgres,verify,doctor]")
    for use in ("redis", "postgres", "doctor", "verify"):
        done = clean("python", "-c", USES[use])
        assert done.returncode == 0, (use, done.stdout + done.stderr)


def test_pip_itself_installs_it(wheel: Path, tmp_path: Path):
    clean = Clean(tmp_path / "clean")
    clean.install("pip")
    done = clean("python", "-m", "pip", "install", "--quiet", str(wheel))
    assert done.returncode == 0, done.stderr
    assert clean("holdfast", "--version").stdout.startswith("holdfast, version ")


def test_the_source_archive_makes_the_same_wheel(dist: Path, wheel: Path, tmp_path: Path):
    (sdist,) = (dist / "sdist").iterdir()
    again, _ = build(unpack(sdist, tmp_path / "source"), "wheel", tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }


def test_a_package_index_would_take_both(dist: Path):
    files = [str(file) for folder in ("sdist", "wheel") for file in (dist / folder).iterdir()]
    uv("tool", "run", "--from", "twine", "twine", "check", "--strict", *files)


def test_a_machine_without_a_compiler_installs_it_and_says_what_is_missing(
    dist: Path, tmp_path: Path
):
    (sdist,) = (dist / "sdist").iterdir()
    bare, _ = build(unpack(sdist, tmp_path / "source"), "wheel", tmp_path / "wheel", **NO_COMPILER)
    clean = Clean(tmp_path / "clean")
    clean.install(str(bare))
    cut = f"""
    import os
    os.environ.update({NO_COMPILER!r}, XDG_CACHE_HOME={str(tmp_path)!r})
    from holdfast.verify import shims
    shims.library("power")
    """
    done = clean("python", "-c", "\n".join(line.strip() for line in cut.splitlines()))
    assert "apt-get install gcc libc6-dev" in done.stderr
    assert sys.executable not in done.stderr
