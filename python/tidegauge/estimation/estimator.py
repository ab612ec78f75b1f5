# SPDX-License-Identifier: BSD-3-Clause
"""`estimate`: simulates the ranks that differ and gives the verdict for the worst one."""

from __future__ import annotations

import dataclasses
import inspect
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from tidegauge import _core
from tidegauge._util.formatting import parse_bytes, parse_count, render_bytes
from tidegauge._util.notebook import render_peaks
from tidegauge._util.suggestions import did_you_mean
from tidegauge.allocator import (
    Assumptions,
    DeviceMemory,
    DeviceModel,
    Layer,
    StepFigures,
    Verdict,
    VerdictName,
    find_device,
    judge,
    model_device,
)
from tidegauge.allocator.device_memory import replay_requests
from tidegauge.estimation.contract import Contract
from tidegauge.estimation.live_modules import make_module_contract
from tidegauge.estimation.moments import Moment, find_moments
from tidegauge.estimation.plan import DEFAULT_SCHEDULE, Plan
from tidegauge.estimation.runner import Claim, Run, claim_device, next_rank, run_plan
from tidegauge.estimation.step_record import StepRecord
from tidegauge.estimation.step_time import StepTime, count_tokens, find_step_time
from tidegauge.estimation.steps import Progress
from tidegauge.estimation.targets import load_contract
from tidegauge.planning.speed import find_speed
from tidegauge.report.summary import Peak, Summary, make_summary

_WORKSPACES_ARE_REQUESTED = (
    "The assumed cuBLAS workspace has no effect: kernels of a simulated GPU request theirs from "
    "the allocator."
)


@dataclass(frozen=True)
class RankPeak:
    """A simulated rank, and the ranks it represents because their shards have equal sizes."""

    rank: int
    like_ranks: tuple[int, ...]
    peak_bytes: int
    needed_bytes: int


@dataclass(frozen=True)
class Estimate:
    """The memory that a run needs, for `rank`, the rank that needs most (except `ranks`).

    `verdict` and `margin_bytes` are None without a device. `needed_bytes` is the last layer;
    `low_bytes` and `high_bytes` are its band (docs/estimate.md). `alloc_conf` is None if the caller
    named no settings: then the band covers both modes of the allocator. `failed_requests`: on the
    device, with the expected assumptions. `peak` is the tensor peak. `is_steady`: the last step
    began and ended with the same memory. `parameter_dtypes`: most elements first. `time`: of the
    last step of `rank`; None without a device, or if its peaks are not known.
    `layout`: blocks, units and split parameters that the plan made, in words. `moments`: the memory
    before and in the steps.
    """

    target: str
    settings: dict[str, Any]
    plan: Plan
    optimizer: str
    parameter_count: int
    parameter_dtypes: tuple[str, ...]
    layout: str
    world_size: int
    rank: int
    ranks: tuple[RankPeak, ...]
    verdict: VerdictName | None
    device: DeviceModel | None
    smallest: DeviceModel | None
    alloc_conf: str | None
    needed_bytes: int
    low_bytes: int
    high_bytes: int
    margin_bytes: int | None
    failed_requests: int
    layers: tuple[Layer, ...]
    assumptions: Assumptions
    first_step_bytes: int
    steady_step_bytes: int
    moments: tuple[Moment, ...]
    step_count: int
    is_steady: bool
    peak: Peak
    time: StepTime | None
    simulated_device: str
    torch_version: str
    notes: tuple[str, ...]
    seconds: float

    @property
    def fits(self) -> bool | None:
        """True if it fits, even if only after retries; None without a device."""
        return self.judged.fits

    def __str__(self) -> str:
        """`llama.py, FSDP2 over 8 ranks: fits, 61.0 GiB of 79.1 GiB on NVIDIA H100 80 GB,
        about 836 ms a step (not calibrated)`"""
        needs = render_bytes(self.needed_bytes)
        if self.device is None:
            return f"{self.target}, {self.plan.describe()}: needs {needs}"
        memory = f"{render_bytes(self.device.memory_bytes)} on {self.device.name}"
        text = f"{self.target}, {self.plan.describe()}: {self.verdict}, {needs} of {memory}"
        if self.time is None:
            return text
        basis = "calibrated" if self.time.is_calibrated else "not calibrated"
        return f"{text}, about {self.time.ms:,.0f} ms a step ({basis})"

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, and the tensor peak by category."""
        peak = {f"{self.peak.device}, in step {self.peak.step}": self.peak.categories}
        return render_peaks(str(self), peak)

    @property
    def judged(self) -> Verdict:
        return Verdict(
            self.verdict,
            self.needed_bytes,
            self.low_bytes,
            self.high_bytes,
            self.margin_bytes,
            self.layers,
            self.assumptions,
            self.smallest,
            self.failed_requests,
            self.device,
        )


@dataclass(frozen=True)
class _Simulated:
    """A simulated rank, the summary of its events, and its requests to the device."""

    number: int  # counts all runs of an Estimator
    run: Run
    summary: Summary
    peak: Peak
    requests: _core.RunRequests


class Estimator:
    """Estimates one program under many plans. Simulates each plan once.

    Events stay in memory. `trace_of` writes a file into a temporary folder inside `folder`, which
    is removed when this context manager is left.
    `notes` are part of every estimate. `step_of` tells what a step consists of.
    """

    def __init__(
        self,
        contract: Contract,
        *,
        rank: str = "worst",
        assumed: Mapping[str, int] | None = None,
        simulated_device: str = "cuda",
        progress: Progress = lambda text: None,
        folder: str | None = None,
    ) -> None:
        self.contract = contract
        self.run_count = 0
        self._rank = rank
        self._assumed = dict(assumed or {})
        self._progress = progress
        self._claim = claim_device(simulated_device)
        self._notes = self._claim.notes
        if "cublas_workspace_bytes" in self._assumed and self._claim.device != "cpu":
            self._notes += (_WORKSPACES_ARE_REQUESTED,)
        self._runs: dict[tuple[Plan, Claim], list[_Simulated]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="tidegauge-", dir=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self._folder.cleanup()

    def estimate(
        self, plan: Plan, device: DeviceModel | None = None, alloc_conf: str | None = None
    ) -> Estimate:
        """Raises ValueError for an impossible plan, ModelError for an error in the program.

        `alloc_conf` None: the band covers both modes of the allocator.
        """
        begin = time.perf_counter()
        simulated = self._simulate(plan, device)
        self._progress("replaying the allocator")
        judged = [(each, self._judge(each, device, alloc_conf)) for each in simulated]
        worst, verdict = max(judged, key=lambda row: row[1].needed_bytes)
        run, peak = worst.run, worst.peak
        steps = [step.total_bytes for step in worst.summary.steps if step.device == peak.device]
        return Estimate(
            target=self.contract.name,
            settings=vars(self.contract.resolve(dict(plan.settings))),
            plan=plan,
            optimizer=run.optimizer,
            parameter_count=run.parameter_count,
            parameter_dtypes=run.parameter_dtypes,
            layout=run.layout,
            world_size=plan.world_size,
            rank=run.rank,
            ranks=tuple(
                RankPeak(
                    each.run.rank, each.run.like_ranks, each.peak.total_bytes, found.needed_bytes
                )
                for each, found in judged
            ),
            verdict=verdict.name,
            device=device,
            smallest=verdict.smallest,
            alloc_conf=alloc_conf,
            needed_bytes=verdict.needed_bytes,
            low_bytes=verdict.low_bytes,
            high_bytes=verdict.high_bytes,
            margin_bytes=verdict.margin_bytes,
            failed_requests=verdict.failed_requests,
            layers=verdict.layers,
            assumptions=verdict.assumptions,
            first_step_bytes=steps[0],
            steady_step_bytes=steps[-1],
            moments=find_moments(
                run.trained, steps, worst.requests, worst.summary.facts, alloc_conf
            ),
            step_count=run.trained.step_count,
            is_steady=run.trained.is_steady,
            peak=dataclasses.replace(peak, device="the device"),
            time=self._find_time(run, device),
            simulated_device=run.device,
            torch_version=torch.__version__,
            notes=(*self._notes, *run.notes),
            seconds=time.perf_counter() - begin,
        )

    def _find_time(self, run: Run, device: DeviceModel | None) -> StepTime | None:
        if run.plan.pp > 1:  # how long a stage waits for others is not modelled
            return None
        speed = find_speed(device.key) if device else None
        if speed is None:
            return None
        return find_step_time(run.step, speed, self._count_tokens(run.plan))

    def tokens_of(self, estimate: Estimate) -> float | None:
        """The tokens of a step on one device; None if the target does not say what a token is."""
        return self._count_tokens(estimate.plan)

    def _count_tokens(self, plan: Plan) -> float | None:
        settings = vars(self.contract.resolve(dict(plan.settings)))
        return count_tokens(settings, plan.accumulate, plan.tp * plan.cp)

    def save_trace(self, estimate: Estimate, path: str, *, overwrite: bool = False) -> None:
        """Writes the trace of its worst rank. Raises OSError if that is not possible."""
        self._find(estimate).run.recorder.save(path, overwrite=overwrite)

    def step_of(self, estimate: Estimate) -> StepRecord:
        """The last step of its worst rank."""
        return self._find(estimate).run.step

    def trace_of(self, estimate: Estimate) -> Path:
        """The trace of its worst rank, in a temporary file until the estimator is closed."""
        found = self._find(estimate)
        path = Path(self._folder.name) / f"{found.number}.tide"
        if not path.exists():
            found.run.recorder.save(path)
        return path

    def memory_of(self, estimate: Estimate) -> DeviceMemory:
        """The device memory of its worst rank, with the verdict of the estimate."""
        found = self._find(estimate)
        settings = estimate.alloc_conf
        return replay_requests(
            found.requests,
            found.summary.facts,
            trace="",
            traced_device=found.peak.device,
            alloc_confs=() if settings is None else (settings,),
            device=estimate.device,
            assumptions=Assumptions(**self._assumed),
            has_settings=False,
        )

    def memory_of_steps(self, estimate: Estimate) -> list[StepFigures]:
        """When the first step of its worst rank begins, then the peaks of each step."""
        found = self._find(estimate)
        tie = _core.choose_tie_rule(None, found.summary.facts)
        rows = found.requests.step_figures(estimate.alloc_conf or "", tie)
        return [StepFigures(**row) for row in rows]

    def _find(self, estimate: Estimate) -> _Simulated:
        runs = self._simulate(estimate.plan, estimate.device)
        return next(each for each in runs if each.run.rank == estimate.rank)

    def _simulate(self, plan: Plan, device: DeviceModel | None) -> list[_Simulated]:
        claim = self._claim.for_device(device)
        if (plan, claim) not in self._runs:
            done: list[_Simulated] = []
            ranks_done: list[Run] = []
            while (rank := next_rank(plan, ranks_done, self._rank)) is not None:
                self.run_count += 1
                run = run_plan(self.contract, plan, rank, claim, self._progress)
                ranks_done.append(run)
                done.append(_read(run, self.run_count))
            self._runs[plan, claim] = done
        return self._runs[plan, claim]

    def _judge(
        self, simulated: _Simulated, device: DeviceModel | None, alloc_conf: str | None
    ) -> Verdict:
        return judge(
            simulated.requests,
            simulated.summary.facts,
            device=device,
            alloc_conf=alloc_conf,
            assumptions=Assumptions(**self._assumed),
        )


def _read(run: Run, number: int) -> _Simulated:
    source = run.recorder.source
    read = _core.ReadRun(source, wants_requests=True)
    requests = read.requests()
    assert requests is not None
    summary = make_summary(read, source, "")
    return _Simulated(number, run, summary, _find_peak(summary, run.device), requests)


def _find_peak(summary: Summary, device: str) -> Peak:
    """The rank's own device: the first of its type, since peaks are sorted by size."""
    return next(peak for peak in summary.peaks if peak.device.partition(":")[0] == device)


def estimate(
    target: str | os.PathLike[str] | Contract | nn.Module,
    *,
    device: str | None = None,
    device_memory: str | None = None,
    alloc_conf: str | None = None,
    inputs: Any = None,
    compute_loss: Callable[[nn.Module, Any], torch.Tensor] | None = None,
    config: str | None = None,
    settings: Mapping[str, Any] | None = None,
    dp: int = 0,
    zero: bool = False,
    fsdp: int = 0,
    hsdp: str = "",
    tp: int = 1,
    cp: int = 1,
    ep: int = 1,
    pp: int = 1,
    schedule: str = DEFAULT_SCHEDULE,
    microbatches: int = 0,
    reshard: str = "auto",
    wrap: int = 1,
    mp: str = "",
    dtype: str = "",
    ac: str = "none",
    lora: str = "",
    attention: str = "",
    optimizer: str = "",
    clip: float = 0.0,
    accumulate: int = 1,
    offload: bool = False,
    routing: str = "",
    item: str = "",
    rank: int | str = "worst",
    assumptions: Mapping[str, int] | None = None,
    simulated_device: str = "cuda",
    **unknown: Any,
) -> Estimate:
    """Estimates the memory that a training run needs and whether it fits a device.

    `target`: a Python file (docs/estimate.md), a `Contract`, a Hugging Face config.json or the id
    of a model in the local cache, "module:Class" with `config`, or a model with `inputs`, the
    arguments of its forward; then `compute_loss(model, inputs)` is the mean of its output by
    default. `device`: a name in the catalogue, e.g. "h100-80g", or `device_memory`, e.g. "40GiB".
    `alloc_conf`: as in PYTORCH_CUDA_ALLOC_CONF. `settings`: settings of the target, as with
    `--set`.

    The training plan: `dp` (DDP), `fsdp`, `hsdp` ("2x4") and `tp`: numbers of ranks; `zero`: the
    ranks of `dp` share optimizer states; `cp`, `ep`: ranks that share sequences, experts; `pp`,
    `schedule` ("1f1b", "gpipe", "interleaved", "zbv", ...), `microbatches`: a pipeline; `reshard`;
    `wrap`: blocks of an FSDP2 unit; `mp`: types of computation and reduction ("bf16/fp32");
    `dtype`: type of the parameters; `ac`: "none", "selective", "full", "every:2" or "ops:FILE"
    checkpointing; `lora`: "rank=16,targets=q_proj/v_proj"; `attention`: "flash", "efficient",
    "cudnn" or "math"; `optimizer`: e.g. "sgd-momentum"; `clip`: largest norm of the gradients;
    `accumulate`: batches for one step; `offload`: keep shards in host memory; `routing`: of tokens
    to experts, "balanced", "worst" or a seed; `item`: the value that `Tensor.item()` returns if it
    is not known.

    `rank`: "worst", "all" or a number. `assumptions`: members of
    `tidegauge.allocator.Assumptions`. `simulated_device`: "cuda" needs no GPU; "cpu" simulates with
    CPU kernels::

        tidegauge.estimate("llama.py", device="h100-80g", fsdp=8, mp="bf16/fp32", ac="selective")
        tidegauge.estimate(model, inputs=torch.zeros(8, 3, 224, 224), device="l4")
    """
    for name in unknown:
        known = [each for each in inspect.signature(estimate).parameters if each != "unknown"]
        raise TypeError(f"estimate() has no argument '{name}': {did_you_mean(name, known)}")
    contract = find_contract(target, config, inputs, compute_loss)
    chosen = Plan(
        dp=dp,
        zero=zero,
        fsdp=fsdp,
        hsdp=hsdp,
        tp=tp,
        cp=cp,
        ep=ep,
        pp=pp,
        schedule=schedule,
        microbatches=microbatches,
        reshard=reshard,
        wrap=wrap,
        mp=mp,
        dtype=dtype,
        ac=ac,
        lora=lora,
        attention=attention,
        optimizer=optimizer,
        clip=clip,
        accumulate=accumulate,
        offload=offload,
        routing=routing,
        item=item,
        settings=tuple(sorted((settings or {}).items())),
    )
    with Estimator(
        contract,
        rank=check_rank(rank, chosen),
        assumed=assumptions,
        simulated_device=simulated_device,
    ) as estimator:
        return estimator.estimate(chosen, find_model(device, device_memory), alloc_conf)


def find_contract(
    target: str | os.PathLike[str] | Contract | nn.Module,
    config: str | None,
    inputs: Any,
    compute_loss: Callable[[nn.Module, Any], torch.Tensor] | None,
) -> Contract:
    """The target of `estimate` as a contract."""
    if isinstance(target, nn.Module):
        return make_module_contract(target, inputs, compute_loss)
    if inputs is not None or compute_loss is not None:
        raise ValueError("inputs and compute_loss require an nn.Module as target")
    return target if isinstance(target, Contract) else load_contract(target, config)


def find_model(device: str | None, device_memory: str | None) -> DeviceModel | None:
    """The device of `estimate`. Raises ValueError for an unknown one."""
    if device and device_memory:
        raise ValueError("device and device_memory are mutually exclusive")
    if not device_memory:
        return find_device(device) if device else None
    size_bytes = parse_bytes(device_memory)
    if not size_bytes or device_memory.strip()[-1].isdigit():
        raise ValueError(f"invalid device_memory '{device_memory}' (expected e.g. 40GiB)")
    return model_device(size_bytes)


def check_rank(rank: int | str, plan: Plan) -> str:
    """The rank in the form that Estimator takes. Raises ValueError if it does not exist."""
    text = str(rank)
    number = parse_count(text)
    if text not in ("all", "worst") and (number is None or number >= plan.world_size):
        raise ValueError(
            f"invalid rank '{text}' (expected worst, all, or 0 to {plan.world_size - 1})"
        )
    return text
