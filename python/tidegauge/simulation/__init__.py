# SPDX-License-Identifier: BSD-3-Clause
"""Runs real model code of any size without a device and without memory."""

from tidegauge.simulation.session import Simulation, simulate

__all__ = ["Simulation", "simulate"]
