"""What the service takes and gives, for its OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from holdfast.chat import bounds

KEY = r"^[A-Za-z0-9_-]{16,64}$"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewMessage(_Strict):
    """A message of a person. The same `key` again repeats nothing."""

    text: Annotated[str, Field(min_length=1, max_length=bounds.MESSAGE_CHARS_MAX)]
    key: Annotated[str, Field(pattern=KEY, description="made by the page, new for every message")]
    utc_offset_minutes: Annotated[int, Field(ge=-24 * 60, le=24 * 60)] = 0


class Query(_Strict):
    """What to look for in the memories, by meaning."""

    query: Annotated[str, Field(min_length=1, max_length=bounds.QUERY_CHARS_MAX)]


class SignIn(_Strict):
    """The token of a service that others than its own machine can reach."""

    token: Annotated[str, Field(min_length=1, max_length=1000)]


class Problem(BaseModel):
    """Every error. `outcome` says whether the write happened: "not done", or "unknown"."""

    error: str
    outcome: str
    message: str


class ShownMessage(BaseModel):
    """One message of a conversation; its number is its place."""

    seq: int
    id: str
    role: str
    content: str | list[Any] | None
    at: str | None
    key: str | None
    answers: str | None
    tool_calls: list[Any] | None


class Conversation(BaseModel):
    """A page of a conversation, oldest first."""

    messages: list[ShownMessage]
    damaged: list[dict[str, Any]]
    last: int
    state: str
    durability: str
    interrupted: ShownMessage | None


class Listed(BaseModel):
    """A conversation in the list."""

    id: str
    title: str
    last: int
    at: str


class Memory(BaseModel):
    """Something that is remembered, and the message that it comes from."""

    id: str
    text: str
    at: str | None
    conversation: str
    seq: int
    score: float | None = None


class Memories(BaseModel):
    """Memories, newest first; of a search best first, with how many were not looked at.

    `count` is how many are listed: no more than the newest few hundred.
    """

    memories: list[Memory]
    count: int | None = None
    behind: int | None = None


class Erased(BaseModel):
    """What was erased. `scrubbed`: no copy is left, in the engine's own files either.

    `quoted_in`: conversations that stay and may still hold it, as what was said or in an answer.
    """

    conversations: int
    messages: int
    memories: int
    bytes: int
    scrubbed: bool
    quoted_in: list[str] = []


class LoadedInto(BaseModel):
    """What a load added."""

    conversations: int
    messages: int
    memories: int


class Status(BaseModel):
    """The setup as it is: engine, durability, how far the index is behind, what is risky."""

    engine: str
    durability: str
    required: str
    index_lag: int | None
    risks: list[str]
    answers_by: str
    chaos: bool
    version: str


class Health(BaseModel):
    """The process answers; nothing more is said."""

    status: str
    version: str


class Readiness(BaseModel):
    """Whether a write was acknowledged as required within the last second."""

    ready: bool
    why: str
    level: str
