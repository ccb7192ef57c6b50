"""A Kubernetes or Compose file: does the data directory outlive its container? Contacts nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.doctor import postgres_rules, redis_rules
from holdfast.doctor.finding import DECISIVE, Audit, Finding, Hazard, Opinion, Severity, ordered
from holdfast.doctor.redis_rules import RedisSeen
from holdfast.doctor.shell_words import is_client, program_words
from holdfast.errors import UsageError

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
IMAGES: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (re.compile(r"(^|/)(redis|valkey|redis-stack(-server)?|keydb)([:@]|$)"), "redis", "/data"),
    (re.compile(r"(^|/)bitnami/(redis|valkey)([:@]|$)"), "redis", "/bitnami/redis/data"),
    (
        re.compile(r"(^|/)(postgres|pgvector|postgis|timescaledb(-ha)?)([:@]|$)"),
        "postgres",
        "/var/lib/postgresql",
    ),
    (
        re.compile(r"(^|/)spilo(-\d+)?([:@]|$)"),
        "postgres",
        str(PurePosixPath("/home", "postgres", "pgdata")),
    ),
    (re.compile(r"(^|/)chroma([:@]|$)"), "chroma", "/data"),
)
"""What an image runs, and where it keeps its data by default."""
_WORKLOADS: Final = ("spec", "template", "jobTemplate")
_SETTING: Final = re.compile(r"^(?:redis-cli CONFIG SET|ALTER SYSTEM SET) ([\w-]+)(?: =)? (\w+);?$")
"""A setting in the commands of a finding."""
_SQLITE: Final = re.compile(r"(sqlite(?:\+\w+)?|chroma):///(/[^\s?\"']+)")


@dataclass(frozen=True, slots=True)
class Mount:
    """What is mounted where: `volume`, `bind`, `anonymous`, `tmpfs`, `emptyDir`, `memory`, `other`."""

    path: str
    kind: str
    name: str = ""


@dataclass(slots=True)
class Container:
    """A container of either kind of file."""

    name: str
    image: str
    words: list[str] | None
    """The program that it starts, with its arguments; none where the image decides, None if unknown."""
    environment: dict[str, str]
    mounts: list[Mount] = field(default_factory=list)
    kubernetes: bool = False
    line: int = 1


class _Lined(dict[Any, Any]):
    """A mapping that knows at which line of its file it begins."""

    line = 1


def look_at(path: Path) -> Audit:
    """The audit of a file."""
    try:
        containers = [one for document in _load(path) for one in _containers(document)]
    except UsageError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is not shaped as Kubernetes or Compose files are ({type(error).__name__}: {error})"
        ) from error
    opinion, facts, found = Opinion(), {}, False
    for container in containers:
        of_it = _judge_settings(container)
        for engine, data in _data_directories(container):
            found = True
            mount = _covering(container.mounts, data)
            facts[f"{container.name}: {data}"] = f"{engine} on {_words(mount)}"
            of_it.findings += _judge_mount(container, data, mount)
        of_it.findings = [replace(one, line=container.line) for one in of_it.findings]
        opinion.add(of_it)
    if not found:
        raise UsageError(
            f"{path} has no container in which an engine is recognised (redis, valkey, postgres, "
            "chroma by image, sqlite by a URL in the environment)"
        )
    opinion.unknown |= set(Hazard) - {*DECISIVE, Hazard.REPLACEMENT, Hazard.EVICTION}
    return Audit(
        engine="manifest",
        where=str(path),
        findings=ordered(opinion.findings),
        sound=opinion.sound(),
        facts=facts,
        unseen=("what the cluster really runs: this is what the file asks for",),
    )


def _load(path: Path) -> list[Any]:
    try:
        import yaml  # noqa: PLC0415 - only who reads a manifest needs it
    except ImportError as error:
        raise UsageError("--manifest needs PyYAML: pip install 'holdfast[doctor]'") from error

    class Loader(yaml.SafeLoader):
        """Notes where mappings begin."""

    def mapping(loader: Loader, node: Any) -> _Lined:
        made = _Lined(loader.construct_mapping(node, deep=True))
        made.line = node.start_mark.line + 1
        return made

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    if path.stat().st_size > FILE_BYTES_MAX:
        raise UsageError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        text = path.read_text("utf-8")
        return [one for one in yaml.load_all(text, Loader) if one]
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no YAML: {error}") from error


def _containers(document: Any) -> Iterator[Container]:
    if not isinstance(document, Mapping):
        return
    if "services" in document:
        for name, service in (document["services"] or {}).items():
            yield _from_compose(str(name), service or {})
    for item in document.get("items") or ():
        yield from _containers(item)
    if "kind" in document:
        yield from _from_kubernetes(document)


def _from_compose(name: str, service: Mapping[str, Any]) -> Container:
    mounts = [_compose_mount(one) for one in service.get("volumes") or ()]
    tmpfs = service.get("tmpfs") or ()
    mounts += [
        Mount(str(one).partition(":")[0], "tmpfs")
        for one in ([tmpfs] if isinstance(tmpfs, str) else tmpfs)
    ]
    given = service.get("environment") or {}
    if isinstance(given, list):
        given = dict(str(one).partition("=")[::2] for one in given)
    words = program_words(_split(service.get("entrypoint")) + _split(service.get("command")))
    environment = {str(key): str(value) for key, value in given.items()}
    image, line = str(service.get("image", "")), getattr(service, "line", 1)
    return Container(name, image, words, environment, mounts, line=line)


def _compose_mount(volume: Any) -> Mount:
    if isinstance(volume, Mapping):
        kind = str(volume.get("type", "volume"))
        source = str(volume.get("source", ""))
        if kind == "volume" and not source:
            kind = "anonymous"
        return Mount(str(volume.get("target", "")), kind, source)
    parts = str(volume).split(":")
    if len(parts) == 1:
        return Mount(parts[0], "anonymous")
    kind = "bind" if parts[0].startswith((".", "/", "~", "$")) else "volume"
    return Mount(parts[1], kind, parts[0])


def _from_kubernetes(document: Mapping[str, Any]) -> Iterator[Container]:
    spec: Any = document.get("spec") or {}
    claims = {one.get("metadata", {}).get("name") for one in spec.get("volumeClaimTemplates") or ()}
    while isinstance(spec, Mapping) and "containers" not in spec:
        inner = [spec[name] for name in _WORKLOADS if name in spec]
        if not inner:
            return
        spec = inner[0]
    volumes = {one.get("name"): one for one in spec.get("volumes") or ()}
    kinds = {name: _volume_kind(one) for name, one in volumes.items()}
    kinds |= dict.fromkeys(claims, "volume")
    owner = f"{document['kind']}/{document.get('metadata', {}).get('name', '?')}"
    for one in spec["containers"]:
        yield Container(
            f"{owner}/{one.get('name', '?')}",
            str(one.get("image", "")),
            program_words(
                [str(word) for word in (*(one.get("command") or ()), *(one.get("args") or ()))]
            ),
            {str(var["name"]): str(var.get("value", "")) for var in one.get("env") or ()},
            [
                Mount(str(mount["mountPath"]), kinds.get(mount["name"], "other"), mount["name"])
                for mount in one.get("volumeMounts") or ()
            ],
            kubernetes=True,
            line=getattr(one, "line", 1),
        )


def _volume_kind(volume: Mapping[str, Any]) -> str:
    if "emptyDir" in volume:
        return "memory" if (volume["emptyDir"] or {}).get("medium") == "Memory" else "emptyDir"
    if "ephemeral" in volume:
        return "ephemeral"
    if "hostPath" in volume:
        return "hostPath"
    return "volume" if "persistentVolumeClaim" in volume or "csi" in volume else "other"


def _split(command: Any) -> list[str]:
    if isinstance(command, str):
        return shlex.split(command)
    return [str(word) for word in command or ()]


def _data_directories(container: Container) -> Iterator[tuple[str, str]]:
    """Where a container keeps data: what its image is known for, and URLs in its environment."""
    for pattern, engine, data in IMAGES:
        if pattern.search(container.image) and not is_client(container.words or ()):
            chosen = _option(container, "--dir" if engine == "redis" else "--path")
            yield engine, container.environment.get("PGDATA") or chosen or data
            break
    for value in container.environment.values():
        for scheme, path in _SQLITE.findall(value):
            place = PurePosixPath(unquote(urlsplit(path).path))
            yield scheme, str(place if scheme == "chroma" else place.parent)


def _option(container: Container, name: str) -> str | None:
    words = container.words or []
    at = words.index(name) + 1 if name in words else len(words)
    return words[at] if at < len(words) else None


def _covering(mounts: Sequence[Mount], data: str) -> Mount | None:
    """The mount that holds a directory: the nearest above it, or one below where images keep it."""
    place = PurePosixPath(data)
    above = [one for one in mounts if place.is_relative_to(one.path)]
    below = [one for one in mounts if PurePosixPath(one.path).is_relative_to(place)]
    return max(above or below, key=lambda one: len(one.path), default=None)


def _words(mount: Mount | None) -> str:
    return "the container's own layer" if mount is None else f"{mount.kind} {mount.name}".strip()


def _judge_mount(container: Container, data: str, mount: Mount | None) -> list[Finding]:
    kind = "none" if mount is None else mount.kind
    if kind not in _MOUNTS:
        return []
    severity, hazards, loses, why = _MOUNTS[kind]
    if kind == "none" and not container.kubernetes:
        hazards = (Hazard.REPLACEMENT,)
        loses = "everything when the container is removed (docker compose down, an upgrade)"
        why = "no volume is named for the data directory: what it holds goes with the container"
    fix = (
        f"a persistentVolumeClaim, or a volumeClaimTemplate of a StatefulSet, at {data}"
        if container.kubernetes
        else f"a named volume at {data}: `volumes: ['memory:{data}']` here, and `memory:` under the "
        "volumes of the whole file"
    )
    return [
        Finding(
            severity, hazards, loses, why,
            f"{container.name}: {data} is on {_words(mount)}", f"Mount {fix}",
        )
    ]  # fmt: skip


_MOUNTS: Final[Mapping[str, tuple[Severity, tuple[Hazard, ...], str, str]]] = {
    "none": (
        Severity.CRITICAL,
        (Hazard.SIGKILL, Hazard.POWER, Hazard.REPLACEMENT),
        "everything whenever the container ends, for whatever reason",
        "nothing is mounted over the data directory, and a new container begins with an empty layer",
    ),
    "tmpfs": (
        Severity.CRITICAL,
        (Hazard.SIGKILL, Hazard.POWER, Hazard.REPLACEMENT),
        "everything whenever the container stops",
        "tmpfs is memory of the container",
    ),
    "memory": (
        Severity.CRITICAL,
        (Hazard.POWER, Hazard.REPLACEMENT),
        "everything when the pod moves or the node restarts",
        "an emptyDir in memory lives as long as its pod on this node",
    ),
    "emptyDir": (
        Severity.CRITICAL,
        (Hazard.REPLACEMENT,),
        "everything when the pod is deleted, evicted or moved",
        "an emptyDir lives as long as its pod",
    ),
    "ephemeral": (
        Severity.CRITICAL,
        (Hazard.REPLACEMENT,),
        "everything when the pod is deleted, evicted or moved",
        "a generic ephemeral volume is deleted with its pod",
    ),
    "anonymous": (
        Severity.WARNING,
        (Hazard.REPLACEMENT,),
        "everything at `docker compose down`, after which nobody finds the volume again",
        "a volume without a name belongs to one container",
    ),
    "hostPath": (
        Severity.WARNING,
        (Hazard.REPLACEMENT,),
        "everything when the pod is started on another node",
        "a hostPath is a directory of one node",
    ),
}


def _judge_settings(container: Container) -> Opinion:
    """What the arguments say, where they say anything; a configuration file is not opened."""
    engines = [engine for pattern, engine, _ in IMAGES if pattern.search(container.image)]
    if is_client(container.words or ()):
        return Opinion()
    if container.words is None and engines:
        return Opinion(unknown={Hazard.SIGKILL, Hazard.POWER, Hazard.EVICTION})
    words = container.words or []
    if "redis" in engines:
        if any(word.endswith(".conf") for word in words):
            return Opinion(unknown={Hazard.SIGKILL, Hazard.POWER, Hazard.EVICTION})
        config = {**redis_rules.DEFAULTS, **redis_arguments(words)}
        opinion = redis_rules.persistence(RedisSeen(config, {}))
        opinion.add(redis_rules.eviction(RedisSeen(config, {})))
    elif "postgres" in engines:
        opinion = postgres_rules.of_settings(_postgres_arguments(words))
    else:
        return Opinion()
    opinion.findings = [_as_arguments(container, finding) for finding in opinion.findings]
    return opinion


def _as_arguments(container: Container, finding: Finding) -> Finding:
    """The same finding, cured in the file instead of on the server."""
    arguments = [
        _SETTING.sub(r"--\1 \2" if command.startswith("redis-cli") else r"-c \1=\2", command)
        for command in finding.commands
        if _SETTING.match(command)
    ]
    return replace(
        finding,
        now=f"{container.name}: {finding.now}",
        change=f"Put into the command of {container.name}: {' '.join(arguments)}",
        commands=(),
    )


def redis_arguments(words: Sequence[str]) -> dict[str, str]:
    """`--appendonly yes --save 60 1` as settings."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found[name] = [value] if value else []
        elif name:
            found[name].append(word)
    settings = {name: " ".join(values).strip("\"'") for name, values in found.items()}
    if "maxmemory" in settings:
        settings["maxmemory"] = str(_bytes(settings["maxmemory"]))
    return settings


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text.lower())
    return 1 if found is None else int(found[1]) * 1024 ** " kmg".index(found[2] or " ")


def _postgres_arguments(words: Sequence[str]) -> dict[str, str]:
    """`-c fsync=off`."""
    pairs = [word.removeprefix("-c") for word in words if "=" in word]
    found = dict(pair.removeprefix("--").partition("=")[::2] for pair in pairs)
    return {name.strip().replace("-", "_"): value.strip().lower() for name, value in found.items()}
