# SPDX-License-Identifier: BSD-3-Clause
"""Takes the pictures of docs/gallery.md: `.venv/bin/python tools/update_gallery.py [NAME...]`.

Runs the commands that the document shows and opens their pages. Needs Chromium, like tests/browser.
`tools/update_screenshot.py` takes the picture of README.md in the same way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from update_screenshot import hide_times

REPO = Path(__file__).parent.parent
EXAMPLES = REPO / "examples" / "python"
PICTURES = REPO / "docs" / "gallery"
WIDTH = 1000
LARGEST = 150_000  # bytes of a picture


@dataclass(frozen=True)
class Case:
    commands: tuple[str, ...]  # the last one writes page.html
    height: int
    start: str = "header"  # the element at the top of the picture


CASES = {
    "leak": Case(
        ("run leak.py", "report leak.tide --html page.html"),
        height=900,
    ),
    "out-of-memory": Case(
        (
            "rehearse --device-memory 2GiB single_gpu.py",
            "report single_gpu.tide --html page.html",
        ),
        height=640,
    ),
    "fsdp2": Case(
        (
            "estimate llama.py --set layers=8 --fsdp 8 --mp bf16/fp32 --device a100-40g "
            "--html page.html",
        ),
        height=900,
    ),
    "checkpointing": Case(
        (
            "run -o plain.tide checkpointed.py --plain",
            "run -o checkpointed.tide checkpointed.py",
            "diff plain.tide checkpointed.tide --html page.html",
        ),
        height=560,
    ),
    "fragmentation": Case(
        ("run fragmented.py", "report fragmented.tide --html page.html"),
        height=780,
        start="#device-memory",
    ),
    "sweep": Case(
        (
            "estimate llama.py --set layers=4 --mp bf16/fp32 --sweep batch=1,2,4 "
            "--sweep ac=none,full --device a100-80g --html page.html",
        ),
        height=720,
    ),
}


def run_commands(case: Case, folder: Path) -> None:
    for script in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("gallery/*.py")]:
        shutil.copy(script, folder)
    shutil.copy(EXAMPLES / "rehearse" / "single_gpu.py", folder)
    # "python" instead of its full path, because the page shows the command.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for words in case.commands:
        command = ["python", "-m", "tidegauge", *words.split()]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if not (folder / "page.html").exists() and words == case.commands[-1]:
            sys.exit(f"{words}: {done.stderr}")


def take_picture(page: Page, case: Case, source: Path, target: Path) -> None:
    page.goto(source.as_uri())
    page.wait_for_selector("html[data-ready]")
    # `rehearse` runs a child, which names Python by its full path.
    page.evaluate(
        "find = document.getElementById('command');"
        "find.textContent = find.textContent.replace(/^\\S*python( -B)? /, 'python ')"
    )
    hide_times(page)
    page.wait_for_timeout(500)  # wait until it is drawn
    box = page.locator(case.start).bounding_box()
    assert box is not None
    top = max(0, box["y"] - 12)
    clip = {"x": 0.0, "y": top, "width": float(WIDTH), "height": float(case.height)}
    page.screenshot(path=target, clip=clip, full_page=True)  # type: ignore[arg-type]
    size = target.stat().st_size
    print(f"{target.name}: {size:,} bytes")
    if size > LARGEST:
        sys.exit(f"{target} has more than {LARGEST:,} bytes; choose a smaller height")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as runtime:
        browser = runtime.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        for name in sys.argv[1:] or CASES:
            with tempfile.TemporaryDirectory() as folder:
                run_commands(CASES[name], Path(folder))
                source = Path(folder) / "page.html"
                take_picture(page, CASES[name], source, PICTURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
