# SPDX-License-Identifier: BSD-3-Clause
"""`--stacks` without a value, which argparse cannot read before a script."""

from __future__ import annotations

import pytest
from tidegauge.cli.completion import find_commands
from tidegauge.cli.main import make_parser
from tidegauge.cli.run import complete_arguments

COMMANDS = ("run", "rehearse")


@pytest.mark.parametrize("command", COMMANDS)
def test_stacks_mean_lines_after_every_other_option(command: str) -> None:
    parser = find_commands(make_parser()).choices[command]
    for name, option in parser._option_string_actions.items():
        if name in ("-m", "--stacks"):
            continue
        words = [name] if option.nargs == 0 else [name, "VALUE"]
        completed = complete_arguments(parser, [*words, "--stacks", "train.py", "--stacks"])
        assert completed == [*words, "--stacks=python", "train.py", "--stacks"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("value", ["none", "module", "python"])
def test_stacks_keep_their_value(command: str, value: str) -> None:
    parser = find_commands(make_parser()).choices[command]
    words = ["--stacks", value, "train.py"]
    assert complete_arguments(parser, words) == words


@pytest.mark.parametrize("command", COMMANDS)
def test_words_of_the_script_are_its_own(command: str) -> None:
    parser = find_commands(make_parser()).choices[command]
    for words in (["train.py", "--stacks", "5"], ["-m", "package", "--stacks", "5"]):
        assert complete_arguments(parser, words) == words
