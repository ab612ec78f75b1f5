# SPDX-License-Identifier: BSD-3-Clause
"""Runs the commands of README.md in their order."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[3]


def find_commands() -> list[tuple[list[str], int]]:
    """Arguments and exit codes of the lines in code blocks that begin with `tidegauge`."""
    commands = []
    for block in re.findall(r"^```.*?^```", (REPO / "README.md").read_text(), re.M | re.S):
        for line in block.splitlines():
            if line.startswith("tidegauge "):
                code = re.search(r"# exit code (\d+)", line)
                words = shlex.split(line, comments=True)
                commands.append((words[1:], int(code[1]) if code else 0))
    return commands


def test_readme_commands_run(tmp_path: Path) -> None:
    for example in ("llama.py", "train.py", "leak.py"):
        shutil.copy(REPO / "examples" / "python" / example, tmp_path)
    commands = find_commands()
    names = ["estimate", "run", "report", "run", "report", "run", "diff"]
    assert [words[0] for words, _ in commands] == names
    for words, code in commands:
        done = subprocess.run(
            [sys.executable, "-m", "tidegauge", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (words, done.stderr)
        assert done.stdout or "--html" in words
