# SPDX-License-Identifier: BSD-3-Clause
"""The trackers, their tables, and the recorder of traces."""

from tidegauge._torch.compat import check_torch_version

check_torch_version()  # before a module of this package imports torch
