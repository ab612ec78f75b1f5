# SPDX-License-Identifier: BSD-3-Clause
"""Which ops of a block are worth keeping: those with the most recompute for their bytes.

From a simulated run in which every block is checkpointed in full, so that all its ops run again.
Equal ops of one submodule are kept or recomputed together. Sorted by time for each byte, the first
ones make the sets that are tried: no other set of as many bytes saves more time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge.estimation.step_record import BlockRecord, StepRecord
from tidegauge.planning.block_checkpointing import find_ops, list_kept
from tidegauge.planning.speed import Speed

_RECOMPUTE = 2  # of the facts of a slice
_LEAST_SHARE = 0.01  # of the time of a block; less is not worth a name in the plan


@dataclass
class _Item:
    """The calls of an op in a submodule, without the namespace and the block."""

    op: str
    module: str
    ns: float = 0.0
    kept_bytes: int = 0


def list_kept_sets(step: StepRecord, speed: Speed, count: int) -> list[tuple[str, ...]]:
    """At most `count` times a kind for each block. `step`: checkpointed in full."""
    by_class: dict[str, list[str]] = {}
    for block in step.blocks:
        if block.kind not in by_class:
            by_class[block.kind] = _find_sets(_list_items(step, block, speed), count)
    longest = max(map(len, by_class.values()), default=0)
    return [
        tuple(
            sets[min(i, len(sets) - 1)] if (sets := by_class[block.kind]) else "full"
            for block in step.blocks
        )
        for i in range(longest)
    ]


def _list_items(step: StepRecord, block: BlockRecord, speed: Speed) -> list[_Item]:
    calls, modules = step.log.calls(), step.module_names()
    items: dict[tuple[str, str], _Item] = {}
    for begin, end in block.recomputes:
        for each in step.slices_of(begin, end, speed):
            call = calls[each.call]
            library, _, op = call.op.partition("::")
            # An op that writes to its argument makes nothing that could be kept.
            is_again = each.facts & _RECOMPUTE  # not the forward
            if (
                not is_again
                or library != "aten"
                or op.endswith("_")
                or not find_ops((op,))
                or each.stream
            ):
                continue
            _, _, inner = modules.get(each.module, "").partition(f".{block.name}.")
            if "@" in inner or "/" in inner:
                inner = ""
            item = items.setdefault((op, inner), _Item(op, inner))
            item.ns += each.end_ns - each.begin_ns
            item.kept_bytes += call.written_bytes
    total_ns = sum(item.ns for item in items.values())
    return [item for item in items.values() if item.ns >= _LEAST_SHARE * total_ns]


def _find_sets(items: Sequence[_Item], count: int) -> list[str]:
    """The sets that end where the time for each byte falls most, the smallest first. Others are
    between two of them, and so are plans that mix these two among the blocks.
    """

    def rate(item: _Item) -> float:
        return item.ns / max(item.kept_bytes, 1)

    ordered = sorted(items, key=lambda item: (-rate(item), item.op, item.module))
    known = {
        _render(items, [item for item in items if item.op in list_kept(kind)])
        for kind in ("full", "attention", "selective")
    }
    ends: list[tuple[float, int, str]] = []
    for i, item in enumerate(ordered, 1):
        text = _render(items, ordered[:i])
        after = rate(ordered[i]) if i < len(ordered) else 0.0
        if text not in known and rate(item) > after:
            ends.append((after / rate(item), i, text))
    return [text for _, _, text in sorted(sorted(ends)[:count], key=lambda end: end[1])]


def _render(items: Sequence[_Item], kept: Sequence[_Item]) -> str:
    """An op that is kept wherever it runs has no submodule."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for item in kept:
        names[item.op].append(item.module)
    parts = []
    for op, modules in sorted(names.items()):
        is_everywhere = "" in modules or len(modules) == sum(item.op == op for item in items)
        parts += [op] if is_everywhere else [f"{op}@{module}" for module in sorted(modules)]
    return f"keep={'/'.join(parts)}"
