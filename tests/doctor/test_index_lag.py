"""How far the index of our own store is behind its log, seen without asking it to follow."""

from __future__ import annotations

import functools
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Message
from holdfast.doctor import Audit, Hazard, Severity, Soundness, audit
from holdfast.pytest_plugin import EngineFactory
from tests.recall.models import Letters

FACT = "holdfast index lag"


@pytest.fixture(params=["sqlite", "redis", "postgres", "chroma"])
def url(request: pytest.FixtureRequest, engine_factory: EngineFactory, disk_path: Path) -> str:
    if request.param == "chroma":
        return f"chroma:///{disk_path}"
    return str(engine_factory(request.param, storage="disk").url)


def lag(found: Audit) -> list[float]:
    return [one.value for one in found.measures if one.name == "index_lag_records"]


def test_the_lag_is_a_figure_a_fact_and_a_note(url: str):
    say = functools.partial(Message, "user")
    with holdfast.connect(url, embedder=Letters(), background_indexing=False) as store:
        store.append("a", [say("one"), say("two"), say("three")])
        assert FACT not in audit(url).facts, "nobody has recalled yet: there is no index"
        store.remember("a", "a memory")
        store.recall("a", "one")
        even = audit(url)
        store.append("a", [say("four"), say("five")])
        store.remember("a", "another memory")
        store.append("never recalled", say("six"))
        late = audit(url)
        store.recall("a", "one")
        store.rewrite("a", [say("seven")])
        rewritten = audit(url)
    assert (even.facts[FACT], lag(even)) == ("0 record(s)", [0])
    assert (late.facts[FACT], lag(late)) == ("3 record(s)", [3])
    [note] = [one for one in late.findings if "behind" in one.now]
    assert note.severity is Severity.NOTE
    assert late.sound[Hazard.POWER] is even.sound[Hazard.POWER]
    assert lag(rewritten) in ([1], [0]), "a floor that moved is no lag of what is gone"


def test_our_own_directory_is_judged_by_its_log(disk_path: Path):
    place = f"chroma:///{disk_path}"
    with holdfast.connect(place, embedder=Letters(), background_indexing=False) as store:
        store.append("a", Message("user", "one"))
        none_yet = audit(place)
        store.recall("a", "one")
    found = audit(place)
    assert none_yet.facts["index"].startswith("none yet")
    assert found.sound[Hazard.POWER] is not Soundness.UNSOUND, "Chroma's own files are derived"
    assert found.ack_durability is not None
    assert found.facts["index: open in"] == "no process"
    assert {one.severity for one in found.findings if "index" in one.loses} <= {Severity.NOTE}


def test_an_index_that_cannot_be_read_is_named(disk_path: Path):
    place = f"chroma:///{disk_path}"
    with holdfast.connect(place, embedder=Letters(), background_indexing=False) as store:
        store.append("a", Message("user", "one"))
        store.recall("a", "one")
    db = apsw.Connection(str(disk_path / "chroma" / "chroma.sqlite3"))
    db.execute("DROP TABLE collection_metadata")
    db.close()
    assert any("how far the index is" in words for words in audit(place).unseen)
