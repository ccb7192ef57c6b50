"""One record is damaged, in whatever form a store keeps it, whatever the seed."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.pytest_plugin import EngineFactory
from holdfast.verify import Target
from holdfast.verify.adapters import plain
from holdfast.verify.adapters.plain import Read
from holdfast.verify.tamper import ONLY_A_CHECKSUM, Damage, wrong_with
from holdfast.verify.workload import probes
from tests.verify.check.damage_stores import CLAIMS, FORMS, Base, Columns, OneForAll

SEEDS = range(5)


def probe(form: type[Base], engine: Any, *, careful: bool, seed: int) -> dict[str, Any]:
    target = Target(open=lambda: form(engine, careful), engine=engine, claims=CLAIMS)
    with plain.Client(target) as surface:
        [found] = probes.damaged(surface, target, seed)
        return found


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_damaged_record_is_found_in_every_form_and_for_every_seed(
    form: type[Base], engine_factory: EngineFactory
):
    engine = engine_factory(form.engine)
    for seed in SEEDS:
        sound = probe(form, engine, careful=True, seed=seed)
        assert sound["verdict"] == "kept", sound
        assert sound["landed"], sound
        broken = probe(form, engine, careful=False, seed=seed + 1000)
        assert broken["verdict"] == "broken", broken


def test_a_text_in_a_column_of_its_own_is_told_by_a_checksum_only(engine_factory: EngineFactory):
    engine = engine_factory("sqlite")
    sound = probe(Columns, engine, careful=True, seed=1)
    assert sound["verdict"] == "kept", sound
    without = probe(Columns, engine, careful=False, seed=2)
    assert (without["verdict"], without["because"]) == (probes.LEFT_OUT, ONLY_A_CHECKSUM)


def test_a_damaged_record_may_not_hide_another_session_even_by_an_error(
    engine_factory: EngineFactory,
):
    found = probe(OneForAll, engine_factory("sqlite"), careful=True, seed=1)
    assert found["verdict"] == "broken", found
    assert found["because"].startswith("a damaged record of one session hides another session")


def test_who_names_the_damage_and_leaves_out_a_sound_neighbour_hides_it():
    sent = [{"content": text} for text in ("a", "b", "c")]
    named = Read(({"content": "a"},), damaged=("2: no JSON",))
    wrong = wrong_with(Damage("a table", hit=1), sent, named)
    assert wrong == "one damaged record hides 1 others that are sound"
    whole = Read(({"content": "a"}, {"content": "c"}), damaged=("2: no JSON",))
    assert wrong_with(Damage("a table", hit=1), sent, whole) is None
