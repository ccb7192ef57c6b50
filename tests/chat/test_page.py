"""In a real browser: what the page says is saved is there after everything that ends it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import Message, connect
from tests import accessibility
from tests.chat.people import OURS, wait_for_answer
from tests.chat.standin import model, said
from tests.waiting import wait_until

CONTRAST = (Path(__file__).parents[1] / "verify/report/contrast.js").read_text("utf-8")
SCRIPT = "<script>window.bad = 1</script><img src=x onerror='window.bad = 1'>"


def test_sent_then_closed_then_killed_is_still_there(serve, chat_page):
    page = chat_page(serve(), **OURS)
    page.survives("My name is Xiao Li").hold()
    page.page.unroute_all()  # killed before its answer was written, it asks again by itself
    page.page.locator(".message.assistant", has_text="your name is Xiao Li").wait_for()


def test_memory_is_used_in_another_conversation_and_says_when(running, visit):
    page = visit(running)
    page.send("I am allergic to peanuts")
    page.page.locator("#new").click()
    page.send("Am I allergic to anything?")
    answer = page.page.locator(".message.assistant").last
    answer.get_by_text("You told me today that you are allergic to peanuts.").wait_for()
    answer.locator("summary", has_text="looked at 1 memory").click()
    answer.locator(".looked .link").click()  # leads to the message that it was told in
    page.page.locator(".message.user", has_text="I am allergic to peanuts").wait_for()


def test_a_memory_leads_to_its_message_however_far_back_it_stands(serve, visit):
    service = serve()
    page = visit(service)
    page.send("I am allergic to peanuts")
    wait_for_answer(page)
    with connect(f"sqlite:///{service.data_dir}/memory.db", namespace="chat") as store:
        [session] = [name for name in store.sessions() if "/s/" in name]
        for part in range(3):
            store.append(session, [Message("user", f"later {part}-{n}") for n in range(150)])
    page.page.reload()
    page.page.locator(".message.user", has_text="later 2-149").wait_for()
    told = page.page.locator(".message.user", has_text="I am allergic to peanuts")
    assert told.count() == 0
    link = page.page.locator("#memories .link").first
    assert re.fullmatch(r"your message of \S.+", link.inner_text())  # not the title of it all
    link.click()
    page.page.locator(".message.user.flash", has_text="I am allergic to peanuts").wait_for()
    assert told.evaluate("e => e.getBoundingClientRect().top < innerHeight")


def test_an_answer_that_was_cut_stays_on_the_page_and_is_marked_until_the_next_begins(serve, visit):
    cut: list[Any] = [{"content": "Once upon"}, None]
    answers: list[Any] = [cut, 500, 500, said("Once upon a time.")]
    with model(lambda _: answers.pop(0)) as url:
        page = visit(serve("--model-url", url, "--model", "stand-in"))
        page.send("Tell me a story")
        half = page.page.locator(".message.assistant", has_text="interrupted")
        half.wait_for()
        page.page.reload()
        for _ in range(2):  # as it was, and after a model that says nothing
            half.wait_for()
            assert half.locator(".bubble").inner_text() == "Once upon"
            page.page.get_by_role("button", name="Ask again").click()
            wait_for_answer(page)
        page.page.get_by_role("button", name="Ask again").click()
        page.page.locator(".message.assistant .bubble", has_text="Once upon a time.").wait_for()
        assert half.count() == 0


def test_a_script_in_a_message_stays_text(running, visit):
    page = visit(running)
    page.send(f"Remember that {SCRIPT}")
    assert page.page.locator(".message.user .bubble").inner_text().endswith(SCRIPT)
    page.page.locator("#memories .said", has_text="window.bad").wait_for()
    page.page.reload()
    page.page.locator(".message.assistant .bubble", has_text="<script>").wait_for()
    assert page.page.locator("main script, main img[src=x], aside script").count() == 0
    assert page.page.evaluate("() => window.bad") is None


def test_while_the_store_is_away_text_is_kept_and_then_sent(serve, visit, redis_engine_factory):
    engine = redis_engine_factory(config="aof-always", storage="disk")
    page = visit(serve(store=engine.url))
    page.send("I was here before")
    engine.kill()
    page.type("I was typed while the store was away")
    held = page.page.locator(".message.user [data-state=held]")
    held.get_by_text("kept in this browser until it can be saved").wait_for()
    page.page.locator("#banner", has_text="The store is away").wait_for()
    page.page.locator("#pill[data-state=down]").wait_for()
    page.page.locator("#text").fill("a draft")
    page.leave()
    engine.start()
    page.open()
    assert page.has("I was typed while the store was away")
    assert page.has("I was here before")
    assert page.page.locator("#text").input_value() == "a draft"
    page.page.locator("#banner").wait_for(state="hidden")
    assert [text.split("\n")[1] for text in page.shown()] == [
        "I was here before",
        "I was typed while the store was away",
    ]


def test_while_the_service_is_away_text_is_kept_and_sent_by_itself(serve, visit):
    service = serve()
    page = visit(service)
    page.send("first " + "and more of it\n" * 60)
    wait_for_answer(page)
    service.kill()
    page.type("second")
    held = page.page.locator(".message.user [data-state=held]")
    held.wait_for()
    page.type("third")
    held.nth(1).wait_for()
    ends = "e => e.getBoundingClientRect().bottom"
    composer = page.page.locator("#composer").evaluate("e => e.getBoundingClientRect().top")
    assert held.nth(1).evaluate(ends) <= composer, "it says under the composer that it is held"
    service.start()
    assert page.has("second"), "the page did not send it by itself"
    assert page.has("third"), "what stands behind it was not sent"
    page.page.locator("#banner").wait_for(state="hidden")


def test_a_lost_connection_repeats_nothing(running, visit):
    page = visit(running)
    page.send("first")
    page.page.locator(".message.assistant").first.wait_for()
    lost = page.proxy.swallow_reply(match=b"POST ")
    page.type("I have one cat")
    assert lost.landed().facts["reply_bytes_dropped"] > 0
    assert page.has("I have one cat"), "the retry was not acknowledged"
    page.page.locator(".message.assistant", has_text="you have one cat").wait_for()
    page.page.reload()
    page.page.locator(".message.assistant", has_text="you have one cat").wait_for()
    page.page.locator(".message.assistant").nth(1).wait_for()
    assert len(page.shown()) == 2
    assert page.page.locator(".message.assistant").count() == 2
    page.page.locator("#memories li", has_text="I have one cat").first.wait_for()
    assert page.page.locator("#memories li", has_text="I have one cat").count() == 1


def test_two_people_are_apart(running, visit):
    service = running
    one, other = visit(service), visit(service)
    one.send("My secret is 4711")
    address = one.page.url
    other.page.goto(address.replace(str(one.proxy.port), str(other.proxy.port)))
    other.send("What is my secret?")
    other.page.locator(".message.assistant", has_text="I do not know that yet").wait_for()
    assert other.shown() == (other.shown()[0],)
    assert "4711" not in other.page.content()


def test_memories_are_searched_deleted_exported_forgotten_and_loaded(running, visit, tmp_path):
    page = visit(running)
    for text in ("My sister lives in Porto", "I like green tea"):
        page.send(text)
        wait_for_answer(page)
        page.page.locator(f"#memories .said:text-is('{text}')").wait_for()
    page.page.locator("#query").fill("where does my sister live")
    page.page.locator("#found", has_text="nearest in meaning").wait_for()
    assert page.page.locator("#memories .said").first.inner_text() == "My sister lives in Porto"
    page.page.locator("#query").fill("quarterly tax return")
    page.page.locator("#found", has_text="Nothing that fits").wait_for()
    assert page.page.locator("#memories .said").count() == 0
    page.page.locator("#query").fill("")
    page.page.locator("#found").wait_for(state="hidden")
    with page.page.expect_download() as download:
        page.page.locator("#export").click()
    file = tmp_path / "export.jsonl"
    download.value.save_as(file)
    page.page.get_by_role("button", name="Delete: I like green tea").click()
    page.page.get_by_role("button", name="Forget it").click()
    page.page.locator("#memories li").nth(1).wait_for(state="detached")
    page.page.locator("#forget").click()
    page.page.locator("#ask-yes").click()
    done = page.page.locator("#done")
    done.get_by_text(re.compile("Erased: 8 messages, 1 memory in 1 conversation")).wait_for()
    page.page.locator("#memories .nothing").wait_for()
    with page.page.expect_file_chooser() as chooser:
        page.page.locator("#load").click()
    chooser.value.set_files(file)
    done.get_by_text("Loaded: 8 messages in 1 conversation, 2 memories.").wait_for()
    page.page.locator("#memories .link").first.click()
    assert page.has("I like green tea")
    assert json.loads(file.read_text("utf-8").splitlines()[0]) == {"holdfast_export": 1}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read(running, visit, scheme):
    page = visit(running, color_scheme=scheme)
    page.send("I like green tea")
    page.page.locator("#memories .said").wait_for()
    page.page.get_by_text("saves to disk").wait_for()
    measured = page.page.evaluate(CONTRAST)
    assert len(measured) > 15
    assert not [one for one in measured if one["ratio"] < 4.5]
    assert accessibility.faults(page.page) == []


def test_it_works_by_keyboard_on_a_telephone(running, visit):
    page = visit(running, viewport={"width": 390, "height": 844})
    assert page.page.evaluate("() => document.documentElement.scrollWidth") == 390
    assert page.page.locator("#memory").is_hidden()
    page.page.locator("#text").focus()
    page.page.keyboard.type("I walk every day")
    page.page.keyboard.press("Enter")
    assert page.has("I walk every day")
    page.page.locator("#open-memory").focus()
    page.page.keyboard.press("Enter")
    page.page.locator("#memories .said", has_text="I walk every day").wait_for()
    assert page.page.locator("#memory").is_visible()
    page.page.keyboard.press("Escape")
    page.page.locator("#memory").wait_for(state="hidden")


def test_the_page_asks_for_the_token_and_runs_no_foreign_script(serve, chat_page, shared_browser):
    service = serve(env={"HOLDFAST_CHAT_TOKEN": "a token that is long"})
    page = chat_page(service, **(OURS | {"box": "#token", "browser": shared_browser}))
    problems: list[str] = []
    page.open().on("console", lambda said: problems.append(said.text))
    page.page.locator("#token").fill("wrong")
    page.page.keyboard.press("Enter")
    page.page.get_by_text("that is not the token").wait_for()
    page.page.locator("#token").fill("a token that is long")
    page.page.keyboard.press("Enter")
    page.page.locator("#pill[data-state=up]").wait_for()
    wait_until(lambda: len(problems) == 1)
    assert "401" in problems[0]  # the wrong token, and nothing else
