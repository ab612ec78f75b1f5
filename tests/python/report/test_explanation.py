# SPDX-License-Identifier: BSD-3-Clause
"""What the first sentences of a report say about a peak."""

from __future__ import annotations

from tidegauge.report.explanation import explain_peak
from tidegauge.report.growth import Growth, describe_growth
from tidegauge.report.names import NO_MODULE, is_loss_op, name_stranger
from tidegauge.report.summary import ModuleBytes, Peak, TensorGroup
from tidegauge.report.text import render_modules


def group(size: int, category: str, module: str, op: str, count: int = 1) -> TensorGroup:
    return TensorGroup(
        category=category,
        module=module,
        op=op,
        dtype="float32",
        shape="[8, 4]",
        count=count,
        size_bytes=size,
        stack=(),
        line="",
    )


def peak(*groups: TensorGroup, modules: tuple[ModuleBytes, ...] = ()) -> Peak:
    categories: dict[str, int] = {}
    for each in groups:
        categories[each.category] = categories.get(each.category, 0) + each.size_bytes
    return Peak(
        device="cpu",
        total_bytes=sum(categories.values()),
        categories=dict(sorted(categories.items(), key=lambda item: -item[1])),
        saved_bytes=0,
        sequence=1,
        after_ns=0,
        step=1,
        in_optimizer_step=False,
        running=(),
        modules=modules,
        tensors=groups,
        lines=(),
        units=(),
    )


SAVED = group(6000, "Saved Activation", "Net.blocks.0", "aten::mm")
LOSS = group(1000, "Temp", NO_MODULE, "aten::nll_loss_backward", 2)
BLOCKS = ModuleBytes("Net.blocks", 0, 6000, 6000, {"Saved Activation": 6000})
STRANGERS = ModuleBytes(NO_MODULE, 1508, 1508, 0, {"Temp": 1508})


def test_the_loss_is_named() -> None:
    assert explain_peak(peak(SAVED, LOSS, modules=(BLOCKS,))) == (
        "86% Saved Activation, 5.86 KiB of it in Net.blocks; "
        "then 1000 B for the loss: 2 x float32 [8, 4]"
    )


def test_tensors_beside_the_loss_are_named_by_their_ops() -> None:
    logits = group(1000, "Activation", "Net.head", "aten::addmm")
    text = explain_peak(peak(SAVED, LOSS, logits, modules=(BLOCKS,)))
    assert text.endswith("; then 1.95 KiB: 3 x float32 [8, 4] (nll_loss_backward, addmm)")


def test_ops_of_losses_are_known() -> None:
    for op in ("aten::mse_loss", "aten::_log_softmax_backward_data", "aten::kl_div"):
        assert is_loss_op(op)
    for op in ("aten::mm", "aten::_softmax", ""):
        assert not is_loss_op(op)
    assert name_stranger("aten::randn.out") == "randn"
    assert name_stranger("", "Inputs") == "Inputs"


def test_strangers_are_named_below_the_row_without_a_module() -> None:
    inputs = group(500, "Inputs", NO_MODULE, "")
    small = group(8, "Temp", NO_MODULE, "aten::ones_like")  # less than 1 % of the peak
    rows = render_modules(peak(SAVED, LOSS, inputs, small, modules=(STRANGERS, BLOCKS)), 10)
    names = [line[:20].rstrip() for line in rows[1:]]
    assert names == ["  (no module)", "    the loss", "    Inputs", "    blocks"]
    assert rows[2].split() == ["the", "loss", "1000", "B", "1000", "B", "0", "B"]


def test_growth_of_several_kinds_is_one_sentence_each() -> None:
    def grows(per_step: int) -> Growth:
        return Growth(
            device="cpu",
            category="Activation",
            module="Net",
            op="aten::mm",
            dtype="float32",
            shape="[4]",
            count=3,
            size_bytes=3 * per_step,
            since_step=2,
            last_step=5,
            bytes_per_step=per_step,
            line="",
            stack=(),
            holder="",
        )

    assert describe_growth([grows(4096), grows(2048)]) == (
        "Grows 6.00 KiB a step since step 2: 2 kinds of tensors are kept from earlier steps "
        "(`tidegauge report --leaks` lists them). The largest one: 4.00 KiB a step since step 2: "
        "3 tensors float32 [4] from earlier steps (12.0 KiB on cpu), made by Net mm."
    )
