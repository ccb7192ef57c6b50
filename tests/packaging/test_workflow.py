"""The workflow on the server runs the command that a developer runs, and no other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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


def test_the_action_checks_a_target_as_one_step(tmp_path: Path):
    """Its own shell lines, with the inputs as the runner gives them."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    step = next(s for s in action["runs"]["steps"] if "holdfast check" in s.get("run", ""))
    assert "${{" not in step["run"], "an input is data, never part of a script"
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=tmp_path,
        env=os.environ
        | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TARGET": "sqlite",
            "ARGUMENTS": "--faults none --promises faithful --time 1",
            "GITHUB_RUN_NUMBER": "7",
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        },
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert "--seed 7" in (tmp_path / "summary.md").read_text("utf-8")
    assert (tmp_path / "holdfast-report.html").exists()
    uses = [s["uses"] for s in WORKFLOW["jobs"]["action"]["steps"] if "uses" in s]
    assert "./" in uses
