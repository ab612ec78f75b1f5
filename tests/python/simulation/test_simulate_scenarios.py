# SPDX-License-Identifier: BSD-3-Clause
"""The scenarios of the tracker's tests, simulated: figures equal those of the real run."""

from __future__ import annotations

import functools

import pytest
from runs import Record, run_scenario
from scenarios import SCENARIOS
from scenarios import record as record_real
from tidegauge import simulate
from torch_version import LARGE_LSTM_ON_META

NO_DATA = {
    "lbfgs": "asks for the value of a simulated tensor",  # its line search depends on data
    "from_torch_load": "torch.save was given a simulated tensor",
    "embedding_sparse": "which cannot be simulated: only dense tensors can",
    "sparse_tensor": "cannot be simulated",
    "quantised_tensor": "cannot be simulated",
}
"""scenario -> its error message"""
OTHER_BYTES = {
    # The CPU kernel keeps more than torch's meta kernel, in 4 index tensors.
    "embedding_bag": ("after forward: Activation", 300, 260),
    # oneDNN keeps a workspace whose size only oneDNN knows.
    "lstm": ("after forward: Activation", 76324 if LARGE_LSTM_ON_META else 59940, 2596),
    # A simulation copies at once where the real run clones lazily and never writes.
    "cow_clone": ("shared: Activation", 0, 4096),
}
"""scenario -> the first figure that differs: (real, simulated)"""


@functools.cache
def record(name: str) -> Record:
    with simulate():
        return run_scenario("ours", SCENARIOS[name])


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in NO_DATA | OTHER_BYTES])
def test_figures_equal_those_of_the_real_run(name: str) -> None:
    simulated = record(name)
    assert (simulated.error, simulated.anomalies) == (None, (0, ""))
    assert simulated.flat() == record_real("ours", name).flat()


@pytest.mark.parametrize("name", NO_DATA)
def test_scenario_that_needs_data_is_an_error(name: str) -> None:
    assert NO_DATA[name] in str(record(name).error)


@pytest.mark.parametrize("name", OTHER_BYTES)
def test_known_differences_of_kernels_are_exact(name: str) -> None:
    simulated, real = record(name).flat(), record_real("ours", name).flat()
    assert (
        next((key, real[key], simulated[key]) for key in real if real[key] != simulated[key])
        == (OTHER_BYTES[name])
    )


def test_line_search_runs_with_a_policy_for_values() -> None:
    with simulate(item=0.5):
        assert run_scenario("ours", SCENARIOS["lbfgs"]).error is None


def test_simulation_allocates_no_memory() -> None:
    """In 100 scenarios, the allocator sees only the known values that a few of them keep."""
    counts = record("residual").allocator
    assert counts is not None
    assert counts.peak_bytes < 1024
