# SPDX-License-Identifier: BSD-3-Clause
"""Opens pages in a real Chromium. Without Chromium the tests are skipped, except with CI=true.

`open_page(command...)` writes a page and opens it. Console messages and network requests of the
page fail the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegauge.cli.main import main

sys.path.insert(0, str(Path(__file__).parent))

playwright = pytest.importorskip("playwright.sync_api", reason="run: pip install playwright")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
REPO = Path(__file__).parents[2]
PATIENCE_MS = 180_000


def skip_or_fail(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[playwright.Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        skip_or_fail("found no Chromium; run: sudo apt-get install chromium")
    with playwright.sync_playwright() as runtime:
        browser = runtime.chromium.launch(  # a fresh profile
            executable_path=chromium, args=FLAGS, timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of a million events."""
    tool = REPO / "build" / "release" / "record_steps"
    if not tool.exists():
        skip_or_fail("found no build/release/record_steps; run: make test")
    path = tmp_path_factory.mktemp("million") / "million.tide"
    subprocess.run([tool, path, "1000000"], check=True)
    return path


@pytest.fixture
def open_page(browser: playwright.Browser, recorded: Path, tmp_path: Path) -> Iterator[object]:
    contexts = []
    faults: list[str] = []

    def open_page(
        *command: str, width: int = 1280, height: int = 900, theme: str = "light"
    ) -> playwright.Page:
        words = [str(recorded / word) if word.endswith(".tide") else word for word in command]
        path = tmp_path / "page.html"
        assert main([*words, "--html", str(path), "-q", "--force"]) == 0
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (faults.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: faults.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        assert faults.pop(0) == path.as_uri()  # the page itself is the only request
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
