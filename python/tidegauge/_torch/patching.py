# SPDX-License-Identifier: BSD-3-Clause
"""How a part of torch's Python is patched and restored.

Each patch exists once, however many trackers are entered, and is put back when the last one leaves.
A wrapper that a caller has kept meanwhile (a compiled model, another tool's patch on top of ours)
only calls the original once no tracker is entered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from torch.utils.hooks import RemovableHandle


class Patch:
    """One attribute of a class of torch's that has a wrapper of ours.

    The wrapper looks up the original at each call, so that it keeps its identity: dynamo would
    compile again for another function.
    """

    def __init__(self, owner: type | ModuleType, name: str, wrapper: Any) -> None:
        self._owner = owner
        self._name = name
        self._wrapper = wrapper
        self._own_attribute: Any = None  # what the class itself had; None: inherited
        self._is_below_another = False

    def install(self) -> Callable[..., Any] | None:
        """Puts the wrapper in place and returns what it has to call; None if it is there still."""
        current = self._current()
        if current is self._wrapper:
            return None
        if self._is_below_another and current is not self._own_attribute:
            return None  # somebody's patch that calls ours; not so if they put back what was first
        self._own_attribute = self._owner.__dict__.get(self._name)
        original: Callable[..., Any] = getattr(self._owner, self._name)
        setattr(self._owner, self._name, self._wrapper)
        return original

    def uninstall(self) -> None:
        self._is_below_another = self._current() is not self._wrapper
        if self._is_below_another:
            return  # a later patch of somebody else's calls ours: taking it out would undo theirs
        if self._own_attribute is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._own_attribute)

    def _current(self) -> Any:
        return self._owner.__dict__.get(self._name)


class GlobalHook:
    """One of torch's hooks that are common to all modules or optimizers.

    It has the same key each time, so that dynamo sees two states at most: with it and without.
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
    """Patches and global hooks that are in place as long as anybody uses them.

    The key of a patch is the key of `variables` by which its wrapper finds the original.
    `needs`: what has to be in place as well.
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
        """Counts one more user; the first one finds all put in place."""
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
        """Counts one user less; after the last one all is as it was."""
        with self._lock:
            self._user_count -= 1
            if self._user_count == 0:
                self._take_out()
        if self._needs is not None:
            self._needs.uninstall()

    def _take_out(self) -> None:
        for hook in self._hooks:
            hook.uninstall()
        for patch in self._patches.values():
            patch.uninstall()
        self._at_end()
