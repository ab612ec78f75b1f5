# SPDX-License-Identifier: BSD-3-Clause
"""Module statistics of a MemTracker in upstream's layout, and over iterations."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tidegauge.mem_tracker as ours
import torch
import torch.distributed._tools.mem_tracker as upstream
from both_mem_trackers import CPU, assert_same, error_of, layout, mlp, strict, train_step
from models import Checkpointed, Twice, inputs
from torch import nn
from torch.distributed._tools import ilp_utils
from torch.utils.weak import WeakIdKeyDictionary

# Module statistics

MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "called_three_times": Twice,
    "buffers": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    "checkpointed_leaf": lambda: Checkpointed(False, nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_layout_of_statistics(name: str) -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, MODELS[name]())
        kinds = [type(module).__name__ for module in tracker.memory_tracking]
        assert isinstance(tracker.memory_tracking[model], tool._ModMemStats)
        return layout(tracker), list(layout(tracker)), kinds

    assert_same(describe)


def test_module_that_returns_its_input_has_all_states() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        handing_on = nn.Sequential(nn.Identity(), nn.Dropout(0.0))
        model = train_step(tracker, nn.Sequential(nn.Linear(4, 4), handing_on, nn.Linear(4, 4)))
        # In upstream, Post-Backward comes before Pre-Backward.
        assert len(layout(tracker)) == len(list(model.modules()))
        return {name: (sizes, sorted(states)) for name, (sizes, states) in layout(tracker).items()}

    assert_same(describe)


def test_backward_of_a_freed_module_does_not_warn() -> None:
    def lines(tool: ModuleType) -> list[str]:
        tracker = tool.MemTracker()
        with warnings.catch_warnings(record=True) as caught, tracker:
            warnings.simplefilter("always")
            model = nn.Linear(4, 4)
            loss = model(inputs()).sum()
            del model
            gc.collect()
            loss.backward()
        assert len(tracker.memory_tracking) == 0
        return [str(line.message) for line in caught]

    assert lines(upstream) == [
        "Module is None. Skipping PRE_BW hook.",
        "Module is None. Skipping POST_BW hook.",
    ]
    assert lines(ours) == []


def test_layout_of_statistics_with_known_numbers() -> None:
    tracker = ours.MemTracker()
    model = train_step(tracker, Twice())
    stats = tracker.memory_tracking[model.fc]
    assert (stats.parameter_mem, stats.buffer_mem, stats.input_mem, stats.output_mem) == (
        (4 * 4 + 4) * 4,
        0,
        2 * 4 * 4,
        2 * 4 * 4,
    )
    assert [(state.value, len(calls)) for state, calls in stats.snapshots.items()] == [
        ("Peak-Forward", 3),
        ("Pre-Forward", 3),
        ("Post-Forward", 3),
        ("Peak-Backward", 3),
        ("Pre-Backward", 3),
        ("Post-Backward", 3),
    ]
    snapshot = stats.snapshots["Pre-Forward"][0]  # a plain string works as key
    assert snapshot[CPU][upstream._MemRefType.PARAM] == snapshot[CPU]["Parameter"] == 80
    assert type(stats.snapshots) is type(snapshot) is type(stats.local_peak) is dict
    assert type(stats.snapshots["Pre-Forward"]) is list


def test_snapshots_of_a_forward() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), mlp()
        with tracker, torch.no_grad():
            model(inputs())
        return [(vars(stats), list(vars(stats))) for stats in tracker.memory_tracking.values()]

    assert_same(describe)


def test_forward_that_raises_has_no_output_bytes() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), nn.Sequential(nn.Linear(4, 8), nn.Linear(4, 4))
        with pytest.raises(RuntimeError), tracker:
            model(inputs())
        return layout(tracker)

    sizes, states = assert_same(describe)["Sequential"]
    assert sizes["output_mem"] == 0
    assert states == [("PEAK_FW", 1), ("PRE_FW", 1), ("POST_FW", 1)]


class ReturnsNothing(nn.Module):
    def forward(self, x: torch.Tensor) -> None:
        return None


def test_output_of_a_module_that_returns_nothing() -> None:
    def describe(tool: ModuleType) -> int:
        tracker, model = tool.MemTracker(), ReturnsNothing()
        with tracker:
            model(inputs())
        return tracker.memory_tracking[model].output_mem

    assert assert_same(describe) == 0


def test_order_of_states_within_a_checkpointed_module() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, Checkpointed(False))
        assert model
        return {name: states for name, (_, states) in layout(tracker).items()}

    assert_same(describe)


def test_dictionary_and_statistics_may_be_kept() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), mlp()
        tracking = tracker.memory_tracking
        with tracker:
            output = model(inputs())
            stats, snapshots = tracking[model], tracking[model].snapshots
            lists = snapshots[tool._ModState.PRE_FW]
            seen = [list(stats.snapshots)]
            output.sum().backward()
            seen.append(list(stats.snapshots))
        assert tracker.memory_tracking is tracking
        assert tracking[model] is tracking.get(model) is stats
        assert stats.snapshots is snapshots
        assert snapshots[tool._ModState.PRE_FW] is lists
        return seen

    forward, both = assert_same(describe)
    assert (len(forward), len(both)) == (3, 6)


def test_statistics_stay_readable_after_exit() -> None:
    tracker = ours.MemTracker()
    model = train_step(tracker, mlp())
    assert len(tracker.memory_tracking) == 4
    assert tracker.memory_tracking[model].snapshots


def test_entries_are_removed_with_their_modules() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, mlp())
        stats = tracker.memory_tracking[model]
        counts = [len(tracker.memory_tracking)]
        keep = model[0]
        del model
        gc.collect()
        counts.append(len(tracker.memory_tracking))
        assert keep in tracker.memory_tracking
        return counts, list(stats.snapshots), [type(key) for key in tracker.memory_tracking]

    counts, *_ = assert_same(describe)
    assert counts == [4, 1]


def test_entries_may_be_removed_during_an_iteration() -> None:
    tracker = ours.MemTracker()
    models = [nn.Tanh(), nn.ReLU(), nn.GELU()]
    with tracker:
        for model in models:
            model(inputs())
    del model
    seen = []
    for module in tracker.memory_tracking:
        seen.append(type(module).__name__)
        del models[1:], module
        gc.collect()
    assert seen == ["Tanh"]
    assert len(tracker.memory_tracking) == 1


def test_modules_that_compare_equal_have_separate_statistics() -> None:
    class Equal(nn.Module):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    def describe(tool: ModuleType) -> int:
        tracker, models = tool.MemTracker(), [Equal(), Equal()]
        with tracker:
            for model in models:
                model(inputs())
        copied = copy.deepcopy(tracker.memory_tracking)
        assert all(model in copied for model in models)
        return len(copied)

    assert assert_same(describe) == 2


def test_deepcopy_is_plain_and_does_not_change() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, mlp())
        copied = copy.deepcopy(tracker.memory_tracking)
        assert type(copied) is WeakIdKeyDictionary
        by_module = dict(copied)
        stats = by_module.get(model)
        assert type(stats) is tool._ModMemStats
        assert stats is not tracker.memory_tracking[model]
        assert vars(stats) == vars(tracker.memory_tracking[model])
        stats.snapshots.clear()
        assert tracker.memory_tracking[model].snapshots
        tracker.reset_mod_stats()
        return list(layout(SimpleNamespace(memory_tracking=copied)))

    assert_same(describe)


def test_shallow_copy_and_pickle_of_statistics_are_plain() -> None:
    tracker = ours.MemTracker()
    model = train_step(tracker, mlp())
    stats = tracker.memory_tracking[model]
    for copied in (copy.copy(stats), pickle.loads(pickle.dumps(stats))):
        assert type(copied) is ours._ModMemStats
        assert vars(copied) == vars(stats)
    assert isinstance(tracker.memory_tracking.copy(), WeakIdKeyDictionary)


def test_values_written_into_statistics_persist() -> None:
    """torch's test_sac_ilp adds missing values in this way."""

    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), mlp()
        with tracker:
            model(inputs())
        last = {CPU: {"Total": 3}}
        for stats in tracker.memory_tracking.values():
            assert tool._ModState.POST_BW not in stats.snapshots
            stats.snapshots.setdefault(tool._ModState.POST_BW, []).append(copy.deepcopy(last))
            stats.input_mem = 7
        return [
            (stats.input_mem, stats.snapshots[tool._ModState.POST_BW])
            for stats in tracker.memory_tracking.values()
        ]

    assert_same(describe)


def test_reset_clears_statistics_only() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, mlp())
        before = tracker.get_tracker_snapshot(), tracker.get_tracker_snapshot("peak")
        tracking = tracker.memory_tracking
        kept = tracking[model]
        assert tracker.reset_mod_stats() is None
        assert tracker.memory_tracking is tracking
        assert (tracker.get_tracker_snapshot(), tracker.get_tracker_snapshot("peak")) == before
        assert tracker._mod_tracker.get_known_fqn(model) == "Sequential"
        counts = [len(tracking), len(kept.snapshots)]
        train_step(tracker, model)
        assert tracking[model] is not kept
        return [*counts, len(tracking), len(kept.snapshots)], len(tracking[model].snapshots)

    assert assert_same(describe) == ([0, 6, 4, 6], 6)


def test_clearing_the_dictionary_is_a_reset() -> None:
    def describe(tool: ModuleType) -> int:
        tracker, model = strict(tool), mlp()
        with tracker:
            for _ in range(2):
                model(inputs())
                tracker.memory_tracking.clear()
        return len(tracker.memory_tracking)

    assert assert_same(describe) == 0


# Iterations

SECOND_CALL = (
    "NotImplementedError: MemTracker does not support memory tracking for multiple iterative calls."
    " Either use ``reset_mod_stats`` to clear module memory stats for the previous iteration"
    " or file a github issue if you need this feature."
)


def test_strict_refuses_a_second_call_of_a_root() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = strict(tool), mlp()
        with tracker:
            model(inputs())
            error = error_of(lambda: model(inputs()))
            if tool is ours:
                assert tracker._native.anomalies() == (0, "")  # a refused call has no end
            tracker.reset_mod_stats()
            model(inputs())
        return error, layout(tracker)["Sequential"][1], tracker._depth

    error, *_ = assert_same(describe)
    assert error == SECOND_CALL


def test_strict_refuses_a_second_entry_without_reset() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = strict(tool), mlp()
        with tracker:
            model(inputs())

        def again() -> None:
            with tracker:
                model(inputs())

        error = error_of(again)
        tracker.reset_mod_stats()
        again()
        return error, tracker._depth

    error, _ = assert_same(describe)
    assert error == SECOND_CALL


def test_strict_allows_a_child_alone_after_its_root() -> None:
    tracker, model = ours.MemTracker(strict=True), mlp()
    with tracker:
        model(inputs())
        model[0](inputs())
    assert len(tracker.memory_tracking[model[0]].snapshots["Pre-Forward"]) == 2


def test_second_call_of_a_root_begins_an_iteration() -> None:
    tracker, model = ours.MemTracker(), mlp()
    with tracker:
        for _ in range(3):
            model(inputs()).sum().backward()
    once = ours.MemTracker()
    other = train_step(once, mlp())
    assert layout(tracker) == layout(once)
    assert other


def test_peak_continues_over_iterations() -> None:
    tracker, model = ours.MemTracker(), mlp()
    with tracker:
        model(torch.ones(1000, 4))
        peak = tracker._peak_mem
        model(torch.ones(1, 4))
        assert tracker._peak_mem == peak


# Torch's own users of the tracker


def estimators_for(names: list[str]) -> tuple[Any, Any]:
    """Runtimes and trade-offs do not concern memory: just enough for `aggregate_stats`."""
    runtime = SimpleNamespace(
        mod_runtimes={name: {"fw": 1.0, "bw": 2.0} for name in names},
        mod_fw_pre_order=names,
        mod_bw_pre_order=names[::-1],
        mod_fw_post_order=names[::-1],
        mod_bw_post_order=names,
    )
    sac = SimpleNamespace(pwlf_sac_tradeoff_curve=lambda: None, sac_mod_tradeoff_stats={})
    return runtime, sac


def test_ilp_utils_aggregate_the_statistics() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model, x = tool.MemTracker(), mlp(), inputs()
        optimizer = torch.optim.Adam(model.parameters())
        tracker.track_external(model, optimizer, x)
        with tracker:
            for step in range(2):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
        names = [stats.mod_fqn for stats in tracker.memory_tracking.values()]
        info = ilp_utils.aggregate_stats(model, tracker, *estimators_for(names), CPU)
        graph = ilp_utils.parse_module_info(info)
        assert [node["fqn"] for node in graph.nodes] == names
        for stats in info["mod_stats"]:
            # The gradient just computed is Temp in upstream and Gradient in ours.
            del stats["act_grad_per_module"]
        return info

    info = assert_same(describe)
    assert [stats["fqn"] for stats in info["mod_stats"]] == [
        "Sequential",
        *(f"Sequential.{index}" for index in range(3)),
    ]
