"""The workflow on the server runs the command that a developer runs, and no other."""

from __future__ import annotations

import os
import re

import yaml

from tests.packaging.dist import PROJECT, ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
JOB = WORKFLOW["jobs"]["check"]


def test_it_runs_what_must_be_green_before_a_change_lands():
    always = [step["run"] for step in JOB["steps"] if "run" in step and "if" not in step]
    assert always == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert not any(step.get("continue-on-error") for step in JOB["steps"])


def test_a_failure_leaves_the_report():
    rescue = [step for step in JOB["steps"] if step.get("if") == "failure()"]
    made = re.search(r"^run:.*\n\t.*--report (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert made is not None
    assert rescue[0]["run"] == "make run"
    assert rescue[1]["with"]["path"] == made[1]


def test_it_runs_on_every_python_that_the_package_names():
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert JOB["strategy"]["matrix"]["python"] == named


def test_packages_are_kept_until_a_pin_changes():
    (cache,) = (step["with"] for step in JOB["steps"] if "cache" in step.get("uses", ""))
    for file in re.findall(r"'([\w.]+)'", cache["key"]):
        assert (ROOT / file).exists(), file
    assert "requirements.lock" in cache["key"]
