# SPDX-License-Identifier: BSD-3-Clause
"""Installs and removes patches of torch's Python.

Each patch exists once, however many trackers are entered, and is removed when the last one leaves.
Other code may keep a wrapper of ours (a compiled model, another tool's patch on top of ours): once
no tracker is entered, the wrapper only calls the original.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from torch.utils.hooks import RemovableHandle


class Patch:
    """Replaces one attribute of a torch class or module by a wrapper.

    The wrapper looks up the original at each call. So it stays one and the same function, and
    dynamo does not recompile.
    """

    def __init__(self, owner: type | ModuleType, name: str, wrapper: Any) -> None:
        self._owner = owner
        self._name = name
        self._wrapper = wrapper
        self._own_attribute: Any = None  # as defined by the owner itself; None: inherited
        self._is_below_another = False

    def install(self) -> Callable[..., Any] | None:
        """Installs the wrapper and returns the original; None if the wrapper is still in place."""
        current = self._current()
        if current is self._wrapper:
            return None
        if self._is_below_another and current is not self._own_attribute:
            return None  # another tool's patch on top still calls ours
        self._own_attribute = self._owner.__dict__.get(self._name)
        original: Callable[..., Any] = getattr(self._owner, self._name)
        setattr(self._owner, self._name, self._wrapper)
        return original

    def uninstall(self) -> None:
        self._is_below_another = self._current() is not self._wrapper
        if self._is_below_another:
            return  # another tool's patch on top calls ours: removing ours would undo theirs
        if self._own_attribute is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._own_attribute)

    def _current(self) -> Any:
        return self._owner.__dict__.get(self._name)


class GlobalHook:
    """One of torch's global hooks, which are common to all modules or optimizers.

    It has the same key each time, so that dynamo sees at most two states: with and without it.
    """

    def __init__(
        self, register: Callable[[Callable[..., Any]], RemovableHandle], hook: Callable[..., None]
    ) -> None:
        self._register = register
        self._hook = hook
        self._handle: RemovableHandle | None = None

    def install(self) -> None:
        if self._handle is None:
            self._handle = self._register(self._hook)
        elif (hooks := self._handle.hooks_dict_ref()) is not None:
            hooks[self._handle.id] = self._hook

    def uninstall(self) -> None:
        if self._handle is not None:
            self._handle.remove()


class Installation:
    """Patches and global hooks that are in place while they have users.

    `patches`: by the key in `variables` under which the wrapper finds the original.
    `needs`: another installation that must be in place as well.
    """

    _lock = threading.Lock()

    def __init__(
        self,
        patches: dict[str, Patch],
        variables: dict[str, Any],
        hooks: Sequence[GlobalHook] = (),
        at_end: Callable[[], None] = lambda: None,
        needs: Installation | None = None,
    ) -> None:
        self._variables = variables
        self._patches = patches
        self._hooks = hooks
        self._at_end = at_end
        self._needs = needs
        self._user_count = 0

    def install(self) -> None:
        """Adds a user; installs everything for the first one."""
        if self._needs is not None:
            self._needs.install()
        with self._lock:
            self._user_count += 1
            if self._user_count > 1:
                return
            for variable, patch in self._patches.items():
                if (original := patch.install()) is not None:
                    self._variables[variable] = original
            for hook in self._hooks:
                hook.install()

    def uninstall(self) -> None:
        """Removes a user; restores everything after the last one."""
        with self._lock:
            self._user_count -= 1
            if self._user_count == 0:
                self._remove_all()
        if self._needs is not None:
            self._needs.uninstall()

    def _remove_all(self) -> None:
        for hook in self._hooks:
            hook.uninstall()
        for patch in self._patches.values():
            patch.uninstall()
        self._at_end()
