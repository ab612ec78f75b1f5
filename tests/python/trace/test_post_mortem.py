# SPDX-License-Identifier: BSD-3-Clause
"""A failed allocation: live storages are reported once, and the exception stays unchanged."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tidegauge import MemTracker, _core
from torch import nn

IMPOSSIBLE = 2**50  # floats: 4 PiB, more than any address space


class Hungry(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.empty(IMPOSSIBLE)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 16, bias=False)
        self.hungry = Hungry()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hungry(self.fc(x))


class HungryInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return torch.empty(IMPOSSIBLE)


def fail(body: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator: can't allocate memory") as caught:
        body()
    return str(caught.value)


def sums(post_mortem: Any, *keys: str) -> dict[Any, int]:
    result: dict[Any, int] = {}
    for row in post_mortem.live:
        key = row[keys[0]] if len(keys) == 1 else tuple(row[key] for key in keys)
        result[key] = result.get(key, 0) + row["size_bytes"]
    return result


@pytest.mark.parametrize("records", [False, True])
def test_report_has_the_live_storages_of_the_moment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], records: bool
) -> None:
    path = tmp_path / "run.tide"
    model = Nested()
    inputs = torch.ones(4, 8)
    tracker = MemTracker(record=path if records else None)
    tracker.track_external(model, inputs)
    with tracker:
        message = fail(lambda: model(inputs))
    post_mortem = tracker.post_mortem()
    assert post_mortem is not None
    assert post_mortem.failed_bytes == 4 * IMPOSSIBLE
    assert (post_mortem.device, post_mortem.op) == ("cpu", "aten::empty.memory_format")
    assert post_mortem.module == "Nested.hungry"
    assert post_mortem.message == message
    # The weight has 8 * 16 floats, the inputs 4 * 8, the output of `fc` 4 * 16.
    assert sums(post_mortem, "category") == {"Parameter": 512, "Other": 128, "Activation": 256}
    assert sums(post_mortem, "module") == {"": 128, "Nested.fc": 512 + 256}
    assert sums(post_mortem, "dtype", "shape", "op") == {
        ("float32", "[16, 8]", ""): 512,
        ("float32", "[4, 8]", ""): 128,
        ("float32", "[4, 16]", "aten::mm"): 256,
    }
    assert post_mortem.live_bytes == 896
    assert capsys.readouterr().err == post_mortem.render()
    if records:
        assert _core.Reader(str(path)).failures() == [post_mortem]


def test_recorded_failure_has_the_moment_of_its_event(tmp_path: Path) -> None:
    with MemTracker(record=tmp_path / "run.tide") as tracker:
        kept = torch.ones(10)
        fail(lambda: torch.empty(IMPOSSIBLE))
        del kept
        torch.ones(20)
    reader = _core.Reader(str(tmp_path / "run.tide"))
    (failure,) = reader.failures()
    assert failure == tracker.post_mortem()
    (row,) = reader.storages_alive_at(failure.sequence, 10)
    assert row["size_bytes"] == 40 == failure.live_bytes
    ((_, split),) = reader.replay(failure.sequence).current()
    assert sum(split) == 40


class Marker:
    pass


def raise_and_describe(make_context: Callable[[], Any]) -> tuple[Any, weakref.ref[Marker]]:
    marker = Marker()
    model = Nested()
    with pytest.raises(RuntimeError) as caught, make_context():
        model(torch.ones(4, 8))
    error = caught.value
    frames = traceback.extract_tb(error.__traceback__)
    names = [frame.name for frame in frames if "_patches.py" not in frame.filename]
    # Our module wrapper calls the same functions as torch's own.
    names = [name for name in names if name != "_wrapped_call_impl"]
    description = (type(error), str(error), error.__cause__, error.__context__, names)
    return description, weakref.ref(marker)


def test_exception_is_unchanged_and_holds_no_tensors() -> None:
    plain, _ = raise_and_describe(nullcontext)
    tracked, marker = raise_and_describe(MemTracker)
    assert tracked == plain
    gc.collect()
    assert marker() is None


def test_memory_of_a_failed_run_is_freed() -> None:
    def run() -> weakref.ref[torch.Tensor]:
        kept = torch.ones(100)
        fail(lambda: kept + torch.empty(IMPOSSIBLE))
        return weakref.ref(kept)

    with MemTracker() as tracker:
        reference = run()
        gc.collect()
        assert reference() is None
        assert tracker.get_tracker_snapshot() == {}
    assert tracker.post_mortem() is not None


def test_failure_in_a_backward_belongs_to_the_module_of_its_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return HungryInBackward.apply(x)  # type: ignore[no-any-return]

    model, x = Model(), torch.ones(6, requires_grad=True)
    with MemTracker() as tracker:
        loss = model(x).sum()
        fail(loss.backward)
    post_mortem = tracker.post_mortem()
    assert post_mortem is not None
    assert post_mortem.module == "Model"
    assert post_mortem.failed_bytes == 4 * IMPOSSIBLE
    assert capsys.readouterr().err.count("tidegauge: out of memory") == 1


def test_failure_in_another_thread_names_its_module() -> None:
    def worker() -> None:
        fail(lambda: Nested()(torch.ones(4, 8)))

    with MemTracker() as tracker:
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
    post_mortem = tracker.post_mortem()
    assert post_mortem is not None
    assert post_mortem.module == "Nested.hungry"


def test_two_trackers_give_one_report_and_one_line_per_later_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outer = MemTracker()
    more = torch.ones(50)
    outer.track_external(more)
    with outer, MemTracker() as inner:
        fail(lambda: torch.empty(IMPOSSIBLE))
        report = capsys.readouterr().err
        fail(lambda: torch.empty(IMPOSSIBLE))
        later = capsys.readouterr().err
    first = outer.post_mortem()
    assert first is not None
    assert inner.post_mortem() is not None
    assert "live memory: 200 B" in report  # from the tracker with the most live bytes
    assert report.count("tidegauge:") == 1
    assert later == report.splitlines(keepends=True)[0]


def test_report_lists_only_live_storages_after_many_frees() -> None:
    with MemTracker(allocator=True) as tracker:
        kept = torch.ones(1, 2, 3, 1, 2, 3, dtype=torch.float64)  # 288 bytes
        early = torch.ones(7)
        for _ in range(20_000):  # more than the capacity of the log of births
            torch.empty(3)
        late = [torch.ones(9) for _ in range(2)]
        fail(lambda: torch.empty(IMPOSSIBLE))
    post_mortem = tracker.post_mortem()
    assert post_mortem is not None
    rows = {(row["shape"], row["storage_count"]): row["size_bytes"] for row in post_mortem.live}
    assert rows == {("[1, 2, 3, 1, 2, 3]", 1): 288, ("[7]", 1): 28, ("[9]", 2): 72}
    assert {row["op"] for row in post_mortem.live} == {"aten::ones"}
    del kept, early, late


def test_sizes_above_32_bits_are_reported_in_full() -> None:
    with MemTracker() as tracker:
        kept = torch.empty(2**32 + 3, 2, dtype=torch.int8, device="meta")
        fail(lambda: torch.empty(IMPOSSIBLE))
    post_mortem = tracker.post_mortem()
    assert post_mortem is not None
    (row,) = post_mortem.live
    assert (row["shape"], row["size_bytes"]) == ("[4294967299, 2]", 2**33 + 6)
    del kept


def test_stacks_show_the_origin_of_the_largest_storages() -> None:
    with MemTracker(stacks="module") as tracker:
        fail(lambda: Nested()(torch.ones(4, 8)))
    post_mortem = tracker.post_mortem()
    assert post_mortem is not None
    (row,) = [row for row in post_mortem.live if row["op"] == "aten::mm"]
    assert row["stack"] == "Nested.fc\nNested"
    assert "Activation: Nested.fc\n" in post_mortem.render()


def test_failed_storage_resize_is_reported() -> None:
    with MemTracker() as tracker:
        tensor = torch.ones(3)
        fail(lambda: tensor.untyped_storage().resize_(IMPOSSIBLE))
    post_mortem = tracker.post_mortem()
    assert post_mortem is not None
    assert (post_mortem.failed_bytes, post_mortem.live_bytes) == (IMPOSSIBLE, 12)


def test_out_of_memory_in_a_custom_operator_is_reported() -> None:
    @torch.library.custom_op("tidegauge_test::hungry", mutates_args=())
    def hungry(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(IMPOSSIBLE)

    with MemTracker() as tracker:
        fail(lambda: hungry(torch.ones(1)))
    post_mortem = tracker.post_mortem()
    assert post_mortem is not None
    assert post_mortem.op == "tidegauge_test::hungry"


def test_other_errors_are_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with MemTracker() as tracker, pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.ones(2, 3) @ torch.ones(4, 5)
    assert tracker.post_mortem() is None
    assert capsys.readouterr().err == ""


def test_process_that_runs_out_of_memory_leaves_report_and_trace(tmp_path: Path) -> None:
    program = (
        "import sys, torch; from tidegauge import MemTracker\n"
        "with MemTracker(record=sys.argv[1]):\n"
        f"    kept = torch.ones(100); torch.empty({IMPOSSIBLE})\n"
    )
    path = tmp_path / "run.tide"
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("tidegauge: out of memory allocating 4096 TiB on cpu\n")
    assert done.stderr.rstrip().endswith("Error code 12 (Cannot allocate memory)")
    (failure,) = _core.Reader(str(path)).failures()
    assert failure.live_bytes == 400
    assert failure.render() in done.stderr
