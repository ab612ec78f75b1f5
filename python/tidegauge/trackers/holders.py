# SPDX-License-Identifier: BSD-3-Clause
"""Which Python containers hold many tensors, and under which names: likely reasons of growth.

Looked up once, when a recorded script has ended and its global variables still exist. Local
variables of functions that have returned are gone, and with them what they held.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter, deque
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

_FEWEST = 3  # tensors
_PROBED = 8  # elements at the end of a long container
_MOST_HOLDERS = 20
_CONTAINERS = (list, tuple, deque, dict, set)


def find_holders() -> list[dict[str, Any]]:
    """Rows with name, count, shapes (count by text) and has_graph; those with most tensors first.

    A container that only another container holds is part of that one.
    """
    found: list[tuple[Any, list[torch.Tensor]]] = []
    for candidate in gc.get_objects():
        if _may_hold(candidate):
            tensors = _tensors_in(candidate)
            if len(tensors) >= _FEWEST:
                found.append((candidate, tensors))
    found.sort(key=lambda row: -len(row[1]))
    rows = []
    for container, tensors in found[:_MOST_HOLDERS]:
        if name := _name_of(container):
            shapes = Counter(_describe(tensor) for tensor in tensors)
            rows.append(
                {
                    "name": name,
                    "count": len(tensors),
                    "shapes": dict(shapes),
                    "has_graph": any(tensor.grad_fn is not None for tensor in tensors),
                }
            )
    return rows


def _may_hold(candidate: Any) -> bool:
    if type(candidate) not in (list, deque, dict) or len(candidate) < _FEWEST:
        return False
    return any(_is_tensor(each) or _tensors_of(each) for each in _last(candidate))


def _last(container: Any) -> Iterable[Any]:
    """The first few elements, because a list may have millions of numbers."""
    if type(container) is dict:
        values = iter(reversed(container.values()))
        return [value for value, _ in zip(values, range(_PROBED), strict=False)]
    return [container[-1 - i] for i in range(min(_PROBED, len(container)))]


def _tensors_in(container: Any) -> list[torch.Tensor]:
    elements = container.values() if type(container) is dict else container
    tensors: list[torch.Tensor] = []
    for each in elements:
        tensors += [each] if _is_tensor(each) else _tensors_of(each)
    return tensors


def _tensors_of(nested: Any) -> list[torch.Tensor]:
    """The tensors in a batch or an output that is an element of a container."""
    if type(nested) not in _CONTAINERS:
        return []
    elements = nested.values() if type(nested) is dict else nested
    return [each for each in elements if _is_tensor(each)]


def _is_tensor(each: Any) -> bool:
    """False for parameters, which belong to models. Reads the type, because a proxy can pretend to
    be of another class."""
    return issubclass(type(each), torch.Tensor) and not issubclass(type(each), nn.Parameter)


def _describe(tensor: torch.Tensor) -> str:
    """Its dtype and shape, as a trace describes them."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _name_of(container: Any) -> str:
    """`the list 'losses'`; empty if nothing that a user could name refers to it."""
    kind = type(container).__name__
    modules = {id(vars(each)): name for name, each in list(sys.modules.items()) if _is_module(each)}
    for referrer in gc.get_referrers(container):
        if type(referrer) is dict:
            names = [key for key, value in referrer.items() if value is container]
            if id(referrer) in modules and names:
                return f"the {kind} `{names[0]}`"
            owner = _owner_of(referrer)
            if names and owner is not None:
                return f"the attribute `{names[0]}` of {_kind_of(owner)}"
        elif not isinstance(referrer, (*_CONTAINERS, ModuleType, FunctionType)):
            values = getattr(referrer, "__dict__", None)
            names = [key for key, value in (values or {}).items() if value is container]
            if names:
                return f"the attribute `{names[0]}` of {_kind_of(referrer)}"
    return ""


def _is_module(each: Any) -> bool:
    name = getattr(each, "__name__", "")
    return type(each) is ModuleType and not name.startswith(("torch", "tidegauge"))


def _owner_of(values: dict[str, Any]) -> Any:
    for referrer in gc.get_referrers(values):
        if getattr(referrer, "__dict__", None) is values and not isinstance(referrer, ModuleType):
            return referrer
    return None


def _kind_of(owner: Any) -> str:
    name = type(owner).__name__
    if isinstance(owner, nn.Module):
        return f"the module {name}"
    return f"an object of the class {name}"
