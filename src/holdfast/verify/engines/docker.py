"""The provider of engines in Docker containers, through testcontainers.

The image is that of HOLDFAST_REDIS_IMAGE (or _VALKEY_, _POSTGRES_), otherwise the well-known
one. The daemon must be on this machine: ports are published on loopback only.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from holdfast.errors import EngineFailed, EngineMissing
from holdfast.verify.engines.container import STOP_TIMEOUT_S, ContainerEngine
from holdfast.verify.engines.options import EngineOptions, Found
from holdfast.verify.engines.protocol import Engine
from holdfast.verify.engines.recipes import RECIPES, image_of, image_variable, said
from holdfast.verify.undo import Undo

if TYPE_CHECKING:
    from docker import DockerClient
    from testcontainers.core.container import DockerContainer

_DAEMON_TIMEOUT_S: Final = 60
_LOOK_TIMEOUT_S: Final = 5
"""A question about what is here does not wait long for a daemon that hangs."""
_USUAL_SOCKET: Final = "unix:///var/run/docker.sock"
_REMOVE: Final = """
import sys, contextlib, docker
client = docker.from_env()
with contextlib.suppress(docker.errors.NotFound):
    client.containers.get(sys.argv[1]).remove(force=True, v=True)
with contextlib.suppress(docker.errors.NotFound):
    client.volumes.get(sys.argv[1]).remove(force=True)
"""
_GONE: Final = {"Running": False, "Paused": False, "ExitCode": 0, "Pid": 0}


def open_engine(options: EngineOptions) -> Engine:
    """An engine in a container; `EngineMissing` where daemon, package or image is absent."""
    return DockerEngine(options)


def find_engines() -> list[Found]:
    """The images that this daemon has, and the command for those it lacks."""
    try:
        client = connect(timeout_s=_LOOK_TIMEOUT_S)
    except EngineMissing as error:
        where, _, how = str(error).partition(" To get it: ")
        return [Found(kind, "docker", None, where, how) for kind in RECIPES]
    with contextlib.closing(client):
        return [_find(client, kind) for kind in RECIPES]


def connect(timeout_s: int = _DAEMON_TIMEOUT_S) -> DockerClient:
    """A connection to the daemon that testcontainers would use."""
    try:
        import docker  # noqa: PLC0415 - only who uses Docker needs it
        from testcontainers.core.docker_client import get_docker_host  # noqa: PLC0415
    except ImportError as error:
        raise EngineMissing(
            "Docker needs a Python package. To get it: pip install 'holdfast[docker]'"
        ) from error
    address = get_docker_host() or _USUAL_SOCKET
    try:
        _need_socket(address)
        client = docker.DockerClient(base_url=address, timeout=timeout_s)
        with _closed_on_error(client):
            client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise EngineMissing(
            f"no Docker daemon answers at {address} ({said(error)}). To get it: start Docker, or "
            'as root `eval "$(scripts/docker up)"`'
        ) from error
    return client


def is_local(address: str) -> bool:
    """Whether the daemon's address, as the driver has it, is on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "http+docker":  # a socket in the file system; "ssh" is a way to elsewhere
        return parts.hostname == "localhost"
    return parts.hostname in ("localhost", "127.0.0.1", "::1")


def _need_socket(address: str) -> None:
    """`OSError` if nobody listens. The driver would leak a socket over it."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(address.removeprefix("unix://"))


class DockerEngine(ContainerEngine):
    """A container that testcontainers made."""

    provider = "docker"

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._client = connect()
        with _closed_on_error(self._client):
            self._need_local_daemon()
            self._need_image()
        self._container: DockerContainer | None = None
        self._undo: Undo | None = None

    def close(self) -> None:
        """Remove container and volume. Closing twice does nothing."""
        super().close()
        self._client.close()

    def _make(self) -> None:
        self._undo = Undo(sys.executable, "-c", _REMOVE, self.name)
        self._make_again()

    def _make_again(self) -> None:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - heavy

        self._need_image()
        self._drop_container()
        container = DockerContainer(
            self.image,
            env={self.recipe.password_variable: self._options.password},
            name=self.name,
            volumes=[(self.name, self.recipe.data, "rw")],
            stop_signal=self.recipe.stop_signal,
        ).with_command(self.command())
        # A bare number would publish it on every interface of this machine.
        container.ports[f"{self.recipe.port}/tcp"] = ("127.0.0.1", self.port)  # type: ignore[assignment]
        self._container = container
        try:
            container.start()
        except Exception as error:
            raise EngineFailed(
                f"{self.kind} from {self.image} did not start: {said(error)}", backend=self.kind
            ) from error

    def _begin(self) -> None:
        self._wrapped().start()

    def _end(self) -> None:
        self._wrapped().stop(timeout=int(STOP_TIMEOUT_S))

    def _kill(self) -> None:
        self._wrapped().kill()

    def _hold(self) -> None:
        self._wrapped().pause()

    def _let_go(self) -> None:
        self._wrapped().unpause()

    def _remove(self) -> None:
        import docker.errors  # noqa: PLC0415 - heavy

        self._drop_container()
        with contextlib.suppress(docker.errors.NotFound):
            self._client.volumes.get(self.name).remove(force=True)
        if self._undo is not None:
            self._undo.cancel()

    def _state(self) -> Mapping[str, Any]:
        import docker.errors  # noqa: PLC0415 - heavy

        try:
            state: Mapping[str, Any] = self._client.api.inspect_container(self.name)["State"]
        except docker.errors.NotFound:
            return _GONE
        return state

    def _logs(self, lines: int) -> str:
        import docker.errors  # noqa: PLC0415 - heavy

        with contextlib.suppress(docker.errors.NotFound):
            log: bytes = self._wrapped().logs(tail=lines)
            return log.decode("utf-8", "replace")
        return ""

    def _wrapped(self) -> Any:
        return self._client.containers.get(self.name)

    def _drop_container(self) -> None:
        """Remove the container by name: also one whose start failed, which nobody else does."""
        import docker.errors  # noqa: PLC0415 - heavy

        with contextlib.suppress(docker.errors.NotFound):
            self._wrapped().remove(force=True, v=True)
        if self._container is not None:
            self._container.get_docker_client().client.close()
            self._container = None

    def _need_local_daemon(self) -> None:
        address = str(self._client.api.base_url)
        if not is_local(address):
            raise EngineMissing(
                f"the Docker daemon at {address} is on another machine, and engines are published "
                "on loopback only. To get it: unset DOCKER_HOST and start Docker here",
                backend=self.kind,
            )

    def _need_image(self) -> None:
        """The image is here, or it is pulled, or it is said how to get it."""
        import docker.errors  # noqa: PLC0415 - heavy

        try:
            self._client.images.get(self.image)
        except docker.errors.ImageNotFound:
            try:
                self._client.images.pull(self.image)
            except docker.errors.APIError as error:
                raise EngineMissing(
                    f"the image {self.image} is not here and could not be pulled ({said(error)}). "
                    f"To get it: {how_to_get(self.kind, self.image)}",
                    backend=self.kind,
                ) from error


def how_to_get(kind: str, image: str) -> str:
    """The commands that bring an image."""
    return f"docker pull {image}, or set {image_variable(kind)} to one that is here"


def _find(client: DockerClient, kind: str) -> Found:
    import docker.errors  # noqa: PLC0415 - heavy

    image = image_of(kind, None)
    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        return Found(kind, "docker", None, f"image {image}", how_to_get(kind, image))
    return Found(kind, "docker", image.rpartition(":")[2], f"image {image}")


@contextlib.contextmanager
def _closed_on_error(client: DockerClient) -> Any:
    try:
        yield
    except BaseException:
        client.close()
        raise
