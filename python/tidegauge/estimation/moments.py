# SPDX-License-Identifier: BSD-3-Clause
"""The memory before the first step, in it, and in the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegauge import _core
from tidegauge.estimation.moment_names import MOMENTS
from tidegauge.estimation.steps import Trained


@dataclass(frozen=True)
class Moment:
    """The most memory at a moment of the run: "init" is before the first step, "first" in it,
    "steady" in the last one. `reserved_bytes`: by the allocator, with its cache of earlier moments.
    """

    name: str
    tensor_bytes: int
    reserved_bytes: int


def find_moments(
    trained: Trained,
    steps: Sequence[int],
    requests: _core.RunRequests,
    facts: Mapping[str, str],
    alloc_conf: str | None,
) -> tuple[Moment, ...]:
    """`steps`: the tensor peak of each one. `facts`: those of the trace."""
    counts = trained.event_counts
    spans = [(0, counts[0]), (counts[0], counts[1]), (counts[-2], counts[-1])]
    tie = _core.choose_tie_rule(None, dict(facts))
    reserved = requests.reserved_peaks(alloc_conf or "", tie, spans)
    tensors = (trained.init_bytes, steps[0], steps[-1])
    return tuple(map(Moment, MOMENTS, tensors, reserved))
