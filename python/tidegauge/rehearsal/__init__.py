# SPDX-License-Identifier: BSD-3-Clause
"""A dress rehearsal: an unchanged script runs as one rank of a job on GPUs that are not there."""

from tidegauge.rehearsal.session import Job, RealRehearsal, Rehearsal, SimulatedRehearsal, Values

__all__ = ["Job", "RealRehearsal", "Rehearsal", "SimulatedRehearsal", "Values"]
