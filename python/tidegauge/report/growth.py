# SPDX-License-Identifier: BSD-3-Clause
"""What a run keeps in more and more copies from step to step (src/analyze/growth.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge._util.formatting import render_bytes
from tidegauge.report.names import NO_MODULE, render_op

_SMALL_CHANGE = 1024  # bytes a step


@dataclass(frozen=True)
class Growth:
    """Storages of one origin that the run keeps: after each step there are more of them."""

    device: str
    category: str
    module: str
    op: str
    dtype: str  # empty if unknown, or if they differ
    shape: str
    count: int  # kept from earlier steps, after the last step
    size_bytes: int
    since_step: int  # the first step after which there were more than before
    last_step: int
    bytes_per_step: int
    line: str  # that allocated them; empty if not recorded
    stack: tuple[str, ...]
    holder: str  # what keeps them alive, as far as known: "the list `losses`"

    @property
    def is_large(self) -> bool:
        """False for small change, such as a list of losses."""
        return self.bytes_per_step >= _SMALL_CHANGE

    def __str__(self) -> str:
        """`Grows 256 KiB a step since step 2: 11 tensors [256, 256] from earlier steps, ...`"""
        return f"Grows {self.describe()}"

    def describe(self) -> str:
        """The same without the verb."""
        tensors = "tensor" if self.count == 1 else "tensors"
        kind = " ".join(filter(None, (tensors, self.dtype, self.shape)))
        module = "" if self.module == NO_MODULE else self.module
        maker = " ".join(filter(None, (module, render_op(self.op))))
        parts = [
            f"{render_bytes(self.bytes_per_step)} a step since step {self.since_step:,}: "
            f"{self.count:,} {kind} from earlier steps "
            f"({render_bytes(self.size_bytes)} on {self.device})"
        ]
        if maker or self.line:
            by, at = f" by {maker}" if maker else "", f" at {self.line}" if self.line else ""
            parts.append(f"made{by}{at}")
        if self.holder:
            parts.append(f"kept alive by {self.holder}")
        return ", ".join(parts) + "."


def describe_growth(growth: Sequence[Growth]) -> str:
    """What the run keeps from step to step, without small change; empty if nothing grows."""
    large = [each for each in growth if each.is_large]
    if len(large) < 2:
        return str(large[0]) if large else ""
    total = sum(each.bytes_per_step for each in large)
    since = min(each.since_step for each in large)
    return (
        f"Grows {render_bytes(total)} a step since step {since:,}: {len(large)} kinds of tensors "
        "are kept from earlier steps (`tidegauge report --leaks` lists them). The largest one: "
        f"{large[0].describe()}"
    )
