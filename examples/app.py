"""A chat endpoint whose history survives, and whose client may retry as often as it likes.

    pip install 'holdfast[chat]'
    python examples/app.py 8080
    curl -H 'Idempotency-Key: 1' --json '{"text": "hello"}' http://127.0.0.1:8080/chat/user-42
    curl http://127.0.0.1:8080/chat/user-42

A question is on disk before the model is asked, the answer before it is sent. When the app is
killed in between, the client sees a broken connection, sends the same key again and gets the
one answer. The model is any server that speaks the OpenAI protocol, as in agent.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import uvicorn
from fastapi import FastAPI, Header
from pydantic import BaseModel

import holdfast
from holdfast import AsyncStore, Message

MODEL_URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8099/v1")
MODEL_TIMEOUT_S = 120.0
REMEMBERED = 100


class Said(BaseModel):
    """What a person says."""

    text: str


class State:
    """What lives as long as the app."""

    store: AsyncStore
    model: httpx.AsyncClient


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Open the store and the way to the model; close both."""
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
    async with (
        await holdfast.connect_async("sqlite:///app.db") as State.store,
        httpx.AsyncClient(headers=headers, timeout=MODEL_TIMEOUT_S) as State.model,
    ):
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/chat/{session}")
async def history(session: str) -> list[dict[str, Any]]:
    """Everything that was said, oldest first."""
    return [message.to_openai() for message in await State.store.history(session)]


@app.post("/chat/{session}")
async def chat(
    session: str, said: Said, idempotency_key: Annotated[str, Header()]
) -> dict[str, Any]:
    """Answer; with the same key the same answer, whatever happened in between."""
    store = State.store
    mark = {"request": idempotency_key}
    asked = await store.append(
        session, Message("user", said.text, extra=mark), key=f"question {idempotency_key}"
    )
    if asked.repeated:  # a retry: perhaps all was done and only the reply was lost
        for message in await store.history(session, after=asked.last):
            if message.role == "assistant" and message.extra.get("request") == idempotency_key:
                return message.to_openai()
    answer = Message("assistant", await _ask_model(session), extra=mark)
    kept = await store.append(session, answer, key=f"answer {idempotency_key}")
    # Two retries at once ask the model twice; the first answer is the one that stays.
    stayed = await store.history(session, after=kept.last - 1, limit=1)
    return stayed[0].to_openai()


async def _ask_model(session: str) -> str:
    said = await State.store.history(session, limit=REMEMBERED)
    messages = [{"role": message.role, "content": message.content} for message in said]
    body = {"model": os.environ.get("OPENAI_MODEL", "any"), "messages": messages}
    reply = await State.model.post(f"{MODEL_URL}/chat/completions", json=body)
    reply.raise_for_status()
    return str(reply.json()["choices"][0]["message"]["content"])


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
