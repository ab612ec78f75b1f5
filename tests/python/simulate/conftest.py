# SPDX-License-Identifier: BSD-3-Clause
"""Makes the helper modules of this folder, of `mem` and of `fsdp` importable."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

PYTHON_TESTS = Path(__file__).parents[1]
sys.path[:0] = [
    str(Path(__file__).parent),
    *(str(PYTHON_TESTS / name) for name in ("mem", "fsdp")),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Some kernels make more tensors with more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
