# SPDX-License-Identifier: BSD-3-Clause
"""The memory after each operator, beside upstream's class with the same source of figures."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tidegauge
import torch
from tidegauge.memory_tracker import MemoryTracker
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.memory_tracker import MemoryTracker as Upstream

MIB = 2**20


def make_model(device: str = "cpu") -> nn.Module:
    """A MiB of weights in each layer."""
    layers = [nn.Linear(512, 512, bias=False, device=device) for _ in range(2)]
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


def run(tracker: Any, model: nn.Module, device: str = "cpu") -> None:
    x = torch.ones(1024, 512, device=device)
    tracker.start_monitor(model)
    model(x).sum().backward()
    model.zero_grad()
    tracker.stop()


def summary(tracker: Any, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    tracker.summary()
    return capsys.readouterr().out


@pytest.fixture
def ours() -> MemoryTracker:
    tracker = MemoryTracker()
    run(tracker, make_model())
    return tracker


def upstream() -> Upstream:
    """Upstream's class has no figures of the CPU, so it gets others."""
    tracker = Upstream()
    tracker._device_module = SimpleNamespace(  # type: ignore[attr-defined]
        memory_allocated=lambda: MIB,
        memory_reserved=lambda: 2 * MIB,
        memory_stats=lambda: {"active_bytes.all.current": MIB, "num_alloc_retries": 0},
        empty_cache=lambda: None,
    )
    run(tracker, make_model())
    return tracker


def test_each_operator_has_its_memory(ours: MemoryTracker) -> None:
    """2 MiB of weights and 2 MiB for each result; the input was made before."""
    names, sizes = zip(*ours.memories_allocated.values(), strict=True)
    forward = [place for place, name in enumerate(names) if ".forward." in name]
    assert [names[place] for place in forward] == [
        "0.forward.t.default_0",
        "0.forward.mm.default_0",
        "1.forward.relu.default_0",
        "2.forward.t.default_1",
        "2.forward.mm.default_1",
    ]
    # The result of the first product is freed after the ReLU.
    assert [sizes[place] for place in forward] == [2.0, 4.0, 6.0, 4.0, 6.0]
    assert ours.memories_active == ours.memories_reserved == ours.memories_allocated


def test_operators_and_markers_are_those_of_upstream(ours: MemoryTracker) -> None:
    theirs = upstream()
    count = ours._op_index
    assert count == theirs._op_index == len(ours.memories_allocated)
    assert ours._markers == theirs._markers == {"fw_start": 0, "fw_bw_boundary": 5}
    kinds = [name.split(".")[-2:] for name, _ in ours.memories_allocated.values()]
    assert kinds == [name.split(".")[-2:] for name, _ in theirs.memories_allocated.values()]  # type: ignore[str-unpack]


def test_operators_of_backward_name_their_module(ours: MemoryTracker) -> None:
    """Upstream names the module whose forward began last."""
    products = {name.rsplit("_", 1)[1]: name for name, _ in ours.memories_allocated.values()
                if "mm.default" in name}  # fmt: skip
    assert products["2"] == "2.backward.mm.default_2"
    assert products["4"] == "0.backward.mm.default_4"
    theirs = [name for name, _ in upstream().memories_allocated.values()]  # type: ignore[str-unpack]
    assert "2.forward.mm.default_4" in theirs


def test_saved_file_gives_the_same_summary(
    ours: MemoryTracker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours.save_stats(tmp_path / "stats")
    loaded = MemoryTracker()
    loaded.load(tmp_path / "stats")
    assert summary(loaded, capsys) == summary(ours, capsys)
    assert "0.forward.mm.default_0: 2.0MB" in summary(loaded, capsys)
    assert loaded._markers == ours._markers


def test_file_without_a_count_of_operators_is_read(
    ours: MemoryTracker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Older versions of upstream write none, and their summary of a file is empty."""
    theirs = upstream()
    theirs.save_stats(str(tmp_path / "stats"))
    stats = pickle.loads((tmp_path / "stats").read_bytes())
    counts = stats.pop("op_index", None)
    (tmp_path / "stats").write_bytes(pickle.dumps(stats))
    loaded = MemoryTracker()
    loaded.load(tmp_path / "stats")
    assert summary(loaded, capsys) == summary(theirs, capsys)
    if counts is None:
        again = Upstream()
        again.load(str(tmp_path / "stats"))
        assert "MB" not in summary(again, capsys)


def changed_stats(**changes: Any) -> bytes:
    row = {0: ("mm", 1.0)}
    stats: dict[str, Any] = {
        f"memories_{name}": row for name in ("allocated", "active", "reserved")
    }
    return pickle.dumps({**stats, "markers": {}, "num_alloc_retries": 0, "op_index": 1, **changes})


def endless_keys() -> bytes:
    """A tuple of the one before twice, 40 times, as a key: its hash takes 2^40 steps."""
    return b"\x80\x04})" + b"2\x86" * 40 + b"Ns."


def colliding_keys() -> bytes:
    """Numbers that all have the hash 0: n of them take n^2 steps."""
    keys = (i * (2**61 - 1) for i in range(1, 120_000))
    rows = (b"\x8a\x0a" + key.to_bytes(10, "little") + b"N" for key in keys)
    return b"\x80\x04}(" + b"".join(rows) + b"u."


OTHER_FILES = {
    "empty": b"",
    "text": b"text",
    "list": pickle.dumps([1]),
    "dictionary": pickle.dumps({}),
    "object": pickle.dumps(Path("x")),
    "call": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
    "factory": pickle.dumps(defaultdict(list)),
    "endless keys": endless_keys(),
    "colliding keys": colliding_keys(),
    "row": changed_stats(memories_active={0: "mm"}),
    "name": changed_stats(memories_active={0: (1, 1.0)}),
    "size": changed_stats(memories_active={0: ("mm", 10**400)}),
    "count": changed_stats(op_index=1 << 62),
    "retries": changed_stats(num_alloc_retries=10**5000),
    "marker": changed_stats(markers={"fw_start": "x"}),
    "markers": changed_stats(markers=[1]),
}


def test_file_to_change_is_valid(tmp_path: Path, ours: MemoryTracker) -> None:
    (tmp_path / "stats").write_bytes(
        changed_stats(memories_active=defaultdict(None, {0: ("a", 2)}))
    )
    ours.load(tmp_path / "stats")
    assert ours.memories_active == {0: ("a", 2.0)}


@pytest.mark.parametrize("content", OTHER_FILES.values(), ids=OTHER_FILES)
def test_other_file_is_refused(content: bytes, tmp_path: Path, ours: MemoryTracker) -> None:
    (tmp_path / "stats").write_bytes(content)
    before = dict(ours.memories_allocated)
    begin = time.perf_counter()
    with pytest.raises(
        tidegauge.FormatError, match="is not a file that `save_stats` wrote"
    ) as error:
        ours.load(tmp_path / "stats")
    assert time.perf_counter() - begin < 10
    assert len(str(error.value).replace(str(tmp_path), "")) < 400
    assert ours.memories_allocated == before


def test_files_without_an_end_are_refused(tmp_path: Path, ours: MemoryTracker) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(tidegauge.FormatError, match="is not a regular file"):
            ours.load(path)


@pytest.mark.parametrize(
    ("mode", "device"),
    [(FakeTensorMode, "cpu"), (lambda: tidegauge.simulate(device="cuda"), "cuda")],
    ids=["fake", "simulated"],
)
def test_fake_and_simulated_tensors_have_the_figures_of_real_ones(
    mode: Callable[[], Any], device: str, ours: MemoryTracker
) -> None:
    tracker = MemoryTracker()
    with mode():
        run(tracker, make_model(device), device)
    figures = [size for _, size in tracker.memories_allocated.values()]
    assert figures == [size for _, size in ours.memories_allocated.values()]


def test_model_and_modes_are_as_before() -> None:
    model, tracker = make_model(), MemoryTracker()
    before = [dict(vars(module)) for module in model.modules()]
    modes = torch._C._len_torch_dispatch_stack()
    tracker.start_monitor(model)
    with pytest.raises(RuntimeError):
        model(torch.ones(3, 5))
    with pytest.raises(AssertionError, match="call `stop` in between"):
        tracker.start_monitor(model)
    tracker.stop()
    assert [dict(vars(module)) for module in model.modules()] == before
    assert torch._C._len_torch_dispatch_stack() == modes
    with pytest.raises(AssertionError, match="without `start_monitor`"):
        tracker.stop()
    count = tracker._op_index
    model(torch.ones(3, 512))
    assert tracker._op_index == count


def test_summary_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Top 20 ops" in summary(MemoryTracker(), capsys)
    with pytest.raises(KeyError):
        Upstream().summary()


def test_plot_has_a_line_for_each_series_and_marker(
    ours: MemoryTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels: list[str] = []
    fake = SimpleNamespace(
        plot=lambda *_, label, **__: labels.append(label),
        **{name: lambda *_: None for name in ("figure", "xlabel", "ylabel", "legend")},
    )
    monkeypatch.setitem(sys.modules, "matplotlib", SimpleNamespace(pyplot=fake))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", fake)
    ours.show_traces()
    assert labels.count("allocated_memory") == 2
    assert labels.count("fw_bw_boundary") == 4
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        ours.show_traces()
