# SPDX-License-Identifier: BSD-3-Clause
"""Modules that are nested thousands of times: linear time and memory, and the same figures."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sealing import edit_trace
from tidegauge import MemTracker, ModTracker
from tidegauge.cli.main import main
from tidegauge.report import read_summary
from torch import nn

GOLDEN = Path(__file__).parents[3] / "golden"


class Nest(nn.Module):
    def __init__(self, inner: nn.Module | None) -> None:
        super().__init__()
        self.inner = inner
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.inner is None else self.inner(x)


def nest(depth: int) -> Nest:
    model = Nest(None)
    for _ in range(depth - 1):
        model = Nest(model)
    return model


def run_deep(body: Callable[[], Any]) -> Any:
    """Runs `body` in a thread whose stack is large enough for deep recursion."""
    results: list[Any] = []
    limit, size = sys.getrecursionlimit(), threading.stack_size(1 << 29)
    sys.setrecursionlimit(1_000_000)
    try:
        thread = threading.Thread(target=lambda: results.append(body()))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    return results[0]


def measure(depth: int, record: Path | None) -> tuple[float, int]:
    """The CPU time of a forward under a tracker, and the bytes that the tracker uses."""
    model = nest(depth)

    def run() -> tuple[float, int]:
        tracker = MemTracker() if record is None else MemTracker(record=record)
        begin = time.thread_time()
        with tracker:
            model(torch.ones(1))
        return time.thread_time() - begin, tracker._native.footprint_bytes

    result: tuple[float, int] = run_deep(run)
    return result


@pytest.mark.parametrize("is_recorded", [False, True])
def test_time_grows_linearly_with_the_depth(is_recorded: bool, tmp_path: Path) -> None:
    measure(100, tmp_path / "warm.tide" if is_recorded else None)
    paths = [tmp_path / f"{i}.tide" if is_recorded else None for i in range(2)]
    small, _ = measure(1000, paths[0])
    large, _ = measure(4000, paths[1])
    assert large < 8 * small  # 16 times if it were quadratic
    if paths[1] is not None:
        assert paths[1].stat().st_size < 16 * 2**20


def test_nested_modules_have_the_sizes_of_all_below() -> None:
    model = nest(300)

    def run() -> list[tuple[int, int]]:
        tracker = MemTracker()
        with tracker:
            model(torch.ones(1))
        stats = tracker.memory_tracking
        return [
            (stats[each].parameter_mem, stats[each].buffer_mem)
            for each in model.modules()
            if isinstance(each, Nest)
        ]

    assert run_deep(run) == [(16 * below, 8 * below) for below in range(300, 0, -1)]


def test_parameters_exchanged_during_the_forward_count() -> None:
    """The sizes of a module are those at its own call, not at that of the root."""

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Sequential(nn.Linear(4, 4, bias=False)))

        def forward(self, x: torch.Tensor) -> Any:
            self.body[0][0]._parameters["weight"] = nn.Parameter(torch.ones(4, 4).double())
            return self.body(x.double())

    model = Root()
    with MemTracker() as tracker:
        model(torch.ones(2, 4))
    stats = tracker.memory_tracking
    assert stats[model].parameter_mem == 64
    assert stats[model.body].parameter_mem == 128
    assert stats[model.body[0]].parameter_mem == 128


def test_parameters_resized_during_the_forward_count() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Identity())

        def forward(self, x: torch.Tensor) -> Any:
            self.body[0].weight.untyped_storage().resize_(128)
            return self.body(x)

    model = Root()
    with MemTracker() as tracker:
        model(torch.ones(2, 4))
    assert tracker.memory_tracking[model].parameter_mem == 64
    assert tracker.memory_tracking[model.body].parameter_mem == 128


def test_names_of_nested_modules_are_complete() -> None:
    model = nest(500)

    def run() -> str | None:
        with ModTracker() as tracker:
            model(torch.ones(1))
            deepest = list(model.modules())[-1]
            return tracker.get_known_fqn(deepest)

    assert run_deep(run) == "Nest" + ".inner" * 499


def test_many_roots_of_one_class_get_numbers_in_linear_time() -> None:
    roots = [nn.Identity() for _ in range(5000)]
    x = torch.ones(1)
    with ModTracker() as tracker:
        begin = time.thread_time()
        for root in roots[:1000]:
            root(x)
        small = time.thread_time() - begin
        for root in roots[1000:]:
            root(x)
        assert time.thread_time() - begin < 15 * small  # 25 times if it were quadratic
        assert tracker.get_known_fqn(roots[-1]) == "Identity#5000"
        del root, roots[6]
        last = nn.Identity()
        last(x)
        assert tracker.get_known_fqn(last) == "Identity#7"  # free again


def test_report_of_very_deep_names_is_quick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "run.tide"
    trace.write_bytes((GOLDEN / "traces" / "format_1.2_plain.tide").read_bytes())
    with edit_trace(trace) as database:
        database.execute("UPDATE modules SET name = ?", ("Net" + ".x" * 20_000,))
    begin = time.process_time()
    assert main(["report", str(trace)]) == 0
    assert main(["export", str(trace), "--to", "flamegraph"]) == 0
    assert time.process_time() - begin < 5
    names = {module.name for peak in read_summary(trace).peaks for module in peak.modules}
    assert max(map(len, names)) < 400
