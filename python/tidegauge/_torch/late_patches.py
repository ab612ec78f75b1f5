# SPDX-License-Identifier: BSD-3-Clause
"""Patches of torch modules that are slow to import, installed when the program imports them."""

from __future__ import annotations

import importlib.abc
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Protocol


class Patches(Protocol):
    def install(self) -> None: ...
    def uninstall(self) -> None: ...


class LatePatches:
    """Patches of one module. Installed while a tracker uses them and the module is imported.

    `load` returns the patches, for which it may import the module. If that fails, or if the patches
    do not fit this torch, there is a warning, and the program continues without them.
    """

    def __init__(self, module_name: str, load: Callable[[], Patches]) -> None:
        self._module_name = module_name
        self._load = load
        self._finder = _Finder(module_name, self._install_now)
        self._lock = threading.Lock()  # never held during an import
        self._user_count = 0
        self._patches: Patches | None = None

    def install(self) -> None:
        """Adds a user."""
        with self._lock:
            self._user_count += 1
            if self._user_count > 1:
                return
            is_imported = self._module_name in sys.modules
            if not is_imported:
                sys.meta_path.insert(0, self._finder)
        if is_imported:
            self._install_now()

    def uninstall(self) -> None:
        """Removes a user; restores everything after the last one."""
        with self._lock:
            self._user_count -= 1
            if self._user_count > 0:
                return
            self._finder.remove()
            if self._patches is not None:
                self._patches.uninstall()
                self._patches = None

    def _install_now(self) -> None:
        try:
            patches = self._load()
            with self._lock:
                if self._patches is None and self._user_count > 0:
                    patches.install()
                    self._patches = patches
        except Exception as error:  # a torch that we do not know; the import of the user succeeded
            warnings.warn(f"tidegauge cannot patch {self._module_name}: {error}", stacklevel=2)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds no modules itself, but calls `then` after the module was imported."""

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

        def execute_and_notify(module: ModuleType) -> None:
            del loader.exec_module  # uncovers the method of the class
            execute(module)
            self.remove()
            self._then()

        loader.exec_module = execute_and_notify  # type: ignore[method-assign]
