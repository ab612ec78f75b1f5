# SPDX-License-Identifier: BSD-3-Clause
"""Makes `torch.cuda` answer as on a machine with CUDA devices, for `simulate(device="cuda")`.

The fragile part of simulations, in one place: this file and `src/simulate/claimed_cuda.cpp` stand
in for a driver. torch builds with and without CUDA give the same results; on a machine with a GPU
nothing is allocated on it. `claim` refuses versions of torch that we were not built for, and
`self_test` tries everything before it is used.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tidegauge import _C
from tidegauge._torch.compat import BUILT_FOR, fits
from tidegauge._torch.patching import Installation, Patch, required_by
from tidegauge._torch.simulated_tensors import paused

with required_by("simulate"):
    from torch.cuda._utils import _get_device_index

_RNG_STATE_BYTES = 16
_MOST_DEVICES = 16  # as in src/simulate/claimed_cuda.cpp


@dataclass
class Devices:
    """The claimed devices; all are alike."""

    count: int = 8
    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132

    @property
    def threads_per_multiprocessor(self) -> int:
        if self.capability == (7, 5):
            return 1024
        is_small = self.capability[0] == 12 or (8, 6) <= self.capability < (9, 0)
        return 1536 if is_small else 2048


_claimed = Devices()  # of the running simulation


def find_devices(
    count: int | None,
    capability: tuple[int, int] | None,
    multiprocessors: int | None,
    *,
    has_ranks: bool = False,
) -> Devices:
    """`count`: by default what CUDA_VISIBLE_DEVICES lists, or 8 if the process is one of several
    ranks, or else 1: frameworks use DataParallel if one process has more. Raises ValueError.
    """
    devices = Devices()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if count is not None:
        if not isinstance(count, int) or not 1 <= count <= _MOST_DEVICES:
            raise ValueError(f"invalid device_count {count!r} (expected 1 to {_MOST_DEVICES})")
        devices.count = count
    elif visible is not None and visible.strip() not in ("", "-1"):
        devices.count = min(len(visible.split(",")), _MOST_DEVICES)
    elif not has_ranks:
        devices.count = 1
    if capability is not None:
        numbers = tuple(capability)
        if len(numbers) != 2 or not all(isinstance(each, int) for each in numbers):
            raise ValueError(f"invalid capability {capability!r} (expected e.g. (9, 0))")
        devices.capability = numbers
    if multiprocessors is not None:
        if not isinstance(multiprocessors, int) or not 1 <= multiprocessors <= 65536:
            raise ValueError(f"invalid multiprocessors {multiprocessors!r} (expected 1 to 65536)")
        devices.multiprocessors = multiprocessors
    return devices


_originals: dict[str, Any] = {}


class ClaimedStream(torch.Stream):
    """A stream is only a number: nothing runs on it."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> ClaimedStream:
        index = _get_device_index(device, optional=True)
        return super().__new__(cls, device=torch.device("cuda", index), priority=priority)

    @property
    def cuda_stream(self) -> int:
        return self.stream_id


class ClaimedEvent(torch.Event):
    """An event that is complete as soon as it is recorded."""

    def __new__(cls, *args: Any, **kwargs: Any) -> ClaimedEvent:
        return super().__new__(cls, device=torch.device("cuda"))

    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event: Any) -> float:
        return 0.0


class _ClaimedStreamContext:
    """`torch.cuda.stream(stream)`."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self._stream = stream
        self._before: torch.Stream | None = None

    def __enter__(self) -> None:
        if self._stream is not None:
            self._before = _current_stream()
            torch.accelerator.set_stream(self._stream)

    def __exit__(self, *args: object) -> None:
        if self._before is not None:
            torch.accelerator.set_stream(self._before)


class ClaimedGraph:
    """A CUDA graph that records nothing: the captured code ran as plain calls."""

    def __init__(self, keep_graph: bool = False) -> None:
        pass

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def __getattr__(self, name: str) -> Any:
        if name in ("capture_begin", "capture_end", "instantiate", "replay", "reset"):
            return _do_nothing
        raise AttributeError(f"a simulated CUDAGraph has no {name}")


class _ClaimedGraphContext:
    """`torch.cuda.graph(graph)`: the code inside runs once, on its stream."""

    def __init__(
        self, cuda_graph: Any, pool: Any = None, stream: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        self._context = _ClaimedStreamContext(stream)

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *args: object) -> None:
        self._context.__exit__(*args)


def _current_stream(device: Any = None) -> torch.Stream:
    index = _get_device_index(device, optional=True)
    return torch.accelerator.current_stream(torch.device("cuda", index))


def _default_stream(device: Any = None) -> torch.Stream:
    index = _get_device_index(device, optional=True)
    return torch.Stream(stream_id=0, device_index=index, device_type=1)


def _check_device(index: int) -> int:
    if index >= _claimed.count:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal {index}; the simulation has {_claimed.count} CUDA "
            f"device{'' if _claimed.count == 1 else 's'} (simulate(device_count={index + 1}) has "
            "more)"
        )
    return index


def _set_device(device: Any) -> None:
    index = _get_device_index(device, optional=True)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(_check_device(index))


def _exchange_device(device: int) -> int:
    return -1 if device < 0 else torch._C._accelerator_exchangeDevice(_check_device(device))


def _properties(device: Any = None) -> Any:
    return SimpleNamespace(
        name="simulated CUDA device",
        major=_claimed.capability[0],
        minor=_claimed.capability[1],
        total_memory=80 * 2**30,
        multi_processor_count=_claimed.multiprocessors,
    )


def _rng_state(device: Any = "cuda") -> torch.Tensor:
    with paused():
        return torch.zeros(_RNG_STATE_BYTES, dtype=torch.uint8)


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    pass


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _replacements() -> dict[str, Any]:
    """The replacements, by name in `torch.cuda`."""
    return {
        "_lazy_init": _do_nothing,
        "_lazy_call": _do_nothing,
        "init": _do_nothing,
        "is_initialized": _constant(True),
        "is_available": _constant(True),
        "is_bf16_supported": lambda including_emulation=True: (
            including_emulation or _claimed.capability >= (8, 0)
        ),
        "is_current_stream_capturing": _constant(False),
        "device_count": lambda: _claimed.count,
        "current_device": torch._C._accelerator_getDeviceIndex,
        "set_device": _set_device,
        "_exchange_device": _exchange_device,
        "_maybe_exchange_device": _exchange_device,
        "synchronize": _do_nothing,
        "ipc_collect": _do_nothing,
        "get_device_capability": lambda device=None: _claimed.capability,
        "get_device_properties": _properties,
        "get_device_name": lambda device=None: _properties().name,
        "Stream": ClaimedStream,
        "Event": ClaimedEvent,
        "stream": _ClaimedStreamContext,
        "StreamContext": _ClaimedStreamContext,
        "set_stream": torch.accelerator.set_stream,
        "current_stream": _current_stream,
        "default_stream": _default_stream,
        "get_rng_state": _rng_state,
        "get_rng_state_all": lambda: [_rng_state() for _ in range(_claimed.count)],
        "set_rng_state": _do_nothing,
        "set_rng_state_all": _do_nothing,
        "manual_seed": _do_nothing,
        "manual_seed_all": _do_nothing,
        "seed": _do_nothing,
        "seed_all": _do_nothing,
        "CUDAGraph": ClaimedGraph,
        "graph": _ClaimedGraphContext,
        "graph_pool_handle": _constant((0, 1)),
        "make_graphed_callables": lambda callables, *args, **kwargs: callables,
        "empty_cache": _do_nothing,
        "memory_allocated": _constant(0),
        "max_memory_allocated": _constant(0),
        "memory_reserved": _constant(0),
        "max_memory_reserved": _constant(0),
        "reset_peak_memory_stats": _do_nothing,
        "mem_get_info": lambda device=None: (_properties().total_memory,) * 2,
    }


@functools.cache
def _installation() -> Installation:
    return Installation(
        {name: Patch(f"torch.cuda:{name}", value) for name, value in _replacements().items()},
        variables=_originals,
    )


def find_obstacle() -> str | None:
    """The reason why devices cannot be claimed here; None if they can."""
    if not fits(torch.__version__):
        return f"torch is {torch.__version__}; the stand-in for CUDA needs {BUILT_FOR}"
    if torch.version.hip is not None:
        return "this torch build has ROCm; install one with CUDA or for the CPU"
    if changes := _installation().explain_changes():
        return f"torch {torch.__version__} is unlike what we know: {'; '.join(changes)}"
    return None


class Claim:
    """CUDA devices that do not exist, from `begin` to `end`."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._had_threads: bool | None = None  # None: not begun

    def begin(self) -> None:
        """May raise NotImplementedError."""
        if (reason := find_obstacle()) is not None:
            raise NotImplementedError(f"simulate(device='cuda') is not possible here: {reason}")
        # Dynamo lists functions of torch.cuda when it is loaded, and after its lists were cleared.
        importlib.import_module("torch._dynamo.trace_rules").get_torch_obj_rule_map()
        self._had_threads = torch._C._is_multithreading_enabled()
        _claimed.__dict__.update(vars(self._devices))
        _C.claim_cuda(
            self._devices.count,
            self._devices.capability,
            self._devices.multiprocessors,
            self._devices.threads_per_multiprocessor,
        )
        _installation().install(self)
        torch._C._set_only_lift_cpu_tensors(True)
        # The engine starts its threads at its first backward, only for the devices of that time.
        torch._C._set_multithreading_enabled(False)

    def end(self) -> None:
        """Undoes `begin`, which may not have ended. Can be repeated after an interrupt."""
        if self._had_threads is None:
            return
        torch._C._set_multithreading_enabled(self._had_threads)
        torch._C._set_only_lift_cpu_tensors(False)
        _installation().uninstall(self)
        _C.unclaim_cuda()
        self._had_threads = None


def self_test() -> None:
    """Runs a training step on a claimed device, inside a simulation; raises if it fails."""
    device = torch.device("cuda", 0)
    side = ClaimedStream()
    layer = nn.Linear(4, 4).to(device)
    with _ClaimedStreamContext(side):
        x = torch.ones(2, 4, device=device)
    layer(x).sum().backward()
    half = torch.ones(1, 2, 8, 16, device=device, dtype=torch.bfloat16)
    attended = nn.functional.scaled_dot_product_attention(half, half, half, is_causal=True)
    places = {layer.weight.device, x.device, attended.device, torch.tensor(1, device=device).device}
    assert layer.weight.grad is not None
    if places | {layer.weight.grad.device} != {device} or _current_stream().stream_id != 0:
        raise NotImplementedError(
            f"the self-test of simulate(device='cuda') failed: tensors are on {places}, expected "
            f"{device}; please report this with your torch version"
        )
