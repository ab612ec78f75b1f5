# SPDX-License-Identifier: BSD-3-Clause
"""Installs and removes patches of torch's Python.

Each patch is installed once for all trackers and removed when the last tracker is exited. Other
code may keep one of our wrappers (a compiled model, another tool's patch on top of ours). While no
tracker is entered, such a wrapper only calls the original.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from importlib import import_module
from typing import Any
from weakref import WeakSet

import torch
from torch.utils.hooks import RemovableHandle

from tidegauge import _C
from tidegauge._torch.compat import is_expected


@contextmanager
def required_by(feature: str) -> Iterator[None]:
    """For imports of torch's internals: raises NotImplementedError if this torch lacks one."""
    try:
        yield
    except ImportError as error:
        raise _not_with_this_torch(feature, str(error)) from error


def _not_with_this_torch(feature: str, reason: str) -> NotImplementedError:
    return NotImplementedError(
        f"{feature} does not work with torch {torch.__version__}: {reason}. "
        "Please report this, or install a torch that tidegauge supports"
    )


def unknown_original(*args: Any, **kwargs: Any) -> Any:
    """The value of a variable until an installation sets it to the original."""
    raise AssertionError("a wrapper was called before it was installed")


class Patch:
    """Replaces one attribute of a torch class or module by a wrapper.

    The wrapper looks up the original at each call. So it stays one and the same function, and
    dynamo does not recompile.

    `place`: `module:name` or `module:Class.name`. Nothing is raised if this torch has no such
    place: `explain_change` reports it.

    The parameters that the wrapper names must be those of the original, in the same order: another
    version of torch may have changed them. `is_named`: the wrapper gets the name and the signature
    of the original, as by `functools.wraps`.
    """

    def __init__(self, place: str, wrapper: Any, *, is_named: bool = False) -> None:
        self._place = place
        self._owner, self._name = _find_owner(place)
        is_static = isinstance(inspect.getattr_static(self._owner, self._name, None), staticmethod)
        self._wrapper = staticmethod(wrapper) if is_static else wrapper
        self._own_attribute: Any = None  # as defined by the owner itself; None: inherited
        self._is_placed = False
        self._is_below_another = False
        if is_named and (original := _find(place)) is not None:
            update_wrapper(wrapper, original)

    @property
    def is_expected(self) -> bool:
        """False if the version of torch has no such attribute, as we know."""
        return is_expected(self._place)

    def explain_change(self) -> str | None:
        """How this torch differs from what the wrapper expects; None if it fits."""
        place = self._place.replace(":", ".")
        original = _find(self._place)
        if original is None:
            return f"it has no {place}" if self.is_expected else None
        if not self.is_expected:
            return f"it has {place}, which this version should not have"
        if not (getattr(original, "__module__", None) or "").startswith("torch"):
            return None  # another tool's patch; what torch has below it is unknown
        expected = _names_of(_function_of(self._wrapper), follow_wrapped=False)
        found = _names_of(original, follow_wrapped=True)
        if expected is None or found is None or _fits(expected, found):
            return None
        return f"it has {place}({', '.join(found)}), and not ({', '.join(expected)})"

    def install(self, variables: dict[str, Any], key: str) -> None:
        """Puts the wrapper in place, and the original into `variables`, if that is not done yet.

        Like `uninstall`, it can be repeated after an interrupt at any bytecode: `setattr` is the
        step that counts, and `_is_placed` says only that it may have happened.
        """
        original: Any = getattr(self._owner, self._name)
        current = self._current()
        if current is self._wrapper:
            return
        if self._is_below_another and current is not self._own_attribute:
            return  # another tool's patch on top still calls ours
        self._own_attribute = current
        variables[key] = original
        self._is_placed = True
        setattr(self._owner, self._name, self._wrapper)

    def uninstall(self) -> None:
        """Restores the attribute, if that is not done yet."""
        current = self._current()
        if current is self._wrapper:
            self._is_below_another = False
            if self._own_attribute is None:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self._own_attribute)
        elif self._is_placed and current is not self._own_attribute:
            # Another tool's patch on top calls ours: removing ours would undo theirs.
            self._is_below_another = True
        self._is_placed = False

    def _current(self) -> Any:
        return self._owner.__dict__.get(self._name)


class Reads:
    """Attributes of a torch class that wrappers read; many exist in its instances only."""

    def __init__(self, place: str, *names: str) -> None:
        self._place = place
        self._names = names

    def explain_change(self) -> str | None:
        """The attributes that this torch lacks; None if it has them all."""
        place = self._place.replace(":", ".")
        owner = _find(self._place)
        if owner is None:
            return f"it has no {place}"
        used = {name for each in inspect.getmro(owner) for name in _names_in_methods(each)}
        missing = [n for n in self._names if n not in used and not hasattr(owner, n)]
        return f"{place} has no {', '.join(missing)}" if missing else None


def _find_owner(place: str) -> tuple[Any, str]:
    """The class or module (None if there is none) and the name of the attribute."""
    module, _, path = place.partition(":")
    *classes, name = path.split(".")
    try:
        owner: Any = import_module(module)
    except ImportError:
        return None, name
    for each in classes:
        owner = getattr(owner, each, None)
    return owner, name


def _find(place: str) -> Any:
    """The attribute; None if this torch does not have it."""
    owner, name = _find_owner(place)
    if isinstance(owner, type):  # not what each class and each metaclass has, such as `__call__`
        owners: Sequence[Any] = inspect.getmro(owner)[:-1]
    else:
        owners = () if owner is None else (owner,)
    return getattr(owner, name, None) if any(name in vars(each) for each in owners) else None


def _names_in_methods(owner: type) -> Iterator[str]:
    """The names of attributes (and of globals) that the methods of the class use."""
    for attribute in vars(owner).values():
        function = attribute.fget if isinstance(attribute, property) else _function_of(attribute)
        code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
        yield from getattr(code, "co_names", ())


def _function_of(attribute: Any) -> Any:
    return attribute.__func__ if isinstance(attribute, staticmethod) else attribute


def _names_of(function: Any, *, follow_wrapped: bool) -> list[str] | None:
    """The names of the parameters; None if the function has no signature, like most C++ functions.

    Written as `*name`, `**name`, and `name=` if the parameter can only be passed by its name.
    """
    formats: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*{}",
        inspect.Parameter.VAR_KEYWORD: "**{}",
        inspect.Parameter.KEYWORD_ONLY: "{}=",
    }
    try:
        parameters = inspect.signature(function, follow_wrapped=follow_wrapped).parameters.values()
    except (TypeError, ValueError):
        return None
    return [formats.get(each.kind, "{}").format(each.name) for each in parameters]


def _fits(expected: Sequence[str], found: Sequence[str]) -> bool:
    """True if a wrapper with the parameters `expected` can replace a function with `found`."""
    named = [name for name in expected if not name.startswith("*")]
    if len(named) == len(expected):
        return list(found) == named
    # The wrapper passes all others on, keywords only if it accepts them.
    has_keywords = any(name.startswith("**") or name.endswith("=") for name in found[len(named) :])
    accepts_keywords = any(name.startswith("**") for name in expected)
    return list(found[: len(named)]) == named and (accepts_keywords or not has_keywords)


class GlobalHook:
    """One of torch's global hooks, which apply to all modules or all optimizers.

    It has the same key each time, so dynamo compiles for at most two states: with and without it.
    """

    def __init__(self, place: str, hook: Callable[..., None]) -> None:
        """`place`: of the function that registers the hook, as for a Patch."""
        self._place = place
        self._register: Callable[[Callable[..., Any]], RemovableHandle] | None = _find(place)
        self._hooks: dict[int, Any] = {}
        self._key = 0
        if self._register is not None:
            # Registered once, to learn its key and torch's dictionary of hooks. One access to that
            # dictionary cannot be interrupted; torch's functions can.
            handle = self._register(hook)
            hooks = handle.hooks_dict_ref()
            assert hooks is not None
            handle.remove()
            self._hooks = hooks
            self._key = handle.id
        self._hook = hook

    def explain_change(self) -> str | None:
        return None if self._register else f"it has no {self._place.replace(':', '.')}"

    def install(self) -> None:
        self._hooks[self._key] = self._hook

    def uninstall(self) -> None:
        self._hooks.pop(self._key, None)


class Installation:
    """Patches and global hooks that are installed while they have users.

    A user is any object, such as a tracker; it is one user no matter how often it installs. If it
    is destroyed without having uninstalled, the next change of the users removes what is left.

    `patches`: by the key in `variables` under which the wrapper finds the original.
    `reads`: what the wrappers read besides.
    `needs`: another installation that must be in place as well.
    `feature`: the feature that is off if this torch does not fit; checked at first use.
    """

    def __init__(
        self,
        patches: dict[str, Patch],
        variables: dict[str, Any],
        hooks: Sequence[GlobalHook] = (),
        at_end: Callable[[], None] = lambda: None,
        reads: Sequence[Reads] = (),
        needs: Installation | None = None,
        feature: str = "",
    ) -> None:
        self._variables = variables
        self._patches = {key: patch for key, patch in patches.items() if patch.is_expected}
        self._expectations: list[Patch | GlobalHook | Reads] = [*patches.values(), *hooks, *reads]
        self._hooks = hooks
        self._at_end = at_end
        self._needs = needs
        self._unchecked_feature = feature
        self._users: WeakSet[object] = WeakSet()

    def explain_changes(self) -> list[str]:
        """How this torch differs from what we expect, one reason each."""
        return [reason for each in self._expectations if (reason := each.explain_change())]

    def check(self, feature: str) -> None:
        """Raises NotImplementedError if this torch is not as we expect."""
        if reasons := self.explain_changes():
            raise _not_with_this_torch(feature, "; ".join(reasons))

    def install(self, user: object) -> None:
        """Adds a user. Like `uninstall`, it can be repeated after an interrupt."""
        if self._unchecked_feature:
            self.check(self._unchecked_feature)
            self._unchecked_feature = ""
        if self._needs is not None:
            self._needs.install(user)
        self._users.add(user)
        _C.run_locked(self._apply)

    def uninstall(self, user: object) -> None:
        """Removes a user; restores everything after the last one."""
        self._users.discard(user)
        _C.run_locked(self._apply)
        if self._needs is not None:
            self._needs.uninstall(user)

    def users(self) -> list[Any]:
        return list(self._users)

    def _apply(self) -> None:
        """Makes the patches what the users need. Can be repeated after an interrupt."""
        if self._users:
            for key, patch in self._patches.items():
                patch.install(self._variables, key)
            for hook in self._hooks:
                hook.install()
        else:
            for hook in self._hooks:
                hook.uninstall()
            for patch in self._patches.values():
                patch.uninstall()
            self._at_end()
