"""The provider of engines through Docker Compose, version 2 or 1.

The compose files, each with a health check, are in `compose_files` beside this module.
HOLDFAST_COMPOSE names the command where it is neither `docker compose` nor `docker-compose`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.errors import EngineFailed, EngineMissing
from holdfast.verify.engines.container import START_TIMEOUT_S, STOP_TIMEOUT_S, ContainerEngine
from holdfast.verify.engines.options import EngineOptions, Found
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.engines.recipes import RECIPES, image_of, image_variable, said
from holdfast.verify.undo import Undo

COMPOSE_VARIABLE: Final = "HOLDFAST_COMPOSE"
SERVICE: Final = "engine"
_COMMAND_TIMEOUT_S: Final = START_TIMEOUT_S + STOP_TIMEOUT_S
_LOOK_TIMEOUT_S: Final = 20.0
"""To ask whether somebody is there at all; version 1 needs a second to wake up."""
_GONE: Final = {"Running": False, "Paused": False, "ExitCode": 0, "Pid": 0}


def open_engine(options: EngineOptions) -> Engine:
    """An engine of a compose project; `EngineMissing` where daemon, Compose or image is absent."""
    return ComposeEngine(options)


def find_engines() -> list[Found]:
    """The images that Compose could start, and the command for those that are missing."""
    try:
        compose = compose_command()
        _need_daemon()
    except (EngineMissing, EngineFailed) as error:
        where, _, how = str(error).partition(" To get it: ")
        return [Found(kind, "compose", None, where, how) for kind in RECIPES]
    return [_find(kind, compose) for kind in RECIPES]


def compose_file(kind: str) -> Path:
    """The compose file of this kind, as it is shipped."""
    return Path(__file__).parent / "compose_files" / f"{kind}.yaml"


def compose_command() -> list[str]:
    """How Compose is called here; version 2 first."""
    named = os.environ.get(COMPOSE_VARIABLE)
    candidates = [shlex.split(named)] if named else [["docker", "compose"], ["docker-compose"]]
    for candidate in candidates:
        if (
            shutil.which(candidate[0])
            and _run([*candidate, "version"], timeout_s=_LOOK_TIMEOUT_S).returncode == 0
        ):
            return candidate
    tried = " and ".join(f"`{shlex.join(candidate)}`" for candidate in candidates)
    raise EngineMissing(
        f"no Docker Compose here; tried {tried}. To get it: apt-get install -y docker-compose"
    )


class ComposeEngine(ContainerEngine):
    """A compose project with one service."""

    provider = "compose"

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._compose = [
            *compose_command(),
            *("--project-name", self.name, "--file", str(compose_file(self.kind))),
        ]
        _need_daemon()
        _need_image(self.kind, self.image)
        self._undo: Undo | None = None
        self._id = ""

    def _make(self) -> None:
        down = [*self._compose, "down", "--volumes", "--timeout", "0"]
        self._undo = Undo(*down, environment=self._environment())
        self._make_again()

    def _make_again(self) -> None:
        _need_image(self.kind, self.image)
        self._call("up", "--detach", "--force-recreate")
        self._id = self._call("ps", "--quiet", SERVICE).strip()

    def _begin(self) -> None:
        self._call("start")

    def _end(self) -> None:
        self._call("stop", "--timeout", str(int(STOP_TIMEOUT_S)))

    def _kill(self) -> None:
        self._call("kill")

    def _hold(self) -> None:
        self._call("pause")

    def _let_go(self) -> None:
        self._call("unpause")

    def _remove(self) -> None:
        self._call("down", "--volumes", "--timeout", "0")
        if self._undo is not None:
            self._undo.cancel()

    def health(self) -> str:
        """What the health check of the compose file says: starting, healthy or unhealthy."""
        return str(self._state().get("Health", {}).get("Status", "none"))

    def _state(self) -> Mapping[str, Any]:
        # By the daemon, not by Compose: version 1 takes half a second for every word.
        done = _run(["docker", "inspect", "--format", "{{json .State}}", self._id or self.name])
        if done.returncode != 0:
            return _GONE
        state: Mapping[str, Any] = json.loads(done.stdout)
        return state

    def _logs(self, lines: int) -> str:
        done = _run(["docker", "logs", "--tail", str(lines), self._id or self.name])
        return done.stdout + done.stderr

    def _call(self, *words: str) -> str:
        done = _run([*self._compose, *words], self._environment())
        if done.returncode != 0:
            raise EngineFailed(
                f"{self.kind} from {self.image}: compose {words[0]} failed: {said(done.stderr)}",
                backend=self.kind,
            )
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {
            "HOLDFAST_IMAGE": self.image,
            "HOLDFAST_PORT": str(self.port),
            "HOLDFAST_COMMAND": shlex.join(self.command()),
            "HOLDFAST_PASSWORD": self._options.password,
        }


def _need_daemon() -> None:
    if shutil.which("docker") is None:
        raise EngineMissing("no `docker` in PATH. To get it: apt-get install -y docker.io")
    done = _run(["docker", "version"], timeout_s=_LOOK_TIMEOUT_S)
    if done.returncode != 0:
        raise EngineMissing(
            f"no Docker daemon answers ({said(done.stderr)}). To get it: start Docker, or as root "
            '`eval "$(scripts/docker up)"`'
        )


def _need_image(kind: str, image: str) -> None:
    """The image is here, or it is pulled, or it is said how to get it."""
    if _has_image(image):
        return
    done = _run(["docker", "pull", "--quiet", image])
    if done.returncode != 0:
        raise EngineMissing(
            f"the image {image} is not here and could not be pulled ({said(done.stderr)}). "
            f"To get it: docker pull {image}, or set {image_variable(kind)} to one that is here",
            backend=kind,
        )


def _has_image(image: str) -> bool:
    return _run(["docker", "image", "inspect", image]).returncode == 0


def _find(kind: str, compose: list[str]) -> Found:
    image = image_of(kind, None)
    if _has_image(image):
        where = f"image {image} by `{shlex.join(compose)}`"
        return Found(kind, "compose", image.rpartition(":")[2], where)
    how = f"docker pull {image}, or set {image_variable(kind)} to one that is here"
    return Found(kind, "compose", None, f"image {image}", how)


def _run(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    *,
    timeout_s: float = _COMMAND_TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the command is our own
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineFailed(f"`{shlex.join(command)}` did not end within {timeout_s:g} s") from error
