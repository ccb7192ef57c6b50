"""A password in a URL is in no word that the project says: of any command, error or value."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.chat.link import ChatOptions
from holdfast.cli import main
from holdfast.commands import Settings
from holdfast.connection import without_password
from holdfast.verify.capsule.work import Origin
from holdfast.verify.check import CheckOptions
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
    ("migrate", "URL", "--to", "sqlite:///new.db", "--kind", "langchain-redis"),
    ("migrate", "URL", "--to", "sqlite:///new.db", "--kind", "openai-agents-sql"),
    ("migrate", "file", "--to", "URL"),
    ("check", "URL", "--faults", "none", "--time", "1"),
    ("capsule", "create", "capsule", "--from", "URL"),
    ("sessions", "--store", "sqlite:///memory.db", "--index", "URL"),
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
        done = CliRunner().invoke(main, [url if word == "URL" else word for word in words])
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
    level = holdfast.Durability.DISK
    values: list[Any] = [
        Settings(url, b"n", level, (url,)),
        CheckOptions(target=url),
        CheckOptions(target=url).command,
        TargetSpec(url, engine=view),
        view,
        Origin(url=url),
        ChatOptions(url, "n", level, None, url),
        without_password(url),
    ]
    for value in values:
        assert SECRET not in f"{value!r} {value}"
