# SPDX-License-Identifier: BSD-3-Clause
"""ScriptTracker: tracks an unchanged script; it finds FSDP2 and optimizers by itself."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge._torch.late_patches import LatePatches, Patches
from tidegauge._torch.optimizer_patches import FOR_OPTIMIZERS
from tidegauge.trackers.fsdp2_mem_tracker import _FSDPRefType, _LiveFSDPModMemStats
from tidegauge.trackers.mem_tracker import MemTracker
from tidegauge.trackers.module_stats import LiveStats


class ScriptTracker(MemTracker):  # type: ignore[no-untyped-call]
    """A MemTracker with FSDP2's categories and units, for modules that are sharded after entry.

    FSDP2 is slow to import, and most scripts do not use it. So it is patched when the script
    imports it. After that, each module that is sharded is a unit from the start. Modules that were
    sharded before entry are not units; use FSDPMemTracker for them.
    """

    _ref_class = _FSDPRefType
    _stats_class: Callable[[str], LiveStats] = _LiveFSDPModMemStats
    _is_sharded = True

    def _prepare(self) -> None:
        self._mod_tracker._native.warns_of_recursion = False
        _FSDP_PATCHES.install(self)
        FOR_OPTIMIZERS.install(self)

    def _note_problems(self) -> None:
        super()._note_problems()
        _FSDP_PATCHES.note_problem()

    def _clean_up(self) -> None:
        FOR_OPTIMIZERS.uninstall(self)
        _FSDP_PATCHES.uninstall(self)


def _load() -> Patches:
    from tidegauge._torch import fsdp_patches

    return fsdp_patches


_FSDP_PATCHES = LatePatches("torch.distributed.fsdp", _load)
