"""Requests of somebody who means harm, from another address than an honest person beside them."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from holdfast.chat.people import new_token
from tests.chat.hostile_raw import MESSAGES, RawAttacker
from tests.chat.people import Client

HOSTILE = "127.0.0.66"
ATTACKERS = 4
RAW_SHARE = 0.3
KEY = "key-0000-0000-0000"


@dataclass
class Seen:
    """What came of an attack."""

    statuses: Counter[int] = field(default_factory=Counter)
    honest_s: list[float] = field(default_factory=list)
    calm_s: list[float] = field(default_factory=list)
    """How long as much took at a service beside it that nobody attacked: what the machine itself takes."""
    tracebacks: str = ""
    """The first of the service's log, and what follows it."""

    @property
    def is_swift(self) -> bool:
        """No answer took an honest person a second; on a busy machine, not twice what it takes by itself."""
        return max(self.honest_s) < max(1.0, 2 * max(self.calm_s, default=0))


def attack(service: Any, requests: int, *, calm: Any, seed: int = 17) -> Seen:
    """So many hostile requests; an honest person sends message after message all the while."""
    seen, lock, over = Seen(), threading.Lock(), threading.Event()
    left = iter(range(requests))

    def harm(chance: random.Random) -> None:
        transport = httpx.HTTPTransport(local_address=HOSTILE)
        raw = RawAttacker(service.url, HOSTILE, chance)
        with (
            contextlib.closing(raw),
            httpx.Client(transport=transport, base_url=service.url, timeout=60) as http,
        ):
            while True:
                with lock:
                    if next(left, None) is None:
                        return
                try:
                    if chance.random() < RAW_SHARE:
                        status = raw.send()
                    else:
                        status = http.send(one_request(http, chance)).status_code
                except httpx.HTTPError:
                    status = 0  # the service hung up
                with lock:
                    seen.statuses[status] += 1

    people = [(service.url, seen.honest_s), (calm.url, seen.calm_s)]
    ready = [threading.Event() for _ in people]
    with ThreadPoolExecutor(ATTACKERS + len(people)) as pool:
        try:
            honest = [
                pool.submit(be_honest, *person, one, over)
                for person, one in zip(people, ready, strict=True)
            ]
            assert all(one.wait(60) for one in ready), "no answer even while nobody means harm"
            for done in [pool.submit(harm, random.Random(seed + at)) for at in range(ATTACKERS)]:
                done.result()
        finally:
            over.set()
        for done in honest:
            done.result()
    seen.tracebacks = "".join(service.log(10_000).partition("Traceback")[1:])[:5000]
    return seen


def be_honest(url: str, took_s: list[float], ready: threading.Event, over: threading.Event) -> None:
    """One message each half second, and how long its whole answer took."""
    with httpx.Client(timeout=60) as http:
        person, at = Client(http, url), 0
        person.say("I am here", KEY)  # the model is loaded with the first one
        ready.set()
        while not over.wait(0.5):
            begun = time.monotonic()
            events = person.say(f"I have {at} cats", f"{KEY}{at}")
            took_s.append(time.monotonic() - begun)
            assert events[-1][0] == "answered", events[-1]
            at += 1


def one_request(http: httpx.Client, chance: random.Random) -> httpx.Request:
    """Any of the ways that were found, and their neighbours."""
    name = chance.choice(["conversation-1", "x" * 64, "..%2f..", "%00", "a" * 5000])
    cookie = {"Cookie": f"holdfast_person={chance.choice([new_token(), 'x' * 43, 'y' * 9000])}"}
    key = f"key-{chance.randrange(10**9):016}"
    blanks = chance.choice([" ", "\t", " and ", ", ", "a. ", "\u2028", "\U0001f600"])
    text = "x" + (blanks * 16_000)[:15_000]
    odd = [
        {"Host": "["},
        {"Origin": "http://["},
        {"Content-Length": "9" * 30},
        {"X-Forwarded-For": f"10.0.0.{chance.randrange(250)}"},
        {"Authorization": "Bearer x"},
    ]
    headers = cookie | chance.choice([{}, {}, {}, *odd])
    nested = b'{"text":' * 3000
    ways: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", MESSAGES, {"json": {"text": text, "key": key}}),
        ("POST", MESSAGES, {"json": {"text": text, "key": key}}),
        ("POST", f"/api/conversations/{name}/messages", {"json": {"text": "hi", "key": key}}),
        ("POST", MESSAGES, {"content": nested}),
        ("POST", MESSAGES, {"content": b"[" * 100_000}),
        ("POST", f"/api/load/{key}", {"content": chance.randbytes(200_000)}),
        ("POST", f"/api/load/{key}", {"content": b'{"holdfast_export":1}\n' * 5000}),
        ("POST", "/api/memories/search", {"json": {"query": text[:1000]}}),
        ("POST", "/api/sign-in", {"json": {"token": "guess"}}),
        ("POST", "/api/forget-all", {}),
        ("DELETE", f"/api/memories/{'9' * chance.randrange(1, 400)}", {}),
        ("GET", f"/api/conversations/{name}/messages?before={'9' * 50}", {}),
        ("GET", "/api/conversations", {}),
        ("GET", "/api/export", {}),
        ("PATCH", "/" + "a" * chance.randrange(5000), {}),
    ]
    method, path, more = chance.choice(ways)
    more = dict(more)
    if "Content-Length" in headers:
        more.pop("json", None)
    return http.build_request(method, path, headers=headers, **more)
