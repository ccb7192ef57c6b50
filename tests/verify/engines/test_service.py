"""Any command as a service under test: its own data, killed, brought back on the same port."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import EngineFailed, EngineMissing, UsageError
from holdfast.linux import is_gone
from holdfast.verify.engines.service import Service

SERVER = """
import http.server, os, pathlib, sys
memory = pathlib.Path(os.environ["DATA_DIR"], "memory")
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/add":
            with memory.open("a") as file: file.write("x")
        self.send_response(503 if self.path == "/sick" else 200)
        self.end_headers()
        self.wfile.write(memory.read_bytes() if memory.exists() else b"")
print("the page is up", sys.argv[2:], flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""
COMMAND = [sys.executable, "-c", SERVER, "{port}", "{data_dir}", "{json: 1}"]


def _get(service: Service, path: str) -> bytes:
    with urllib.request.urlopen(service.url + path, timeout=10) as reply:
        return bytes(reply.read())


def test_data_and_port_stay_over_kill_and_restart(app_service: Callable[..., Service]) -> None:
    service = app_service(COMMAND)
    url = service.url
    assert _get(service, "/add") == b"x"
    service.kill()
    with pytest.raises(OSError, match="refused"):
        _get(service, "/")
    service.start()
    assert _get(service, "/add") == b"xx"
    service.restart()
    assert (service.url, _get(service, "/")) == (url, b"xx")
    assert f"the page is up ['{service.data_dir}', '{{json: 1}}']" in service.log()


def test_it_can_be_paused_and_resumed(app_service: Callable[..., Service]) -> None:
    service = app_service(COMMAND)
    service.pause()
    with pytest.raises(OSError, match="timed out"):
        urllib.request.urlopen(service.url, timeout=0.2)
    service.resume()
    assert _get(service, "/") == b""


def test_close_ends_also_what_the_service_started_in_the_background(
    app_service: Callable[..., Service], tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    shell = f'(setsid sleep 60 & echo $! > {pid_file}); exec "$@"'
    service = app_service(["/bin/sh", "-c", shell, "sh", *COMMAND])
    daemon = int(pid_file.read_text())
    assert not is_gone(daemon)
    home = service.data_dir.parent
    service.close()
    assert is_gone(daemon)
    assert not home.exists()


def test_environment_and_directory_are_as_given(
    app_service: Callable[..., Service], tmp_path: Path
) -> None:
    script = "import os; print(os.getcwd(), os.environ['PLACE'], flush=True)\n" + SERVER
    service = app_service(
        [sys.executable, "-c", script, "{port}"], cwd=tmp_path, env={"PLACE": "at {url}"}
    )
    assert f"{tmp_path} at {service.url}" in service.log()
    assert "PLACE" not in os.environ


def test_without_a_health_path_listening_is_enough(app_service: Callable[..., Service]) -> None:
    assert app_service(COMMAND, health=None).url


def test_a_service_that_never_becomes_healthy_fails_with_its_log(
    app_service: Callable[..., Service],
) -> None:
    with pytest.raises(EngineFailed, match=r"did not answer within 0.5 s(.|\n)*the page is up"):
        app_service(COMMAND, health="/sick", start_timeout_s=0.5)


def test_a_service_that_dies_at_start_fails_with_its_last_words(
    app_service: Callable[..., Service],
) -> None:
    with pytest.raises(EngineFailed, match=r"exit code 7(.|\n)*no database here"):
        app_service(["/bin/sh", "-c", "echo no database here >&2; exit 7"])


def test_a_missing_program_and_an_empty_command_are_named(
    app_service: Callable[..., Service],
) -> None:
    with pytest.raises(EngineMissing, match="no program 'no-such-program'"):
        app_service("no-such-program --port {port}")
    with pytest.raises(UsageError, match="needs a command"):
        app_service([])


def test_somebody_elses_server_on_the_port_is_not_taken_for_ours(
    app_service: Callable[..., Service],
) -> None:
    other = app_service(COMMAND)
    with pytest.raises(EngineFailed, match="Address already in use"):
        app_service(COMMAND, port=other.port)
