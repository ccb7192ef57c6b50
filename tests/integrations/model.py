"""A stand-in for a paid model: one whole answer a request, by the OpenAI protocol over a socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def answering(answers: Sequence[Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its URL, and the requests that came; an answer is a text, or a call of a tool."""
    requests: list[dict[str, Any]] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps(_completion(answers[len(requests) - 1])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()


def _completion(answer: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if isinstance(answer, dict):
        call = {"name": answer["tool"], "arguments": json.dumps(answer["arguments"])}
        calls = [{"id": "call-1", "type": "function", "function": call}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
