"""Files from somebody who means harm: neither the loop nor the memory feels them."""

from __future__ import annotations

import asyncio
import base64
import io
import time

import pytest

import holdfast
from holdfast.chat import bounds, panel
from holdfast.chat.people import Person, new_token
from tests.exports import export, session

KEY = "key-0000-0000-0001"


def test_a_large_file_is_loaded_in_pieces_beside_others(tmp_path):
    """Neither the loop nor the memory feels it: what is loaded is read twice, in a thread."""
    person = Person.of(new_token())
    lines = [
        session(
            f"u/{'0' * 32}/s/conversation-{at}",
            [f"{at} {'x' * 1000} {turn}" for turn in range(1000)],
        )
        for at in range(4)
    ]
    data = "\n".join(export(*lines)).encode()
    waits: list[float] = []

    async def beside() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.005)
            waits.append(time.monotonic() - begun)

    async def work() -> dict[str, int]:
        store = await holdfast.connect_async(f"sqlite:///{tmp_path}/m.db", namespace="chat")
        async with store:
            watching = asyncio.create_task(beside())
            loaded = await panel.load(store, person, io.BytesIO(data), KEY)
            again = await panel.load(store, person, io.BytesIO(data), KEY)
            watching.cancel()
            assert loaded == again
            stat = await store.stat((await store.sessions(prefix=person.prefix))[0])
            assert stat.count == 1000
            return loaded

    assert asyncio.run(work()) == {"conversations": 4, "messages": 4000, "memories": 0}
    assert max(waits) < 0.5, f"the loop stood still for {max(waits):.2f} s"


def _as_record(value: bytes) -> bytes:
    """An export with one message, which is this."""
    facts = f'"session":"u/{"0" * 32}/s/conversation-1","state":"live","last":1,"messages":1'
    head = f'{{"holdfast_export":1}}\n{{{facts},"ttl_s":null,"expires_at_ms":null,"keys":[]}}\n'
    record = b'{"seq":1,"record_b64":"' + base64.b64encode(value) + b'"}\n'
    return head.encode() + record + b'{"end":true,"sessions":1}\n'


HEAVY = {
    "objects": lambda: b"[" + b'{"a":{}},' * 1_500_000 + b"0]",
    "keys": lambda: b"{" + b",".join(b'"%x":0' % at for at in range(1_500_000)) + b"}",
    "message": lambda: _as_record(b'{"v":1,"msg":[' + b'{"a":{}},' * 1_200_000 + b"0]}"),
}


@pytest.mark.parametrize("what", HEAVY)
def test_one_line_that_takes_long_to_parse_holds_nobody_up(what: str, tmp_path):
    """A thread does not help: a parser of C lets no other thread go on before its end."""
    data = HEAVY[what]()
    assert len(data) <= bounds.LOAD_BYTES_MAX

    async def work() -> None:
        store = await holdfast.connect_async(f"sqlite:///{tmp_path}/m.db", namespace="chat")
        async with store:
            with pytest.raises(holdfast.LimitExceeded, match=r"[Nn]othing was loaded"):
                await panel.load(store, Person.of(new_token()), io.BytesIO(data), KEY)

    begun_s = time.process_time()
    asyncio.run(work())
    assert time.process_time() - begun_s < 1
