# SPDX-License-Identifier: BSD-3-Clause
"""Hides DTensor's sharding propagation from memory trackers.

To find a sharding, DTensor runs the operator on fake tensors of the whole shape (in the user's own
FakeTensorMode if there is one), or the operator's decomposition on meta. The program does not own
that memory, and whether it is allocated depends on DTensor's caches. DTensor's caches and its C++
call the two methods below by name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.distributed.tensor._sharding_prop import ShardingPropagator

from tidegauge import _C
from tidegauge._torch.patching import Installation, Patch

_originals: dict[str, Callable[..., Any]] = {}
_PLACES: dict[str, type] = {"_propagate_tensor_meta_non_cached": ShardingPropagator}
try:
    from torch.distributed.tensor._decompositions import DecompShardingStrategy

    _PLACES["propagate_strategy"] = DecompShardingStrategy
except ImportError:  # an older DTensor, which needs no decompositions
    pass


def _unseen_inside(owner: type, name: str) -> Callable[..., Any]:
    @wraps(getattr(owner, name, _unseen_inside))
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _C.UnseenRegion():
            return _originals[name](*args, **kwargs)

    return wrapper


def _make_patch(owner: type, name: str) -> Patch:
    wrapper: Any = _unseen_inside(owner, name)
    is_static = isinstance(owner.__dict__.get(name), staticmethod)  # in older versions
    return Patch(owner, name, staticmethod(wrapper) if is_static else wrapper)


_FOR_SHARDINGS = Installation(
    {name: _make_patch(owner, name) for name, owner in _PLACES.items()}, variables=_originals
)

_FOR_SHARDINGS.check("hiding the memory of DTensor's sharding propagation")

install = _FOR_SHARDINGS.install
uninstall = _FOR_SHARDINGS.uninstall
