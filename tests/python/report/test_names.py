# SPDX-License-Identifier: BSD-3-Clause
"""Short names."""

from __future__ import annotations

import pytest
from tidegauge.report.names import shorten_command


@pytest.mark.parametrize(
    "start", ["/a/bin/python /a/bin/", "python -m ", "/usr/bin/python3.11 -B -m "]
)
def test_command_is_shown_without_the_interpreter_that_ran_it(start: str) -> None:
    shown = "tidegauge run train.py --python 3"
    assert shorten_command(start + shown) == shown


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "/a/python notes/tidegauge.py",
        "torchrun -m tidegauge run x.py",
        "build/record_steps run.tide",
        "",
    ],
)
def test_other_commands_are_shown_as_they_are(command: str) -> None:
    assert shorten_command(command) == command
