# SPDX-License-Identifier: BSD-3-Clause
"""Figures of `tidegauge estimate --json` that can be computed by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tidegauge.cli.main import main
from torch_version import KEPT_WORKSPACES

WIDTH, LAYERS, WORDS = 64, 3, 120
TOKENS = 4 * 16
BLOCK = 2 * WIDTH * WIDTH
OUTER = 2 * WORDS * WIDTH  # embedding and head
PARAMETERS = LAYERS * BLOCK + OUTER


@pytest.fixture
def ask(model_file: str, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*options: str, code: int = 0) -> Any:
        assert main(["estimate", model_file, "--json", "--top", "0", *options]) == code
        return json.loads(capsys.readouterr().out)

    return ask


def test_shards_of_parameters_and_states_are_divided_by_the_ranks(ask: Any) -> None:
    found = ask("--fsdp", "4")
    assert found["parameter_count"] == PARAMETERS
    assert found["world_size"] == 4
    shard_bytes = 4 * PARAMETERS // 4  # 120 and 64 rows divide evenly
    categories = found["peak"]["categories"]
    assert categories["Sharded Param"] == shard_bytes
    assert categories["Optstate"] == 2 * shard_bytes
    assert found["ranks"][0]["like_ranks"] == [0, 1, 2, 3]


def test_uneven_shards_depend_on_the_rank(ask: Any) -> None:
    """Of 64 rows, 6 ranks have 10 and the last has 4; of 120, 18 and 12. FSDP2 pads parameters."""
    found = ask("--fsdp", "7", "--rank", "all")
    first, last = found["ranks"]
    assert first["like_ranks"] == [0, 1, 2, 3, 4, 5]
    assert last["like_ranks"] == [6]
    assert found["rank"] == 0
    alone = ask("--fsdp", "7", "--rank", "6")
    assert alone["peak"]["total_bytes"] == last["peak_bytes"]
    padded_rows = 10 * 2 * LAYERS + 18 * 2
    for rank, rows in ((found, padded_rows), (alone, 4 * 2 * LAYERS + 12 * 2)):
        assert rank["peak"]["categories"]["Sharded Param"] == 4 * WIDTH * padded_rows
        states = 2 * 4 * WIDTH * rows
        assert rank["peak"]["categories"]["Optstate"] == states


def test_optimizer_states_depend_on_the_optimizer(ask: Any) -> None:
    shard_bytes = 4 * PARAMETERS // 2
    states = {
        name: ask("--fsdp", "2", "--optimizer", name)["peak"]["categories"].get("Optstate", 0)
        for name in ("sgd", "sgd-momentum", "adam")
    }
    assert states == {"sgd": 0, "sgd-momentum": shard_bytes, "adam": 2 * shard_bytes}


def test_mixed_precision_gathers_half_the_bytes(ask: Any) -> None:
    """At the peak, in the backward of the loss, embedding and head are whole in bf16."""
    for options, size in (((), 4), (("--mp", "bf16/fp32"), 2)):
        found = ask("--fsdp", "2", *options, "--set", "batch=64")
        assert found["peak"]["categories"]["Unsharded Param"] == size * OUTER, options


def test_logits_and_loss_are_live_at_the_peak(ask: Any) -> None:
    found = ask("--set", "batch=64", "--simulate", "cpu")  # on CUDA, products need more
    logits = 4 * 64 * 16 * WORDS
    (softmax,) = (
        row
        for row in found["peak"]["tensors"]
        if row["op"].startswith("aten::_log_softmax") and row["category"] == "Saved Activation"
    )
    assert softmax["size_bytes"] == logits


def test_layers_add_up(ask: Any) -> None:
    found = ask("--fsdp", "2", "--device", "l4", "--assume", "context=300MiB")
    sizes = {layer["name"]: layer["size_bytes"] for layer in found["layers"]}
    assert sizes["tensors"] == found["peak"]["total_bytes"] == found["steady_step_bytes"]
    assert sizes["active"] == sizes["tensors"] + sizes["rounding and slack"]
    assert sizes["reserved"] == sizes["active"] + sizes["unused in segments"]
    assert sizes["CUDA context"] == 300 << 20
    outside = sizes["CUDA context"] + sizes["communication"]
    assert sizes["on the device"] == sizes["reserved"] + outside == found["needed_bytes"]
    assert found["margin_bytes"] == found["device"]["memory_bytes"] - found["needed_bytes"]
    # Only one assumption has a range: communication, 256 MiB to 1 GiB, 512 MiB by default.
    assert found["needed_bytes"] - found["low_bytes"] == 256 << 20
    assert found["high_bytes"] - found["needed_bytes"] == 512 << 20


@KEPT_WORKSPACES.skips
def test_first_step_has_no_optimizer_states_yet(ask: Any) -> None:
    """With a large batch, both steps peak in the backward."""
    found = ask("--set", "batch=64")
    assert found["is_steady"]
    states = 2 * 4 * PARAMETERS
    assert found["steady_step_bytes"] - found["first_step_bytes"] == states
