# SPDX-License-Identifier: BSD-3-Clause
"""The tracker of a script that knows nothing of us: it finds FSDP2 by itself."""

from __future__ import annotations

import importlib.abc
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.machinery import ModuleSpec
from types import ModuleType

from tidegauge._module_stats import LiveStats
from tidegauge.fsdp2_mem_tracker import _FSDPRefType, _LiveFSDPModMemStats
from tidegauge.mem_tracker import MemTracker

_FSDP = "torch.distributed.fsdp"


class ScriptTracker(MemTracker):  # type: ignore[no-untyped-call]
    """A MemTracker with the categories and units of FSDP2, for whatever is sharded meanwhile.

    FSDP2 takes long to import, and most scripts do not: it is patched once the script imports it,
    and then every module that is sharded is a unit from the start. What was sharded before entry
    is none; FSDPMemTracker is for that.
    """

    _ref_class = _FSDPRefType
    _stats_class: Callable[[str], LiveStats] = _LiveFSDPModMemStats
    _is_sharded = True

    def _prepare(self, entry: ExitStack) -> None:
        if _FSDP in sys.modules:
            _install(entry)
            return
        patches = entry.enter_context(ExitStack())  # `entry` itself is moved after this
        finder = _FSDPFinder(lambda: _install(patches))
        sys.meta_path.insert(0, finder)
        entry.callback(finder.remove)


def _install(entry: ExitStack) -> None:
    try:
        from tidegauge import _fsdp_patches

        _fsdp_patches.install()
    except Exception as error:  # an FSDP2 that we do not know; the training goes on
        warnings.warn(f"tidegauge will not see the units of FSDP2: {error}", stacklevel=2)
    else:
        entry.callback(_fsdp_patches.uninstall)


class _FSDPFinder(importlib.abc.MetaPathFinder):
    """Finds nothing by itself, but calls `then` when FSDP2 has been imported."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _FSDP:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: importlib.abc.Loader) -> None:
        execute = loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            del loader.exec_module  # it is the class's again
            execute(module)
            self.remove()
            self._then()

        loader.exec_module = execute_and_tell  # type: ignore[method-assign]
