"""A store that loses what it acknowledged, and says things that a careless page would obey."""

from __future__ import annotations

from typing import Any

from holdfast.verify import Target
from holdfast.verify.engines import Engine
from tests.verify.check.redis_stores import SoundRedis
from tests.verify.check.stores import KEEPS

SCRIPT = "<script>document.title='owned'</script>"
IMAGE = '<img src="http://127.0.0.1:9/x" onerror="document.title=\'owned\'">'
BACKWARDS = "\N{RIGHT-TO-LEFT OVERRIDE}}}{{ 7*7 }} \ud83d"


class Hostile(SoundRedis):
    """Every read shows messages that nobody wrote, before and between the others."""

    def history(self, session: str, limit: int | None) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        for number, message in enumerate([None, *super().history(session, limit)]):
            shown += [] if message is None else [message]
            name = f"{SCRIPT}{BACKWARDS}{number}"
            shown.append({"id": name, "role": "user", "content": name})
        return shown


def hostile(engine: Engine) -> Target:
    url = engine.url
    return Target(
        open=lambda: Hostile(url),
        engine=engine,
        claims=KEEPS,
        name=f"Hostile {IMAGE}",
        settings={"<b>note</b>": SCRIPT},
    )
