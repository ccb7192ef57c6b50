"""The service: routes only. 200 on a message means that it is as durable as required."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import fastapi
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as StarletteHTTPException

from holdfast._version import __version__
from holdfast.chat import bounds, panel, shapes
from holdfast.chat.answers import Answerer
from holdfast.chat.control import Control
from holdfast.chat.link import Link
from holdfast.chat.people import Access, Person, is_token, new_token
from holdfast.chat.request_guard import PASS, PERSON, Guard, Limits, address_of
from holdfast.chat.turns import Running, Saved, Sent, Turns
from holdfast.contract import AsyncStore
from holdfast.errors import (
    Conflict,
    EngineFull,
    HoldfastError,
    LimitExceeded,
    OutcomeUnknown,
    UsageError,
)

STATIC: Final = Path(__file__).with_name("static")
PAGE: Final = (STATIC / "index.html").read_bytes()
SIGN_IN: Final = (STATIC / "sign-in.html").read_bytes()
YEAR_S: Final = 365 * 24 * 3600
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    code: {"model": shapes.Problem} for code in (401, 413, 422, 429, 503)
}


@dataclass(frozen=True, slots=True)
class Setting:
    """How a service is run."""

    access: Access
    hosts: frozenset[str] | None
    per_s: float = bounds.RATE_PER_S
    secure: bool = False
    chaos: Control | None = None


@dataclass(slots=True)
class Service:
    """What the routes work with."""

    link: Link
    turns: Turns
    setting: Setting
    limits: Limits
    loading: set[str] = field(default_factory=set)
    """Addresses from which a file is being loaded."""


class Json(Response):
    """JSON in ASCII: lone surrogates pass too."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Any JSON value."""
        return json.dumps(content).encode("ascii")


def build(link: Link, answerer: Answerer, setting: Setting) -> FastAPI:
    """The whole app over a link to a store."""
    service = Service(link, Turns(answerer), setting, Limits(setting.per_s))

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(link.warm())
        yield
        warming.cancel()
        await service.turns.close()
        await link.close()

    app = FastAPI(
        title="Holdfast chat",
        version=__version__,
        description="A chat over a store that does not forget.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=life,
        default_response_class=Json,
    )
    app.state.service = service
    app.include_router(pages)
    app.include_router(api)
    if setting.chaos is not None:
        app.include_router(chaos)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(HoldfastError, _error_answer)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_middleware(Guard, hosts=setting.hosts, limits=service.limits)
    return app


# FastAPI calls what is not async in one of 40 threads, for which all requests wait in one line.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]


async def _address(request: Request) -> str:
    return address_of(request.scope)


Address = Annotated[str, Depends(_address)]


async def _admitted(request: Request, service: Serving, address: Address) -> None:
    access = service.setting.access
    if access.admits(request.cookies.get(PASS)):
        return
    bearer = request.headers.get("authorization", "")
    if bearer.startswith("Bearer ") and _is_right(bearer.removeprefix("Bearer "), service, address):
        return
    raise HTTPException(401, "this service asks for its token: sign in")


def _is_right(token: str, service: Service, address: str) -> bool:
    """Whether it is the token; few wrong ones are looked at."""
    service.limits.guess(address)
    if service.setting.access.pass_for(token) is None:
        return False
    service.limits.right(address)
    return True


async def _person(request: Request, _: Annotated[None, Depends(_admitted)]) -> Person:
    token = request.cookies.get(PERSON)
    if token is None or not is_token(token):
        raise HTTPException(401, "nobody is known by that cookie: open the page first")
    return Person.of(token)


KnownPerson = Annotated[Person, Depends(_person)]


async def _counted(person: KnownPerson, service: Serving) -> Person:
    service.limits.write(person.id)
    return person


Writer = Annotated[Person, Depends(_counted)]


async def _store(service: Serving) -> AsyncStore:
    return await service.link.store()


Opened = Annotated[AsyncStore, Depends(_store)]

pages = APIRouter()
chaos = APIRouter(prefix="/api/chaos", responses=PROBLEMS)
api = APIRouter(prefix="/api", responses=PROBLEMS)


@pages.get("/", include_in_schema=False)
async def page(request: Request, service: Serving) -> Response:
    """The chat page, or the page that asks for the token."""
    passed = request.cookies.get(PASS)
    if not service.setting.access.admits(passed):
        return HTMLResponse(SIGN_IN)
    answer = HTMLResponse(PAGE)
    # Set again at each visit: a year after the last one, not after the first, it is forgotten.
    token = request.cookies.get(PERSON)
    _set_cookie(answer, PERSON, token if token and is_token(token) else new_token(), service)
    if passed is not None and not service.setting.access.open:
        _set_cookie(answer, PASS, passed, service)
    return answer


def _set_cookie(answer: Response, name: str, value: str, service: Service) -> None:
    answer.set_cookie(
        name,
        value,
        max_age=YEAR_S,
        httponly=True,
        samesite="strict",
        secure=service.setting.secure,
    )


@pages.get("/healthz", response_model=shapes.Health)
async def health() -> Json:
    """The process answers. Nothing is said about the store: that is `/readyz`."""
    return Json({"status": "alive", "version": __version__})


@pages.get("/readyz", response_model=shapes.Readiness, responses={503: {"model": shapes.Readiness}})
async def ready(service: Serving) -> Json:
    """200 if a write was just acknowledged at the required level; otherwise 503 and why."""
    proof = await service.link.ready()
    return Json(asdict(proof), 200 if proof.ready else 503)


@api.post("/sign-in", status_code=204, response_class=Response)
async def sign_in(given: shapes.SignIn, service: Serving, address: Address) -> Response:
    """Trade the token for a cookie. Few wrong tries are allowed."""
    passed = service.setting.access.pass_for(given.token)
    if not _is_right(given.token, service, address) or passed is None:
        raise HTTPException(401, "that is not the token")
    answer = Response(status_code=204)
    _set_cookie(answer, PASS, passed, service)
    return answer


@api.get("/status", response_model=shapes.Status)
async def status(person: KnownPerson, store: Opened, service: Serving) -> Json:
    """What this setup keeps, and how far the index is behind for this person."""
    try:
        lag: int | None = await store.index_lag(person.memories)
    except HoldfastError:
        lag = None
    return Json(
        {
            "engine": store.backend,
            "durability": store.durability.name,
            "required": service.link.options.require.name,
            "index_lag": lag,
            "risks": service.link.risks,
            "answers_by": service.turns.answerer.name,
            "chaos": service.setting.chaos is not None,
            "version": __version__,
        }
    )


@api.get("/conversations", response_model=list[shapes.Listed])
async def conversations(person: KnownPerson, store: Opened) -> Json:
    """Of this person, newest first."""
    return Json(await panel.conversations(store, person))


@api.get("/conversations/{conversation}/messages", response_model=shapes.Conversation)
async def messages(
    conversation: str,
    person: KnownPerson,
    store: Opened,
    service: Serving,
    before: int | None = None,
) -> Json:
    """The newest messages, or those before a number; oldest first."""
    page = await panel.conversation(store, person, conversation, before)
    cut = page["interrupted"]
    if cut and service.turns.is_answering(person, conversation, cut["answers"]):
        page["interrupted"] = None
    return Json(page)


@api.post(
    "/conversations/{conversation}/messages",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def send(
    conversation: str,
    given: shapes.NewMessage,
    person: Writer,
    address: Address,
    store: Opened,
    service: Serving,
) -> StreamingResponse:
    """Save a message and stream its answer as server-sent events.

    The 200 is sent after the message is durable as required. Events: `saved`, `looked` (into
    memory), `delta` (text), `answered` (the whole answer, durable), or `failed`, `gone`.
    """
    sent = Sent(conversation, given.text, given.key, given.utc_offset_minutes, address)
    saved = await service.turns.save(store, person, sent)
    running = None if saved.gone else service.turns.answered(store, person, sent, saved)
    return StreamingResponse(_events(saved, running), media_type="text/event-stream")


async def _events(saved: Saved, running: Running | None) -> AsyncIterator[bytes]:
    ack = saved.ack
    yield _event(
        "saved",
        {
            "seq": ack.first,
            "durability": ack.durability.name,
            "repeated": ack.repeated,
            "remembered": saved.remembered,
        },
    )
    if running is None:
        yield _event("gone", {})
        return
    async for kind, facts in running.events():
        yield _event(kind, facts)


def _event(kind: str, facts: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(facts)}\n\n".encode("ascii")


@api.delete("/conversations/{conversation}", response_model=shapes.Erased)
async def forget_conversation(
    conversation: str, person: Writer, store: Opened, service: Serving
) -> Json:
    """Erase a conversation, and what is remembered from it, for good."""
    async with service.turns.alone(person):
        return Json(asdict(await panel.forget_conversation(store, person, conversation)))


@api.get("/memories", response_model=shapes.Memories)
async def memories(person: KnownPerson, store: Opened) -> Json:
    """What is remembered of this person, newest first."""
    return Json(await panel.memories(store, person))


@api.post("/memories/search", response_model=shapes.Memories)
async def search(given: shapes.Query, person: Writer, store: Opened) -> Json:
    """Memories by meaning. A POST: what a person looks for belongs into no log of addresses."""
    return Json(await panel.search(store, person, given.query))


@api.delete("/memories/{memory}", response_model=shapes.Erased)
async def delete_memory(memory: int, person: Writer, store: Opened, service: Serving) -> Json:
    """Erase one memory for good. The conversation that it comes from stays."""
    async with service.turns.alone(person):
        gone = await panel.forget_memory(store, person, memory)
    if not gone.memories:
        raise HTTPException(404, "there is no such memory")
    return Json(asdict(gone))


@api.post("/forget-all", response_model=shapes.Erased)
async def forget_all(person: Writer, store: Opened, service: Serving) -> Json:
    """Erase everything of this person for good; how much that was."""
    async with service.turns.alone(person):
        return Json(asdict(await panel.forget_all(store, person)))


@api.get("/export", response_class=StreamingResponse)
async def export(person: KnownPerson, store: Opened) -> StreamingResponse:
    """Everything of this person as JSON Lines, as `holdfast export` writes it."""
    name = 'attachment; filename="holdfast-memory.jsonl"'
    return StreamingResponse(
        panel.exported(store, person),
        media_type="application/jsonl",
        headers={"Content-Disposition": name},
    )


@api.post("/load/{key}", response_model=shapes.LoadedInto)
async def load(
    key: Annotated[str, fastapi.Path(pattern=shapes.KEY)],
    request: Request,
    person: Writer,
    address: Address,
    store: Opened,
    service: Serving,
) -> Json:
    """Add what an export holds; the same key again adds nothing. One at a time for an address."""
    if address in service.loading:
        raise HTTPException(429, "a file is being loaded already; nothing was loaded of this one")
    service.loading.add(address)
    try:
        with tempfile.TemporaryFile(prefix="holdfast-load-") as file:
            async for piece in request.stream():
                file.write(piece)
            async with asyncio.timeout(bounds.LOAD_TIMEOUT_S), service.turns.alone(person):
                return Json(await panel.load(store, person, file, key))
    except TimeoutError as error:
        words = "the load took too long and was ended; what is loaded stays. Send the same file"
        raise OutcomeUnknown(f"{words} with the same key: nothing is added twice") from error
    finally:
        service.loading.discard(address)


@chaos.get("")
async def faults(_: KnownPerson, service: Serving) -> Json:
    """What can be broken here, and the proof of what was."""
    return Json(await _control(service).faults_json())


@chaos.post("/{fault}/{key}", status_code=202)
async def cause(
    fault: str,
    key: Annotated[str, fastapi.Path(pattern=shapes.KEY)],
    _: Writer,
    service: Serving,
) -> Json:
    """Break it now; the proof is listed under the key once it has landed."""
    return Json(await _control(service).cause(fault, key), 202)


def _control(service: Service) -> Control:
    if service.setting.chaos is None:
        raise HTTPException(404, "this service was started without --chaos")
    return service.setting.chaos


async def _error_answer(_: Request, error: Exception) -> Json:
    """An error of the tree, with whether the write happened."""
    outcome = "unknown" if isinstance(error, OutcomeUnknown) else "not done"
    headers = {"Retry-After": "1"} if _status(error) == 503 else None  # noqa: PLR2004
    content = {"error": type(error).__name__, "outcome": outcome, "message": str(error)}
    return Json(content, _status(error), headers)


def _status(error: Exception) -> int:
    if isinstance(error, LimitExceeded):
        return 413
    if isinstance(error, UsageError):
        return 422
    if isinstance(error, Conflict):
        return 409
    return 507 if isinstance(error, EngineFull) else 503


async def _invalid(_: Request, error: Exception) -> Json:
    """What is wrong with a request, without repeating what it held."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    words = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found)
    return Json({"error": "InvalidRequest", "outcome": "not done", "message": words}, 422)


async def _refused(_: Request, error: Exception) -> Json:
    status = getattr(error, "status_code", 500)
    content = {"error": "Refused", "outcome": "not done", "message": getattr(error, "detail", "")}
    return Json(content, status, getattr(error, "headers", None))
