# SPDX-License-Identifier: BSD-3-Clause
"""What a rehearsal changes in the process of the script, and what it says at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from tidegauge import _C, _core
from tidegauge._torch.absent_ranks import FOR_ABSENT_RANKS, FOR_SIMULATED_RANKS
from tidegauge._util.formatting import render_bytes
from tidegauge.allocator import DeviceModel, replay_trace
from tidegauge.simulation import simulate
from tidegauge.simulation.routing import make_route


@dataclass(frozen=True)
class Job:
    """One rank of a job, and the devices that it pretends to have."""

    device: DeviceModel
    rank: int
    gpus: int  # of the node
    context_bytes: int
    communication_bytes: int

    @property
    def local_rank(self) -> int:
        return self.rank % self.gpus


@dataclass(frozen=True)
class Values:
    """What the script reads instead of computed values; as for `simulate`."""

    number: float
    mask_fraction: float
    routing: str | int


class EndOfRehearsal(SystemExit):
    """Ends the script after its last step. A SystemExit, which scripts let pass."""


class Rehearsal(ABC):
    """Counts optimizer steps and ends the script after `steps` of them (0: never).

    With several optimizers, the first one that reaches the number counts.
    """

    #: True if the process must end without Python's own shutdown.
    ends_process = False

    def __init__(self, job: Job, steps: int) -> None:
        self._job = job
        self._wanted = steps
        self._counts: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._steps = 0
        self._has_ended = False

    def begin(self) -> None:
        register_optimizer_step_post_hook(self._count_step)

    @abstractmethod
    def end(self) -> None: ...

    @abstractmethod
    def describe_memory(self, ran_out: bool, trace: str) -> list[str]:
        """The verdict, in sentences."""

    def describe(self, ran_out: bool, trace: str) -> list[str]:
        """What happened, in sentences. `trace`: the file, which is complete."""
        steps = f"{self._steps} optimizer step" + ("" if self._steps == 1 else "s")
        if self._has_ended:
            what = f"ended the script after {steps} (--steps {self._wanted})"
        else:
            what = f"the script ended by itself after {steps}"
        return [what, *self.describe_memory(ran_out, trace)]

    def _count_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        count = self._counts.get(optimizer, 0) + 1
        self._counts[optimizer] = count
        self._steps = max(self._steps, count)
        if self._wanted and count >= self._wanted:
            self._has_ended = True
            raise EndOfRehearsal(0)


class RealRehearsal(Rehearsal):
    """On torch's CUDA build and the stand-in for CUDA: the allocator is torch's own."""

    # torch's autograd threads may abort a process that ends just after a backward on a device.
    ends_process = True

    def __init__(self, job: Job, steps: int, values: Values) -> None:
        super().__init__(job, steps)
        self._values = values

    def begin(self) -> None:
        super().begin()
        FOR_ABSENT_RANKS.install(self)
        values = self._values
        route = make_route(values.routing)
        if not _C.answer_standin_values(values.number, values.mask_fraction, route):
            raise NotImplementedError(
                "the stand-in for CUDA is not loaded; start it by `tidegauge rehearse`"
            )

    def end(self) -> None:
        pass  # the process ends with it

    def describe_memory(self, ran_out: bool, trace: str) -> list[str]:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return ["the script did not use CUDA"]
        lines = []
        for index in range(torch.cuda.device_count()):
            statistics = torch.cuda.memory_stats(index)
            reserved = statistics.get("reserved_bytes.all.peak", 0)
            if reserved:
                lines.append(self._judge(index, reserved, statistics, ran_out))
        return lines or ["the script allocated nothing on a device"]

    def _judge(self, index: int, reserved: int, statistics: dict[str, int], ran_out: bool) -> str:
        job = self._job
        allocated = statistics.get("allocated_bytes.all.peak", 0)
        where = "" if index == job.local_rank else f" on cuda:{index}"
        total = render_bytes(job.device.memory_bytes)
        assumed = [
            f"{render_bytes(size)} {name}"
            for name, size in (
                ("context", job.context_bytes),
                ("NCCL", job.communication_bytes),
            )
            if size
        ]
        besides = f", besides {' and '.join(assumed)}, assumed" if assumed else ""
        retries = statistics.get("num_alloc_retries", 0)
        verdict = "does not fit" if ran_out else "fits after retries" if retries else "fits"
        return (
            f"peak reserved{where} {render_bytes(reserved)} of {total} (allocated "
            f"{render_bytes(allocated)}{besides}): {verdict}"
        )


class SimulatedRehearsal(Rehearsal):
    """On any torch: tensors are simulated, and the allocator is ours."""

    def __init__(self, job: Job, steps: int, values: Values) -> None:
        super().__init__(job, steps)
        self._simulation = simulate(
            "cuda",
            item=values.number,
            mask_fraction=values.mask_fraction,
            routing=values.routing,
        )

    def begin(self) -> None:
        super().begin()
        FOR_SIMULATED_RANKS.install(self)
        self._simulation.__enter__()

    def end(self) -> None:
        self._simulation.__exit__(None, None, None)
        FOR_SIMULATED_RANKS.uninstall(self)

    def describe_memory(self, ran_out: bool, trace: str) -> list[str]:
        peaks = {device: sum(split) for device, split in _core.Reader(trace).replay().peak()}
        if not any(device.startswith("cuda") for device in peaks):
            return ["the script did not use CUDA"]
        memory = replay_trace(trace, device=self._job.device, peaks=peaks, has_settings=False)
        return [
            f"peak reserved {render_bytes(memory.figures.peak_reserved_bytes)} of "
            f"{render_bytes(self._job.device.memory_bytes)}, by our model of the allocator: "
            f"{memory.verdict.name}"
        ]
