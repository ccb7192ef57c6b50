"""A model behind a URL: asked after the message is durable, answered in one step with its tools."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import holdfast
from holdfast.verify.engines.service import Service
from tests.chat.people import command, events
from tests.chat.standin import called, model, said
from tests.waiting import wait_until

KEY = "key-0000-0000-0001"


class Asked:
    """A service with a model whose script each test writes."""

    service: Service

    def __init__(self):
        self.script = lambda _: 500

    def answer(self, body):
        return self.script(body)


@pytest.fixture(scope="module")
def asked():
    asked = Asked()
    with model(asked.answer) as url:
        options = ("--model-url", url, "--model", "stand-in")
        store = "sqlite:///{data_dir}/memory.db"
        with Service(
            command(store, *options),
            health="/healthz",
            storage="disk",
            env={"HOLDFAST_MODEL_KEY": "secret-key"},
        ) as asked.service:
            yield asked


def page(person, conversation="conversation-1"):
    return person.get(f"/api/conversations/{conversation}/messages")


def begun(store):
    names = [name for name in store.sessions() if "/begun/" in name]
    return [message.content for name in names for message in store.history(name)]


def roles(person, conversation="conversation-1"):
    return [role for role, _ in person.texts(conversation)]


def test_the_message_is_durable_before_the_model_is_asked_and_tools_come_whole(asked, client):
    seen: dict[str, Any] = {}

    def script(body):
        results = [one for one in body["messages"] if one["role"] == "tool"]
        if not results:
            with holdfast.connect(seen["store"], namespace="chat") as store:
                [name] = [one for one in store.sessions() if one.endswith("/s/durable-one")]
                seen["durable"] = [one.content for one in store.history(name)]
            seen["key"] = body["authorization"]
            return called("remember", text="The user has a boat")
        seen["result"] = results[-1]["content"]
        return said("You have a boat\u2028.")

    asked.script = script
    seen["store"] = f"sqlite:///{asked.service.data_dir}/memory.db"
    person = client(asked.service)
    heard = person.say("Do I have a boat?", KEY, "durable-one")
    assert seen["durable"] == ["Do I have a boat?"]
    assert seen["key"] == "Bearer secret-key"
    assert seen["result"] == "remembered, DISK"
    assert heard[-1][0] == "answered"
    assert (
        "".join(one["text"] for kind, one in heard if kind == "delta") == "You have a boat\u2028. "
    )
    assert roles(person, "durable-one") == ["user", "assistant", "tool", "assistant"]
    assert person.get("/api/memories")["memories"][0]["text"] == "The user has a boat"
    assert "secret-key" not in asked.service.log(1000)


def test_a_model_that_fails_costs_no_message_and_is_asked_again(asked, client):
    answers = [500, said("Hello again.")]
    asked.script = lambda _: answers.pop(0)
    person = client(asked.service)
    first = person.say("Hello there my friend", KEY)
    assert [kind for kind, _ in first] == ["saved", "looked", "failed"]
    assert roles(person) == ["user"]
    second = person.say("Hello there my friend", KEY)
    assert second[-1][0] == "answered"
    assert roles(person) == ["user", "assistant"]


def test_an_answer_to_what_was_forgotten_is_not_kept(asked, client):
    holder: dict[str, Any] = {}

    def script(_):
        holder["erased"] = holder["person"].ask("POST", "/api/forget-all").json()
        return said("Too late.")

    asked.script = script
    person = holder["person"] = client(asked.service)
    heard = person.say("Please forget me", KEY)
    assert holder["erased"]["messages"] == 1
    assert heard[-1][0] == "gone"
    assert person.texts() == []


def test_a_model_remembers_nothing_of_what_was_forgotten_meanwhile(asked, client):
    holder: dict[str, Any] = {}

    def script(body):
        results = [one for one in body["messages"] if one["role"] == "tool"]
        if results:
            holder["result"] = results[-1]["content"]
            return said("Too late.")
        holder["status"] = holder["person"].ask("POST", "/api/forget-all").status_code
        return called("remember", text="The code of the safe is 4471")

    asked.script = script
    person = holder["person"] = client(asked.service)
    heard = person.say("The code of the safe is 4471", KEY)
    assert holder["status"] == 200
    assert holder["result"] == "not remembered: the conversation was forgotten meanwhile"
    assert heard[-1][0] == "gone"
    assert person.get("/api/memories") == {"count": 0, "memories": []}


def test_the_prompt_holds_what_was_told_in_another_conversation(asked, client):
    prompts = []

    def script(body):
        prompts.append(body["messages"])
        return said("Noted.")

    asked.script = script
    person = client(asked.service)
    person.say("I am allergic to peanuts", KEY, "conversation-1")
    person.say("What should I avoid eating?", KEY, "conversation-2")
    told = [one["content"] for one in prompts[-1] if one["role"] == "system"]
    assert any("I am allergic to peanuts" in text for text in told)
    assert prompts[-1][-1] == {"role": "user", "content": "What should I avoid eating?"}


def test_what_was_streamed_before_a_crash_is_kept_and_marked_until_the_answer_is_whole(
    serve, client
):
    go_on = threading.Event()

    def script(_):
        yield from said("It was a dark")
        go_on.wait(60)
        yield from said("night.")

    with model(script) as url:
        service = serve("--model-url", url, "--model", "stand-in")
        person = client(service)
        store_url = f"sqlite:///{service.data_dir}/memory.db"
        with person.stream("Tell me a story", KEY) as answer:
            heard = events(answer)
            next(one for _, one in heard if one.get("text") == "dark ")
            with holdfast.connect(store_url, namespace="chat") as store:
                wait_until(lambda: "It was a dark " in begun(store))
            assert page(person)["interrupted"] is None  # it is still being made
            service.kill()
        service.start()
        cut = page(person)["interrupted"]
        assert (cut["content"], cut["answers"]) == ("It was a dark ", KEY)
        assert roles(person) == ["user"]
        go_on.set()
        assert person.say("Tell me a story", KEY)[-1][0] == "answered"
        assert page(person)["interrupted"] is None
        with holdfast.connect(store_url, namespace="chat") as store:
            assert begun(store) == []


def test_an_answer_that_is_cut_is_none_and_is_forgotten_with_its_conversation(asked, client):
    asked.script = lambda _: [{"content": "Once upon"}, None]
    person = client(asked.service)
    heard = person.say("Tell me a story", KEY)
    assert [kind for kind, _ in heard][-2:] == ["delta", "failed"]
    assert "ended in the middle" in heard[-1][1]["message"]
    assert roles(person) == ["user"]
    assert page(person)["interrupted"]["content"] == "Once upon"
    erased = person.ask("DELETE", "/api/conversations/conversation-1").json()
    assert (erased["messages"], erased["conversations"]) == (2, 1)
    assert person.ask("GET", "/api/export").text.count("Once upon") == 0
    assert page(person)["interrupted"] is None
