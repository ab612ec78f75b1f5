# SPDX-License-Identifier: BSD-3-Clause
"""Patches of torch modules that are slow to import, installed when the program imports them."""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Protocol
from weakref import WeakSet

from tidegauge import _C
from tidegauge._torch.containment import warn


class Patches(Protocol):
    def install(self, user: object) -> None: ...
    def uninstall(self, user: object) -> None: ...


class LatePatches:
    """Patches of one module. Installed while they have users and the module is imported.

    `load` returns the patches, for which it may import the module. If that fails, or if the patches
    do not fit this torch, there is a warning, the trackers count a failure, and the program
    continues without them. Users are as in Installation.
    """

    def __init__(self, module_name: str, load: Callable[[], Patches]) -> None:
        self._module_name = module_name
        self._load = load
        self._finder = _Finder(module_name, self._install_now)
        self._users: WeakSet[object] = WeakSet()
        self._patches: Patches | None = None
        self._problem: Exception | None = None

    def install(self, user: object) -> None:
        """Adds a user. Like `uninstall`, it can be repeated after an interrupt."""
        self._users.add(user)
        if self._module_name in sys.modules:
            self._install_now()
        else:
            _C.run_locked(self._apply)

    def uninstall(self, user: object) -> None:
        """Removes a user; restores everything after the last one."""
        self._users.discard(user)
        _C.run_locked(self._apply)

    def _install_now(self) -> None:
        try:
            self._patches = self._load()  # not locked, because it imports
            _C.run_locked(self._apply)
            self._problem = None
        except Exception as error:  # a torch that we do not know; the import of the user succeeded
            self._patches = None
            self._problem = error
            self.note_problem()
            warn(f"tidegauge cannot patch {self._module_name}: {error}")

    def note_problem(self) -> None:
        """Counts the failure to patch in all started trackers, so that their traces report it."""
        if self._problem is not None:
            _C.hook_failed(f"patching {self._module_name}", self._problem)

    def _apply(self) -> None:
        """Makes the patches and the finder what the users need."""
        is_imported = self._module_name in sys.modules
        if self._users and not is_imported:
            self._finder.add()
        else:
            self._finder.remove()
        if self._patches is None:
            return
        if self._users:
            self._patches.install(self)
        else:
            self._patches.uninstall(self)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds no modules itself, but calls `then` after the module was imported."""

    def __init__(self, module_name: str, then: Callable[[], None]) -> None:
        self._module_name = module_name
        self._then = then

    def add(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

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
