# SPDX-License-Identifier: BSD-3-Clause
"""The error that is raised if the stand-in for CUDA cannot be built or used."""

from __future__ import annotations

from tidegauge.errors import TorchError


class StandinError(TorchError):
    """The stand-in for CUDA cannot be built or used here; the message says what is missing."""
