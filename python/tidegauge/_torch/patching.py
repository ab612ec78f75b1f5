# SPDX-License-Identifier: BSD-3-Clause
"""Installs and removes patches of torch's Python.

Each patch is installed once for all trackers and removed when the last tracker is exited. Other
code may keep one of our wrappers (a compiled model, another tool's patch on top of ours). While no
tracker is entered, such a wrapper only calls the original.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle


class Patch:
    """Replaces one attribute of a torch class or module by a wrapper.

    The wrapper looks up the original at each call. So it stays one and the same function, and
    dynamo does not recompile.

    The parameters that the wrapper names must be those of the original, in the same order: another
    version of torch may have changed them. `is_optional`: some versions lack the attribute.
    """

    def __init__(
        self, owner: type | ModuleType, name: str, wrapper: Any, *, is_optional: bool = False
    ) -> None:
        self.is_absent = is_optional and not hasattr(owner, name)
        self._owner = owner
        self._name = name
        self._wrapper = wrapper
        self._own_attribute: Any = None  # as defined by the owner itself; None: inherited
        self._is_below_another = False

    def explain_change(self) -> str | None:
        """How the original differs from what the wrapper expects; None if it fits."""
        place = f"{self._owner.__name__}.{self._name}"
        original = getattr(self._owner, self._name, None)
        if original is None:
            return None if self.is_absent else f"it has no {place}"
        if not (getattr(original, "__module__", None) or "").startswith("torch"):
            return None  # another tool's patch; what torch has below it is unknown
        expected = _names_of(_function_of(self._wrapper), follow_wrapped=False)
        found = _names_of(original, follow_wrapped=True)
        if expected is None or found is None or _fits(expected, found):
            return None
        return f"it has {place}({', '.join(found)}), and not ({', '.join(expected)})"

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


def _function_of(attribute: Any) -> Any:
    return attribute.__func__ if isinstance(attribute, staticmethod) else attribute


def _names_of(function: Any, *, follow_wrapped: bool) -> list[str] | None:
    """The names of the parameters, `*name` and `**name` included; None if the function has no
    signature, like most C++ functions."""
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    try:
        parameters = inspect.signature(function, follow_wrapped=follow_wrapped).parameters.values()
    except (TypeError, ValueError):
        return None
    return [stars.get(each.kind, "") + each.name for each in parameters]


def _fits(expected: Sequence[str], found: Sequence[str]) -> bool:
    """True if a wrapper with the parameters `expected` can replace a function with `found`."""
    named = [name for name in expected if not name.startswith("*")]
    if len(named) < len(expected):  # the wrapper passes all others on
        return list(found[: len(named)]) == named
    return list(found) == named


class GlobalHook:
    """One of torch's global hooks, which apply to all modules or all optimizers.

    It has the same key each time, so dynamo compiles for at most two states: with and without it.
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
    """Patches and global hooks that are installed while they have users.

    `patches`: by the key in `variables` under which the wrapper finds the original.
    `needs`: another installation that must be in place as well.
    `feature`: the feature that is off if the patches do not fit this torch; checked at first use.
    """

    _lock = threading.Lock()

    def __init__(
        self,
        patches: dict[str, Patch],
        variables: dict[str, Any],
        hooks: Sequence[GlobalHook] = (),
        at_end: Callable[[], None] = lambda: None,
        needs: Installation | None = None,
        feature: str = "",
    ) -> None:
        self._variables = variables
        self._patches = {key: patch for key, patch in patches.items() if not patch.is_absent}
        self._hooks = hooks
        self._at_end = at_end
        self._needs = needs
        self._unchecked_feature = feature
        self._user_count = 0

    def explain_changes(self) -> list[str]:
        """How this torch differs from what the wrappers expect, one reason each."""
        return [reason for p in self._patches.values() if (reason := p.explain_change())]

    def check(self, feature: str) -> None:
        """Raises NotImplementedError if this torch is not as the wrappers expect."""
        if reasons := self.explain_changes():
            raise NotImplementedError(
                f"{feature} does not work with torch {torch.__version__}: {'; '.join(reasons)}. "
                "Please report this, or install a torch that tidegauge supports"
            )

    def install(self) -> None:
        """Adds a user; installs everything for the first one."""
        if self._unchecked_feature:
            self.check(self._unchecked_feature)
            self._unchecked_feature = ""
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
