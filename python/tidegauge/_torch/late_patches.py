# SPDX-License-Identifier: BSD-3-Clause
"""Patches of parts of torch that take long to import: put in place once somebody imports them."""

from __future__ import annotations

import importlib.abc
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Protocol


class Patches(Protocol):
    def install(self) -> None: ...
    def uninstall(self) -> None: ...


class LatePatches:
    """The patches of a module, in place as long as anybody uses them and the module is imported.

    `load` makes them, which may import the module; None: there are none to be had.
    """

    def __init__(self, module_name: str, load: Callable[[], Patches | None]) -> None:
        self._module_name = module_name
        self._load = load
        self._finder = _Finder(module_name, self._put_in_place)
        self._lock = threading.Lock()  # never held while something is imported
        self._user_count = 0
        self._patches: Patches | None = None

    def install(self) -> None:
        """Counts one more user."""
        with self._lock:
            self._user_count += 1
            if self._user_count > 1:
                return
            is_imported = self._module_name in sys.modules
            if not is_imported:
                sys.meta_path.insert(0, self._finder)
        if is_imported:
            self._put_in_place()

    def uninstall(self) -> None:
        """Counts one user less; after the last one all is as it was."""
        with self._lock:
            self._user_count -= 1
            if self._user_count > 0:
                return
            self._finder.remove()
            if self._patches is not None:
                self._patches.uninstall()
                self._patches = None

    def _put_in_place(self) -> None:
        patches = self._load()
        with self._lock:
            if patches is not None and self._patches is None and self._user_count > 0:
                patches.install()
                self._patches = patches


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing by itself, but calls `then` when the module has been imported."""

    def __init__(self, module_name: str, then: Callable[[], None]) -> None:
        self._module_name = module_name
        self._then = then

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._module_name:
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
