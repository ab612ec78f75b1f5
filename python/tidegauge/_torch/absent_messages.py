# SPDX-License-Identifier: BSD-3-Clause
"""Python objects from ranks that do not exist.

A rank that is rehearsed writes the objects that it sends to a folder of the command. A rank that
receives objects gets, in this order: what the sender sent to it when it was rehearsed before; what
this rank sent last; what any rank sent before. So the stages of a pipeline learn the shapes of
their inputs from the first stage, because stages pass on tensors of one shape.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tidegauge._torch.patching import Installation, Patch

#: The folder for messages between ranks that are rehearsed one after another.
FOLDER = "TIDEGAUGE_REHEARSAL_MESSAGES"
_EVERYONE = -1

_sent: list[tuple[int, list[Any]]] = []  # by this rank: the receiver and the objects
_received: dict[int, int] = {}  # from each rank: how many messages
_variables: dict[str, Any] = {}


def _find_global(rank: int | None, group_rank: int | None, group: Any) -> int:
    if group_rank is not None:
        whole: Any = group or dist.group.WORLD
        return int(dist.get_global_rank(whole, group_rank))
    return rank or 0


def _keep(receiver: int, objects: Sequence[Any]) -> None:
    _sent.append((receiver, list(objects)))
    if folder := os.environ.get(FOLDER):
        with suppress(OSError), (Path(folder) / f"{dist.get_rank()}").open("ab") as file:
            pickle.dump(_sent[-1], file)


def _read(sender: int) -> list[tuple[int, list[Any]]]:
    """What another rank sent when it was rehearsed."""
    messages: list[tuple[int, list[Any]]] = []
    folder = os.environ.get(FOLDER)
    if not folder or sender == dist.get_rank():
        return messages
    with suppress(OSError, EOFError), (Path(folder) / f"{sender}").open("rb") as file:
        while True:
            messages.append(pickle.load(file))
    return messages


def _others() -> Iterator[int]:
    folder = os.environ.get(FOLDER)
    names = os.listdir(folder) if folder else []
    return iter(sorted(int(name) for name in names))


def _receive(sender: int, fits: Callable[[list[Any]], bool]) -> Any:
    count = _received.get(sender, 0)
    _received[sender] = count + 1
    to_us = [
        objects
        for receiver, objects in _read(sender)
        if receiver in (dist.get_rank(), _EVERYONE) and fits(objects)
    ]
    if to_us:
        found: list[Any] = to_us[min(count, len(to_us) - 1)]
        return found
    candidates = [*reversed(_sent), *(each for rank in _others() for each in _read(rank))]
    for _, objects in candidates:
        if fits(objects):
            return objects
    raise RuntimeError(
        f"rank {dist.get_rank()} waits for Python objects from rank {sender}, which does not "
        "exist. Rehearse an earlier rank first, e.g. `tidegauge rehearse --rank "
        f"0,{dist.get_rank()}`, whose objects are kept for the later ones"
    )


def _send_object_list(
    object_list: Sequence[Any], dst: Any = None, group: Any = None, *args: Any, **kwargs: Any
) -> None:
    _patch_modules()
    _keep(_find_global(dst, kwargs.get("group_dst"), group), object_list)


def _recv_object_list(
    object_list: list[Any], src: Any = None, group: Any = None, *args: Any, **kwargs: Any
) -> int:
    _patch_modules()
    sender = _find_global(src, kwargs.get("group_src"), group)
    object_list[:] = _receive(sender, lambda objects: len(objects) == len(object_list))
    return sender


def _broadcast_object_list(
    object_list: list[Any], src: Any = None, group: Any = None, *args: Any, **kwargs: Any
) -> None:
    """A rank that is not the root keeps what it has, unless the root was rehearsed before."""
    sender = _find_global(src, kwargs.get("group_src"), group)
    if sender == dist.get_rank():
        _keep(_EVERYONE, object_list)
        return
    count = _received.get(sender, 0)
    found = [objects for receiver, objects in _read(sender) if receiver == _EVERYONE]
    if count < len(found) and len(found[count]) == len(object_list):
        _received[sender] = count + 1
        object_list[:] = found[count]


def _scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: Any = None,
    group: Any = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    sender = _find_global(src, kwargs.get("group_src"), group)
    own = dist.get_rank(group)
    if sender == dist.get_rank():
        assert scatter_object_input_list is not None
        for rank, each in enumerate(scatter_object_input_list):
            _keep(_find_global(None, rank, group), [each])
        scatter_object_output_list[0] = scatter_object_input_list[own]
    else:
        scatter_object_output_list[0] = _receive(sender, lambda objects: len(objects) == 1)[0]


def _gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: Any = None,
    group: Any = None,
    *args: Any,
    **kwargs: Any,
) -> None:
    """As if every rank had sent what this one sends."""
    _patch_modules()
    if _find_global(dst, kwargs.get("group_dst"), group) == dist.get_rank():
        assert object_gather_list is not None
        message = pickle.dumps(obj)
        for rank in range(dist.get_world_size(group)):
            object_gather_list[rank] = pickle.loads(message)


def _accept_global_plan(global_plan: Any, metadata: Any) -> Any:
    """A checkpoint in which every rank has this rank's shards does not cover its tensors."""
    original = _variables["_validate_global_plan"]
    returns_bool = original.__annotations__.get("return") in (bool, "bool")
    return True if returns_bool else []  # a list of errors


def _recv_meta(self: Any, src_stage: int) -> Any:
    """A stage of a pipeline learns which tensors its neighbours send."""
    stage = sys.modules[type(self).__module__]
    sender = self._resolve_peer_global_rank(src_stage)
    if src_stage > self.stage_index:  # gradients of what this stage sends
        return stage._StageBackwardMeta(
            backward_metas=stage._derive_grad_metas(self._stage_meta.outputs)
        )
    kind = stage._StageForwardMeta
    return _receive(sender, lambda objects: len(objects) == 1 and isinstance(objects[0], kind))[0]


_STAGE = "torch.distributed.pipelining.stage"
# By the name that must exist: older versions of torch exchange shapes of stages in plain lists.
_IN_MODULES: dict[str, tuple[str, str, Any]] = {
    _STAGE: ("_StageBackwardMeta", "PipelineStage._recv_meta", _recv_meta),
    "torch.distributed.checkpoint.default_planner": (
        "_validate_global_plan",
        "_validate_global_plan",
        _accept_global_plan,
    ),
}
_installed: dict[str, Installation] = {}


def _patch_modules() -> None:
    """Not before a program imports them, which takes long."""
    for module, (needed, place, new) in _IN_MODULES.items():
        if module not in _installed and hasattr(sys.modules.get(module), needed):
            _installed[module] = Installation({place: Patch(f"{module}:{place}", new)}, _variables)
            _installed[module].install(_installed[module])


#: The functions of torch.distributed that are replaced.
REPLACED: dict[str, Callable[..., Any]] = {
    "send_object_list": _send_object_list,
    "recv_object_list": _recv_object_list,
    "broadcast_object_list": _broadcast_object_list,
    "gather_object": _gather_object,
    "scatter_object_list": _scatter_object_list,
}
