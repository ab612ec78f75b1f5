# SPDX-License-Identifier: BSD-3-Clause
"""Options of the training plan: each one changes the bytes that it should, counted by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tidegauge.cli.main import main
from tidegauge.estimation import Contract, ModelError, Plan, estimate
from tidegauge.estimation.checkpointing import checkpoint_blocks
from tidegauge.estimation.plan import parse_lora, parse_option
from torch import nn

WEIGHTS = (2 * 120 * 64 + 3 * 2 * 64 * 64) * 4
"""bytes of small_model.py"""
FEW = {"batch": 1, "seq": 1}  # the peak is in the optimizer step
WIDTH, TOKENS = 8, 4


def wrong_plans() -> list[tuple[dict[str, Any], str]]:
    return [
        ({"dp": 2, "fsdp": 2}, "dp=2 and fsdp=2 are mutually exclusive"),
        ({"dp": 2, "hsdp": "2x2"}, "dp=2 and hsdp=2x2 are mutually exclusive"),
        ({"dp": 2, "tp": 2}, "dp=2 and tp=2 are mutually exclusive"),
        ({"zero": True}, "zero requires dp"),
        ({"cp": 2}, "cp=2 requires fsdp or hsdp"),
        ({"dp": 2, "ep": 2}, "ep=2 requires fsdp or hsdp"),
        ({"fsdp": 2, "cp": 2, "pp": 2}, "cp=2 and pp=2 together are not supported"),
        ({"fsdp": 2, "ep": 4}, "ep=4 does not fit 2 ranks of fsdp x cp x tp"),
        ({"fsdp": 8, "tp": 2, "ep": 1, "cp": 0}, "expected at least 1 rank each"),
        ({"fsdp": 6, "tp": 2, "ep": 3}, "expected a multiple of tp=2 that divides them"),
        ({"ac": "every:0"}, "invalid ac 'every:0' .expected every:N"),
        ({"ac": "every"}, "invalid ac 'every' .expected every:N"),
        ({"ac": "ops:"}, "invalid ac 'ops:' .expected ops:FILE"),
        ({"ac": "policy:"}, "invalid ac 'policy:' .expected policy:FILE.py:FUNCTION"),
        ({"ac": "policy:keep"}, "invalid ac 'policy:keep'"),
        ({"ac": "often:2"}, "invalid ac 'often:2'"),
        ({"attention": "flsh"}, "invalid attention 'flsh': did you mean flash"),
        ({"clip": -1.0}, "invalid clip=-1.0"),
        ({"clip": float("nan")}, "invalid clip=nan"),
        ({"accumulate": 0}, "invalid accumulate=0"),
        ({"routing": "best"}, "invalid routing 'best'"),
        ({"lora": "16"}, "invalid lora '16' .expected e.g. rank=16"),
        ({"lora": "rank=0"}, "invalid lora 'rank=0'"),
        ({"lora": "targets=q"}, "invalid lora 'targets=q'"),
    ]


@pytest.mark.parametrize(("options", "message"), wrong_plans(), ids=str)
def test_impossible_plan_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**options)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dp", "0", "invalid dp '0' .expected a number of ranks, at least 1"),
        ("accumulate", "x", "invalid accumulate 'x' .expected a number of batches"),
        ("clip", "much", "invalid clip 'much' .expected a number"),
        ("zero", "1", "invalid zero '1' .expected yes or no"),
    ],
)
def test_invalid_option_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_option(name, text)


def test_lora_names_its_targets() -> None:
    assert parse_lora("rank=4") == (4, ())
    assert parse_lora("rank=16,targets=q_proj/v_proj") == (16, ("q_proj", "v_proj"))
    assert parse_lora("rank=16,targets=q_proj,v_proj") == (16, ("q_proj", "v_proj"))


def test_ddp_has_a_bucket_beside_the_gradients(model_file: str) -> None:
    found = estimate(model_file, dp=4, settings=FEW, simulated_device="cpu")
    assert found.world_size == 4
    assert found.peak.categories["Parameter"] == WEIGHTS
    assert found.peak.categories["Gradient"] == 2 * WEIGHTS
    assert found.ranks[0].like_ranks == (0, 1, 2, 3)
    assert "DDP over 4 ranks" in found.plan.describe()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_ranks_of_zero_share_the_states(model_file: str, device: str) -> None:
    """Eight parameters, the largest first to the rank with the least; AdamW has two states each."""
    found = estimate(model_file, dp=2, zero=True, rank="all", settings=FEW, simulated_device=device)
    (both,) = found.ranks
    assert both.like_ranks == (0, 1)
    assert found.peak.categories["Optstate"] // 64 == WEIGHTS // 64  # and the step counters


@pytest.mark.parametrize(("rank", "rows"), [(0, 120 + 2 * 64), (1, 120 + 64), (2, 3 * 64)])
def test_ranks_of_zero_have_whole_parameters(model_file: str, rank: int, rows: int) -> None:
    found = estimate(model_file, dp=3, zero=True, rank=rank, settings=FEW)
    assert found.ranks[0].like_ranks == (rank,)
    estimated = estimate(model_file, dp=3, zero=True, settings=FEW)
    assert [each.rank for each in estimated.ranks] == [0, 2]
    assert found.peak.categories["Optstate"] // 512 == 2 * rows * 64 * 4 // 512


def test_accumulated_gradients_are_there_in_the_next_forward(model_file: str) -> None:
    """In the first forward there are none; with two batches the second has all of them."""
    settings = {"batch": 64, "words": 500}  # the peak is at the loss
    options: dict[str, Any] = {"optimizer": "sgd", "simulated_device": "cpu"}
    one = estimate(model_file, settings=settings, **options)
    two = estimate(model_file, settings=settings, accumulate=2, **options)
    weights = sum(each for name, each in one.peak.categories.items() if name == "Parameter")
    assert two.peak.categories["Gradient"] - one.peak.categories.get("Gradient", 0) == weights


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def count_recomputed(ac: str, blocks: int = 4) -> int:
    """How many of the blocks' products the backward pass computes again."""
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(*(Block() for _ in range(blocks)))
    if ac != "none":
        checkpoint_blocks([*model], ac)
    with FlopCounterMode(display=False) as counter:
        loss = model(torch.ones(TOKENS, WIDTH, requires_grad=True)).sum()
        forward = counter.get_total_flops()
        loss.backward()
    product = 2 * TOKENS * WIDTH * WIDTH
    assert forward == blocks * 4 * product
    return counter.get_total_flops() // product - 3 * blocks * 4


def test_checkpointing_of_every_second_block_recomputes_half() -> None:
    assert count_recomputed("none") == 0
    assert count_recomputed("full") >= 4 * 3
    assert count_recomputed("every:2") * 2 == count_recomputed("full")
    assert count_recomputed("every:4") * 4 == count_recomputed("full")
    assert count_recomputed("every:5") == 0


@pytest.mark.parametrize("name", ["mm", "aten.mm", "aten::mm", "aten.mm.default"])
def test_named_ops_are_kept(name: str, tmp_path: Path) -> None:
    file = tmp_path / "ops.txt"
    file.write_text(f"# products\n{name}  # all\n\n")
    assert count_recomputed(f"ops:{file}") == 0
    file.write_text(f"{name} every 2\n")
    kept = count_recomputed(f"ops:{file}")
    assert 0 < kept < count_recomputed("full")


POLICY = """
import collections
import torch
from torch.utils.checkpoint import CheckpointPolicy

def keep_every_second_product():
    calls = collections.Counter()

    def policy(ctx, op, *args, **kwargs):
        if op is torch.ops.aten.mm.default:
            calls[ctx.is_recompute] += 1
            if calls[ctx.is_recompute] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return policy
"""


def test_policy_of_the_user_equals_the_file_of_ops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of a block has a policy of its own, so its count begins again."""
    (tmp_path / "my_policy.py").write_text(POLICY)
    (tmp_path / "ops.txt").write_text("mm every 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    expected = count_recomputed(f"ops:{tmp_path / 'ops.txt'}")
    assert 0 < expected < count_recomputed("full")
    for where in ("my_policy", tmp_path / "my_policy.py"):
        assert count_recomputed(f"policy:{where}:keep_every_second_product") == expected


@pytest.mark.long
def test_policy_that_saves_half_of_the_products_takes_less_than_selective(tmp_path: Path) -> None:
    """Llama 3 8B over eight ranks, with a policy like torchtitan's. Known from elsewhere: 49.6 GiB
    with torchtitan's own program, which differs a little, and 59.1 GiB with all products saved."""
    (tmp_path / "my_policy.py").write_text(
        POLICY.replace(
            "op is torch.ops.aten.mm.default:",
            "op is torch.ops.aten._scaled_dot_product_cudnn_attention.default:\n"
            "            return CheckpointPolicy.MUST_SAVE\n"
            "        if op is torch.ops.aten.mm.default:",
        )
    )
    llama = Path(__file__).parents[3] / "examples" / "python" / "llama.py"
    reserved = {}
    for ac in (f"policy:{tmp_path / 'my_policy.py'}:keep_every_second_product", "selective"):
        found = estimate(
            llama,
            fsdp=8,
            mp="bf16/fp32",
            ac=ac,
            device="h100-80g",
            alloc_conf="expandable_segments:True",
        )
        reserved[ac] = next(each.size_bytes for each in found.layers if each.name == "reserved")
    every_second, selective = (size / 2**30 for size in reserved.values())
    assert every_second == pytest.approx(49.6, abs=0.5)
    assert selective == pytest.approx(59.1, abs=0.5)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("none.py:f", "cannot find none.py of ac policy:none.py:f"),
        ("no_such_module:f", "cannot import no_such_module"),
        ("math:f", "math has no function f"),
    ],
)
def test_policy_that_cannot_be_found_is_reported(place: str, message: str, model_file: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(model_file, ac=f"policy:{place}", simulated_device="cpu")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no op to keep"),
        ("aten.mmm\n", "line 1 of .*: torch has no op 'aten.mmm'"),
        ("mm\nmm every\n", "invalid line 2 of .*: 'mm every'"),
        ("mm often 2\n", "invalid line 1 of .*: 'mm often 2'"),
        ("mm every 0\n", "invalid line 1 of .*: 'mm every 0'"),
        (f"mm every {'9' * 5000}\n", "invalid line 1 of .*: 'mm every 9+…9+'"),
        ("x" * 100_000, "line 1 of .*: torch has no op 'x+…x+'"),
    ],
    ids=lambda text: text[:40],
)
def test_invalid_file_of_ops_is_refused(
    text: str, message: str, tmp_path: Path, model_file: str
) -> None:
    file = tmp_path / "ops.txt"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        estimate(model_file, ac=f"ops:{file}", simulated_device="cpu")


def test_file_of_ops_that_cannot_be_read_is_reported_at_once(
    tmp_path: Path, model_file: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for file in ("none.txt", "/dev/zero", tmp_path, tmp_path / "pipe", tmp_path / "binary"):
        with pytest.raises(ValueError, match=rf"cannot read the ops of ac ops:{file}"):
            estimate(model_file, ac=f"ops:{file}", simulated_device="cpu")


def attention_contract() -> Contract:
    def make_inputs(settings: Any) -> tuple[torch.Tensor, ...]:
        shape = (1, 2, settings.seq, 64)
        return tuple(torch.randn(shape, dtype=torch.bfloat16) for _ in range(3))

    def compute_loss(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        query, key, value = (model(each) for each in inputs)
        return nn.functional.scaled_dot_product_attention(query, key, value).sum()

    return Contract(
        "attention",
        lambda settings: nn.Linear(64, 64, dtype=torch.bfloat16),
        make_inputs,
        compute_loss,
        {"seq": 1024},
    )


def test_chosen_attention_decides_whether_there_are_scores() -> None:
    """Two heads of 1,024 x 1,024 scores in 16 bit: at least 4 MiB, which only "math" has."""
    scores = 2 * 1024 * 1024 * 2
    peaks = {}
    for kind in ("", "flash", "cudnn", "efficient", "math"):
        peak = estimate(attention_contract(), attention=kind).peak
        # Without the temporary memory of kernels, such as cuBLAS workspaces.
        peaks[kind] = peak.total_bytes - peak.categories.get("Untracked", 0)
    assert peaks[""] == peaks["cudnn"] < scores
    assert peaks["flash"] < scores
    assert peaks["efficient"] < scores
    assert peaks["math"] > scores


def test_adapters_alone_have_gradients_and_states(model_file: str) -> None:
    """Rank 4 beside six square matrices of width 64: 2 x 4 x 64 numbers each."""
    pytest.importorskip("peft")
    adapters = 6 * 2 * 4 * 64 * 4
    found = estimate(model_file, lora="rank=4", settings=FEW)
    assert found.parameter_count * 4 == WEIGHTS
    assert found.peak.categories["Parameter"] == WEIGHTS + adapters
    assert found.peak.categories["Gradient"] == adapters
    states = found.peak.categories["Optstate"]
    assert 0 <= states - 2 * adapters <= 12 * 4
    half = estimate(model_file, lora="rank=4,targets=one", dtype="bf16", settings=FEW)
    assert half.peak.categories["Parameter"] == WEIGHTS // 2 + adapters // 2
    sharded = estimate(model_file, lora="rank=4", dtype="bf16", fsdp=2, settings=FEW)
    assert sharded.peak.categories["Sharded Param"] == (WEIGHTS + adapters) // 2 // 2


def test_name_that_fits_no_module_is_reported(model_file: str) -> None:
    pytest.importorskip("peft")
    with pytest.raises((ValueError, ModelError), match="q_proj"):
        estimate(model_file, lora="rank=4,targets=q_proj")


def moe_contract() -> Contract:
    """Two experts for one of 64 tokens each; an expert's input is a copy of its tokens."""

    def compute_loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        parts: Any = model
        chosen = parts["router"](x).argmax(-1)
        losses = [
            expert(x[chosen == number]).square().sum()
            for number, expert in enumerate(parts["experts"])
        ]
        return torch.stack(losses).sum()

    def build_model(settings: Any) -> nn.Module:
        experts = nn.ModuleList(nn.Linear(256, 256) for _ in range(2))
        return nn.ModuleDict({"router": nn.Linear(256, 2), "experts": experts})

    return Contract("moe", build_model, lambda settings: torch.randn(4096, 256), compute_loss)


def test_routing_needs_no_value_and_decides_the_memory() -> None:
    sizes = {
        routing: estimate(moe_contract(), routing=routing, simulated_device="cpu").peak.total_bytes
        for routing in ("balanced", "worst", "7")
    }
    assert sizes["balanced"] <= sizes["7"]
    assert sizes["balanced"] < estimate(moe_contract(), simulated_device="cpu").peak.total_bytes


def test_several_routings_are_compared(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", model_file, "--routing", "balanced,worst", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["values"]["routing"] for point in points] == ["balanced", "worst"]


def test_moments_have_tensors_and_reserved_memory(model_file: str) -> None:
    """Before the first step there are the parameters and the tokens; the states of AdamW come in
    the first step. The allocator keeps what it has reserved."""
    settings = {"batch": 64, "words": 500}
    found = estimate(model_file, settings=settings, alloc_conf="")
    init, first, steady = found.moments
    assert [each.name for each in found.moments] == ["init", "first", "steady"]
    tokens = 64 * 16 * 8
    assert init.tensor_bytes == found.peak.categories["Parameter"] + tokens
    assert (first.tensor_bytes, steady.tensor_bytes) == (
        found.first_step_bytes,
        found.steady_step_bytes,
    )
    reserved = next(each.size_bytes for each in found.layers if each.name == "reserved")
    assert steady.reserved_bytes == reserved
    # Small blocks come in segments of 2 MiB; the pool for large ones has segments of 20 MiB.
    assert init.reserved_bytes == 2 * 2**20
    assert init.reserved_bytes < first.reserved_bytes <= steady.reserved_bytes


def test_moments_are_printed_on_request(
    model_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", model_file, "--moments", "init,steady"]) == 0
    text = capsys.readouterr().out
    assert "before the first step" in text
    assert "in the last step" in text
    assert "in the first step" not in text
    assert main(["estimate", model_file, "--moments", "init,last"]) == 2
    assert "expected some of init, first, steady" in capsys.readouterr().err
