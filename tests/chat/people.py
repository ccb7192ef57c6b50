"""How our service is started, how our page is named, and a person without a browser."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from holdfast.chat.people import new_token
from tests.waiting import wait_until

COMMAND = str(Path(sys.executable).with_name("holdfast"))
FAST = ("--embedder", "wordllama", "--rate", "1000")
OURS: dict[str, Any] = {
    "box": "#text",
    "message": ".message.user",
    "saved": "[data-state=disk]",
    "locale": "en-GB",
    "look_s": 30,
}


def command(store: str, *options: str) -> list[str]:
    return [COMMAND, "chat", "--port", "{port}", "--store", store, *FAST, *options]


def wait_for_answer(page: Any) -> None:
    """Return when the answers to all that was sent are written too, not only the messages.

    A message and its memories are durable when its response begins. The answer (the look into
    memory, its result, the text: one append) is written later; then the page drops the message
    from its outbox.
    """
    names = "() => Object.keys(localStorage).filter(name => name.startsWith('holdfast.outbox.'))"
    wait_until(lambda: page.page.evaluate(names) == [])


def events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


class Client:
    """Holds the cookie of one person."""

    def __init__(self, http: httpx.Client, url: str, token: str | None = None) -> None:
        self.http, self.url = http, url
        self.headers = {"Cookie": f"holdfast_person={token or new_token()}"}

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = self.headers | more.pop("headers", {})
        return self.http.request(method, self.url + path, headers=headers, **more)

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stream(self, text: str, key: str, conversation: str = "conversation-1") -> Any:
        return self.http.stream(
            "POST",
            f"{self.url}/api/conversations/{conversation}/messages",
            json={"text": text, "key": key},
            headers=self.headers,
        )

    def say(
        self, text: str, key: str, conversation: str = "conversation-1"
    ) -> list[tuple[str, dict[str, Any]]]:
        with self.stream(text, key, conversation) as answer:
            assert answer.status_code == 200, answer.read()
            return list(events(answer))

    def texts(self, conversation: str = "conversation-1") -> list[tuple[str, Any]]:
        page = self.get(f"/api/conversations/{conversation}/messages")
        return [(one["role"], one["content"]) for one in page["messages"]]
