# SPDX-License-Identifier: BSD-3-Clause
"""What a training step costs per op and per module, and which activations to recompute."""

from tidegauge._torch.compat import check_torch_version

check_torch_version()  # before a module of this package imports torch
