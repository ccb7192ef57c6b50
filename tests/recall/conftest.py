"""What tests of long-term memory share: a server that speaks the OpenAI protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.recall.models import Letters


class OpenAIServer:
    """Stands in for a paid model: the real protocol, over a real socket."""

    def __init__(self, port: int = 0) -> None:
        self.model = Letters()
        self.asked: list[tuple[str, dict[str, Any], str | None]] = []
        self.status = 200
        self.body: bytes | None = None
        owner = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.asked.append((self.path, body, self.headers["Authorization"]))
                data = owner.body if owner.body is not None else owner.answer(self.path, body)
                self.send_response(owner.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Answers)
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, path: str, body: dict[str, Any]) -> bytes:
        if path == "/v1/embeddings":
            rows = enumerate(self.model.embed(body["input"]))
            data = [{"object": "embedding", "index": at, "embedding": row} for at, row in rows]
            return json.dumps({"object": "list", "data": data[::-1], "model": "m"}).encode()
        text = f"A summary of {len(body['messages'][1]['content'].splitlines())} lines."
        return json.dumps(
            {"choices": [{"message": {"role": "assistant", "content": text}}]}
        ).encode()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def openai_server() -> Iterator[OpenAIServer]:
    server = OpenAIServer()
    yield server
    server.close()
