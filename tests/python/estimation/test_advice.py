# SPDX-License-Identifier: BSD-3-Clause
"""The command confirms its own advice when the advice is followed."""

from __future__ import annotations

import json
import shlex

import pytest
from tidegauge.cli.main import main

COMMAND = [
    *("estimate", "small_model.py", "--json", "--fsdp", "4", "--set", "batch=4096"),
    *("--assume", "context=1MiB", "--assume", "cublas=1MiB", "--assume", "communication=1MiB"),
]


@pytest.mark.parametrize(("memory", "is_together"), [("190MiB", False), ("130MiB", True)])
def test_following_the_advice_gives_the_promised_bytes(
    model_file: str, memory: str, is_together: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*COMMAND, "--device-memory", memory]
    assert main(command) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["advice"][0]["estimate"]["verdict"] == "fits"
    assert (found["advice"][0]["change"].count("--") > 1) == is_together
    for advice in found["advice"]:
        main([*command, *shlex.split(advice["change"]), "--no-advice"])
        followed = json.loads(capsys.readouterr().out)
        assert followed["needed_bytes"] == found["needed_bytes"] - advice["saved_bytes"]
        assert followed["verdict"] == advice["estimate"]["verdict"]
