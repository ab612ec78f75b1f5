# SPDX-License-Identifier: BSD-3-Clause
"""The scenarios of the tracker's own tests, simulated: figures are those of the real run."""

from __future__ import annotations

import functools

import pytest
from runs import Record, run_scenario
from scenarios import SCENARIOS
from scenarios import record as record_real
from tidegauge import simulate

NO_DATA = {
    "lbfgs": "asks for the value of a simulated tensor",  # its line search is steered by data
    "from_torch_load": "torch.save was given a simulated tensor",
    "embedding_sparse": "which cannot be simulated: only dense tensors can",
    "sparse_tensor": "cannot be simulated",
    "quantised_tensor": "cannot be simulated",
}
"""scenario -> what its error says"""
OTHER_BYTES = {
    # The kernel of the CPU keeps more than the meta kernel of torch says, in 4 tensors of indices.
    "embedding_bag": ("after forward: Activation", 300, 260),
    # oneDNN keeps a workspace, whose size only oneDNN knows.
    "lstm": ("after forward: Activation", 59940, 2596),
    # Nothing is written, so what is cloned lazily is a copy from the beginning.
    "cow_clone": ("shared: Activation", 0, 4096),
}
"""scenario -> the first figure that differs: really, simulated"""


@functools.cache
def record(name: str) -> Record:
    with simulate():
        return run_scenario("ours", SCENARIOS[name])


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in NO_DATA | OTHER_BYTES])
def test_figures_are_those_of_the_real_run(name: str) -> None:
    simulated = record(name)
    assert (simulated.error, simulated.anomalies) == (None, (0, ""))
    assert simulated.flat() == record_real("ours", name).flat()


@pytest.mark.parametrize("name", NO_DATA)
def test_what_needs_data_says_so(name: str) -> None:
    assert NO_DATA[name] in str(record(name).error)


@pytest.mark.parametrize("name", OTHER_BYTES)
def test_where_kernels_differ_it_is_known_by_how_much(name: str) -> None:
    simulated, real = record(name).flat(), record_real("ours", name).flat()
    assert (
        next((key, real[key], simulated[key]) for key in real if real[key] != simulated[key])
        == (OTHER_BYTES[name])
    )


def test_line_search_runs_with_a_policy_for_values() -> None:
    with simulate(item=0.5):
        assert run_scenario("ours", SCENARIOS["lbfgs"]).error is None


def test_no_memory_is_taken() -> None:
    """Of 100 scenarios, what a few keep of known values is all that the allocator sees."""
    counts = record("residual").allocator
    assert counts is not None
    assert counts.peak_bytes < 1024
