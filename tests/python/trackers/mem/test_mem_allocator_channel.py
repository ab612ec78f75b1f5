# SPDX-License-Identifier: BSD-3-Clause
"""With the allocator channel, our total equals the counting allocator's at every event.

The counting allocator is below our wrapper. It asks the tracker for its total before each
allocation and after each free, and counts the answers that differ from its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import hf_models
import pytest
import torch
from counting import CountingAllocator, counting
from hf_training import totals, training
from one_thread_gloo import init_one_thread_gloo, settle
from random_programs import Program, run_programs
from runs import Record, Scenario, Split, run_scenario
from scenarios_models import MODELS, mlp
from scenarios_programs import PROGRAMS
from scenarios_tensors import TENSORS
from scenarios_training import TRAINING
from tidegauge import MemTracker
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from tracked import FLOAT, now, parameter_bytes, peak, split

pytestmark = pytest.mark.filterwarnings("ignore")
SCENARIOS = MODELS | TRAINING | TENSORS | PROGRAMS
CPU = torch.device("cpu")


def without_untracked(held: Split) -> Split:
    """All categories but Other, which includes memory of no tensor."""
    return {name: size for name, size in held.items() if name not in ("Other", "Total")}


def check_against_the_allocator(scenario: Scenario) -> tuple[Record, Record]:
    channel, untracked = run_scenario("channel", scenario), run_scenario("untracked", scenario)
    assert (channel.error, untracked.error) == (None, None)
    assert channel.allocator == untracked.allocator  # tracking does not change it
    assert channel.allocator is not None
    assert channel.probed is not None
    assert channel.probed.disagreements == 0, channel.probed
    assert totals(channel) == channel.live
    assert channel.peak.get("Total", 0) == channel.allocator.peak_bytes
    assert channel.anomalies == (0, "")
    return channel, untracked


@pytest.mark.parametrize("name", SCENARIOS)
def test_total_equals_the_allocator_at_every_event(name: str) -> None:
    channel, _ = check_against_the_allocator(SCENARIOS[name])
    ours = run_scenario("ours", SCENARIOS[name])
    assert {mark: without_untracked(held) for mark, held in channel.marks.items()} == {
        mark: without_untracked(held) for mark, held in ours.marks.items()
    }


@pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])
@pytest.mark.parametrize("name", hf_models.MODELS)
def test_total_of_transformers_equals_the_allocator(name: str, checkpoints: bool) -> None:
    channel, _ = check_against_the_allocator(training(name, checkpoints=checkpoints))
    assert channel.probed is not None
    assert channel.probed.events > 1000


class ChannelProgram(Program):
    """A random program whose tracker has the channel."""

    has_channel = True


def test_random_programs_have_the_total_of_the_allocator() -> None:
    run_programs(count=40, lines=25, is_long=False, program=ChannelProgram)


@pytest.mark.long
def test_many_random_programs_have_the_total_of_the_allocator() -> None:
    run_programs(count=400, lines=50, is_long=True, program=ChannelProgram)


def test_workspace_is_untracked_at_the_peak() -> None:
    """`mm` copies an expanded gradient while its kernel runs."""
    model, x = nn.Linear(16, 8, bias=False), torch.ones(32, 16)
    tracker = MemTracker(allocator=True)
    tracker.track_external(model, x)
    with tracker:
        loss = model(x).sum()
        loss.backward()
    assert tracker.get_untracked_memory("peak") == {CPU: 32 * 8 * FLOAT}
    assert tracker.get_untracked_memory() == {}
    assert peak(tracker)["Other"] == x.nbytes + 32 * 8 * FLOAT


def test_unknown_type_of_untracked_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid type"):
        MemTracker().get_untracked_memory("last")


def test_python_number_is_untracked_while_it_is_an_argument() -> None:
    x = torch.ones(256)
    tracker = MemTracker(allocator=True)
    tracker.track_external(x)
    with tracker:
        y = x * 2
    assert now(tracker) == split(Activation=y.nbytes, Other=x.nbytes)
    assert tracker.get_untracked_memory("peak") == {CPU: 8 + 4}  # as float64 and as float32


def test_untracked_thread_is_counted() -> None:
    made = []
    with MemTracker(allocator=True) as tracker:
        thread = threading.Thread(target=lambda: made.append(torch.ones(256)))
        thread.start()
        thread.join()
        assert now(tracker)["Total"] == 1024
        made.clear()
        assert now(tracker) == {}


def test_concurrent_threads_have_the_total_of_the_allocator() -> None:
    """Compared while all threads wait: while they run, our lock decides the order of events."""
    threads_count, steps = 4, 10
    everybody = threading.Barrier(threads_count + 1)

    def train(index: int) -> None:
        width = 16 * (index + 1)
        model, x = mlp(width), torch.ones(8, width)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(steps):
            loss = model(x).square().mean()
            everybody.wait(60)  # activations exist
            everybody.wait(60)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del loss
            everybody.wait(60)  # states exist
            everybody.wait(60)

    threads = [threading.Thread(target=train, args=(index,)) for index in range(threads_count)]
    with counting() as allocator, MemTracker(allocator=True) as tracker:
        base = allocator.read().live_bytes
        for thread in threads:
            thread.start()
        totals_seen = []
        for _ in range(2 * steps):
            everybody.wait(60)
            total = now(tracker)["Total"]
            assert total == allocator.read().live_bytes - base
            totals_seen.append(total)
            everybody.wait(60)
        for thread in threads:
            thread.join()
        assert now(tracker).get("Total", 0) == allocator.read().live_bytes - base
        assert tracker._native.anomalies() == (0, "")
    # A parameter and its two moments, six step counters, and the inputs.
    widths = (16, 32, 48, 64)
    after_step = sum(3 * parameter_bytes(mlp(w)) + 6 * FLOAT + 8 * w * FLOAT for w in widths)
    assert totals_seen[1::2] == [after_step] * steps


def test_memory_from_before_and_after_is_not_counted() -> None:
    before = torch.ones(256)
    with MemTracker(allocator=True) as tracker:
        del before
        assert now(tracker) == {}
        within = torch.ones(64)
    after = torch.ones(16)
    assert now(tracker) == split(Activation=256)
    del within
    assert now(tracker) == {}
    del after


def test_trackers_with_and_without_the_channel() -> None:
    model, x = mlp(), torch.ones(8, 32)
    with counting() as allocator:
        base = allocator.read().live_bytes - parameter_bytes(model)
        without, outer, inner = MemTracker(), MemTracker(allocator=True), MemTracker(allocator=True)
        with outer, without:
            y = model(x)
            with inner:
                z = y * 2
                assert now(inner)["Total"] == z.nbytes + 8  # the number is saved for backward
            assert now(outer)["Total"] == allocator.read().live_bytes - base
            y.sum().backward()
        assert now(outer)["Total"] == allocator.read().live_bytes - base
        assert peak(outer)["Total"] > peak(without)["Total"] > 0
        assert without.get_untracked_memory("peak") == {}


def compiled_step(allocator: CountingAllocator, tracker: Any) -> None:
    """A small model that inductor compiled to C++ before tracking."""
    model = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 8))
    compiled, x = torch.compile(model, backend="inductor"), torch.ones(16, 32)
    compiled(x).sum().backward()
    model.zero_grad()
    tracker.track_external(model)
    base = allocator.read().live_bytes - parameter_bytes(model)
    allocator.restart()

    def believed_bytes() -> int:
        return base + sum(tracker._native.splits(at_peak=False).get(CPU, {}).values())

    with tracker, allocator.probing(believed_bytes):
        loss = compiled(x).sum()
        loss.backward()
    assert allocator.probed().disagreements == 0, allocator.probed()
    assert allocator.probed().events > 4
    assert peak(tracker)["Total"] == allocator.read().peak_bytes - base


def test_generated_code_is_counted() -> None:
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("found no C++ compiler, which inductor needs")
    with counting() as allocator:
        compiled_step(allocator, MemTracker(allocator=True))


def test_collective_is_counted() -> None:
    import torch.distributed as dist

    if not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    init_one_thread_gloo(dist.HashStore(), rank=0, world_size=1)
    try:
        with counting() as allocator:
            base = allocator.read().live_bytes
            tracker = MemTracker(allocator=True)
            with tracker:
                x = torch.ones(1024)
                dist.all_reduce(x)
                parts = [torch.empty(1024)]
                dist.all_gather(parts, x.t())
                settle()
                assert now(tracker)["Total"] == allocator.read().live_bytes - base
            assert peak(tracker)["Total"] == allocator.read().peak_bytes - base
    finally:
        dist.destroy_process_group()


EXITS = {
    "while_entered": "tracker.__enter__(); x = torch.ones(256)",
    "with_tensors_alive": "with tracker: x = torch.ones(256)",
    "fork": (
        "tracker.__enter__(); x = torch.ones(256); pid = os.fork()\n"
        "if pid == 0: x = x + 1; x = None; os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0"
    ),
}


@pytest.mark.parametrize("how", EXITS)
def test_process_exits_cleanly_with_the_channel(how: str) -> None:
    program = (
        "import os, torch\nfrom tidegauge import MemTracker\n"
        f"tracker = MemTracker(allocator=True)\n{EXITS[how]}\nprint('fine')"
    )
    package = Path(sys.modules["tidegauge"].__file__ or "").parents[1]
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(package)},
    )
    assert (ended.returncode, ended.stdout) == (0, "fine\n"), ended.stderr


def test_memory_does_not_grow_with_the_channel() -> None:
    model, x = mlp(), torch.ones(8, 32)
    optimizer = torch.optim.AdamW(model.parameters())
    tracker = MemTracker(allocator=True)
    tracker.track_external(model, optimizer, x)

    def steps(count: int) -> None:
        for _ in range(count):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    with tracker:
        steps(60)
        held, top, footprint = now(tracker), peak(tracker), tracker._native.footprint_bytes
        steps(20_000 if os.environ.get("TIDEGAUGE_LONG") == "1" else 300)
        assert now(tracker) == held
        assert peak(tracker) == top
        assert tracker._native.footprint_bytes <= max(footprint, 1 << 19)
    assert tracker._native.anomalies() == (0, "")


def test_program_makes_the_same_allocations_in_the_same_order() -> None:
    def log(tracker: Any) -> list[tuple[int, int]]:
        torch.manual_seed(0)
        model, x = mlp(), torch.ones(8, 32)
        model(x).sum().backward()
        model.zero_grad()
        with counting(log=True) as allocator:
            allocator.restart()
            if tracker is None:
                model(x).sum().backward()
            else:
                with tracker:
                    model(x).sum().backward()
            return allocator.log()

    assert log(None) == log(MemTracker(allocator=True))
