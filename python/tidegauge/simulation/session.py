# SPDX-License-Identifier: BSD-3-Clause
"""`simulate`: a context in which tensors have shapes, devices and gradients, but no memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch._guards import detect_fake_mode

from tidegauge import _C
from tidegauge._torch import claimed_cuda, eager_code, framework_reads
from tidegauge._torch.entering import Entering
from tidegauge._torch.late_patches import Patches
from tidegauge._torch.op_patches import FOR_OPS
from tidegauge._torch.simulated_tensors import adopt_module, adopt_tree
from tidegauge.simulation._process_group import OwnProcessGroup
from tidegauge.simulation.routing import Route, make_route

T = TypeVar("T")


class Simulation(Entering):
    """One simulation, made by `tidegauge.simulate`. It can be entered once."""

    def __init__(
        self,
        device: str | torch.device = "cpu",
        world_size: int | None = None,
        rank: int = 0,
        *,
        item: float | Literal["error"] = "error",
        mask_fraction: float = 1.0,
        routing: str | int | Route | None = None,
        device_count: int | None = None,
        capability: tuple[int, int] | None = None,
        multiprocessors: int | None = None,
    ) -> None:
        self.device = _check_device(device)
        self._item = _check_item(item)
        self._mask_fraction = float(mask_fraction)
        self._route = make_route(routing)
        self._group: OwnProcessGroup | None = None
        has_ranks = world_size is not None or "LOCAL_RANK" in os.environ or dist.is_initialized()
        devices = claimed_cuda.find_devices(
            device_count, capability, multiprocessors, has_ranks=has_ranks
        )
        self._claim = claimed_cuda.Claim(devices)
        self._eager = eager_code.EagerCode()
        if world_size is not None:
            self._group = OwnProcessGroup(world_size, rank, devices.count)
        self._patches: tuple[Patches, ...] = ()
        self._pipeline_notes: list[str] = []
        self._end_program_group: Callable[[], None] = lambda: None
        self._restorations: list[Callable[[], None]] = []  # of adopted modules
        self._is_begun = False

    def _set_depth(self, depth: int) -> None:
        if depth > self._depth:
            self._begin()
        elif depth == 0:
            self._end()
        self._depth = depth

    def _begin(self) -> None:
        # Not at the top of the file: it loads DTensor, which is slow.
        from tidegauge._torch import pipeline_patches, simulation_patches

        if detect_fake_mode() is not None:
            raise RuntimeError(
                "simulate was entered inside a FakeTensorMode, which also makes tensors without "
                "memory; use only one of the two"
            )
        decomposed = simulation_patches.decomposed_ops()
        # If a simulation is running, the call below raises, and that one goes on.
        self._is_begun = self._is_begun or not _C.simulation_is_on()
        _C.simulation_start(self._item, self._mask_fraction, self._route, decomposed)
        pipeline_patches.notes.clear()
        framework_reads.clear()
        self._pipeline_notes = pipeline_patches.notes
        self._patches = (
            FOR_OPS,
            simulation_patches.installation(),
            pipeline_patches.installation(),
            framework_reads.FOR_TRAINER,
            framework_reads.FOR_SAFETENSORS,
        )
        self._end_program_group = simulation_patches.destroy_program_group
        for patches in self._patches:
            patches.install(self)
        if self.device.type == "cuda":
            self._claim.begin()
            claimed_cuda.self_test()
        eager_code.running = self._eager
        self._eager.begin()
        if self._group is not None:
            self._group.begin()

    def _end(self) -> None:
        """Undoes `_begin`, which may not have ended, and `adopt`."""
        if not self._is_begun:
            return
        while self._restorations:
            self._restorations[-1]()
            self._restorations.pop()
        self._end_program_group()
        if self._group is not None:
            self._group.end()
        self._eager.end()
        eager_code.running = None
        self._claim.end()
        for patches in reversed(self._patches):
            patches.uninstall(self)
        if _C.simulation_is_on():
            _C.simulation_stop()
        self._is_begun = False

    def adopt(self, what: T, device: str | torch.device | None = None) -> T:
        """Converts real or meta tensors to simulated ones with the same shapes, dtypes and sharing.

        A module gets simulated parameters and buffers; it gets its own back when the simulation
        ends. For a tensor or a structure of tensors, returns simulated ones. A meta tensor moves to
        the CPU and others keep their device, unless `device` is given.
        """
        target = None if device is None else _check_device(device)
        if isinstance(what, nn.Module):
            self._restorations.append(adopt_module(what, target))
            return what
        adopted: T = adopt_tree(what, target)
        return adopted

    def coverage(self) -> list[_C.OpCoverage]:
        """The simulated ops with their calls, calls answered from the cache, and whether they were
        decomposed."""
        return _C.simulation_coverage()

    @property
    def notes(self) -> tuple[str, ...]:
        """How the simulated program differs from the real one, one sentence each."""
        notes = (*dict.fromkeys(self._pipeline_notes), *framework_reads.notes())
        return (_NOTE_ON_COMPILER, *notes) if self._eager.is_compiler_called else notes

    def is_simulated(self, tensor: torch.Tensor) -> bool:
        return _C.is_simulated(tensor)


_NOTE_ON_COMPILER = (
    "torch.compile was called. Its code is simulated without compilation, so fused operators and "
    "the memory plan of the compiler are not considered."
)


def _check_device(device: str | torch.device) -> torch.device:
    checked = torch.device(device)
    if checked.type not in ("cpu", "cuda"):
        raise NotImplementedError(
            f"simulate does not support the device {str(device)!r} (expected 'cpu' or 'cuda')"
        )
    return checked


def _check_item(item: Any) -> float | None:
    if item == "error":
        return None
    if isinstance(item, (bool, int, float)):
        return float(item)
    raise ValueError(
        f"invalid item {item!r} (expected 'error', or a number as the result of item() for tensors "
        "with unknown values)"
    )


def simulate(
    device: str | torch.device = "cpu",
    world_size: int | None = None,
    rank: int = 0,
    *,
    item: float | Literal["error"] = "error",
    mask_fraction: float = 1.0,
    routing: str | int | Route | None = None,
    device_count: int | None = None,
    capability: tuple[int, int] | None = None,
    multiprocessors: int | None = None,
) -> Simulation:
    """A context in which plain code makes tensors without memory.

    `device`: a kind of device that exists in the context besides the CPU. Code that names it gets
    tensors there; other code gets tensors on the CPU, as on a machine with that device.
    `world_size` and `rank`: makes a process group of that many ranks; only this process exists.
    `item`: the result when the program reads an unknown value; by default an error that names the
    line. `mask_fraction`: the fraction of elements that a mask with unknown values selects.
    `routing`: the experts that tokens choose in a mixture of experts: "balanced", "worst", a seed
    for random choices, or a function of the numbers of tokens, choices and experts that returns
    the numbers of the experts, [tokens, choices]. By default the choices are unknown.
    `device_count`, `capability` and `multiprocessors`: of the CUDA devices; by default as many as
    CUDA_VISIBLE_DEVICES lists, or 8 if there are several ranks, or 1; and those of an H100: (9, 0)
    and 132.
    """
    return Simulation(
        device,
        world_size,
        rank,
        item=item,
        mask_fraction=mask_fraction,
        routing=routing,
        device_count=device_count,
        capability=capability,
        multiprocessors=multiprocessors,
    )
