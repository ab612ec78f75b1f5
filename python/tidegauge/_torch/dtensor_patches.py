# SPDX-License-Identifier: BSD-3-Clause
"""The places where DTensor works out a sharding, wrapped while a tracker of memory is entered.

It runs the operator on fake tensors of the whole shape, of the user's own FakeTensorMode if there
is one, or the operator's decomposition on meta. That is no memory of the program's, and whether it
happens depends on what is in DTensor's caches. Caches and C++ come to these two by name.
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
