# SPDX-License-Identifier: BSD-3-Clause
"""Sequences that ranks share: torch's ring attention, simulated and on gloo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import run_ranks
from tidegauge import simulate

pytest.importorskip("torch.distributed.tensor.experimental._context_parallel")
SCRIPT = Path(__file__).parents[1] / "support" / "context_parallel_run.py"


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_has_the_bytes_of_the_real_run(ranks: int, tmp_path: Path) -> None:
    import context_parallel_run

    run_ranks(SCRIPT, ranks, lambda rank: [str(tmp_path), str(rank), str(ranks)])
    for rank in range(ranks):
        real = json.loads((tmp_path / f"rank{rank}.json").read_text())
        with simulate(world_size=ranks, rank=rank):
            assert context_parallel_run.train(ranks) == real
