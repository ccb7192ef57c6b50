"""Our store as the session service of Google's ADK."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from google.adk.agents import Agent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import holdfast
from holdfast import Durability, History, InvalidMessage, Message, Store
from holdfast.integrations import adk
from holdfast.integrations.adk import HoldfastSessionService
from holdfast.integrations.adk_records import Place, name_of, place_of
from holdfast.verify.records import flip_one
from tests.integrations.killed import in_a_child

ABOUT: Any = {"app_name": "shop", "user_id": "u/1%"}


def said(text: str, delta: Any = None, *, at: float | None = None) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    actions = EventActions(state_delta=delta or {})
    event = Event(author="user", invocation_id="i", content=content, actions=actions)
    if at is not None:
        event.timestamp = at
    return event


def texts(session: Session | None) -> list[Any]:
    assert session is not None
    parts = [(one.content.parts if one.content else None) or [] for one in session.events]
    return [[part.text or part.model_dump(exclude_none=True) for part in each] for each in parts]


def function(call: str, answer: str | None = None, **more: Any) -> Event:
    if answer is None:
        part = types.Part(function_call=types.FunctionCall(id=call, name="look", args={}))
        return Event(author="guide", content=types.Content(role="model", parts=[part]), **more)
    told = types.FunctionResponse(id=call, name="look", response={"it": answer})
    part = types.Part(function_response=told)
    return Event(author="guide", content=types.Content(role="user", parts=[part]), **more)


def test_an_event_and_all_scopes_of_state_come_back(awaited: Any):
    """Three scopes are kept where they belong; what is only for the moment is kept nowhere."""

    async def use(store: Any) -> None:
        service = HoldfastSessionService(store)
        start = {"a": 1, "user:b": [2], "app:c": {"d": None}, "temp:e": 5}
        session = await service.create_session(**ABOUT, session_id="s", state=start)
        assert session.state == {"a": 1, "user:b": [2], "app:c": {"d": None}}
        delta = {"a": 6, "user:f": "七", "app:g": True, "temp:h": 8}
        event = said("hello 🦑", delta)
        content = types.Content(
            role="user", parts=[types.Part.from_bytes(data=b"\x89PNG\0", mime_type="image/png")]
        )
        image = Event(author="guide", content=content, long_running_tool_ids={"x", "y"})
        for one in (event, image):
            assert await service.append_event(session, one) is one
        assert session.state["temp:h"] == 8
        again = await HoldfastSessionService(store).get_session(**ABOUT, session_id="s")
        assert again is not None
        assert again.events == [event, image] == session.events
        assert again.state == {"a": 6, "user:b": [2], "user:f": "七",
                               "app:c": {"d": None}, "app:g": True}  # fmt: skip
        assert again.last_update_time == image.timestamp
        assert await service.get_user_state(**ABOUT) == {"b": [2], "f": "七"}
        other = await service.create_session(app_name="shop", user_id="u2")
        assert other.state == {"app:c": {"d": None}, "app:g": True}
        listed = (await service.list_sessions(app_name="shop")).sessions
        assert [(one.user_id, one.state.get("a"), one.events) for one in listed] == [
            ("u/1%", 6, []),
            ("u2", None, []),
        ]
        await service.delete_session(**ABOUT, session_id="s")
        assert await service.get_session(**ABOUT, session_id="s") is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(again, said("too late"))
        await service.create_session(**ABOUT, session_id="s")
        await service.forget_user(**ABOUT)
        assert (await service.list_sessions(**ABOUT)).sessions == []
        assert await service.get_user_state(**ABOUT) == {}

    awaited(use)


def test_of_two_writers_the_one_that_did_not_see_the_other_is_refused(awaited: Any):
    async def use(store: Any) -> None:
        one, two = HoldfastSessionService(store), HoldfastSessionService(store)
        await one.create_session(**ABOUT, session_id="s")
        with pytest.raises(AlreadyExistsError):
            await two.create_session(**ABOUT, session_id="s")
        mine: Any = await one.get_session(**ABOUT, session_id="s")
        theirs: Any = await two.get_session(**ABOUT, session_id="s")
        await one.append_event(mine, said("first"))
        before = theirs.model_copy(deep=True)
        with pytest.raises(StaleSessionError):
            await two.append_event(theirs, said("second", {"a": 1, "app:x": 1, "temp:y": 1}))
        assert theirs == before
        found: Any = await two.get_session(**ABOUT, session_id="s")
        assert texts(found) == [["first"]]
        assert found.state == {}
        await two.append_event(found, said("second"))
        by_hand = Session(id="s", **ABOUT, events=list(found.events), last_update_time=0)
        await one.append_event(by_hand, said("third"))
        with pytest.raises(StaleSessionError):
            await one.append_event(Session(id="s", **ABOUT), said("fourth"))

    awaited(use)


def test_tasks_that_share_a_session_object_append_one_after_another(awaited: Any):
    async def use(store: Any) -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**ABOUT, session_id="s")
        await asyncio.gather(*(service.append_event(session, said(str(n))) for n in range(20)))
        found: Any = await service.get_session(**ABOUT, session_id="s")
        assert sorted(texts(found)) == sorted([str(n)] for n in range(20))
        assert found.events == session.events

    awaited(use)


def test_the_same_event_again_is_added_once(awaited: Any):
    async def use(store: Any) -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**ABOUT, session_id="s")
        event = said("hello", {"app:n": 1})
        for one in (event, said("next"), event):
            await service.append_event(session, one)
        assert texts(session) == [["hello"], ["next"]]
        assert texts(await service.get_session(**ABOUT, session_id="s")) == [["hello"], ["next"]]

    awaited(use)


def test_a_page_of_a_long_session_has_the_whole_state(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """What no event of the page says is in it, and the session is not read for that."""

    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**ABOUT, session_id="s", state={"start": 0})
        for n in range(150):
            await service.append_event(session, said(str(n), {f"k{n % 70}": n}, at=1000.0 + n))
        expected = {"start": 0, **{f"k{n % 70}": n for n in range(150)}}

        async def page(**config: Any) -> Session | None:
            about = GetSessionConfig(**config)
            found = await service.get_session(**ABOUT, session_id="s", config=about)
            assert found is not None
            assert found.state == expected
            return found

        reads: list[Any] = []
        history = store.history

        def counting(*args: Any, **more: Any) -> History:
            found = history(*args, **more)
            reads.append(len(found))
            return found

        monkeypatch.setattr(store, "history", counting)
        assert texts(await page(num_recent_events=2)) == [["148"], ["149"]]
        assert texts(await page(num_recent_events=0)) == []
        assert max(reads) < 40
        assert texts(await page(after_timestamp=1147.0)) == [["147"], ["148"], ["149"]]
        assert texts(await page(after_timestamp=1147.0, num_recent_events=1)) == [["149"]]
        assert len(texts(await page(num_recent_events=1000))) == 150
        assert (await service.list_sessions(**ABOUT)).sessions[0].state == expected

    asyncio.run(work())


def test_changes_of_an_app_are_folded_and_none_is_lost_meanwhile(sqlite_engine: Any):
    """Many sessions change one app at once; its log stays short and has each of the changes."""

    async def work() -> None:
        opening = holdfast.connect_async(sqlite_engine.url, require=Durability.PROCESS)
        async with await opening as store:

            async def use(number: int) -> None:
                service = HoldfastSessionService(store)
                session = await service.create_session(app_name="shop", user_id=f"u{number}")
                for n in range(40):
                    change = said("x", {f"app:{number}.{n}": n})
                    await service.append_event(session, change)

            await asyncio.gather(*(use(number) for number in range(6)))
            found = await HoldfastSessionService(store).create_session(app_name="shop", user_id="v")
            assert found.state == {f"app:{a}.{n}": n for a in range(6) for n in range(40)}
            assert len(await store.history(name_of("app", "shop"))) < 140

    asyncio.run(work())


def test_states_that_are_too_large_for_one_record_do_not_end_a_session(
    sqlite_engine: Any, monkeypatch: pytest.MonkeyPatch
):
    """Each change fits a record; what they make of the session's state, and of the app's, does not."""
    monkeypatch.setattr(adk, "STATE_EVERY", 8)
    monkeypatch.setattr(adk, "SHARED_RECORDS_MAX", 4)

    async def work() -> None:
        opening = holdfast.connect_async(sqlite_engine.url, require=Durability.PROCESS)
        async with await opening as store:
            service = HoldfastSessionService(store)
            session = await service.create_session(**ABOUT, session_id="s")
            for n in range(9):
                text = str(n) * 3_000_000
                await service.append_event(session, said("x", {f"k{n}": text, f"app:k{n}": text}))
            page = GetSessionConfig(num_recent_events=1)
            found: Any = await service.get_session(**ABOUT, session_id="s", config=page)
            assert found.state == session.state
            assert len(found.state) == 18

    asyncio.run(work())


def test_what_json_has_no_word_for_is_kept_as_adk_keeps_it(store: Store):
    """A new session's state and an event's are treated alike."""

    async def work() -> None:
        service = HoldfastSessionService(store)
        odd = {"at": datetime(2026, 11, 16, tzinfo=UTC), "raw": b"\xff", "some": {1}}
        made = await service.create_session(**ABOUT, state=odd)
        other = await service.create_session(**ABOUT, session_id="s")
        await service.append_event(other, said("x", odd))
        found: Any = await service.get_session(**ABOUT, session_id="s")
        assert (
            made.state == found.state == {"at": "2026-11-16T00:00:00Z", "raw": "_w==", "some": [1]}
        )

    asyncio.run(work())


def test_state_that_a_killed_writer_did_not_carry_over_is_not_lost(sqlite_engine: Any):
    """It dies right after its event was written, before the logs of app and user were."""
    url = sqlite_engine.url

    def dies() -> None:
        store = holdfast.connect(url, require=Durability.PROCESS)
        service = HoldfastSessionService(store)
        session = asyncio.run(service.create_session(**ABOUT, session_id="s"))
        append = store.append

        def dying(log: str, *args: Any, **more: Any) -> Any:
            if not log.startswith("adk/session/"):
                os.kill(os.getpid(), signal.SIGKILL)
            return append(log, *args, **more)

        setattr(store, "append", dying)  # noqa: B010 - mypy minds the other way
        asyncio.run(service.append_event(session, said("x", {"app:a": 1, "user:b": 2, "c": 3})))

    assert in_a_child(dies) == -signal.SIGKILL
    with holdfast.connect(url, require=Durability.PROCESS) as store:
        for _ in range(2):
            service = HoldfastSessionService(store)
            found = asyncio.run(service.get_session(**ABOUT, session_id="s"))
            assert found is not None
            assert found.state == {"app:a": 1, "user:b": 2, "c": 3}
        assert len(store.history(name_of("app", "shop"))) == 1


def test_a_call_without_response_is_not_handed_to_a_model(store: Store):
    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(**ABOUT, session_id="s")
        slow = function("slow", long_running_tool_ids={"slow"})
        events = [
            said("look"),
            function("a"),
            function("a", "a squid"),
            slow,
            function("b"),
            said("?"),
        ]
        for event in events:
            await service.append_event(session, event)
        found: Any = await service.get_session(**ABOUT, session_id="s")
        assert found.events == [*events[:4], events[5]]
        closing = HoldfastSessionService(store, turns="repaired")
        closed: Any = await closing.get_session(**ABOUT, session_id="s")
        answer = closed.events[5].get_function_responses()[0]
        assert (answer.id, answer.name) == ("b", "look")
        assert "interrupted" in str(answer.response)
        everything = HoldfastSessionService(store, turns="all")
        assert len((await everything.get_session(**ABOUT, session_id="s")).events) == 6  # type: ignore[union-attr]
        late = [function("b", "late"), function("slow", "soon"), function("slow", "a squid")]
        for event in late:  # ADK puts each behind its call
            await service.append_event(found, event)
        last: Any = await service.get_session(**ABOUT, session_id="s")
        assert last.events == [*events, *late]
        page = GetSessionConfig(num_recent_events=3)
        assert (await service.get_session(**ABOUT, session_id="s", config=page)).events == []  # type: ignore[union-attr]

    asyncio.run(work())


def test_a_damaged_record_is_named_and_hides_nothing_else(store: Store, url: str):
    async def work() -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(app_name="a", user_id="u", session_id="s")
        for text in "ab":
            await service.append_event(session, said(text))
        flip_one(url, "default", Place("a", "u", "s").log)
        found: Any = await service.get_session(app_name="a", user_id="u", session_id="s")
        assert texts(found) == [["b"]]
        assert [damage.seq for damage in found.events.damaged] == [2]

    asyncio.run(work())


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "", "%", "名前 🦑", "a\nb", "a:*{}", "../x"])
def test_odd_names_are_kept_apart_and_come_back(name: str, sqlite_engine: Any):
    place = Place(name, f"{name}/", f"{name}%2F")
    assert place_of(place.log) == place

    async def work() -> None:
        opening = holdfast.connect_async(sqlite_engine.url, require=Durability.PROCESS)
        async with await opening as store:
            service = HoldfastSessionService(store)
            where = {"app_name": name, "user_id": f"{name}/"}
            await service.create_session(**where, session_id=f"{name}x", state={"user:n": 1})
            await service.create_session(app_name=f"{name}/", user_id="", session_id="y")
            (found,) = (await service.list_sessions(**where)).sessions
            assert (found.app_name, found.user_id, found.id) == (name, f"{name}/", f"{name}x")

    asyncio.run(work())


class Counts(BaseLlm):
    """A model that says how many messages it was handed."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        del stream
        parts = [types.Part(text=f"heard {len(llm_request.contents)}")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def test_an_agent_remembers_after_a_restart(url: str):
    async def ask(text: str) -> list[str]:
        async with await holdfast.connect_async(url) as store:
            service = HoldfastSessionService(store)
            agent = Agent(name="guide", model=Counts(model="counts"), output_key="user:heard")
            runner = Runner(
                app_name="shop", agent=agent, session_service=service, auto_create_session=True
            )
            message = types.Content(role="user", parts=[types.Part(text=text)])
            call: Callable[..., Any] = runner.run_async
            told = [event async for event in call(user_id="u", session_id="s", new_message=message)]
            assert (await service.get_user_state(app_name="shop", user_id="u")) == {
                "heard": told[-1].content.parts[0].text
            }
            return [one.content.parts[0].text for one in told]

    assert asyncio.run(ask("Hello")) == ["heard 1"]
    assert asyncio.run(ask("Hello")) == ["heard 3"]


def test_messages_of_others_are_events(store: Store):
    async def work() -> None:
        service = HoldfastSessionService(store)
        await service.create_session(app_name="a", user_id="u", session_id="s")
        store.append(
            Place("a", "u", "s").log, [Message("user", "hello"), Message("assistant", "hi")]
        )
        found: Any = await service.get_session(app_name="a", user_id="u", session_id="s")
        assert texts(found) == [["hello"], ["hi"]]
        assert [one.author for one in found.events] == ["user", "assistant"]

    asyncio.run(work())


def test_state_that_cannot_be_json_is_refused_and_changes_nothing(awaited: Any):
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]

    async def use(store: Any) -> None:
        service = HoldfastSessionService(store)
        session = await service.create_session(app_name="a", user_id="u", session_id="s")
        with pytest.raises(InvalidMessage, match="nothing was written"):
            await service.append_event(session, said("Hello", {"deep": deep}))
        assert (session.events, session.state) == ([], {})
        await service.append_event(session, said("Hello", {}))

    awaited(use)
