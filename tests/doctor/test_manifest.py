"""A Kubernetes or Compose file: does the data directory outlive its container?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import UsageError
from holdfast.doctor import Audit, Hazard, Soundness
from holdfast.doctor.manifest import look_at, redis_arguments
from tests.doctor.conftest import about, verdicts

SOUND, UNSOUND, UNKNOWN, ABSENT = Soundness
ALWAYS = "redis-server --appendonly yes --appendfsync always"

COMPOSE = """
services:
  memory:
    image: {image}
    command: {command}
    {rest}
volumes:
  kept:
"""

POD = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: memory}}
spec:
  template:
    spec:
      containers:
      - name: db
        image: {image}
        args: {args}
        volumeMounts: {mounts}
      volumes: {volumes}
"""


def look(folder: Path, text: str) -> Audit:
    file = folder / "manifest.yaml"
    file.write_text(text)
    return look_at(file)


@pytest.mark.parametrize(
    ("rest", "kept", "at_kill"),
    [
        ("volumes: ['kept:/data']", SOUND, SOUND),
        ("volumes: ['./here:/data']", SOUND, SOUND),
        ("volumes: [{type: volume, source: kept, target: /data}]", SOUND, SOUND),
        ("volumes: [{type: volume, target: /data}]", UNSOUND, SOUND),
        ("volumes: ['/data']", UNSOUND, SOUND),
        ("volumes: ['kept:/elsewhere']", UNSOUND, SOUND),
        ("restart: always", UNSOUND, SOUND),
        ("tmpfs: /data", UNSOUND, UNSOUND),
        ("tmpfs: ['/data:size=64m']", UNSOUND, UNSOUND),
        ("volumes: [{type: tmpfs, target: /data}]", UNSOUND, UNSOUND),
    ],
)
def test_compose_volumes(tmp_path: Path, rest: str, kept: Soundness, at_kill: Soundness):
    found = look(tmp_path, COMPOSE.format(image="redis:7", command=ALWAYS, rest=rest))
    assert (found.sound[Hazard.REPLACEMENT], found.sound[Hazard.SIGKILL]) == (kept, at_kill)
    assert found.exit_code == (0 if kept is SOUND else 1)


@pytest.mark.parametrize(
    ("volume", "kept", "verdict"),
    [
        ("persistentVolumeClaim: {claimName: c}", SOUND, (SOUND, SOUND)),
        ("emptyDir: {}", UNSOUND, (SOUND, SOUND)),
        ("emptyDir: {medium: Memory}", UNSOUND, (SOUND, UNSOUND)),
        ("hostPath: {path: /srv}", UNSOUND, (SOUND, SOUND)),
        ("ephemeral: {volumeClaimTemplate: {}}", UNSOUND, (SOUND, SOUND)),
    ],
)
def test_kubernetes_volumes(
    tmp_path: Path, volume: str, kept: Soundness, verdict: tuple[Soundness, Soundness]
):
    text = POD.format(
        image="postgres:16",
        args="[]",
        mounts="[{name: d, mountPath: /var/lib/postgresql/data}]",
        volumes="[{name: d, " + volume + "}]",
    )
    found = look(tmp_path, text)
    assert found.sound[Hazard.REPLACEMENT] is kept
    assert verdicts(found) == verdict


def test_a_pod_without_a_volume_loses_everything_when_its_container_ends(tmp_path: Path):
    text = POD.format(
        image="registry.example/library/valkey:8", args="[]", mounts="[]", volumes="[]"
    )
    found = look(tmp_path, text)
    assert verdicts(found) == (UNSOUND, UNSOUND)
    assert "container's own layer" in about(found, Hazard.REPLACEMENT)


def test_a_stateful_set_with_claims_is_kept(tmp_path: Path):
    text = """
kind: List
items:
- kind: StatefulSet
  metadata: {name: memory}
  spec:
    template:
      spec:
        containers:
        - name: db
          image: redis:7
          args: ["--appendonly", "yes", "--appendfsync", "always"]
          volumeMounts: [{name: d, mountPath: /data}]
    volumeClaimTemplates: [{metadata: {name: d}}]
"""
    found = look(tmp_path, text)
    assert found.exit_code == 0
    assert verdicts(found) == (SOUND, SOUND)
    assert "StatefulSet/memory/db: /data" in found.facts


@pytest.mark.parametrize(
    ("image", "command", "verdict"),
    [
        ("redis", "redis-server", (UNSOUND, UNSOUND)),  # as the image comes
        ("redis", "redis-server --appendonly yes", (UNSOUND, UNSOUND)),
        ("redis", ALWAYS, (SOUND, SOUND)),
        (
            "redis",
            "['redis-server', '--appendonly', 'yes', '--appendfsync', 'no']",
            (SOUND, UNSOUND),
        ),
        ("redis", "redis-server /etc/redis.conf", (UNKNOWN, UNKNOWN)),
        ("pgvector/pgvector:pg16", "postgres -c fsync=off", (SOUND, UNSOUND)),
        ("postgres:16", "postgres -c synchronous_commit=off", (UNSOUND, UNSOUND)),
        ("chromadb/chroma:1.5.9", "run", (SOUND, SOUND)),
    ],
)
def test_the_arguments_count(
    tmp_path: Path, image: str, command: str, verdict: tuple[Soundness, Soundness]
):
    data = "/var/lib/postgresql/data" if "p" in image[:2] else "/data"
    rest = f"volumes: ['kept:{data}']"
    assert (
        verdicts(look(tmp_path, COMPOSE.format(image=image, command=command, rest=rest))) == verdict
    )


@pytest.mark.parametrize(
    ("image", "command"), [("redis", "redis-server"), ("postgres", "postgres -c fsync=off")]
)
def test_the_change_that_it_names_is_the_cure(tmp_path: Path, image: str, command: str):
    rest = "volumes: ['kept:/data', 'kept:/var/lib/postgresql/data']"
    found = look(tmp_path, COMPOSE.format(image=image, command=command, rest=rest))
    [finding] = found.findings
    words = finding.change.partition("Put into the command of memory: ")[2]
    cured = look(tmp_path, COMPOSE.format(image=image, command=f"{command} {words}", rest=rest))
    assert cured.exit_code == 0, words


def test_a_file_named_in_the_environment_needs_a_volume_too(tmp_path: Path):
    text = """
services:
  app:
    image: my-agent
    environment: [HOLDFAST_STORE=sqlite:////var/lib/app/memory.db]
    volumes: {volumes}
"""
    assert look(tmp_path, text.replace("{volumes}", "[]")).sound[Hazard.REPLACEMENT] is UNSOUND
    kept = look(tmp_path, text.replace("{volumes}", "['kept:/var/lib/app']"))
    assert kept.exit_code == 0


@pytest.mark.parametrize("text", ["services: {web: {image: nginx}}", "a: [", "just words"])
def test_a_file_that_says_nothing_is_a_wrong_argument(tmp_path: Path, text: str):
    with pytest.raises(UsageError):
        look(tmp_path, text)


WORDS = ["services", "image", "redis:7", "volumes", "tmpfs", "/data", "command", "environment",
         "kind", "Pod", "spec", "template", "containers", "volumeMounts", "mountPath", "name",
         "emptyDir", "items", "PGDATA", "sqlite:////a/b.db", "--maxmemory", "'"]  # fmt: skip
SHAPES = st.recursive(
    st.none() | st.integers() | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(SHAPES)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_of_any_shape_is_an_audit_or_a_wrong_argument(tmp_path: Path, shape: Any):
    try:
        look(
            tmp_path,
            yaml.safe_dump_all([{"services": {"a": shape}}, {"kind": "Pod", "spec": shape}]),
        )
    except UsageError:
        return


def test_arguments_of_redis():
    words = [
        "redis-server",
        "--save",
        "60",
        "1",
        "--maxmemory",
        "2gb",
        "--maxmemory-policy=noeviction",
    ]
    found = redis_arguments(words)
    assert found == {
        "save": "60 1",
        "maxmemory": str(2 * 1024**3),
        "maxmemory-policy": "noeviction",
    }


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("sh -c 'exec redis-server --appendonly yes --appendfsync always'", (SOUND, SOUND)),
        ("sh -c 'sleep 1; exec redis-server --appendonly yes'", (UNSOUND, UNSOUND)),
        ("bash -ec 'redis-server --save 60 1 && echo over'", (UNSOUND, UNSOUND)),
        ("sh -c 'until redis-cli ping; do sleep 1; done; /start.sh'", (UNKNOWN, UNKNOWN)),
        ("sh /start.sh", (UNKNOWN, UNKNOWN)),
    ],
)
def test_an_engine_that_a_shell_starts_is_judged_by_its_own_words(
    tmp_path: Path, command: str, verdict: tuple[Soundness, Soundness]
):
    rest = "volumes: ['kept:/data']"
    found = look(tmp_path, COMPOSE.format(image="redis:7", command=command, rest=rest))
    assert verdicts(found) == verdict


@pytest.mark.parametrize(
    "command", ["redis-sentinel /s.conf", "redis-server /s.conf --sentinel", "sh -c 'redis-cli x'"]
)
def test_a_program_that_keeps_no_conversations_is_no_engine(tmp_path: Path, command: str):
    with pytest.raises(UsageError, match="no container in which an engine"):
        look(tmp_path, COMPOSE.format(image="redis:7", command=command, rest="restart: always"))
