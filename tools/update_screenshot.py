# SPDX-License-Identifier: BSD-3-Clause
"""Takes the screenshot docs/html-report.png: `.venv/bin/python tools/update_screenshot.py`.

Shows the example of README.md. Needs Chromium, like tests/browser.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

REPO = Path(__file__).parent.parent


def hide_times(page: Page) -> None:
    """Removes the times of this machine: events become the axis, and no duration is shown."""
    if page.locator("#axis").is_visible():
        page.select_option("#axis", "sequence")
        page.click("#show-all")  # a start-up takes few events
    page.evaluate(
        "find = document.getElementById('headline');"
        "find.textContent = find.textContent.replace(/ in [\\d.]+ (s|min.*)$/, '')"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as runtime:
        shutil.copy(REPO / "examples" / "python" / "train.py", folder)
        for words in (
            ["run", "-q", "train.py"],
            ["report", "-q", "train.tide", "--html", "train.html"],
        ):
            # "python" instead of its full path, because the page shows the command.
            command = ["python", "-m", "tidegauge", *words]
            paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            environment = {**os.environ, "PATH": paths}
            subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        browser = runtime.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1080, "height": 940})
        page.goto((Path(folder) / "train.html").as_uri())
        page.wait_for_selector("html[data-ready]")
        hide_times(page)
        page.wait_for_timeout(500)  # wait until it is drawn
        page.screenshot(path=REPO / "docs" / "html-report.png")
        browser.close()


if __name__ == "__main__":
    main()
