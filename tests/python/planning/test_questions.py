# SPDX-License-Identifier: BSD-3-Clause
"""Plans of models that exist, and of Hugging Face configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tidegauge
import torch
from planned_models import Gated, Residual, Stack, mlp
from tidegauge.cli.main import main
from tidegauge.plan import BudgetError
from torch import nn

X = torch.ones(64, 128, 64)


class TwoInputs(nn.Module):
    """Its blocks are not in `forward(x)` form, and its output is a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = Stack(mlp(256), mlp(256), Residual(Gated()))

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.stack(x) * scale).square().mean()}


def high_bytes(model: nn.Module, **options: Any) -> int:
    return tidegauge.estimate(model, device="l4", **options).high_bytes


def between(model: nn.Module, **options: Any) -> int:
    """A budget that is too small without checkpointing and large enough with it."""
    least = high_bytes(model, ac="full", **options)
    most = high_bytes(model, **options)
    assert least < most
    return (least + most) // 2


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (lambda: Stack(*(mlp(256) for _ in range(4))), X),
        (lambda: Stack(*(mlp(256) for _ in range(4))), (X,)),
        (TwoInputs, {"x": X, "scale": torch.ones(())}),
        (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256), 3), X),
    ],
    ids=["stack", "tuple", "keywords", "encoder"],
)
def test_plan_of_a_model_keeps_its_budget_when_it_is_applied(build: Any, inputs: Any) -> None:
    model = build()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    budget = between(model, inputs=inputs)
    found = tidegauge.plan.find(model, inputs=inputs, device="l4", budget=budget)
    assert set(found.chosen.kinds) != {"none"}
    assert high_bytes(model, inputs=inputs) > budget  # the model was not changed
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    planned = found.applied.apply(model)
    assert high_bytes(planned, inputs=inputs) == found.chosen.estimate.high_bytes <= budget


def test_options_are_those_of_estimate() -> None:
    model, options = Stack(mlp(256), mlp(256)), {"fsdp": 2, "mp": "bf16/fp32", "optimizer": "sgd"}
    found = tidegauge.plan.find(model, inputs=X, device="l4", **options)
    assert found.chosen.estimate.high_bytes == high_bytes(model, inputs=X, **options)
    assert found.slowdown == 0


def test_budget_may_be_a_text() -> None:
    model = Stack(mlp(256), mlp(256))
    with pytest.raises(BudgetError, match=r"no checkpointing fits 3\.00 MiB"):
        tidegauge.plan.find(model, inputs=X, device="l4", budget="3MiB")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"budget": "60"}, ValueError, "invalid budget '60'"),
        ({"budget": ""}, ValueError, "invalid budget ''"),
        ({"budget": 0}, ValueError, "invalid budget 0"),
        ({"budget": -1}, ValueError, "invalid budget -1"),
        ({"device": None}, ValueError, "a plan needs a device"),
        ({"ac": "full"}, TypeError, r"find\(\) has no argument 'ac'"),
        ({"fdsp": 8}, TypeError, "has no argument 'fdsp': did you mean fsdp"),
        ({"choices": "speed"}, ValueError, "invalid try 'speed'"),
        ({"inputs": None}, ValueError, "needs inputs="),
        ({"pp": 2}, ValueError, "pp=2 cannot be planned"),
    ],
    ids=str,
)
def test_invalid_question_is_reported(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"inputs": X, "device": "l4", **options}
    with pytest.raises(error, match=message):
        tidegauge.plan.find(Stack(mlp(256), mlp(256)), **given)


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


def write_config(folder: Path) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_config_is_planned_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    path, settings = write_config(tmp_path), {"batch": 8, "seq": 512}
    estimates = [
        tidegauge.estimate(path, device="l4", settings=settings, ac=ac) for ac in ("full", "none")
    ]
    least, most = (each.high_bytes for each in estimates)
    budget = (least + most) // 2
    written = tmp_path / "plan.json"
    command = ["plan", str(path), "--device", "l4", "--set", "batch=8", "--set", "seq=512"]
    command += ["--budget", f"{budget}B", "--write", str(written), "--json"]
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert least <= answer["chosen"]["high_bytes"] <= budget
    assert answer["blocks"]
    assert {name.rpartition(".")[0] for name in answer["blocks"]} == {"model.layers"}
    config = transformers.AutoConfig.for_model(**LLAMA)
    tokens = torch.zeros(8, 512, dtype=torch.long)
    inputs = {"input_ids": tokens, "labels": tokens}
    plan = tidegauge.plan.load(written)
    space: dict[str, Any] = {}
    exec(plan.to_code(), space)
    for apply in (plan.apply, space["checkpoint_blocks"]):
        model = transformers.AutoModelForCausalLM.from_config(config)
        model.config.use_cache = True
        planned = apply(model)
        assert high_bytes(planned, inputs=inputs) <= budget
        planned(**inputs).loss.backward()  # a cache would make recomputing fail
