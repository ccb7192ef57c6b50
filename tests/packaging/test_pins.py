"""requirements.lock says one version of everything that pyproject.toml leads to."""

from __future__ import annotations

import re
from collections import Counter

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.dist import PROJECT, ROOT, closure


def lines(name: str) -> list[Requirement]:
    text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
    kept = (line.split(" --hash=")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in kept if line and not line.startswith("#")]


PINS = {
    canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
    for pin in lines("requirements.lock")
    if pin.marker is None or pin.marker.evaluate()
}


def test_every_requirement_is_pinned_to_a_version_that_fits():
    extras = PROJECT["optional-dependencies"]
    wanted = [Requirement(one) for part in extras.values() for one in part]
    wanted += [Requirement(one) for one in PROJECT["dependencies"]]
    for need in wanted:
        if need.name != "holdfast" and (need.marker is None or need.marker.evaluate()):
            pin = PINS.get(canonicalize_name(need.name))
            assert pin is not None, f"{need} has no pin: make pin"
            assert need.specifier.contains(pin), f"{need}, but the pin is {pin}"


def test_what_is_installed_is_what_is_pinned():
    here = closure(["holdfast[dev]"])
    versions = {canonicalize_name(one.name): one.version for one in here if one.name != "holdfast"}
    assert len(versions) > len(PROJECT["optional-dependencies"]["dev"])
    assert versions == {name: PINS.get(name) for name in versions}


def test_a_package_is_pinned_once_on_any_one_machine():
    pins = lines("requirements.lock")
    here = [p for p in pins if p.marker is None or p.marker.evaluate()]
    twice = [name for name, n in Counter(canonicalize_name(p.name) for p in here).items() if n > 1]
    assert not twice
    assert all(str(pin.specifier).startswith("==") for pin in pins)


def test_every_file_that_set_up_installs_is_known_by_its_hash():
    text = (ROOT / "requirements.lock").read_text("utf-8").replace("\\\n", " ")
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(pins) > len(PINS) / 2
    assert [line for line in pins if not re.search(r" --hash=sha256:[0-9a-f]{64}\b", line)] == []
    setup = (ROOT / "scripts" / "setup").read_text("utf-8")
    installs = re.findall(r"^scripts/install (.*)$", setup, re.MULTILINE)
    assert installs == [
        "--no-deps --require-hashes --requirement requirements.lock",
        "--no-deps --no-build-isolation --editable .",
    ]
