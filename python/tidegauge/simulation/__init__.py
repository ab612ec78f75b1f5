# SPDX-License-Identifier: BSD-3-Clause
"""Runs real model code of any size without a device and without memory."""

from tidegauge._torch.compat import check_torch_version

check_torch_version()  # before a module of this package imports torch

from tidegauge.simulation.session import Simulation, simulate

__all__ = ["Simulation", "simulate"]
