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

from torch.distributed.tensor._decompositions import DecompShardingStrategy
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from tidegauge import _C
from tidegauge._torch.patching import Installation, Patch

_originals: dict[str, Callable[..., Any]] = {}
_PLACES: dict[str, type] = {
    "_propagate_tensor_meta_non_cached": ShardingPropagator,
    "propagate_strategy": DecompShardingStrategy,
}


def _unseen_inside(owner: type, name: str) -> Callable[..., Any]:
    @wraps(getattr(owner, name))
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _C.UnseenRegion():
            return _originals[name](*args, **kwargs)

    return wrapper


_FOR_SHARDINGS = Installation(
    {name: Patch(owner, name, _unseen_inside(owner, name)) for name, owner in _PLACES.items()},
    variables=_originals,
)

install = _FOR_SHARDINGS.install
uninstall = _FOR_SHARDINGS.uninstall
