# SPDX-License-Identifier: BSD-3-Clause
"""Which ops are collectives, in which group and with how many bytes.

The answers come from the schema of an op, so they hold for every op below and every torch version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Work, _resolve_process_group
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

_IN_PLACE = (
    "_allgather_base_ _reduce_scatter_base_ allgather_ allreduce_ alltoall_ alltoall_base_ "
    "barrier broadcast_ gather_ monitored_barrier_ recv_ recv_any_source_ reduce_ "
    "reduce_scatter_ scatter_ send"
)
_FUNCTIONAL = (
    "all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out "
    "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_ all_to_all_single "
    "batch_p2p_ops broadcast broadcast_ irecv isend reduce_scatter_tensor "
    "reduce_scatter_tensor_coalesced reduce_scatter_tensor_out wait_tensor wait_tensors"
)
_AUTOGRAD = "all_gather_into_tensor all_to_all_single reduce_scatter_tensor"


def _find_ops(namespace: str, names: str) -> set[OpOverload]:
    """Those that the installed torch has."""
    ops = getattr(torch.ops, namespace)
    return {getattr(ops, name).default for name in names.split() if hasattr(ops, name)}


non_functional_collectives = _find_ops("c10d", _IN_PLACE)
functional_collectives = (
    _find_ops("_c10d_functional", _FUNCTIONAL)
    | _find_ops("_c10d_functional_autograd", _AUTOGRAD)
    | _find_ops("_dtensor", "shard_dim_alltoall")
)
sync_ops = _find_ops("c10d", "barrier monitored_barrier_") | _find_ops(
    "_c10d_functional", "wait_tensor wait_tensors"
)
collective_ops = functional_collectives | non_functional_collectives

# The exceptions from "the larger of what goes in and what comes out".
_IN_PLUS_OUT = _find_ops("_c10d_functional", "all_to_all_single")
_IN_PLUS_OUT |= _find_ops("_c10d_functional_autograd", "all_to_all_single")
_IN_PLUS_OUT |= _find_ops("_dtensor", "shard_dim_alltoall")
_OUT = _find_ops("_c10d_functional", "reduce_scatter_tensor_coalesced")


class CollectiveOp:
    """Answers about one call of a collective op. Unknown ops raise TypeError."""

    @staticmethod
    def sum_tensors(arg: Any) -> int:
        """The bytes of all tensors in a nested structure.

        A view counts with its own elements: the rest of its storage is not sent.
        """
        return sum(
            leaf.numel() * leaf.element_size()
            for leaf in tree_leaves(arg)
            if isinstance(leaf, torch.Tensor)
        )

    @staticmethod
    def get_process_group(
        func: OpOverload, args: Any, kwargs: dict[str, Any] | None = None
    ) -> ProcessGroup:
        """The group in which the op communicates; ops that only wait have none."""
        for name, value in _arguments(func, args, kwargs):
            if name == "process_group":
                return ProcessGroup.unbox(value)
            if name == "group_name":
                return value if isinstance(value, ProcessGroup) else _resolve_process_group(value)
        raise TypeError(f"{func} has no process group; expected an op of `collective_ops`")

    @staticmethod
    def get_comm_tensor_size(
        func: OpOverload, res: Any, args: Any, kwargs: dict[str, Any] | None = None
    ) -> int:
        """The bytes that the op communicates, in the view of one rank.

        These are the bytes of its larger side: what all ranks send together or what it receives.
        `all_to_all_single` and `shard_dim_alltoall` count both sides, a coalesced reduce-scatter
        its results, as upstream does.
        """
        if func not in collective_ops or func in sync_ops:
            raise TypeError(
                f"{func} sends no tensors; expected an op of `collective_ops`, not of `sync_ops`"
            )
        sides = [CollectiveOp.sum_tensors(value) for _, value in _arguments(func, args, kwargs)]
        if func in functional_collectives:
            sides.append(CollectiveOp.sum_tensors(res))
        if func in _OUT:
            return sides[-1]
        return sum(sides) if func in _IN_PLUS_OUT else max(sides)

    @staticmethod
    def get_work(func: OpOverload, res: Any) -> Work:
        """The handle on which a caller of the op waits."""
        if func in non_functional_collectives:
            for handle in res if isinstance(res, tuple | list) else (res,):
                if isinstance(handle, torch.ScriptObject):
                    return Work.unbox(handle)
        raise TypeError(f"{func} returns no handle to wait on; only ops of c10d do")


def _arguments(
    func: OpOverload, args: Any, kwargs: dict[str, Any] | None
) -> Iterator[tuple[str, Any]]:
    """Names and values of the arguments of a collective op; nothing for other ops."""
    if func not in collective_ops:
        return
    for argument, value in zip(func._schema.arguments, args, strict=False):
        yield argument.name, value
    yield from (kwargs or {}).items()
