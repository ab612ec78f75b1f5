# SPDX-License-Identifier: BSD-3-Clause
"""Makes the helper modules of this folder and of `mem` importable."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "mem")]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Some kernels take workspace per thread; one thread makes it the same on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
