"""A stand-in for a model, so that the examples run without a key and without the network.

    python examples/model.py            # then, in another shell:
    export OPENAI_BASE_URL=http://127.0.0.1:8099/v1

It speaks the OpenAI protocol over a real socket, knows one tool and a few phrases. Any server
that speaks the protocol (a real model, Ollama, llama.cpp) takes its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[list[dict[str, Any]]], dict[str, Any]]
"""The messages of a request -> the message that answers them."""

PORT = 8099


def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Book a table when asked to, and otherwise say what is known from before."""
    last = messages[-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"Done: {last['content']}"}
    if asked := re.search(r"\bbook\b.* for (\w+) at (\w+)", last["content"]):
        call = {"name": "book", "arguments": json.dumps({"people": asked[1], "at": asked[2]})}
        calls = [{"id": f"call-{len(messages)}", "type": "function", "function": call}]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    said = [m["content"] for m in messages[:-1] if m["role"] == "user"]
    known = f"You told me: {'; '.join(said)}" if said else "We have not met before."
    return {"role": "assistant", "content": known}


def serve(answer: Answer, port: int = 0) -> ThreadingHTTPServer:
    """A server on loopback; its caller runs it."""

    class Completions(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """POST /v1/chat/completions, answered as a whole."""
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = answer(asked["messages"])
            ended = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"index": 0, "message": message, "finish_reason": ended}
            body = json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return ThreadingHTTPServer(("127.0.0.1", port), Completions)


if __name__ == "__main__":
    print(f"OPENAI_BASE_URL=http://127.0.0.1:{PORT}/v1")
    serve(answer, PORT).serve_forever()
