# SPDX-License-Identifier: BSD-3-Clause
"""Simulated steps of large models, compared with FakeTensorMode in the same run.

Both are timed after a warm-up, in CPU time of the thread, to measure a steady step.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from measure import Ratio
from tidegauge import FSDPMemTracker, simulate
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker as UpstreamTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from cases.fsdp import WORLD, Training
from cases.mem_tracker import hf_models

SIMULATED = "simulated"
GIB = 2**30


def _seconds(step: Callable[[], object], repeats: int) -> list[float]:
    for _ in range(2):
        step()
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        step()
        times.append(time.thread_time() - start)
    return times


def _compare(case: str, fake: list[float], simulated: list[float], *, times_faster: float) -> Ratio:
    plain = statistics.median(fake)
    spread = (max(simulated) - min(simulated)) / plain
    ratio = statistics.median(simulated) / plain
    return Ratio(case, SIMULATED, ratio, spread, plain * 1e6, 1 / times_faster)


def _llama_step() -> Callable[[], object]:
    """A model with the dimensions of Llama 8B."""
    model = hf_models.llama_8b()
    tokens = torch.zeros(1, 2048, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _compare_llama() -> Ratio:
    with FakeTensorMode():
        fake = _seconds(_llama_step(), 2)
    with simulate():
        simulated = _seconds(_llama_step(), 7)
    case = "Hugging Face Llama 8B, 2,048 tokens, AdamW, to FakeTensorMode"
    return _compare(case, fake, simulated, times_faster=20)


def _sharded_seconds(repeats: int, make_tracker: Callable[..., Any] | None) -> list[float]:
    training = Training(32, 4096, 32, init_device_mesh("cpu", (WORLD,)))
    enter = nullcontext if make_tracker is None else training.within(make_tracker)
    with enter():
        return _seconds(training.step, repeats)


def _compare_sharded() -> list[Ratio]:
    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (WORLD,))  # FakeTensorMode cannot make a mesh
        fake = []
        for tracker in (None, UpstreamTracker):
            with FakeTensorMode():
                training = Training(32, 4096, 32, mesh)
                enter = nullcontext if tracker is None else training.within(tracker)
                with enter():
                    fake.append(_seconds(training.step, 2))
    finally:
        dist.destroy_process_group()
    with simulate(world_size=WORLD):
        alone, tracked = _sharded_seconds(7, None), _sharded_seconds(7, FSDPMemTracker)
    case = "FSDP2 of 32 blocks of width 4,096, 8 ranks"
    return [
        _compare(f"{case}, to FakeTensorMode", fake[0], alone, times_faster=8),
        _compare(
            f"{case}, FSDPMemTracker, to FakeTensorMode with upstream's",
            fake[1],
            tracked,
            times_faster=15,
        ),
    ]


def run() -> list[Ratio]:
    return [_compare_llama(), *_compare_sharded()]


def bars() -> list[tuple[str, float, float]]:
    """(name, value, at most)"""
    output = subprocess.run(
        [sys.executable, __file__],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        env={"PYTHONPATH": ":".join(sys.path)},
    ).stdout
    largest = json.loads(output)
    name = "Llama 3 405B over 512 ranks, bf16, checkpoints, simulated"
    return [
        (f"seconds of a step of {name}", largest["step_seconds"], 5),
        (f"bytes of the process with {name}", largest["peak_bytes"], 4 * GIB),
        ("microseconds of a simulated op", _op_us(), 3),
    ]


def _op_us() -> float:
    with simulate(), torch.no_grad():
        x, weight = torch.randn(512, 512), torch.randn(512, 512)

        def step() -> None:
            for _ in range(1000):
                torch.relu(torch.mm(x, weight).add_(x)).sum()

        return statistics.median(_seconds(step, 7)) / 4000 * 1e6


def _run_largest() -> dict[str, float]:
    """126 layers of width 16,384, from transformers."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with simulate(world_size=512):
        model = hf_models.llama(
            126,
            16384,
            vocab_size=128256,
            intermediate_size=53248,
            num_attention_heads=128,
            num_key_value_heads=8,
        )
        hf_models.with_checkpoints(model)
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        tokens = torch.zeros(1, 8192, dtype=torch.long)
        optimizer = torch.optim.AdamW(model.parameters())

        def step() -> None:
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        seconds = _seconds(step, 2)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"step_seconds": max(seconds), "peak_bytes": peak_bytes}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(_run_largest()))
