# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for CUDA: torch's real CUDA build runs without a GPU.

Device memory is address space and kernels do nothing; torch's dispatcher, autograd, choice of
kernels and caching allocator are the real ones. The C++ sources are in src/standin.
"""

from tidegauge.standin._errors import StandinError
from tidegauge.standin.build import Standin, build, find_built, find_compiler, find_torch
from tidegauge.standin.environment import (
    MARK,
    find_gpu,
    is_active,
    make_environment,
    resolve_assumptions,
)

__all__ = [
    "MARK",
    "Standin",
    "StandinError",
    "build",
    "find_built",
    "find_compiler",
    "find_gpu",
    "find_torch",
    "is_active",
    "make_environment",
    "resolve_assumptions",
]
