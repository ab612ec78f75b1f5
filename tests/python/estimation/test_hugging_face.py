# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face configs: the whole tensor parallel plan, and the blocks of all kinds of models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from faithful import Program, compare_events
from sharded import world
from tidegauge import estimate
from tidegauge.estimation import ContractError, ModelError, load_contract
from tidegauge.estimation.blocks import find_blocks, find_units, parameter_share
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.preparation import prepare_model
from tidegauge.estimation.text import render_estimate
from torch import nn
from torch_version import NO_FLOAT32_GROUPED_MM

pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "head_dim": 16,
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
WITH_EXPERTS = ("jamba", "qwen3_moe")
DENSE = {"llama": SMALL, "qwen3": SMALL, "gemma2": SMALL, "phi3": {**SMALL, "pad_token_id": 0}}


def write_config(folder: Path, model_type: str, values: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": model_type, **values}))
    return path


def simulated(model_types: Iterable[str]) -> list[Any]:
    """Parameters of a test that simulates models in float32."""
    skips = NO_FLOAT32_GROUPED_MM.skips
    return [pytest.param(each, marks=skips if each in WITH_EXPERTS else ()) for each in model_types]


def find_whole(model_type: str, values: dict[str, Any]) -> set[str]:
    """The parameters that no rule of the model's plan splits, by its own documented styles."""
    config = transformers.AutoConfig.for_model(model_type, **values)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    unsplit = ("replicated_with_grad_allreduce", "mla_kv_a_proj", "moe_tp_experts")
    rules = [name for name, style in model.tp_plan.items() if style not in unsplit]
    patterns = [re.escape(rule).replace(r"\*", r"\d+") for rule in rules]
    return {
        name
        for name, _ in model.named_parameters()
        if not any(re.fullmatch(rf"{each}(\.\w+)?", name) for each in patterns)
    }


@pytest.mark.parametrize("model_type", simulated([*DENSE, "qwen3_moe"]))
@pytest.mark.parametrize("tp", [2, 4])
def test_tensor_parallelism_uses_the_whole_plan_of_the_model(
    model_type: str, tp: int, tmp_path: Path
) -> None:
    """Each rank has 1/tp of every parameter that the plan names, and the others whole."""
    values = {**DENSE.get(model_type, {**SMALL, **MOE}), "num_key_value_heads": 4}
    path = write_config(tmp_path, model_type, values)
    whole = find_whole(model_type, values)
    contract = load_contract(path)
    with torch.device("meta"):
        model = contract.build_model(contract.resolve({}))
    sizes = {name: each.nbytes for name, each in model.named_parameters()}
    kept = sum(size for name, size in sizes.items() if name in whole)
    assert 0 < kept < sum(sizes.values()) / 20  # only norms and routers
    found = estimate(path, tp=tp, settings={"seq": 16})
    assert found.peak.categories["Parameter"] == kept + (sum(sizes.values()) - kept) // tp
    assert "of the parameters split by tensor parallelism" in render_estimate(found, 5)


def parallel_program(folder: Path, tp: int, mesh_device: str = "cpu") -> Program:
    contract = load_contract(folder / "config.json")
    settings = contract.resolve({"seq": 16})
    model = contract.build_model(settings)
    prepare_model(contract, Plan(tp=tp), model, mesh_device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    tokens = contract.make_inputs(settings)

    def run() -> None:
        contract.compute_loss(model, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Program(model, optimizer, run)


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_simulated_rank_of_a_plan_equals_the_real_one(model_type: str, tmp_path: Path) -> None:
    write_config(tmp_path, model_type, SMALL)
    with world(2):
        assert compare_events(lambda: parallel_program(tmp_path, 2), tmp_path) is None


def test_vocabulary_that_does_not_divide_makes_ranks_differ(tmp_path: Path) -> None:
    """101 words on 2 ranks: 51 and 50 rows of the embedding and of the head, in fp32."""
    path = write_config(tmp_path, "llama", {**SMALL, "vocab_size": 101})
    found = estimate(path, tp=2, rank="all", settings={"seq": 16})
    assert [each.rank for each in found.ranks] == [0, 1]
    first, last = (estimate(path, tp=2, rank=rank, settings={"seq": 16}) for rank in (0, 1))
    gone = first.peak.categories["Parameter"] - last.peak.categories["Parameter"]
    assert gone == 2 * 64 * 4


def test_model_without_a_plan_is_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path, "gpt2", {"n_embd": 32, "n_layer": 1, "n_head": 2})
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel has no tensor parallel plan; remove tp"):
        estimate(path, tp=2, settings={"seq": 16})
    with pytest.raises(ValueError, match=r"GPT2LMHeadModel has no expert parallel plan; remove ep"):
        estimate(path, fsdp=2, ep=2, settings={"seq": 16})


def test_unknown_style_of_a_plan_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(tmp_path, "llama", SMALL)
    name = "_tp_plan"
    monkeypatch.setattr(transformers.LlamaForCausalLM, name, {"lm_head": "diagonal"})
    with pytest.raises(ValueError, match=r"diagonal"):
        estimate(path, tp=2, settings={"seq": 16})


HYBRIDS: dict[str, tuple[dict[str, Any], int, int]] = {
    # the config, the number of blocks, and of FSDP2 units with the root
    "jamba": (
        {
            **SMALL,
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 2,
            "mamba_d_state": 4,
        },
        4,
        5,
    ),
    # One attention for both hybrid layers: a unit of its own.
    "zamba": (
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "attention_head_dim": 32,
            "attention_hidden_size": 128,
            "vocab_size": 100,
            "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
            "mamba_d_state": 4,
            "n_mamba_heads": 1,
        },
        4,
        6,
    ),
}


def make_model(model_type: str) -> nn.Module:
    config = transformers.AutoConfig.for_model(model_type, **HYBRIDS[model_type][0])
    with torch.device("meta"):
        model: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    return model


@pytest.mark.parametrize("model_type", HYBRIDS)
def test_blocks_of_several_classes_are_found(model_type: str) -> None:
    model = make_model(model_type)
    blocks = find_blocks(model)
    _, count, unit_count = HYBRIDS[model_type]
    assert len(blocks) == count
    assert len({type(each) for each in blocks}) == 2
    assert parameter_share(model, blocks) > 0.8
    assert len(find_units(model, blocks)) == unit_count - 1


def test_modules_with_the_same_parameters_are_one_unit() -> None:
    """FSDP2 would otherwise gather a copy for each of them."""
    model = make_model("zamba")
    shared, *others = find_units(model, find_blocks(model))
    assert len(shared) == 2
    assert {id(each) for each in shared[0].parameters()} == {
        id(each) for each in shared[1].parameters()
    }
    assert all(len(each) == 1 for each in others)


@pytest.mark.parametrize("model_type", simulated(HYBRIDS))
def test_hybrid_models_are_sharded_block_by_block(model_type: str, tmp_path: Path) -> None:
    values, blocks, units = HYBRIDS[model_type]
    path = write_config(tmp_path, model_type, values)
    found = estimate(path, fsdp=2, ac="full", settings={"seq": 8}, item="1")
    assert f"{blocks} blocks with " in found.layout
    assert f"{units} FSDP2 units" in found.layout
    assert found.layout in render_estimate(found, 5).replace("\n", " ")


def block(width: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))


class Other(nn.Sequential):
    """A block of another class."""


def test_list_of_several_classes_has_blocks_if_one_repeats() -> None:
    mixed = nn.ModuleList([block(), Other(*block()), block()])
    parts = nn.ModuleList([nn.ModuleDict({"a": mixed}), Other(*block())])
    assert find_blocks(nn.ModuleDict({"layers": mixed})) == [*mixed]
    assert find_blocks(nn.ModuleDict({"parts": parts})) == [*mixed]


def test_numbered_dictionary_of_blocks_is_a_list() -> None:
    layers = nn.ModuleDict({str(number): block() for number in range(3)})
    assert find_blocks(nn.ModuleDict({"layers": layers, "head": nn.Linear(2, 2)})) == [
        *layers.values()
    ]


def test_named_classes_are_blocks_even_if_there_is_only_one() -> None:
    class Model(nn.Module):
        _no_split_modules = ("Sequential",)

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([block()])
            self.head = nn.Linear(2, 2)

    model = Model()
    assert find_blocks(model) == [model.layers[0]]


def test_blocks_that_share_a_weight_only_are_one_unit() -> None:
    layers = nn.ModuleList([block() for _ in range(3)])
    layers[2][0].weight = layers[0][0].weight
    model = nn.ModuleDict({"layers": layers})
    assert find_units(model, [*layers]) == [[layers[1]], [layers[0], layers[2]]]


def test_block_that_shares_with_the_rest_of_the_model_is_in_the_root() -> None:
    layers = nn.ModuleList([block() for _ in range(2)])
    head = nn.Linear(2, 2)
    head.weight = layers[1][0].weight
    model = nn.ModuleDict({"layers": layers, "head": head})
    assert find_units(model, [*layers]) == [[layers[0]]]


def test_model_without_blocks_is_said_to_have_none(tmp_path: Path) -> None:
    path = tmp_path / "layer.json"
    path.write_text(
        json.dumps(
            {
                "arguments": {"in_features": 8, "out_features": 8},
                "inputs": [{"shape": [2, 8]}],
            }
        )
    )
    found = estimate("torch.nn:Linear", config=str(path), fsdp=2)
    assert found.layout == "no blocks found (define blocks(model)), 1 FSDP2 unit"
    with pytest.raises((ValueError, ContractError), match="no list of blocks"):
        estimate("torch.nn:Linear", config=str(path), ac="full")


@pytest.mark.parametrize("model_type", ["llava", "gemma3"])
def test_text_part_of_a_multimodal_config_is_estimated(model_type: str, tmp_path: Path) -> None:
    """The same figures as for a config that is the text part."""
    text_type = {"llava": "llama", "gemma3": "gemma3_text"}[model_type]
    values = {"text_config": {"model_type": text_type, **SMALL}}
    whole = estimate(write_config(tmp_path, model_type, values), settings={"seq": 16})
    alone = estimate(write_config(tmp_path, text_type, SMALL), settings={"seq": 16})
    assert whole.target.endswith("config.json, its text part")
    assert whole.parameter_count == alone.parameter_count
    assert whole.peak.total_bytes == alone.peak.total_bytes


def test_id_of_a_cached_model_is_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache has the layout of the Hub: refs/main names a snapshot."""
    model = tmp_path / "models--someone--tiny-llama"
    snapshot = model / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0123abcd")
    config = write_config(snapshot, "llama", SMALL)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    by_id = estimate("someone/tiny-llama", settings={"seq": 16})
    by_file = estimate(config, settings={"seq": 16})
    assert by_id.peak.categories == by_file.peak.categories
    assert by_id.peak.tensors == by_file.peak.tensors
    assert by_id.target == "someone/tiny-llama"
    message = "or an id in the cache of Hugging Face: hf download someone/other config.json"
    with pytest.raises(ContractError, match=message):
        load_contract("someone/other")


EXPERTS = 2 * 4 * 3 * 64 * 32 * 4
"""bytes of the experts in two layers: four of three matrices, in float32"""


@pytest.mark.parametrize(
    "plan", [{"ep": 2}, {"ep": 4}, {"ep": 4, "tp": 2, "fsdp": 2}, {"ep": 2, "cp": 2, "fsdp": 2}]
)
def test_ranks_share_the_experts(plan: dict[str, Any], tmp_path: Path) -> None:
    """Every parameter is on some rank; the experts of a rank are sharded over its likes."""
    path = write_config(tmp_path, "qwen3_moe", {**SMALL, **MOE})
    options = {"fsdp": 4, "routing": "balanced", **plan}
    found = estimate(path, settings={"seq": 128}, **options)
    whole = estimate(path, settings={"seq": 128}, routing="balanced")
    rest = whole.peak.categories["Parameter"] - EXPERTS
    if "tp" not in plan:
        assert found.world_size == 4
        assert found.peak.categories["Sharded Param"] == (EXPERTS + rest) // 4
    assert f"experts over {plan['ep']} ranks" in found.plan.describe()
    share = EXPERTS / whole.peak.categories["Parameter"]
    assert f"{int(share * 1000) / 10:g} % of the parameters in shared experts" in found.layout


def test_first_ranks_have_most_of_the_tokens_with_the_worst_routing(tmp_path: Path) -> None:
    path = write_config(tmp_path, "qwen3_moe", {**SMALL, **MOE})
    found = estimate(path, fsdp=4, ep=4, routing="worst", settings={"seq": 256}, rank="all")
    assert [each.like_ranks for each in found.ranks] == [(0,), (1,), (2,), (3,)]
    assert found.rank == 0
    worst = estimate(path, fsdp=4, ep=4, routing="worst", settings={"seq": 256})
    assert worst.needed_bytes == found.needed_bytes


def test_choices_of_experts_name_the_option_that_helps(tmp_path: Path) -> None:
    path = write_config(tmp_path, "qwen3_moe", {**SMALL, **MOE})
    with pytest.raises(ModelError, match="--routing balanced"):
        estimate(path, fsdp=2, ep=2, settings={"seq": 16})


@pytest.mark.parametrize("plan", [{"cp": 2}, {"cp": 4, "tp": 2}, {"cp": 2, "ac": "full"}])
def test_ranks_share_a_sequence(plan: dict[str, Any], tmp_path: Path) -> None:
    """The logits and what is saved of each layer are those of a part of the tokens."""
    path = write_config(tmp_path, "llama", {**SMALL, "vocab_size": 30_000, "dtype": "bfloat16"})
    whole = estimate(path, fsdp=2 * plan["cp"], settings={"seq": 512})
    found = estimate(path, fsdp=2, settings={"seq": 512}, **plan)
    logits = 512 * 30_000 * 4  # the peak is at the loss
    saved = whole.peak.total_bytes - found.peak.total_bytes
    assert saved > 2 * logits * (1 - 1 / plan["cp"])
    assert found.world_size == 2 * plan["cp"] * plan.get("tp", 1)
    assert f"sequences over {plan['cp']} ranks" in found.plan.describe()


def test_sequence_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path, "llama", {**SMALL, "dtype": "bfloat16"})
    with pytest.raises(
        ValueError, match=r"cannot split a sequence of 18 .expected a multiple of 4"
    ):
        estimate(path, fsdp=1, cp=2, settings={"seq": 18})
    with pytest.raises(NotImplementedError, match="cp is not supported when the CPU is simulated"):
        estimate(path, fsdp=1, cp=2, simulated_device="cpu")


def test_target_says_what_ranks_share(tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    target.write_text(
        "import torch\n"
        "def build_model(settings): return torch.nn.Linear(8, 8)\n"
        "def make_inputs(settings): return torch.randn(2, 8, 8)\n"
        "def compute_loss(model, x): return model(x).sum()\n"
    )
    with pytest.raises(ContractError, match=r"cp requires a function split_sequence"):
        estimate(target, fsdp=1, cp=2)
    with pytest.raises(ValueError, match=r"ep requires a function parallelize_experts"):
        estimate(target, fsdp=2, ep=2)
    target.write_text(
        target.read_text() + "def split_sequence(model, x): return [(x, 1)]\n"
        "def parallelize_experts(model, mesh, tp_mesh): return []\n"
    )
    found = estimate(target, fsdp=1, cp=2)
    assert found.peak.categories["Inputs"] >= 2 * 8 * 8 * 4 // 2
    estimate(target, fsdp=2, ep=2)
