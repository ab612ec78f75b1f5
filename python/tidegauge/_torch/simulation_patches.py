# SPDX-License-Identifier: BSD-3-Clause
"""Wrappers, for simulations, of torch's Python functions that bypass the dispatcher."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from traceback import walk_stack
from typing import Any

import torch

from tidegauge import _C
from tidegauge._torch import (
    dtensor_lists,
    eager_code,
    framework_reads,
    fused_attention,
    memory_patches,
)
from tidegauge._torch import program_group as groups
from tidegauge._torch.patching import Installation, Patch
from tidegauge._torch.simulated_tensors import adopt_tree, find_simulated, paused

_originals: dict[str, Any] = {}


def _data_ptr(self: torch.Tensor) -> int:
    """Gives each simulated storage its own address, because FSDP2 and others compare addresses."""
    if _C.is_simulated(self):
        return _C.simulated_address(self)
    address: int = _originals["tensor_data_ptr"](self)
    return address


def _storage_data_ptr(self: torch.UntypedStorage) -> int:
    if _C.is_simulated_storage(self):
        return _C.simulated_storage_address(self)
    address: int = _originals["storage_data_ptr"](self)
    return address


def _share_memory(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
    """Sharing memory with other processes does not change its size."""
    if _C.is_simulated_storage(self):
        return self
    return _originals["share_memory"](self, *args, **kwargs)


def _values(tensor: torch.Tensor, asked_by: str) -> torch.Tensor:
    with paused():
        values = _C.known_values(tensor)
    if values is None:
        raise RuntimeError(
            f"{asked_by} asks for the values of a simulated tensor of shape {tuple(tensor.shape)}, "
            "which holds no data. Compute the values outside of `simulate`, skip the code that "
            'needs them, or use `simulate(routing="balanced")` if they come from choices of experts'
        )
    return values


def _item(self: torch.Tensor) -> Any:
    number = framework_reads.answer(self, sys._getframe(1))
    return _originals["item"](self) if number is None else number


def _tolist(self: torch.Tensor) -> Any:
    if not _C.is_simulated(self):
        return _originals["tolist"](self)
    with paused():
        return _originals["tolist"](_values(self, "tolist()"))


def _numpy(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if not _C.is_simulated(self):
        return _originals["numpy"](self, *args, **kwargs)
    with paused():
        return _originals["numpy"](_values(self, "numpy()"), *args, **kwargs)


def _repr(self: torch.Tensor, *args: Any, **kwargs: Any) -> str:
    if type(self) not in (torch.Tensor, torch.nn.Parameter) or not _C.is_simulated(self):
        text: str = _originals["repr"](self, *args, **kwargs)
        return text
    parts = ["..."]
    parts.append(f"size={tuple(self.shape)}")
    parts.append(f"dtype={self.dtype}")
    parts.append(f"device='{self.device}'")
    if self.grad_fn is not None:
        parts.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
    elif self.requires_grad:
        parts.append("requires_grad=True")
    return f"simulated({', '.join(parts)})"


def _new_tensor(self: torch.Tensor, data: Any, **options: Any) -> Any:
    """Replaces torch's own, which derives the device from dispatch keys and does not know ours."""
    if not _C.is_simulated(self):
        return _originals["new_tensor"](self, data, **options)
    own: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
    return torch.tensor(data, **own | options)


def _trunc_normal(tensor: torch.Tensor, mean: float, std: float, *args: Any, **kwargs: Any) -> Any:
    """Replaces torch's own, which draws again while a value is out of bounds; ours are unknown."""
    if not _C.is_simulated(getattr(tensor, "_local_tensor", tensor)):
        return _originals["trunc_normal"](tensor, mean, std, *args, **kwargs)
    with torch.no_grad():
        return tensor.normal_(mean, std)


def _has_compatible_type(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Lets `Module.to` keep a parameter and swap its memory if both tensors are simulated."""
    return _C.is_simulated(tensor) == _C.is_simulated(other) and bool(
        _originals["has_compatible_type"](tensor, other)
    )


def _load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Reads the file into real tensors, then converts them to simulated ones."""
    is_device = isinstance(map_location, (str, torch.device))
    with paused():
        loaded = _originals["load"](f, "cpu" if is_device else map_location, *args, **kwargs)
    return adopt_tree(loaded, torch.device(map_location) if is_device else None)


def _refuse_save(*args: Any, **kwargs: Any) -> Any:
    if (where := find_simulated(args[0] if args else kwargs.get("obj"))) is not None:
        if framework_reads.skips_saving(sys._getframe(1)):
            return None
        raise RuntimeError(
            f"torch.save was given a simulated tensor of shape {tuple(where.shape)}, which holds "
            "no data; save outside of `simulate`, or skip saving"
        )
    with paused():
        return _originals["save"](*args, **kwargs)


def _propagate(self: Any, op_schema: Any) -> Any:
    return dtensor_lists.propagate(_originals["propagate"], self, op_schema)


def _propagate_cached(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The cache in front of the function above, which calls the original by reference. Older
    versions look up lists in it."""

    def torchs(_: Any, schema: Any) -> Any:
        return _originals["propagate_cached"](self, schema)

    return dtensor_lists.propagate(torchs, None, *args, **kwargs)


def _tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
    """torch reads the items of a list below the dispatcher, where ours have no memory."""
    if isinstance(data, list | tuple) and find_simulated(data) is not None:
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = functools.reduce(torch.promote_types, map(_dtype_of, _flatten(data)))
        data = _to_numbers(data)
    return _originals["tensor"](data, *args, **kwargs)


def _flatten(data: Any) -> list[Any]:
    if not isinstance(data, list | tuple):
        return [data]
    return [leaf for each in data for leaf in _flatten(each)]


def _dtype_of(item: Any) -> torch.dtype:
    if isinstance(item, torch.Tensor):
        return item.dtype
    with paused():
        dtype: torch.dtype = _originals["tensor"](item).dtype
    return dtype


def _to_numbers(data: Any) -> Any:
    if isinstance(data, list | tuple):
        return [_to_numbers(each) for each in data]
    return data.item() if isinstance(data, torch.Tensor) else data


def _compile(*args: Any, **kwargs: Any) -> Any:
    if eager_code.running is not None:
        eager_code.running.note_compile()
    return _originals["compile"](*args, **kwargs)


def _flex_attention(
    self: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any,
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_mod_other_buffers: tuple[Any, ...] = (),
    mask_mod_other_buffers: tuple[Any, ...] = (),
) -> Any:
    if not _C.is_simulated(query):
        return _originals["flex_attention"](
            self,
            query,
            key,
            value,
            score_mod,
            block_mask,
            scale,
            kernel_options,
            score_mod_other_buffers,
            mask_mod_other_buffers,
        )
    return fused_attention.attend(
        query, key, value, score_mod, block_mask, kernel_options, score_mod_other_buffers
    )


def _simulate_result(name: str) -> Callable[..., Any]:
    """Converts tensors that torch makes without the dispatcher, e.g. from NumPy."""

    def wrapper(data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, list | tuple) and find_simulated(data) is not None:
            return _tensor(data, *args, **kwargs)
        made = _originals[name](data, *args, **kwargs)
        return made if made is data or _C.simulation_is_paused() else adopt_tree(made, None)

    return wrapper


def _enter_fake_mode(self: Any) -> Any:
    """Refuses a FakeTensorMode of the user. torch enters such modes itself, to infer shapes."""
    # The wrapper of a tracker may be one of the callers.
    callers = (frame.f_globals.get("__name__", "") for frame, _ in walk_stack(sys._getframe(1)))
    if not next(name for name in callers if name != memory_patches.__name__).startswith("torch."):
        raise RuntimeError(
            "a FakeTensorMode was entered inside `simulate`; both make tensors without memory, "
            "use one of the two"
        )
    return _originals["enter_fake_mode"](self)


def _make_real_inside(name: str, *, only_integers: bool = False) -> Callable[..., Any]:
    """Tensors made inside are real: ranks of a mesh, pickled objects, the lengths of buckets."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with paused(only_integers=only_integers):
            return _originals[name](*args, **kwargs)

    return wrapper


def _verify_shapes(process_group: Any, tensors: Any, logger: Any = None) -> Any:
    """DDP compares the parameters of the ranks, which are equal. On a claimed device it cannot."""
    if any(each.device.type != "cpu" for each in tensors):
        return None
    with paused(only_integers=True):
        return _originals["verify_shapes"](process_group, tensors, logger)


_has_program_group = False


def _init_process_group(name: str) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> None:
        global _has_program_group
        if groups.make_group(_originals[name], args, kwargs):
            _has_program_group = True

    return wrapper


def _new_group(name: str) -> Callable[..., Any]:
    """A group of any backend is like the default group."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return _originals[name](*args, **{**kwargs, "backend": None})

    return wrapper


def destroy_program_group() -> None:
    """Call at the end of a simulation."""
    global _has_program_group
    if _has_program_group and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    _has_program_group = False


_FOREIGN_MEMORY = ("from_numpy", "frombuffer", "as_tensor", "asarray")
_OBJECT_PLACES = (
    *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
    *("send_object_list", "recv_object_list"),
)
_BUCKET_PLACES = {
    "reducer_init": "torch._C._distributed_c10d:Reducer.__init__",
    "set_static_graph": "torch._C._distributed_c10d:Reducer._set_static_graph",
    "rebuild_buckets": "torch._C._distributed_c10d:Reducer._rebuild_buckets",
}
_MESH = "torch.distributed.device_mesh:DeviceMesh"
_MESH_PLACES = {
    "mesh_init": f"{_MESH}.__init__",
    "mesh_getitem": f"{_MESH}.__getitem__",
    "mesh_flatten": f"{_MESH}._flatten",
    "mesh_unflatten": f"{_MESH}._unflatten",
    "mesh_init_function": "torch.distributed.device_mesh:init_device_mesh",
    "mesh_all_submeshes": f"{_MESH}._get_all_submeshes",
}
_SHARDINGS = "torch.distributed.tensor._sharding_prop"
_PLACES: dict[str, tuple[str, Callable[..., Any]]] = {
    "tensor_data_ptr": ("torch:Tensor.data_ptr", _data_ptr),
    "storage_data_ptr": ("torch:UntypedStorage.data_ptr", _storage_data_ptr),
    "share_memory": ("torch:UntypedStorage.share_memory_", _share_memory),
    "enter_fake_mode": (
        "torch._subclasses.fake_tensor:FakeTensorMode.__enter__",
        _enter_fake_mode,
    ),
    "item": ("torch:Tensor.item", _item),
    "tolist": ("torch:Tensor.tolist", _tolist),
    "numpy": ("torch:Tensor.numpy", _numpy),
    "repr": ("torch:Tensor.__repr__", _repr),
    "new_tensor": ("torch:Tensor.new_tensor", _new_tensor),
    "trunc_normal": ("torch.nn.init:_no_grad_trunc_normal_", _trunc_normal),
    "has_compatible_type": ("torch:_has_compatible_shallow_copy_type", _has_compatible_type),
    "tensor": ("torch:tensor", _tensor),
    "compile": ("torch:compile", _compile),
    "flex_attention": (
        "torch._higher_order_ops.flex_attention:FlexAttentionHOP.__call__",
        _flex_attention,
    ),
    "load": ("torch:load", _load),
    "save": ("torch:save", _refuse_save),
    "propagate": (
        f"{_SHARDINGS}:ShardingPropagator.propagate_op_sharding_non_cached",
        _propagate,
    ),
    "propagate_cached": (f"{_SHARDINGS}:LocalLRUCache.__call__", _propagate_cached),
    **{
        f"{function}, {module}": (f"{module}:{function}", make(f"{function}, {module}"))
        for function, make in (
            ("init_process_group", _init_process_group),
            ("new_group", _new_group),
        )
        for module in ("torch.distributed", "torch.distributed.distributed_c10d")
    },
    **{name: (f"torch:{name}", _simulate_result(name)) for name in _FOREIGN_MEMORY},
    **{key: (place, _make_real_inside(key)) for key, place in _MESH_PLACES.items()},
    **{name: (f"torch.distributed:{name}", _make_real_inside(name)) for name in _OBJECT_PLACES},
    "verify_shapes": (
        "torch.nn.parallel.distributed:_verify_param_shape_across_processes",
        _verify_shapes,
    ),
    **{
        key: (place, _make_real_inside(key, only_integers=True))
        for key, place in _BUCKET_PLACES.items()
    },
}


@functools.cache
def installation() -> Installation:
    """All patches of a simulation. Raises NotImplementedError if this torch does not fit them."""
    patches = {key: Patch(*each, is_named=True) for key, each in _PLACES.items()}
    made = Installation(patches, variables=_originals)
    made.check("simulate")
    return made


@functools.cache
def decomposed_ops() -> list[str]:
    """The ops whose meta kernel is a torch decomposition that may read the device."""
    table = importlib.import_module("torch._decomp")
    names = set(dir(importlib.import_module("torch._decomp.decompositions")))
    result = []
    for op, function in table.decomposition_table.items():
        if not isinstance(op, torch._ops.OpOverload) or op in table.meta_table or op.is_view:
            continue
        name = op.name()  # type: ignore[no-untyped-call]
        if name in _KERNELS_OF_META or torch._C._dispatch_has_kernel_for_dispatch_key(
            name, "CompositeImplicitAutograd"
        ):
            continue
        is_torchs = function.__module__.startswith("torch._decomp") and function.__name__ in names
        if is_torchs or name.startswith("aten::native_layer_norm"):
            result.append(name.removesuffix(".default"))
    return result


# These ops allocate: their decompositions call themselves.
_KERNELS_OF_META = {"aten::empty_strided", "aten::clone", "aten::_to_copy", "aten::copy_"}
