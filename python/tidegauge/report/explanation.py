# SPDX-License-Identifier: BSD-3-Clause
"""What owns a peak, in one sentence."""

from __future__ import annotations

from tidegauge._util.formatting import render_bytes
from tidegauge.report.names import NO_MODULE, THE_LOSS, is_loss_op, render_op
from tidegauge.report.summary import ModuleBytes, Peak, TensorGroup

_MOST = 0.7  # of a category: then it is said to be in that module
_WORTH = 0.03  # of the peak: less is not mentioned


def explain_peak(peak: Peak) -> str:
    """`58 % Saved Activation, 25.0 GiB of it in Llama.blocks; then 11.7 GiB for the loss: 3 x
    float32 [8192, 128256]`; empty for an empty peak. Ops are named unless they compute the loss.
    """
    if not peak.total_bytes:
        return ""
    category, size_bytes = next(iter(peak.categories.items()))
    text = f"{size_bytes / peak.total_bytes:.0%} {category}"
    owner = _find_owner(peak, category, size_bytes)
    if owner is not None:
        text += f", {render_bytes(owner.categories[category])} of it in {owner.name}"
    rest = [
        group
        for group in peak.tensors
        if group.category != category or not _is_within(group, owner)
    ]
    return text + _describe_largest(rest, peak.total_bytes)


def _find_owner(peak: Peak, category: str, size_bytes: int) -> ModuleBytes | None:
    """The deepest module that has most of the category."""
    owners = [
        module
        for module in peak.modules
        if module.name != NO_MODULE and module.categories.get(category, 0) >= _MOST * size_bytes
    ]
    return max(owners, key=lambda module: module.name.count("."), default=None)


def _is_within(group: TensorGroup, owner: ModuleBytes | None) -> bool:
    return owner is None or f"{group.module}.".startswith(f"{owner.name}.")


def _describe_largest(groups: list[TensorGroup], total_bytes: int) -> str:
    """The type and shape with the most bytes."""
    alike: dict[tuple[str, str], list[TensorGroup]] = {}
    for group in groups:
        if group.shape:
            alike.setdefault((group.dtype, group.shape), []).append(group)
    if not alike:
        return ""
    (dtype, shape), largest = max(alike.items(), key=lambda item: _sum(item[1]))
    if _sum(largest) < _WORTH * total_bytes:
        return ""
    count = sum(group.count for group in largest)
    if all(group.module == NO_MODULE and is_loss_op(group.op) for group in largest):
        return f"; then {render_bytes(_sum(largest))} for {THE_LOSS}: {count:,} x {dtype} {shape}"
    makers = dict.fromkeys(render_op(group.op) for group in largest if group.op)
    by = f" ({', '.join([*makers][:3])}{', ...' if len(makers) > 3 else ''})" if makers else ""
    return f"; then {render_bytes(_sum(largest))}: {count:,} x {dtype} {shape}{by}"


def _sum(groups: list[TensorGroup]) -> int:
    return sum(group.size_bytes for group in groups)
