"""Each example runs as its first lines say; agent and app are killed in the middle and go on."""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
STAND_IN = runpy.run_path(str(EXAMPLES / "model.py"))
WITHIN_S = 60.0
BOOK = "Please book a table for two at eight"


class Model:
    """The examples' stand-in, which can be told to leave one request without an answer."""

    def __init__(self) -> None:
        self.asked: list[list[dict[str, Any]]] = []
        self.silent_at = 0
        self._end = threading.Event()
        self._server = STAND_IN["serve"](self._answer)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def _answer(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        self.asked.append(messages)
        if len(self.asked) == self.silent_at:
            self._end.wait()
        reply: dict[str, Any] = STAND_IN["answer"](messages)
        return reply

    def close(self) -> None:
        self._end.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def model() -> Iterator[Model]:
    here = Model()
    yield here
    here.close()


@contextmanager
def started(folder: Path, model: Model, *words: str) -> Iterator[subprocess.Popen[str]]:
    """An example as a process of its own; gone at the end, however that comes."""
    name, *rest = words
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / name, *rest],
        cwd=folder,
        env=os.environ | {"OPENAI_BASE_URL": model.url, "NO_PROXY": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output(folder: Path, model: Model, *words: str) -> str:
    with started(folder, model, *words) as process:
        said, _ = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, said
        return said


def kill_when_asked(process: subprocess.Popen[str], model: Model, times: int) -> None:
    wait_until(lambda: len(model.asked) >= times, within_s=WITHIN_S)
    process.send_signal(signal.SIGKILL)
    assert process.wait(WITHIN_S) == -signal.SIGKILL


def test_the_plain_script_remembers_what_its_last_run_said(disk_path: Path, model: Model):
    assert output(disk_path, model, "plain.py") == "kept as 1 to 2, level DISK\n"
    assert output(disk_path, model, "plain.py").splitlines() == [
        "1. user: My name is Xiao Li",
        "2. assistant: Nice to meet you",
        "kept as 3 to 4, level DISK",
    ]


@pytest.mark.parametrize(("silent_at", "kept"), [(1, ["user"]), (2, ["user", "assistant", "tool"])])
def test_a_killed_agent_goes_on_where_it_was(
    silent_at: int, kept: list[str], disk_path: Path, model: Model
):
    model.silent_at = silent_at
    with started(disk_path, model, "agent.py", "user-42", BOOK) as agent:
        kill_when_asked(agent, model, silent_at)
    with holdfast.connect(f"sqlite:///{disk_path}/agent.db") as store:
        assert [message.role for message in store.history("user-42")] == kept
    said = output(disk_path, model, "agent.py", "user-42")
    assert said == "Done: a table for two at eight\n"
    assert len(list((disk_path / "bookings").iterdir())) == 1
    with holdfast.connect(f"sqlite:///{disk_path}/agent.db") as store:
        roles = [message.role for message in store.history("user-42")]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert len(model.asked) == 3, "one for the call, one for the answer, one that was killed"


def test_an_agent_without_a_model_keeps_the_question(disk_path: Path, model: Model):
    model.close()
    with started(disk_path, model, "agent.py", "user-42", BOOK) as agent:
        said, _ = agent.communicate(timeout=WITHIN_S)
    assert agent.returncode == 1
    assert said.startswith(f"no answer from the model at {model.url}")
    with holdfast.connect(f"sqlite:///{disk_path}/agent.db") as store:
        assert [message.content for message in store.history("user-42")] == [BOOK]


def test_an_agent_remembers_across_restarts(disk_path: Path, model: Model):
    output(disk_path, model, "agent.py", "user-42", BOOK)
    said = output(disk_path, model, "agent.py", "user-42", "What did I want?")
    assert said == f"You told me: {BOOK}\n"
    assert "not met" in output(disk_path, model, "agent.py", "user-43", "And I?")


@contextmanager
def serving(folder: Path, model: Model) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """The app, and a client of it."""
    with started(folder, model, "app.py", "0") as process:
        assert process.stdout is not None
        found = (re.search(r"running on (http://\S+)", line) for line in process.stdout)
        address = next(match[1] for match in found if match)
        with httpx.Client(base_url=address, timeout=WITHIN_S, trust_env=False) as client:
            yield process, client


def ask(client: httpx.Client, key: str, text: str) -> httpx.Response:
    return client.post("/chat/user-42", json={"text": text}, headers={"Idempotency-Key": key})


def test_a_killed_app_answers_the_retry_and_keeps_every_turn_once(disk_path: Path, model: Model):
    model.silent_at = 2
    with serving(disk_path, model) as (app, client), ThreadPoolExecutor(1) as thread:
        assert ask(client, "1", "My name is Xiao Li").json()["content"] == "We have not met before."
        asked = thread.submit(ask, client, "2", "Who am I?")
        kill_when_asked(app, model, 2)
        with pytest.raises(httpx.TransportError):
            asked.result(WITHIN_S)
    with serving(disk_path, model) as (_, client):
        assert client.get("/chat/user-42").json()[-1]["content"] == "Who am I?"
        first = ask(client, "2", "Who am I?")
        assert first.json()["content"] == "You told me: My name is Xiao Li"
        assert ask(client, "2", "Who am I?").json() == first.json()
        roles = [message["role"] for message in client.get("/chat/user-42").json()]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert len(model.asked) == 3, "a retry whose answer is kept asks no model"
