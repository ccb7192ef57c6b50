"""The doctor's word on what `make test` leaves out: every configuration is killed, and cut."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.doctor import Hazard, audit, sound_for
from holdfast.pytest_plugin import EngineFactory
from holdfast.verify.engines import start_engine
from holdfast.verify.engines.configs import CONFIGS
from tests.doctor.plain_writes import agrees, count, patient, write_plainly
from tests.doctor.test_agreement import FURTHER, KILLED, SOUND

REST = [
    (kind, config)
    for kind, known in CONFIGS.items()
    for config in known
    if (kind, config) not in KILLED and kind != "sqlite"
]
SETTINGS = [
    pytest.param(kind, settings, id=f"{kind}-{'-'.join(settings.values())}")
    for kind, settings, _ in FURTHER
    if kind != "sqlite" and settings.get("full_page_writes") != "off"  # needs a torn page
]


@pytest.mark.parametrize(("kind", "config"), [*REST, ("redis", "cluster"), ("postgres", "replica")])
def test_what_is_called_sound_for_a_kill_loses_nothing(
    engine_factory: EngineFactory, kind: str, config: str
):
    engine = engine_factory(kind, config=config, settings=patient(kind))
    said = audit(engine.url).sound[Hazard.SIGKILL]
    acknowledged = write_plainly(engine)
    engine.kill()
    engine.start()
    lost = acknowledged - count(engine)
    assert lost == 0 or said is not SOUND, f"{said}, and {lost} of {acknowledged} were lost"


@pytest.mark.usefixtures("can_cut")
@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_settings_without_a_name_are_cut_as_well(kind: str, settings: dict[str, Any]):
    told = {**patient(kind), **settings}
    with start_engine(kind, config=_BARE[kind], settings=told, power="block") as engine:
        agrees(engine, sound_for(kind, settings)[Hazard.POWER])


@pytest.mark.usefixtures("can_cut")
@pytest.mark.parametrize("config", ["aof-everysec", "mixed", "no-persistence"])
def test_valkey_loses_what_redis_does(config: str):
    with start_engine("valkey", config=config, power="block") as engine:
        agrees(engine, audit(engine.url).sound[Hazard.POWER])


_BARE = {"redis": "rdb-only", "postgres": "default"}
"""What a server has that was told nothing."""
