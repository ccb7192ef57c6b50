"""Incident N1 in a real browser: the app that forgets is caught, and ours remembers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chat.people import OURS

ROOT = Path(__file__).parents[2]
TWIN = [sys.executable, "-m", "tests.twins.forgetful_chat"]
THEIRS = {"box": "#line", "send": "button", "message": "#said li"}


def test_the_broken_app_is_caught_forgetting(app_service, chat_page):
    service = app_service(TWIN, health="/said", cwd=ROOT, storage="disk")
    page = chat_page(service, **THEIRS, look_s=3)
    page.open()
    assert page.send("My name is Xiao Li") == 200
    page.page.reload()
    assert page.has("My name is Xiao Li"), "as long as it runs, it looks as if it remembered"
    remembered = page.survives_at_response("I live in Porto")
    assert not remembered
    with pytest.raises(AssertionError, match="acknowledged, and is gone.*SIGKILL"):
        remembered.hold()


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_ours_remembers_on_every_engine_with_chroma_as_index(
    kind, serve, chat_page, shared_browser, engine_factory
):
    config = {"config": "aof-always"} if kind == "redis" else {}
    engine = None if kind == "sqlite" else engine_factory(kind, storage="disk", **config)
    place = {} if engine is None else {"store": engine.url}
    service = serve("--index", "chroma:///{data_dir}/chroma", **place)
    page = chat_page(service, **OURS, browser=shared_browser)
    remembered = page.survives_at_response("My name is Xiao Li", also=[engine] if engine else [])
    remembered.hold()
    assert remembered.evidence[0].facts["reply"].startswith("HTTP/1.1 200")
    page.page.unroute_all()
    page.page.locator("#new").click()
    page.send("What is my name?")
    told = page.page.locator(".message.assistant", has_text="You told me today that your name is")
    told.wait_for()


@pytest.mark.parametrize(
    ("fsync", "require", "said", "remembers"),
    [("no", "MEMORY", "saved", False), ("always", "DISK", "disk", True)],
)
def test_saved_on_disk_is_said_only_of_what_survives_a_power_cut(
    fsync, require, said, remembers, serve, chat_page, shared_browser, redis_engine_factory
):
    settings = {"appendfsync": fsync}
    engine = redis_engine_factory(config="aof-always", settings=settings, power="best")
    service = serve("--require", require, store=engine.url)
    shown = OURS | {"saved": f"[data-state={said}]", "look_s": 30 if remembers else 3}
    page = chat_page(service, **shown, browser=shared_browser)
    page.open()
    page.send("I was here before")
    found = page.survives_at_response("I live in Porto", power=[engine])
    assert bool(found) is remembers, found
