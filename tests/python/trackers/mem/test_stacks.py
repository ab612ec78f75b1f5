# SPDX-License-Identifier: BSD-3-Clause
"""Where memory was allocated: running modules, or lines of Python."""

from __future__ import annotations

import inspect
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tidegauge import MemTracker, _core
from torch import nn


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2  # 64 bytes


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.fc = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.fc(self.inner(x)))  # 128 bytes


def record(path: Path, stacks: str) -> dict[tuple[str, int], list[str]]:
    """The frames of the first allocations in a forward and a backward, by operator and bytes."""
    tracker = MemTracker(record=path, stacks=stacks)
    model, x = Outer(), torch.ones(4, 4, requires_grad=True)
    tracker.track_external(model, x)
    with tracker:
        out = model(x)
        gradients = torch.autograd.grad(out.sum(), [x])
    return frames_in(path) | {("kept", len(gradients)): []}


def frames_in(path: Path) -> dict[tuple[str, int], list[str]]:
    reader = _core.Reader(str(path))
    rows: dict[tuple[str, int], list[str]] = {}
    for sequence in range(1, reader.event_count() + 1):
        for row in reader.storages_alive_at(sequence, 1000):
            rows.setdefault((row["op"], row["size_bytes"]), row["stack"].splitlines())
    return rows


def line_of(function: Any, text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    (offset,) = (i for i, line in enumerate(lines) if text in line)
    return f"{__file__}:{first + offset} {function.__qualname__}"


def test_no_stacks_by_default(tmp_path: Path) -> None:
    assert not any(record(tmp_path / "run.tide", "none").values())


def test_module_stacks_list_running_modules_innermost_first(tmp_path: Path) -> None:
    rows = record(tmp_path / "run.tide", "module")
    assert rows["aten::mul.Tensor", 64] == ["Outer.inner", "Outer"]
    assert rows["aten::addmm", 128] == ["Outer.fc", "Outer"]
    assert rows["aten::tanh", 128] == ["Outer"]
    # In the backward: the module whose node ran.
    assert rows["aten::tanh_backward", 128] == ["Outer"]
    assert rows["aten::mm", 64] == ["Outer.fc", "Outer"]
    # A tensor made before tracking has none.
    assert rows["", 128] == []


def test_python_stacks_are_lines_of_the_program(tmp_path: Path) -> None:
    rows = record(tmp_path / "run.tide", "python")
    forward = [line_of(Outer.forward, "torch.tanh"), line_of(record, "out = model(x)")]
    assert rows["aten::mul.Tensor", 64][:3] == [line_of(Inner.forward, "x * 2"), *forward]
    assert rows["aten::addmm", 128][:2] == forward  # nn.Linear is torch's own
    assert rows["aten::tanh", 128][:2] == forward
    # A CPU backward runs in the thread that called it.
    assert rows["aten::mm", 64][0] == line_of(record, "torch.autograd.grad")
    torch_folder = str(Path(torch.__file__).parent)
    assert not [line for frames in rows.values() for line in frames if torch_folder in line]
    assert not [line for frames in rows.values() for line in frames if "/tidegauge/" in line]
    assert rows["", 128] == []


def test_python_stacks_belong_to_the_allocating_thread(tmp_path: Path) -> None:
    def worker() -> None:
        torch.ones(7)

    tracker = MemTracker(record=tmp_path / "run.tide", stacks="python")
    with tracker:
        thread = threading.Thread(target=worker)
        thread.start()
        thread.join()
    (frames,) = [f for (op, size), f in frames_in(tmp_path / "run.tide").items() if size == 28]
    assert frames[0] == line_of(worker, "torch.ones(7)")
    assert not any("test_python_stacks" in line for line in frames[1:])


def test_equal_stacks_share_one_row(tmp_path: Path) -> None:
    import sqlite3

    tracker = MemTracker(record=tmp_path / "run.tide", stacks="python")
    with tracker:
        kept = [torch.ones(5) for _ in range(100)]
    with sqlite3.connect(tmp_path / "run.tide") as database:
        query = "SELECT count(*), count(DISTINCT stack) FROM storages WHERE size_bytes = 20"
        assert database.execute(query).fetchone() == (len(kept), 1)
        assert database.execute("SELECT count(*) FROM stacks").fetchone() == (1,)


def test_stacks_hold_no_tensor_and_no_frame(tmp_path: Path) -> None:
    import weakref

    class Holder:
        pass

    def allocate() -> weakref.ref[Holder]:
        local = Holder()
        torch.ones(3)
        return weakref.ref(local)

    with MemTracker(record=tmp_path / "run.tide", stacks="python") as tracker:
        assert allocate()() is None
        assert tracker.get_tracker_snapshot() == {}


def test_two_trackers_can_have_different_kinds_of_stacks(tmp_path: Path) -> None:
    model = Inner()
    with (
        MemTracker(record=tmp_path / "a.tide", stacks="module"),
        MemTracker(record=tmp_path / "b.tide", stacks="python"),
        MemTracker(record=tmp_path / "c.tide"),
    ):
        model(torch.ones(4, 4))
    key = ("aten::mul.Tensor", 64)
    assert frames_in(tmp_path / "a.tide")[key] == ["Inner"]
    assert frames_in(tmp_path / "b.tide")[key][0] == line_of(Inner.forward, "x * 2")
    assert frames_in(tmp_path / "c.tide")[key] == []


@pytest.mark.parametrize("value", ["full", "", "Python"])
def test_unknown_kind_of_stacks_is_refused_by_name(value: str) -> None:
    message = f'invalid stacks \'{value}\' (expected "none", "module" or "python")'
    with pytest.raises(ValueError, match=re.escape(message)):
        MemTracker(stacks=value)
