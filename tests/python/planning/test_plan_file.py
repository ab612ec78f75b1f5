# SPDX-License-Identifier: BSD-3-Clause
"""plan.json: reading, applying, and the code that does the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import tidegauge
import torch
from tidegauge import _C
from tidegauge.errors import FormatError
from tidegauge.planning.plan_file import AppliedPlan, make_applied
from torch import nn

RECOMPUTE = 2
NAMES = tuple(f"layers.{i}" for i in range(4))
KINDS = ("full", "attention", "selective", "none")


def make_model() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model(torch.randn(2, 5, 16)).square().sum().backward()
    return [each.grad for each in model.parameters() if each.grad is not None]


def recomputed_ops(model: nn.Module) -> list[str]:
    log = _C.OpLog()
    with tidegauge.mem_tracker.MemTracker():
        log.start()
        gradients_of(model)
        log.stop()
    calls = log.calls()
    rows = log.entries(0, log.position)
    return [calls[number].op for kind, number, facts, _ in rows if kind == 0 and facts & RECOMPUTE]


def test_gradients_under_a_plan_are_bitwise_equal() -> None:
    plain = gradients_of(make_model())
    planned = make_applied(NAMES, KINDS, {}).apply(make_model())
    assert all(
        torch.equal(one, other) for one, other in zip(plain, gradients_of(planned), strict=True)
    )


def test_names_of_parameters_stay() -> None:
    planned = make_applied(NAMES, KINDS, {}).apply(make_model())
    assert [*planned.state_dict()] == [*make_model().state_dict()]


def test_kept_ops_are_not_recomputed() -> None:
    full = recomputed_ops(make_applied(NAMES[:1], ("full",), {}).apply(make_model()))
    selective = recomputed_ops(make_applied(NAMES[:1], ("selective",), {}).apply(make_model()))
    assert "aten::addmm" in full
    assert "aten::addmm" not in selective
    assert "aten::native_layer_norm" in selective


def test_plan_survives_its_file(tmp_path: Path) -> None:
    plan = make_applied(NAMES, KINDS, {"device": "h100-80g"})
    (tmp_path / "plan.json").write_text(plan.to_json())
    assert tidegauge.plan.load(tmp_path / "plan.json") == plan
    assert [*plan.blocks] == [*NAMES[:3]]
    assert plan.blocks["layers.0"] == ()
    assert "mm" in plan.blocks["layers.2"]


def test_code_does_the_same() -> None:
    plan = make_applied(NAMES, KINDS, {})
    space: dict[str, Any] = {}
    exec(plan.to_code(), space)
    assert recomputed_ops(space["checkpoint_blocks"](make_model())) == recomputed_ops(
        plan.apply(make_model())
    )


def test_code_of_an_empty_plan_changes_nothing() -> None:
    space: dict[str, Any] = {}
    exec(AppliedPlan({}, {}).to_code(), space)
    assert recomputed_ops(space["checkpoint_blocks"](make_model())) == []


def test_unknown_module_and_op_are_reported_before_anything_changes() -> None:
    model = make_model()
    with pytest.raises(ValueError, match=r"'layers\.9', which this TransformerEncoder does not"):
        AppliedPlan({"layers.0": (), "layers.9": ()}, {}).apply(model)
    with pytest.raises(ValueError, match="an op 'no_such_op', which this torch does not have"):
        AppliedPlan({"layers.0": (), "layers.1": ("no_such_op",)}, {}).apply(model)
    assert recomputed_ops(model) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a plan"),
        ("[]", "is a plan of format list"),
        ('{"format": 2}', r"format 2 \(expected 1\)"),
        ('{"format": 1}', "expected lists of ops by module name"),
        ('{"format": 1, "blocks": {"a": [1]}}', "expected lists of ops by module name"),
        ('{"format": 1, "blocks": {"a": "mm"}}', "expected lists of ops by module name"),
        (
            '{"format": 1, "blocks": {"a": ["mm.default]; print(1)"]}}',
            "expected lists of ops by module name",
        ),
        ('{"format": true, "blocks": {}}', r"format True \(expected 1\)"),
        ('{"format": "' + "x" * 100_000 + '"}', "is a plan of format x+…x+ "),
        ('{"format": ' + "9" * 4000 + "}", "is a plan of format 9+…9+ "),
        ('{"format": ' + "9" * 5000 + "}", r"is not a plan \(Exceeds the limit"),
        ("[" * 100_000, r"is not a plan \(it is nested too deeply"),
    ],
    ids=lambda text: text[:60],
)
def test_damaged_file_is_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(FormatError, match=message) as error:
        tidegauge.plan.load(tmp_path / "plan.json")
    assert len(str(error.value).replace(str(tmp_path), "")) < 300


@pytest.mark.parametrize("kind", ["pipe", "folder", "endless", "missing"])
def test_file_that_cannot_be_read_is_reported_at_once(tmp_path: Path, kind: str) -> None:
    path = {"folder": tmp_path, "endless": Path("/dev/zero")}.get(kind, tmp_path / kind)
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises((FormatError, OSError), match=r"not a regular file|No such file|directory"):
        tidegauge.plan.load(path)


def test_module_of_any_name_is_data_in_the_code(tmp_path: Path) -> None:
    names = [
        '"); raise SystemExit  # ',
        "\\",
        "\n",
        "it's",
        "both ' and \"",
        "\ud800",
        "\U0001f600",
    ]
    whole = {"format": 1, "blocks": {name: ["mm"] for name in names}}
    (tmp_path / "plan.json").write_text(json.dumps(whole))
    plan = tidegauge.plan.load(tmp_path / "plan.json")
    space: dict[str, Any] = {}
    exec(plan.to_code(), space)
    found = []

    class Model:
        def get_submodule(self, name: str) -> nn.Module:
            found.append(name)
            return nn.Identity()

        def modules(self) -> list[nn.Module]:
            return []

    space["checkpoint_blocks"](Model())
    assert found == names


def test_message_about_a_long_name_is_short() -> None:
    for blocks in ({"x" * 100_000: ()}, {"layers.0": ("x" * 100_000,)}):
        with pytest.raises(ValueError, match="which this") as error:
            AppliedPlan(blocks, {}).apply(make_model())
        assert len(str(error.value)) < 250


def test_binary_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FormatError, match="is not a plan"):
        tidegauge.plan.load(tmp_path / "plan.json")


def test_facts_are_optional(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"format": 1, "blocks": {"a": []}}))
    assert tidegauge.plan.load(tmp_path / "plan.json") == AppliedPlan({"a": ()}, {})


def test_a_plan_is_described_in_one_line_and_in_notebooks() -> None:
    plan = AppliedPlan({"a.<0>": (), "a.1": (), "a.2": ("mm", "bmm")}, {})
    assert str(plan) == "checkpoints 3 blocks: 2 keep nothing; 1 keeps mm, bmm"
    html = plan._repr_html_()
    assert "a.&lt;0&gt;" in html
    assert html.count("<tr>") == 4
    assert str(AppliedPlan({}, {})) == "checkpoints no block"
    assert "<table" not in AppliedPlan({}, {})._repr_html_()
