# SPDX-License-Identifier: BSD-3-Clause
"""Targets of an estimate: the examples, Hugging Face configs, classes, Python functions."""

from __future__ import annotations

import dataclasses
import json
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from tidegauge import estimate
from tidegauge.cli.main import main
from tidegauge.estimation import Contract, ContractError, find_largest, load_contract
from tidegauge.estimation.blocks import find_blocks
from tidegauge.estimation.contract import ModelError, describe_error, describe_line
from tidegauge.estimation.estimator import Estimator
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.sweep import Question
from tidegauge.estimation.text import render_estimate
from torch import nn

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("llama.py", {"fsdp": 8, "mp": "bf16/fp32", "ac": "selective"}),
        ("vit.py", {"mp": "bf16", "ac": "full"}),
        ("unet.py", {"fsdp": 2, "ac": "full"}),
        ("moe.py", {"fsdp": 8}),
    ],
)
def test_examples_can_be_estimated(name: str, options: dict[str, Any]) -> None:
    found = estimate(EXAMPLES / name, device="h100-80g", **options)
    contract = load_contract(EXAMPLES / name)
    with torch.device("meta"):
        model = contract.build_model(contract.resolve({}))
    assert found.parameter_count == sum(each.numel() for each in model.parameters())
    assert found.verdict == "fits"
    assert found.is_steady


def test_llama_example_has_the_size_of_llama_3_8b() -> None:
    contract = load_contract(EXAMPLES / "llama.py")
    with torch.device("meta"):
        model = contract.build_model(contract.resolve({}))
    assert sum(each.numel() for each in model.parameters()) == 8_030_261_248


def test_all_examples_for_estimate_are_tested() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py") if "def build_model" in path.read_text()}
    assert files == {"llama.py", "vit.py", "unet.py", "moe.py"}


def test_tensor_parallelism_splits_the_blocks() -> None:
    """One of two ranks has half of each matrix in the blocks, and all other parameters."""
    small = {"layers": 2, "words": 512, "seq": 64}
    whole = estimate(EXAMPLES / "llama.py", settings=small)
    split = estimate(EXAMPLES / "llama.py", settings=small, tp=2)
    blocks = 4 * 2 * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336)
    gone = whole.peak.categories["Parameter"] - split.peak.categories["Parameter"]
    assert gone == blocks // 2


CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


@pytest.mark.parametrize("is_folder", [False, True])
def test_hugging_face_config_can_be_estimated(is_folder: bool, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    settings = {"seq": 32, "num_hidden_layers": 3}
    found = estimate(tmp_path if is_folder else path, fsdp=2, ac="full", settings=settings)
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    assert found.parameter_count == 3 * layer + 2 * 100 * 64 + 64
    by_class = estimate(
        "transformers:LlamaForCausalLM", config=str(path), fsdp=2, ac="full", settings=settings
    )
    assert by_class.peak.total_bytes == found.peak.total_bytes


@pytest.mark.parametrize("target", ["architectures", "model_type", "class"])
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16", "float32"])
def test_parameters_have_the_dtype_of_the_config(
    target: str, key: str, dtype: str | None, tmp_path: Path
) -> None:
    import transformers

    config = {**CONFIG, key: dtype} if dtype else dict(CONFIG)
    if target == "model_type":
        del config["architectures"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    of_config = transformers.AutoConfig.from_pretrained(tmp_path)
    real = transformers.AutoModelForCausalLM.from_config(of_config)
    if target == "class":
        found = estimate("transformers:LlamaForCausalLM", config=str(path), settings={"seq": 32})
    else:
        found = estimate(path, settings={"seq": 32})
    size_bytes = sum(each.nbytes for each in real.parameters())
    assert found.peak.categories["Parameter"] == size_bytes
    assert found.parameter_dtypes == (dtype or "float32",)
    width = 4 if dtype in (None, "float32") else 2
    assert size_bytes == found.parameter_count * width
    assert f"parameters in {dtype or 'float32'}, batch 1" in render_estimate(found, 5)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_size": 3}, "no model_type"),
        ({"model_type": "vit"}, "not describe a language model"),
        ({"model_type": "nothing-like-it"}, "nothing-like-it"),
        ([1], "contains a list"),
    ],
)
def test_invalid_config_is_reported(config: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(ContractError, match=message):
        load_contract(path)


def test_class_with_a_config_can_be_estimated(tmp_path: Path) -> None:
    path = tmp_path / "layer.toml"
    path.write_text(
        "settings = {batch = 2}\narguments = {in_features = 8, out_features = 4}\n"
        'inputs = [{shape = ["batch", 8]}]\n'
    )
    found = estimate("torch.nn:Linear", config=str(path), settings={"out_features": 16})
    assert found.parameter_count == 8 * 16 + 16
    assert found.settings == {"batch": 2, "in_features": 8, "out_features": 16}


def test_without_a_simulated_gpu_the_cpu_must_be_asked_for(
    model_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(claim: Any) -> None:
        raise NotImplementedError("not with this torch")

    assert estimate(model_file).simulated_device == "cuda"
    assert estimate(model_file).notes == ()
    monkeypatch.setattr("tidegauge._torch.claimed_cuda.Claim.begin", refuse)
    with pytest.raises(NotImplementedError, match=r"cannot simulate a GPU: not with this torch"):
        estimate(model_file)
    assert main(["estimate", model_file]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("tidegauge: cannot simulate a GPU: not with this torch; ")
    assert "--simulate cpu" in shown.err.splitlines()[0]
    assert estimate(model_file, simulated_device="cpu").simulated_device == "cpu"


def test_record_stream_is_reported(model_file: str) -> None:
    """Once in each of two steps; blocks that wait for the other stream are not in the band."""
    contract = load_contract(model_file)

    def compute_loss(model: nn.Module, tokens: torch.Tensor) -> Any:
        tokens.record_stream(torch.cuda.Stream())
        return contract.compute_loss(model, tokens)

    found = estimate(dataclasses.replace(contract, compute_loss=compute_loss))
    assert found.step_count == 2
    assert [note[:33] for note in found.notes] == ["record_stream was called 2 times."]


def test_offloaded_shards_are_not_on_the_device(model_file: str) -> None:
    device = estimate(model_file, fsdp=2).peak.categories
    assert {"Sharded Param", "Optstate"} <= set(device)
    offloaded = estimate(model_file, fsdp=2, offload=True).peak.categories
    assert not {"Sharded Param", "Optstate"} & set(offloaded)


def test_python_functions_can_be_estimated() -> None:
    contract = Contract(
        "mine",
        lambda settings: nn.Linear(8, settings.width),
        lambda settings: torch.randn(2, 8),
        lambda model, inputs: model(inputs).sum(),
        {"width": 4},
    )
    assert estimate(contract).parameter_count == 36
    assert estimate(contract, settings={"width": 8}).parameter_count == 72


def test_largest_value_is_found_by_bisection(model_file: str) -> None:
    with Estimator(load_contract(model_file)) as estimator:
        from tidegauge.allocator import DeviceModel

        question = Question(Plan(), DeviceModel("", "the device", 900 << 20, 8))
        tried = dict(find_largest(estimator, question, "batch"))
        largest = max(value for value, found in tried.items() if found.fits)
        assert tried[largest + 1].fits is not True
        assert len(tried) < 2 * largest.bit_length() + 2


def test_blocks_are_the_outermost_lists_of_equal_modules() -> None:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

    inner = nn.ModuleList([block(), block()])
    outer = nn.ModuleList([nn.ModuleDict({"experts": inner}), nn.ModuleDict({"other": block()})])
    model = nn.ModuleDict({"encoder": outer, "mlp": block(), "lonely": nn.ModuleList([block()])})
    assert find_blocks(model) == [outer[0], outer[1]]


def test_error_names_the_innermost_line_outside_of_torch() -> None:
    torchs = "/x/site-packages/torch/nn/modules/linear.py"
    files = ["/x/site-packages/transformers/modeling_llama.py", torchs, "<string>"]
    frames = [traceback.FrameSummary(file, 7 + i, "forward") for i, file in enumerate(files)]
    assert describe_line(frames, "config.json") == " (modeling_llama.py, line 7)"
    assert describe_line(frames[1:2], "config.json") == " (linear.py, line 8)"
    own = traceback.FrameSummary("/y/model.py", 3, "loss")
    assert describe_line([own, *frames], "model.py") == " (model.py, line 3)"


def test_kept_error_of_a_checkpointed_block_leaves_no_hooks_behind(model_file: str) -> None:
    """The error holds the frames of torch's checkpoint, which has set hooks for saved tensors."""

    def fail(block: nn.Module, args: Any) -> None:
        raise RuntimeError("the block fails")

    contract = load_contract(model_file)
    build_model = contract.build_model

    def build_failing_model(settings: Any) -> nn.Module:
        model = build_model(settings)
        model.blocks[0].two.register_forward_pre_hook(fail)  # type: ignore[index, union-attr]
        return model

    failing = dataclasses.replace(contract, build_model=build_failing_model)
    with pytest.raises(ModelError, match="the block fails") as kept:
        estimate(failing, ac="full")
    x = torch.ones(3, requires_grad=True)
    x.exp().sum().backward()  # type: ignore[no-untyped-call]  # would run the block again
    assert x.grad is not None
    assert kept.value.__cause__ is not None


def test_error_names_the_option_of_the_command() -> None:
    text = describe_error(RuntimeError('use `simulate(routing="balanced")` or `simulate(item=1)`'))
    assert text == "RuntimeError: use `--routing balanced` or `--item 1`"
