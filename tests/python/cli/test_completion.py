# SPDX-License-Identifier: BSD-3-Clause
"""Completion, in the real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from terminal import open_terminal
from tidegauge.cli.main import main


def script_of(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    if shutil.which(shell) is None:
        missing = f"found no {shell} (tools/setup_test_tools.sh installs it)"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    assert main(["completion", shell]) == 0
    path = folder / f"tidegauge.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def run_shell(shell: list[str], text: str, folder: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb"}
    done = subprocess.run(
        [*shell, "-c", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


_CASES = [
    (["tidegauge", "rep"], ["replay", "report"]),
    (["tidegauge", "report", "--lea"], ["--leaks"]),
    (["tidegauge", "estimate", "--device", "h100-8"], ["h100-80g"]),
    (["tidegauge", "replay", "--tie", "priv"], ["private-counter"]),
    (["tidegauge", "report", "tra"], ["train.tide"]),
    (["tidegauge", "completion", "--h"], ["--help"]),
]


@pytest.mark.parametrize(("words", "expected"), _CASES)
def test_bash_completes(
    words: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_of("bash", tmp_path, capsys)
    (tmp_path / "train.tide").touch()
    text = (
        f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        '_tidegauge; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert sorted(run_shell(["bash", "--norc"], text, tmp_path).split()) == expected


@pytest.mark.parametrize(("words", "expected"), _CASES)
def test_fish_completes(
    words: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_of("fish", tmp_path, capsys)
    (tmp_path / "train.tide").touch()
    text = f"source {script}; complete -C '{' '.join(words)}'"
    lines = run_shell(["fish", "--no-config"], text, tmp_path).splitlines()
    assert sorted(line.split("\t")[0] for line in lines) == expected


# zsh completes in a terminal only. Tab completes; then Ctrl-X prints what the line has become.
_ZSH = """\
PS1= RPS1= PS2= ; unsetopt prompt_cr prompt_sp zle_bracketed_paste
autoload -U compinit; compinit -u -D; source SCRIPT
show() { print -r -- "<$BUFFER>"; BUFFER=; }; zle -N show; bindkey '^X' show
print REA''DY
"""


@pytest.mark.parametrize(("words", "expected"), [case for case in _CASES if len(case[1]) == 1])
def test_zsh_completes(
    words: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_of("zsh", tmp_path, capsys)
    (tmp_path / "train.tide").touch()
    with open_terminal(["zsh", "-f", "-i"], tmp_path, environment={"HOME": str(tmp_path)}) as zsh:
        zsh.type(_ZSH.replace("SCRIPT", str(script)))
        zsh.read_until("READY\r\n")
        zsh.type(f"{' '.join(words)}\t\x18")
        shown = zsh.read_until(">\r\n").rpartition("<")[2]
    assert shown.split(">")[0].split() == [*words[:-1], *expected]
