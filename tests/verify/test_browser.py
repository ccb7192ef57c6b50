"""What is missing for a browser is said, with how to get it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.errors import EngineMissing
from holdfast.verify.browser import find_browser


def test_without_a_browser_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineMissing, match="looked for chromium.*apt-get install chromium"):
        find_browser()


def test_without_playwright_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['playwright'] = None\n"
        "from holdfast.verify.browser import start_playwright\n"
        "start_playwright()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'holdfast[browser]'" in done.stderr


def test_the_plugin_does_not_load_it_before_it_is_used() -> None:
    code = "import holdfast.pytest_plugin, sys; print('playwright' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
