# SPDX-License-Identifier: BSD-3-Clause
"""ModTracker: which modules run, forward or backward; a drop-in for torch.distributed._tools."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from tidegauge import _C
from tidegauge._torch.entering import Entering
from tidegauge._torch.module_patches import FOR_MODULES

__all__ = ["ModTracker"]

Hook = Callable[..., Any]
_GLOBAL = "Global"


class ModTracker(Entering):
    """Tracks which modules are running in each thread, by fully qualified name.

    Enter it as a context and read `parents` at any time, even inside an operator, hook or mode::

        with ModTracker() as tracker:
            loss = model(x).sum()  # in forward: {"Global", "Net", "Net.fc1"}
            loss.backward()  # in backward of fc1: the same set, and `is_bw` is True

    A root module is named after its class, a submodule by its path below the root. User hooks run
    when the forward or backward of a module begins or ends.

    The tracker does not change the model and keeps no strong reference to it. It wraps
    `nn.Module.__call__`; a subclass that overrides `_fw_pre_hook` or `_fw_post_hook` gets global
    forward hooks instead, which call these methods.
    """

    _fw_pre_handle: RemovableHandle
    _fw_post_handle: RemovableHandle

    def __init__(self) -> None:
        self._native = _C.ModTracker()
        self._user_pre_fw_hook: Hook | None = None
        self._user_post_fw_hook: Hook | None = None
        self._user_pre_bw_hook: Hook | None = None
        self._user_post_bw_hook: Hook | None = None

    @property
    def parents(self) -> set[str]:
        """The names of the modules that are running in this thread, and always "Global"."""
        return {_GLOBAL, *self._native.active_names()}

    @property
    def is_bw(self) -> bool:
        """True while a backward is running in this thread."""
        return torch._C._current_graph_task_id() != -1

    def get_known_fqn(self, mod: nn.Module) -> str | None:
        """The fully qualified name of a module; None if this tracker has not observed it."""
        weakref.ref(mod)  # raises TypeError for values that cannot be modules
        return self._native.find_name(mod)

    def register_user_hooks(
        self,
        pre_fw_hook: Hook | None = None,
        post_fw_hook: Hook | None = None,
        pre_bw_hook: Hook | None = None,
        post_bw_hook: Hook | None = None,
    ) -> None:
        """Sets the four user hooks; None clears a slot.

        The calls are pre_fw(module, inputs), post_fw(module, inputs, outputs),
        pre_bw(module, grad_outputs) and post_bw(module, grad_inputs), with the module's name in
        `parents`. `outputs` is None if the forward raised. In backward, `module` is None if it no
        longer exists, and a module whose inputs need no gradient ends with the whole backward.
        Backward hooks run for module calls made after the hooks were registered.

        Raises AssertionError if a slot is taken.
        """
        hooks = {
            "pre_fw_hook": pre_fw_hook,
            "post_fw_hook": post_fw_hook,
            "pre_bw_hook": pre_bw_hook,
            "post_bw_hook": post_bw_hook,
        }
        try:
            for name, hook in hooks.items():
                if hook is not None and getattr(self, f"_user_{name}") is not None:
                    raise AssertionError(
                        f"Only one {name} can be registered at a time"
                        " Clear the existing hook by calling ``clear_user_hooks`` before "
                        "registering a new one"
                    )
                setattr(self, f"_user_{name}", hook)
        finally:
            self._set_native_hooks()

    def clear_user_hooks(self) -> None:
        """Removes all four user hooks."""
        self.register_user_hooks()

    def _set_native_hooks(self) -> None:
        self._native.set_user_hooks(
            self._user_pre_fw_hook,
            self._user_post_fw_hook,
            self._user_pre_bw_hook,
            self._user_post_bw_hook,
        )

    def _set_depth(self, depth: int) -> None:
        if depth > 0 and self._has_own_forward_hooks():
            self._register_own_hooks()
        elif depth > 0:
            _C.start_tracking(self._native)
            FOR_MODULES.install(self)
        else:
            self._remove_own_hooks()
            FOR_MODULES.uninstall(self)
            _C.stop_tracking(self._native)
        self._depth = depth

    def _depth_after_exit(self) -> int:
        # A subclass that overrides `__enter__` sets the handles and counts no entries.
        if self._depth == 0 and not hasattr(self, "_fw_pre_handle"):
            raise AttributeError(
                f"{type(self).__name__} was exited without being entered "
                "(it has no '_fw_pre_handle'); use it as `with tracker:`, or call `__enter__` first"
            )
        return max(0, self._depth - 1)

    def _register_own_hooks(self) -> None:
        if not hasattr(self, "_fw_pre_handle"):
            self._fw_pre_handle = register_module_forward_pre_hook(self._fw_pre_hook)
        if not hasattr(self, "_fw_post_handle"):
            self._fw_post_handle = register_module_forward_hook(
                self._fw_post_hook, always_call=True
            )

    def _remove_own_hooks(self) -> None:
        for name in ("_fw_pre_handle", "_fw_post_handle"):
            if (handle := vars(self).get(name)) is not None:
                handle.remove()
                delattr(self, name)
        # An interrupt may have come after torch kept the hook and before we had its handle.
        for hooks in (nn_module._global_forward_pre_hooks, nn_module._global_forward_hooks):
            for key, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    del hooks[key]
                    nn_module._global_forward_hooks_always_called.pop(key, None)

    # The rest is for subclasses and debug modes that drive the tracker themselves.

    def _has_own_forward_hooks(self) -> bool:
        cls = type(self)
        return (
            cls._fw_pre_hook is not ModTracker._fw_pre_hook
            or cls._fw_post_hook is not ModTracker._fw_post_hook
        )

    def _get_mod_name(self, mod: nn.Module) -> str:
        return self._native.name_module(mod)

    def _fw_pre_hook(self, mod: nn.Module, input: Any) -> None:
        if not _is_in_compiled_module():
            self._native.enter_module(mod, input, None)

    def _fw_post_hook(self, mod: nn.Module, input: Any, output: Any) -> None:
        if not _is_in_compiled_module():
            self._leave(mod, input, output)

    def _get_append_fn(
        self, w_mod: Callable[[], nn.Module | None], name: str, is_bw: bool
    ) -> Callable[..., None]:
        """A function that makes the module active; in backward it only calls the user's hook."""

        def append(*args: Any) -> None:
            mod = w_mod()
            if is_bw:
                self._call_hook(self._user_pre_bw_hook, mod, args)
            elif mod is not None:
                self._native.enter_module(mod, (), None)

        return append

    def _get_pop_fn(
        self, w_mod: Callable[[], nn.Module | None], name: str, is_bw: bool
    ) -> Callable[..., None]:
        """The counterpart of `_get_append_fn`."""

        def pop(*args: Any) -> None:
            mod = w_mod()
            if is_bw:
                self._call_hook(self._user_post_bw_hook, mod, args)
            elif mod is not None:
                self._leave(mod, (), None)

        return pop

    def _call_hook(self, hook: Hook | None, mod: nn.Module | None, args: Any) -> None:
        if hook is not None:
            self._native.run_within(mod, lambda: hook(mod, args))

    def _leave(self, mod: nn.Module, input: Any, output: Any) -> None:
        if not self._native.leave_module(mod, input, output) and not self.is_bw:
            raise RuntimeError(
                f"The Module hierarchy tracking is wrong: {type(mod).__name__} ends but is not "
                "active. Call `_get_append_fn` (or `_fw_pre_hook`) for it first, in the same thread"
            )


def _is_in_compiled_module() -> bool:
    return torch._dynamo.eval_frame._is_in_optimized_module()
