# SPDX-License-Identifier: BSD-3-Clause
"""Modules that are nested thousands of times: linear time and memory, and the same figures."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
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


def footprint_bytes(model: nn.Module, record: Path | None) -> int:
    """The bytes that a tracker uses after a forward."""

    def run() -> int:
        tracker = MemTracker() if record is None else MemTracker(record=record)
        with tracker:
            model(torch.ones(1))
        assert tracker._native.failures() == (0, "")
        return tracker._native.footprint_bytes

    result: int = run_deep(run)
    return result


@pytest.mark.parametrize("is_recorded", [False, True])
def test_memory_grows_linearly_with_the_depth(is_recorded: bool, tmp_path: Path) -> None:
    """tests/track/test_nested_modules.cpp counts the visits of modules."""
    paths = [tmp_path / f"{i}.tide" if is_recorded else None for i in range(2)]
    small = footprint_bytes(nest(2500), paths[0])
    large = footprint_bytes(nest(10_000), paths[1])
    assert large < 6 * small  # 16 times if it were quadratic
    assert large < 32 * 2**20
    if paths[0] is not None and paths[1] is not None:
        # Names of deeper modules are longer, up to 128 parts.
        assert paths[1].stat().st_size < 8 * paths[0].stat().st_size


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


def sizes_by_definition(module: nn.Module) -> tuple[int, int]:
    """The bytes of the parameters and of the buffers, each storage once."""

    def total(tensors: Iterable[torch.Tensor]) -> int:
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
        return sum(storage.nbytes() for storage in storages.values())

    return total(module.parameters()), total(module.buffers())


def exchange_parameter(module: Nest) -> None:
    module._parameters["weight"] = nn.Parameter(torch.ones(64))


def exchange_data(module: Nest) -> None:
    module.weight.data = torch.ones(32)


def resize(module: Nest) -> None:
    module.weight.untyped_storage().resize_(4096)


def exchange_buffer(module: Nest) -> None:
    module.scale = torch.ones(128)


def add_parameter(module: Nest) -> None:
    module.bias = nn.Parameter(torch.ones(256))


def add_module(module: Nest) -> None:
    module.added = nn.Linear(4, 4)


def remove_modules_below(module: Nest) -> None:
    module.inner = None


def skip_module(module: Nest) -> None:
    """A module that the walk knows becomes a child of another one."""
    module.inner = module.inner.inner if module.inner else None


CHANGES = [
    exchange_parameter,
    exchange_data,
    resize,
    exchange_buffer,
    add_parameter,
    add_module,
    remove_modules_below,
    skip_module,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("distance", [1, 2, 63, 64, 65, 100, 150])
def test_change_far_below_counts_from_the_next_call_on(
    change: Callable[[Nest], None], distance: int
) -> None:
    """The sizes of a module are those at its own call, not at that of the root."""
    model = nest(300)
    chain = [each for each in model.modules() if isinstance(each, Nest)]
    expected: dict[nn.Module, tuple[int, int]] = {model: sizes_by_definition(model)}

    def change_and_check(caller: nn.Module, inputs: object) -> None:
        index = chain.index(caller)  # type: ignore[arg-type]
        if index == 100:
            change(chain[100 + distance])
        if caller.inner is not None:
            # Until here, the sizes are equal: only a few modules are asked.
            expected[caller.inner] = sizes_by_definition(caller.inner)

    for each in chain[99:110]:
        each.register_forward_pre_hook(change_and_check)

    def run() -> dict[nn.Module, tuple[int, int]]:
        tracker = MemTracker()
        with tracker:
            model(torch.ones(1))
        assert tracker._native.failures() == (0, "")
        stats = tracker.memory_tracking
        return {
            each: (stats[each].parameter_mem, stats[each].buffer_mem)
            for each in expected
            if each in stats
        }

    found = run_deep(run)
    assert found == {each: sizes for each, sizes in expected.items() if each in found}
    assert len(found) > 2


def test_tensors_exchanged_for_one_call_count_in_that_call() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*[nn.Linear(1, 1, bias=False) for _ in range(100)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = {"99.weight": torch.ones(1024, 1)}
            torch.func.functional_call(self.layers, wide, x)
            return x

    model = Root()
    with MemTracker() as tracker:
        model(torch.ones(1))
    assert tracker.memory_tracking[model].parameter_mem == 400
    assert tracker.memory_tracking[model.layers].parameter_mem == 396 + 4096


def test_change_that_could_not_be_seen_is_reported() -> None:
    """Thousands of nested modules are not compared with each other; see module_labels.cpp."""
    model = nest(4000)
    chain = [model]
    while chain[-1].inner is not None:
        chain.append(chain[-1].inner)  # type: ignore[arg-type]
    chain[3000].register_forward_pre_hook(lambda *_: exchange_parameter(chain[3500]))

    def run() -> tuple[int, str, int]:
        tracker = MemTracker()
        with tracker:
            model(torch.ones(1))
        native = tracker._native
        size = tracker.memory_tracking[chain[3500]].parameter_mem
        return (*native.failures(), size)

    count, first, size = run_deep(run)
    assert count == 1
    assert first.startswith("the sizes of nested modules: tensors were exchanged")
    assert size == 500 * 16 - 16 + 256


def test_modules_that_share_modules_have_names_and_sizes_in_bounded_time() -> None:
    """A path to each module, not each path: here there are 2 to the power of 60."""

    class Fork(nn.Module):
        def __init__(self, below: nn.Module) -> None:
            super().__init__()
            self.left = nn.Sequential(below)
            self.right = nn.Sequential(below)

        def forward(self, x: torch.Tensor) -> Any:
            return self.left(x)

    model: nn.Module = nn.Linear(1, 1, bias=False)
    for _ in range(60):
        model = Fork(model)
    with MemTracker() as tracker:
        model(torch.ones(1))
    sizes = [stats.parameter_mem for stats in tracker.memory_tracking.values()]
    assert sizes == [4] * 121


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


class Call(nn.Module):
    """Calls a module that it does not register."""

    def __init__(self, inner: Call | None) -> None:
        super().__init__()
        self.inner = [inner]

    def forward(self, x: torch.Tensor) -> Any:
        (inner,) = self.inner
        return x * 2 if inner is None else inner(x)


def test_unregistered_modules_that_call_each_other_get_names_in_linear_time() -> None:
    def first_seconds(depth: int) -> float:
        model = Call(None)
        for _ in range(depth - 1):
            model = Call(model)

        def run() -> float:
            with ModTracker() as tracker:
                begin = time.thread_time()
                model(torch.ones(1))
                seconds = time.thread_time() - begin
                assert tracker.get_known_fqn(model) == "Call"
            return seconds

        result: float = run_deep(run)
        return result

    small = min(first_seconds(2500) for _ in range(3))
    assert first_seconds(10_000) < 9 * small  # 16 times if it were quadratic


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
