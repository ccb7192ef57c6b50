"""Chroma's server as a local process, through its compiled part alone."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Final

from holdfast.linux import descendants, listeners
from holdfast.verify.engines.ports import HOST
from holdfast.verify.engines.raw_protocol import http_status
from holdfast.verify.engines.server import ServerEngine

_OK: Final = 200
_PROBE_TIMEOUT_S: Final = 2.0

# `chroma run` imports all of chromadb to reach this one function, which takes a second.
_RUN: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "import chromadb_rust_bindings; chromadb_rust_bindings.cli(['chroma', *sys.argv[1:]])"
)


class ChromaEngine(ServerEngine):
    """A Chroma server on loopback, on its own data directory.

    Its settings are those of Chroma's configuration file. It downloads nothing as long as
    clients pass embeddings of their own.
    """

    @property
    def url(self) -> str:
        """Where it answers; the same after every restart."""
        return f"http://{HOST}:{self.port}"

    def _command(self) -> list[str]:
        options = ["--host", HOST, "--port", str(self.port), "--path", str(self.data_dir)]
        if self.settings:
            options = [str(self._config_file())]
        packages = str(self.binary.path.parent)
        return [sys.executable, "-I", "-S", "-c", _RUN, packages, "run", *options]

    def _config_file(self) -> Path:
        """All settings in one file: Chroma takes a file or options, never both."""
        path = self._home() / "chroma.yaml"
        own = {"port": self.port, "listen_address": HOST, "persist_path": str(self.data_dir)}
        values = {name: _scalar(value) for name, value in self.settings.items()}
        path.write_text(json.dumps({**own, **values}))  # JSON is YAML
        return path

    def _answers(self) -> bool:
        pid = self.pid
        path = "/api/v2/heartbeat"
        status = http_status(self.port, path, timeout_s=_PROBE_TIMEOUT_S)
        return status == _OK and pid is not None and bool(listeners(self.port, descendants([pid])))

    def _ask_to_stop(self) -> None:
        self._running().send_signal(signal.SIGINT)


def _scalar(text: str) -> object:
    """A number or a truth value where the text is one."""
    try:
        return json.loads(text)
    except ValueError:
        return {"yes": True, "no": False}.get(text, text)
