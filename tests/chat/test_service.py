"""The service without a page: when it says 200, whom it lets in, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import threading
import zlib

import httpx
import pytest

from holdfast.verify.faults.data_directory import MovedAway
from holdfast.verify.faults.engine import paused
from tests.chat.people import COMMAND, Client
from tests.exports import PAST_MS, export, head, session, wrong_files
from tests.waiting import wait_until


def test_200_comes_after_the_write_is_durable(serve, client, redis_engine_factory):
    engine = redis_engine_factory(config="aof-always", storage="disk")
    service = serve(store=engine.url, health="/readyz")
    person = client(service)
    person.say("I am here", "key-0000-0000-0000")
    answered = threading.Event()

    def send() -> None:
        person.say("I am waiting", "key-0000-0000-0001")
        answered.set()

    with paused(engine):
        sending = threading.Thread(target=send)
        sending.start()
        assert not answered.wait(0.7), "200 although the engine could not have written it"
    assert answered.wait(10), "no answer after the engine went on"
    sending.join()
    engine.kill()
    # A proof may be a second old, so the first answers may rest on one from before the kill.
    wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 503)
    assert httpx.get(f"{service.url}/readyz").json()["ready"] is False
    assert httpx.get(f"{service.url}/healthz").status_code == 200
    refused = person.ask(
        "POST",
        "/api/conversations/conversation-1/messages",
        json={"text": "lost?", "key": "key-0000-0000-0002"},
    )
    assert refused.status_code == 503
    assert refused.json()["outcome"] in {"not done", "unknown"}
    engine.start()
    wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 200)
    said = [text for role, text in person.texts() if role == "user"]
    assert said == ["I am here", "I am waiting"]


def test_a_retry_repeats_nothing_and_gives_the_same_answer(running, client):
    person = client(running)
    first = person.say("I have a dog", "key-0000-0000-0001")
    second = person.say("I have a dog", "key-0000-0000-0001")
    assert first[-1][1]["messages"] == second[-1][1]["messages"]
    assert dict(second)["saved"]["repeated"] is True
    assert [role for role, _ in person.texts()] == ["user", "assistant", "tool", "assistant"]
    assert person.get("/api/memories")["count"] == 1


def test_what_was_forgotten_does_not_come_back_by_a_retry(running, client):
    person = client(running)
    person.say("I have a dog", "key-0000-0000-0001")
    erased = person.ask("POST", "/api/forget-all").json()
    assert (erased["conversations"], erased["messages"], erased["memories"]) == (1, 4, 1)
    assert [kind for kind, _ in person.say("I have a dog", "key-0000-0000-0001")] == [
        "saved",
        "gone",
    ]
    assert person.texts() == []
    assert person.get("/api/memories")["memories"] == []
    assert person.get("/api/conversations") == []


def test_forgetting_a_conversation_takes_its_memories_and_no_others(running, client):
    person = client(running)
    person.say("I have a dog", "key-0000-0000-0001", "conversation-1")
    person.say("I have a cat", "key-0000-0000-0002", "conversation-2")
    person.ask("DELETE", "/api/conversations/conversation-1")
    assert [one["text"] for one in person.get("/api/memories")["memories"]] == ["I have a cat"]
    assert [one["id"] for one in person.get("/api/conversations")] == ["conversation-2"]


def test_whoever_knows_an_id_still_cannot_read_or_delete(running, client):
    person, other = client(running), client(running)
    person.say("My secret is 4711", "key-0000-0000-0001")
    [memory] = person.get("/api/memories")["memories"]
    assert other.texts() == []
    assert other.ask("DELETE", f"/api/memories/{memory['id']}").status_code == 404
    other.ask("DELETE", "/api/conversations/conversation-1")
    assert "4711" not in other.ask("GET", "/api/export").text
    assert person.texts()[0] == ("user", "My secret is 4711")
    nobody = httpx.get(f"{running.url}/api/conversations/conversation-1/messages")
    assert nobody.status_code == 401


def test_another_persons_export_is_loaded_as_ones_own_and_touches_nothing_else(running, client):
    person, other = client(running), client(running)
    person.say("I have a\u2028dog", "key-0000-0000-0001")
    export = person.ask("GET", "/api/export").content
    for _ in range(2):
        loaded = other.ask("POST", "/api/load/load-key-0000-0001", content=export)
        assert loaded.json() == {"conversations": 1, "messages": 4, "memories": 1}
    [conversation] = other.get("/api/conversations")
    assert other.texts(conversation["id"]) == person.texts()
    [memory] = other.get("/api/memories")["memories"]
    assert (memory["conversation"], memory["seq"]) == (conversation["id"], 1)
    assert len(person.get("/api/conversations")) == 1
    cut = other.ask("POST", "/api/load/load-key-0000-0002", content=export[:-30])
    assert cut.status_code == 422
    assert "Nothing was loaded" in cut.json()["message"]
    assert other.ask("POST", "/api/load/short", content=export).status_code == 422


def test_a_hostile_export_is_refused_and_loads_nothing(running, client):
    person = client(running)
    mine = f"u/{'0' * 32}/s/conversation-9"
    message = {"id": 5, "role": [], "content": {}, "at": None}
    body = json.dumps(message, separators=(",", ":")).encode()
    forged = {"v": 1, "crc": f"{zlib.crc32(body):08x}", "msg": message}
    files = {name: lines for name, lines in wrong_files().items() if None not in lines}
    files["a forged record"] = export([head(mine, 1), {"seq": 1, "record": forged}])
    files["more than a batch"] = export(
        session(mine, ["x"]), session(mine.replace("9", "8"), ["y"] * 10_001)
    )
    for at, (name, lines) in enumerate(files.items()):
        answer = person.ask(
            "POST", f"/api/load/load-key-{at:08}", content="\n".join(lines).encode()
        )
        assert answer.status_code in {413, 422}, f"{name}: {answer.status_code} {answer.text}"
        assert answer.json()["outcome"] == "not done"
    assert person.get("/api/conversations") == []


def test_what_has_expired_is_not_loaded_and_odd_sources_are_shown(running, client):
    person = client(running)
    begin = f"u/{'0' * 32}"
    record = {"role": "memory", "content": "I have a dog", "from": {"conversation": {}, "seq": "x"}}
    lines = export(
        session(f"{begin}/s/conversation-9", ["SECRET"], ttl_s=60, expires_at_ms=PAST_MS),
        [head(f"{begin}/memory", 1), {"seq": 1, "record": record}],
    )
    body = "\n".join(lines).encode()
    loaded = person.ask("POST", "/api/load/load-key-0000-0001", content=body)
    assert loaded.json() == {"conversations": 0, "messages": 0, "memories": 1}
    assert [one["text"] for one in person.get("/api/memories")["memories"]] == ["I have a dog"]
    assert "SECRET" not in person.ask("GET", "/api/export").text


def test_sizes_are_bounded(running, client):
    person = client(running)
    path = "/api/conversations/conversation-1/messages"
    long = person.ask("POST", path, json={"text": "x" * 16_001, "key": "key-0000-0000-0001"})
    assert long.status_code == 422
    assert "xxxx" not in long.text
    assert person.ask("POST", path, content=b"x" * 200_000).status_code == 413
    chunks = (b"x" * 50_000 for _ in range(4))  # announces no length
    assert person.ask("POST", path, content=chunks).status_code == 413
    for name in ("short", "a/../../b", "%2e%2e%2fmemory"):
        assert person.ask("GET", f"/api/conversations/{name}/messages").status_code in {404, 422}
    assert person.texts() == []


def test_other_sites_and_other_names_are_refused(running, client):
    person = client(running)
    path = "/api/forget-all"
    person.say("I have a dog", "key-0000-0000-0001")
    foreign = {"Origin": "http://evil.example"}
    assert person.ask("POST", path, headers=foreign).status_code == 403
    assert person.ask("POST", path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    named = person.ask("GET", "/api/memories", headers={"Host": "evil.example"})
    assert named.status_code == 421
    assert person.get("/api/memories")["count"] == 1


def test_every_answer_has_the_headers_that_protect_a_page(running):
    for path in ("/", "/static/main.js", "/api/memories", "/nowhere", "/healthz"):
        headers = httpx.get(running.url + path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    cookie = httpx.get(running.url).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def test_too_many_at_once_are_told_to_wait(serve, client):
    service = serve("--rate", "0.1")
    person = client(service)
    found = [person.ask("POST", "/api/forget-all") for _ in range(31)]
    assert [one.status_code for one in found] == [200] * 30 + [429]
    assert int(found[-1].headers["Retry-After"]) >= 1
    assert client(service).ask("POST", "/api/forget-all").status_code == 200
    log = service.log(1000)
    assert person.headers["Cookie"].partition("=")[2] not in log


def test_a_token_opens_and_nothing_secret_is_logged(serve, client):
    token = "a token that nobody knows"
    service = serve(env={"HOLDFAST_CHAT_TOKEN": token})
    person = client(service)
    assert person.ask("GET", "/api/memories").status_code == 401
    assert 'id="sign-in"' in person.ask("GET", "/").text
    wrong = person.ask("POST", "/api/sign-in", json={"token": "wrong"})
    assert wrong.status_code == 401
    bearer = {"Authorization": f"Bearer {token}"}
    assert person.ask("GET", "/api/memories", headers=bearer).status_code == 200
    right = person.ask("POST", "/api/sign-in", json={"token": token})
    assert token not in right.headers["set-cookie"]
    passed = right.headers["set-cookie"].partition(";")[0]
    opened = {"Cookie": f"{person.headers['Cookie']}; {passed}"}
    assert person.ask("GET", "/api/memories", headers=opened).status_code == 200
    tries = [
        person.ask("POST", "/api/sign-in", json={"token": "guess"}).status_code for _ in range(6)
    ]
    assert 429 in tries
    assert token not in service.log(1000)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "a token is needed"),
        (["--host", "0.0.0.0", "--token", "short"], "can be guessed"),
        (["--model", "gpt"], "--model-url and --model go together"),
    ],
)
def test_what_is_not_safe_is_refused_with_the_reason(options, words, tmp_path):
    done = subprocess.run(
        [COMMAND, "chat", *options], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_weak_or_passing_place_is_not_taken_silently(redis_engine_factory):
    engine = redis_engine_factory(config="no-persistence")
    done = subprocess.run(
        [COMMAND, "chat", "--store", engine.url, "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "Refused" in done.stderr


def test_the_interface_is_described(running):
    described = httpx.get(f"{running.url}/openapi.json").json()
    routes = [one for path in described["paths"].values() for one in path.values()]
    assert len(routes) >= 14
    assert all(one["description"] for one in routes)
    sent = described["paths"]["/api/conversations/{conversation}/messages"]["post"]
    assert "text/event-stream" in sent["responses"]["200"]["content"]
    assert {"401", "413", "429", "503"} <= set(sent["responses"])
    assert not [path for path in described["paths"] if "chaos" in path]  # only with --chaos
    assert httpx.post(f"{running.url}/api/chaos/kill-service/{'k' * 16}").status_code == 404


def test_a_directory_that_vanished_is_said_aloud_and_waited_for(serve, client):
    service = serve()
    person = client(service)
    person.say("I am here", "key-0000-0000-0001")
    with MovedAway(service.data_dir):
        sent = person.ask(
            "POST",
            "/api/conversations/conversation-1/messages",
            json={"text": "And now?", "key": "key-0000-0000-0002"},
        )
        assert sent.status_code == 503
        assert "moved or deleted" in sent.json()["message"]
        wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 503)
    wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 200)
    person.say("And now?", "key-0000-0000-0002")
    said = [text for role, text in person.texts() if role == "user"]
    assert said == ["I am here", "And now?"]


def test_many_people_at_once_stay_apart(running):
    with httpx.Client(timeout=60) as http:
        people = [Client(http, running.url) for _ in range(12)]
        asking = [
            threading.Thread(target=one.say, args=(f"My number is {at}", f"key-0000-0000-{at:04}"))
            for at, one in enumerate(people)
        ]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        for at, person in enumerate(people):
            texts = [memory["text"] for memory in person.get("/api/memories")["memories"]]
            assert texts == [f"My number is {at}"]
