# SPDX-License-Identifier: BSD-3-Clause
"""Hides DTensor's sharding propagation from memory trackers.

To find a sharding, DTensor runs the operator on fake tensors of the whole shape (in the user's own
FakeTensorMode if there is one), or the operator's decomposition on meta. The program does not own
that memory, and whether it is allocated depends on DTensor's caches. DTensor's caches and its C++
call the two methods below by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge import _C
from tidegauge._torch.patching import Installation, Patch

_originals: dict[str, Callable[..., Any]] = {}
_FOLDER = "torch.distributed.tensor"
_PLACES = [
    f"{_FOLDER}._sharding_prop:ShardingPropagator._propagate_tensor_meta_non_cached",
    f"{_FOLDER}._decompositions:DecompShardingStrategy.propagate_strategy",
]


def _unseen_inside(place: str) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _C.UnseenRegion():
            return _originals[place](*args, **kwargs)

    return wrapper


_FOR_SHARDINGS = Installation(
    {place: Patch(place, _unseen_inside(place), is_named=True) for place in _PLACES},
    variables=_originals,
)

_FOR_SHARDINGS.check("hiding the memory of DTensor's sharding propagation")

install = _FOR_SHARDINGS.install
uninstall = _FOR_SHARDINGS.uninstall
