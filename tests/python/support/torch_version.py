# SPDX-License-Identifier: BSD-3-Clause
"""For tests whose figures depend on the version of torch."""

import torch

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])
