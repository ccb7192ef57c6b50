"""A password in a URL is in no word that the project says: of any command, error or value."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

import holdfast
from holdfast.chat.answers import Companion
from holdfast.chat.app import Setting, build
from holdfast.chat.link import ChatOptions, Link
from holdfast.chat.people import Access
from holdfast.chat.remote_model import Model
from holdfast.cli import main
from holdfast.commands import Settings
from holdfast.doctor.watching import WatchOptions
from holdfast.secrets import SecretUrl
from holdfast.verify.capsule.work import Origin
from holdfast.verify.check_options import CheckOptions
from holdfast.verify.engines import find_engines
from holdfast.verify.spec import EngineView, TargetSpec

SECRET = "S3CRETMARK"
URLS = [
    f"redis://u:{SECRET}@127.0.0.1:1/0",
    f"redis://u:1/{SECRET}@127.0.0.1:1/0",
    f"redis://u:a?{SECRET}@127.0.0.1:1/0",
    f"redis://u:a#{SECRET}@127.0.0.1:1/0",
    f"redis://127.0.0.1:1/0?password={SECRET}",
    f"redis:u:{SECRET}@127.0.0.1/0",
    f"redis:/u:{SECRET}@h/0",
    f"redis+sentinel://u:{SECRET}@127.0.0.1:1/m/0",
    f"postgresql://u:{SECRET}@127.0.0.1:1/x",
    f"postgresql://u:{SECRET}%ZZ@127.0.0.1:1/x",
    f"postgresql://u:a#{SECRET}@127.0.0.1:1/x",
    f"postgresql://u:a/{SECRET}@127.0.0.1:1/x",
    f"postgresql://127.0.0.1:1/x?password={SECRET}",
    f"postgresql:u:{SECRET}@127.0.0.1/x",
    f"nosuch://u:{SECRET}@h/x",
    f"sqlite://u:{SECRET}@h/x",
    f"u:{SECRET}@h",
    f"host=127.0.0.1 port=1 user=u password={SECRET} dbname=d",
    f"host=127.0.0.1 password = 'a {SECRET}'",
    f"127.0.0.1:1/x?sslmode=prefer&password={SECRET}",
    f"redis:127.0.0.1:1?password={SECRET}",
    f"redis://u:{SECRET}@[::1/0",
    f"redis://u:{SECRET}\u2100@127.0.0.1:1/0",
    f"postgresql://u:[{SECRET}@127.0.0.1:1/x",
    f"postgresql://u:{SECRET}\u2100@127.0.0.1:1/x",
]
COMMANDS = [
    ("sessions", "--store", "URL"),
    ("export", "--store", "URL"),
    ("load", "--store", "URL", "file"),
    ("append", "s", "hello", "--store", "URL"),
    ("remember", "s", "hello", "--store", "URL"),
    ("recall", "s", "hello", "--store", "URL"),
    ("doctor", "URL"),
    ("doctor", "--json", "URL"),
    ("migrate", "URL", "sqlite:///new.db", "--from", "langchain-redis"),
    ("migrate", "URL", "sqlite:///new.db", "--from", "openai-agents-sqlalchemy"),
    ("migrate", "sqlite:///memory.db", "URL", "--from", "openai-agents-sqlite"),
    ("check", "URL", "--faults", "none", "--time", "1"),
    ("capsule", "create", "capsule", "--from", "URL"),
    ("sessions", "--store", "sqlite:///memory.db", "--index", "URL"),
    ("recall", "s", "hello", "--store", "sqlite:///memory.db", "--index", "URL"),
    ("judge", "URL"),
    ("load", "URL"),
    ("reproduce", "URL", "--out", "test_x.py"),
    ("doctor", "--manifest", "URL"),
    ("doctor", "--manifest=URL"),
    ("capsule", "verify", "URL"),
    ("capsule", "create", "capsule", "URL"),
    ("check", "--seed", "URL"),
    ("chat", "--host", "URL"),
    ("chat", "--require", "URL"),
    ("chat", "--index", "URL"),
    ("chat", "--chaos", "URL"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_repeats_a_password(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with holdfast.connect("sqlite:///memory.db"):
        pass
    for url in URLS:
        done = CliRunner().invoke(main, [word.replace("URL", url) for word in words])
        trace = "".join(traceback.format_exception(done.exception)) if done.exception else ""
        assert done.exit_code, f"{url} is no place that answers"
        assert SECRET not in done.output + (trace if done.exit_code != 2 else ""), url


@pytest.mark.parametrize("url", URLS)
def test_no_error_holds_a_password(url: str) -> None:
    with pytest.raises(holdfast.HoldfastError) as caught:
        holdfast.connect(url)
    error = caught.value
    assert SECRET not in f"{error!r} {vars(error)} {error.__cause__!r}"


@pytest.mark.parametrize("kind", ["redis", "postgres"])
@pytest.mark.parametrize("url", URLS)
def test_no_list_of_engines_holds_a_password(
    kind: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HOLDFAST_{kind.upper()}_URL", url)
    assert SECRET not in repr(find_engines("url"))


@pytest.mark.parametrize("url", URLS)
def test_no_value_shows_a_password(url: str) -> None:
    view = EngineView("redis", "url", "as-it-is", url, "7", None)
    level, secret = holdfast.Durability.DISK, SecretUrl(url)
    values: list[Any] = [
        Settings(secret, b"n", level, (secret,)),
        CheckOptions(target=url),
        CheckOptions(target=url).command,
        TargetSpec(url, engine=view),
        view,
        Origin(url=secret),
        WatchOptions(secret),
        ChatOptions(secret, "n", level, None, secret),
        SecretUrl(url),
    ]
    for value in values:
        assert SECRET not in f"{value!r} {value}"


CHAT_PAGES = [
    ("GET", "/"),
    ("GET", "/readyz"),
    ("GET", "/healthz"),
    ("GET", "/api/status"),
    ("GET", "/api/conversations"),
    ("GET", "/api/memories"),
    ("GET", "/api/export"),
    ("POST", "/api/conversations/conversation-1/messages"),
    ("POST", "/api/load/key-0000-0000-0000"),
    ("DELETE", "/api/conversations/conversation-1"),
]


async def pages_of_the_chat(options: ChatOptions, answerer: Any) -> str:
    """All that a service says, by whatever way it is asked."""
    app = build(Link(options), answerer, Setting(Access(None), None, per_s=10_000))
    said = ""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as http,
    ):
        for method, path in CHAT_PAGES:
            body = {"text": "hello", "key": "key-0000-0000-0000"} if method == "POST" else None
            headers = {"Cookie": f"holdfast_person={'x' * 43}"}
            answer = await http.request(method, path, json=body, headers=headers)
            said += f"{answer.headers} {answer.text}"
    return said


def test_no_page_or_log_of_the_chat_holds_a_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    level = holdfast.Durability.DISK
    files = [SecretUrl(f"sqlite:///{tmp_path}/{name}.db") for name in "ab"]
    index = SecretUrl(f"chroma+http://u:{SECRET}@127.0.0.1:1")
    stores = [ChatOptions(SecretUrl(url), "n", level, "wordllama") for url in URLS]
    said = ""
    for options in [*stores, ChatOptions(files[0], "n", level, "wordllama", index)]:
        said += asyncio.run(pages_of_the_chat(options, Companion()))
    model = Model(f"http://u:{SECRET}@127.0.0.1:1/v1", "m", api_key=SECRET)
    said += asyncio.run(pages_of_the_chat(ChatOptions(files[1], "n", level, "wordllama"), model))
    assert "the model does not answer" in said
    assert "Chroma at " in said + caplog.text
    assert SECRET not in said + caplog.text


@pytest.mark.parametrize("url", URLS)
def test_the_chat_says_no_password_when_it_starts(url: str) -> None:
    with socket.socket() as taken:  # so that it ends after it has looked for its store
        taken.bind(("127.0.0.1", 0))
        words = ["--store", url, "--port", str(taken.getsockname()[1])]
        done = CliRunner().invoke(main, ["chat", *words, "--model-url", url, "--model", "m"])
    assert done.exit_code
    assert SECRET not in done.output


def test_only_who_connects_asks_for_a_password() -> None:
    source = Path(holdfast.__file__).parent
    uses = {
        str(file.relative_to(source)): file.read_text("utf-8").count(".reveal()")
        for file in source.rglob("*.py")
    }
    assert {name for name, count in uses.items() if count} == {
        "backends/postgres/__init__.py",
        "backends/redis/address.py",
        "backends/sqlite/address.py",
        "chat/link.py",
        "chat/serve.py",
        "cli_store.py",
        "doctor/doctor_command.py",
        "doctor/watching.py",
        "recall/endpoint.py",
        "verify/capsule/work.py",
    }
