"""The app of incident N1: a chat over Chroma that answers 200 and forgets. Run as a service.

200 is sent, and the add comes when the buffer is flushed; the data directory is a new one at
every start. docs/incidents/n1-said-persisted.md has each cause by itself.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence

import chromadb
import uvicorn
from chromadb.config import Settings
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

FLUSH_EVERY_S = float(os.environ.get("FLUSH_EVERY_S", "60"))
PLACE = tempfile.mkdtemp()
PAGE = """<!doctype html><title>chat</title><ul id="said"></ul><input id="line"><button>Send</button>
<script>
const show = (text) => said.append(Object.assign(document.createElement("li"), { textContent: text }));
fetch("/said").then((r) => r.json()).then((all) => all.forEach(show));
document.querySelector("button").onclick = async () => {
  const text = line.value;
  if ((await fetch("/say", { method: "POST", body: text })).ok) show(text);
};
</script>"""

summaries = chromadb.PersistentClient(PLACE, Settings(anonymized_telemetry=False))
collection = summaries.get_or_create_collection("chat", embedding_function=None)
waiting: list[str] = []
app = FastAPI()


def add(texts: list[str]) -> None:
    if texts:
        ids = [f"{time.time_ns()}-{uuid.uuid4()}" for _ in texts]
        vectors: list[Sequence[float] | Sequence[int]] = [[1.0, 0.0] for _ in texts]
        collection.add(ids=ids, documents=texts, embeddings=vectors)


def flush_now_and_then() -> None:
    while True:
        time.sleep(FLUSH_EVERY_S)
        texts, waiting[:] = list(waiting), []
        add(texts)


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    return PAGE


@app.get("/said")
def said() -> list[str]:
    return [*(collection.get()["documents"] or []), *waiting]


@app.post("/say")
async def say(request: Request) -> dict[str, bool]:
    waiting.append((await request.body()).decode())
    return {"ok": True}


if __name__ == "__main__":
    threading.Thread(target=flush_now_and_then, daemon=True).start()
    uvicorn.run(app, port=int(os.environ["PORT"]), log_level="warning")
