"""A stand-in for a paid model: the OpenAI protocol over a real socket, by a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[dict[str, Any]], Iterable[dict[str, Any] | None] | int]
"""A request -> the deltas of its answer, or a status that refuses it. None cuts the connection."""


def said(text: str) -> list[dict[str, Any]]:
    return [{"content": word + " "} for word in text.split(" ")]


def called(name: str, **arguments: Any) -> list[dict[str, Any]]:
    whole = json.dumps(arguments)
    head = {"index": 0, "id": "call-1", "function": {"name": name, "arguments": whole[:5]}}
    rest = {"index": 0, "function": {"arguments": whole[5:]}}
    return [{"tool_calls": [head]}, {"tool_calls": [rest]}]


@contextmanager
def model(script: Script) -> Iterator[str]:
    """Its URL, as long as it runs."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            deltas = script(body | {"authorization": self.headers.get("Authorization")})
            self.send_response(deltas if isinstance(deltas, int) else 200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for delta in [] if isinstance(deltas, int) else deltas:
                if delta is None:
                    return
                line = json.dumps({"choices": [{"delta": delta}]}, ensure_ascii=False)
                self.wfile.write(f"data: {line}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
