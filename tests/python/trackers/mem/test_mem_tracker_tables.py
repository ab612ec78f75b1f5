# SPDX-License-Identifier: BSD-3-Clause
"""Printed text equals upstream's, byte for byte, for the same snapshots."""

from __future__ import annotations

import builtins
import contextlib
import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import tidegauge.mem_tracker as ours
import torch
import torch.distributed._tools.mem_tracker as upstream
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

UNITS = ["B", "KiB", "MiB", "GiB"]
BAD_UNITS = ["kB", "MB", "b", ""]

#: Bytes of each device by category, in the order of the enum.
Sizes = dict[str, list[int]]


def snapshot_of(tool: ModuleType, sizes: Sizes) -> dict[torch.device, dict[str, int]]:
    return {
        torch.device(device): {**dict(zip(tool._MemRefType, row, strict=True)), "Total": sum(row)}
        for device, row in sizes.items()
    }


def states_of(tool: ModuleType, states: dict[str, list[Sizes]]) -> dict[Any, list[Any]]:
    return {
        tool._ModState[name]: [snapshot_of(tool, sizes) for sizes in calls]
        for name, calls in states.items()
    }


def outcome(body: Callable[[], Any]) -> tuple[str, str]:
    """The printed text, and the error that ended it."""
    text = io.StringIO()
    error = ""
    with contextlib.redirect_stdout(text):
        try:
            body()
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}, caused by {raised.__cause__!r}"
    return text.getvalue(), error


def assert_same(body: Callable[[ModuleType], Any]) -> tuple[str, str]:
    mine = outcome(lambda: body(ours))
    assert mine == outcome(lambda: body(upstream))
    return mine


# Sizes near those where rounding to two digits changes the result, or a device disappears.
sizes = st.one_of(st.integers(0, 2**12), st.integers(0, 2**34), st.just(0))
snapshots = st.dictionaries(
    st.sampled_from(["cpu", "meta", "cuda:0", "cuda:11", "xpu:1"]),
    st.lists(sizes, min_size=7, max_size=7),
    max_size=3,
)
states = st.dictionaries(
    st.sampled_from([state.name for state in ours._ModState]),
    st.lists(snapshots, max_size=3),
    max_size=4,
)


@given(snapshots, st.sampled_from(UNITS + BAD_UNITS))
def test_any_snapshot_is_printed_as_by_upstream(sizes: Sizes, units: str) -> None:
    assert_same(lambda tool: tool._print_snapshot(snapshot_of(tool, sizes), units))
    assert_same(lambda tool: tool._print_snapshot_tabular(snapshot_of(tool, sizes), units))


@given(states, st.sampled_from(UNITS + BAD_UNITS))
def test_any_snapshots_of_a_module_are_printed_as_by_upstream(
    states: dict[str, list[Sizes]], units: str
) -> None:
    assert_same(lambda tool: tool._print_state_snapshots(states_of(tool, states), units))
    assert_same(lambda tool: tool._print_state_snapshots_tabular(states_of(tool, states), units))


@given(st.integers(0, 2**50), st.sampled_from(UNITS), st.integers(0, 4))
def test_any_size_is_rounded_as_by_upstream(value: int, units: str, precision: int) -> None:
    divisor = ours._get_mem_divisor(units)
    assert divisor == upstream._get_mem_divisor(units)
    mine = ours._rounding_fn(value, divisor, precision)
    theirs = upstream._rounding_fn(value, divisor, precision)
    assert (mine, type(mine)) == (theirs, type(theirs))


ONE = {"cpu": [16640, 0, 0, 1024, 0, 49928, 0]}


def test_plain_snapshot_with_known_numbers() -> None:
    text, _ = assert_same(lambda tool: tool._print_snapshot(snapshot_of(tool, ONE), "KiB"))
    assert text.splitlines() == [
        "Device: cpu",
        "\tParameter: 16.25 KiB",
        "\tBuffer: 0.0 KiB",
        "\tGradient: 0.0 KiB",
        "\tActivation: 1.0 KiB",
        "\tTemp: 0.0 KiB",
        "\tOptstate: 48.76 KiB",
        "\tOther: 0.0 KiB",
        "\tTotal: 66.01 KiB",
    ]


def test_table_with_known_numbers() -> None:
    text, _ = assert_same(lambda tool: tool._print_snapshot_tabular(snapshot_of(tool, ONE), "B"))
    rule, headers, _, row, _ = text.splitlines()
    assert set(rule) == {"=", " "}
    assert headers.split() == ["Device", *(kind.value for kind in ours._MemRefType), "Total"]
    assert row.split("  ")[0] == "cpu"


def test_table_has_state_and_call_once_for_all_devices() -> None:
    two = {"cpu": [1] * 7, "meta": [2] * 7}
    states = {"PEAK_FW": [two, two], "PRE_FW": [{}, two]}
    text, _ = assert_same(
        lambda tool: tool._print_state_snapshots_tabular(states_of(tool, states), "B")
    )
    assert [line[:16].strip() for line in text.splitlines()[3:-1]] == [
        *("Peak-Forward # 1", ".."),  # rst's mark for an empty first column
        *("Peak-Forward # 2", ".."),
        *("Pre-Forward # 2", ".."),
    ]


@pytest.mark.parametrize("function", ["_print_snapshot", "_print_snapshot_tabular"])
def test_empty_snapshot_is_reported_before_units_are_checked(function: str) -> None:
    assert assert_same(lambda tool: getattr(tool, function)({}, "kB")) == (
        "No memory tracked.\n",
        "",
    )


def test_sizes_that_round_to_zero_are_not_printed() -> None:
    tiny = {"cpu": [1, 0, 0, 0, 0, 0, 0]}
    text, _ = assert_same(lambda tool: tool._print_snapshot(snapshot_of(tool, tiny), "GiB"))
    assert text == ""
    text, _ = assert_same(lambda tool: tool._print_snapshot_tabular(snapshot_of(tool, tiny), "GiB"))
    assert len(text.splitlines()) == 4  # the header within its rules
    states = {"PRE_FW": [tiny]}
    text, _ = assert_same(
        lambda tool: tool._print_state_snapshots_tabular(states_of(tool, states), "GiB")
    )
    assert text == "\n"


@pytest.mark.parametrize("units", BAD_UNITS)
def test_unknown_units_are_refused(units: str) -> None:
    _, error = assert_same(lambda tool: tool._get_mem_divisor(units))
    assert error == (
        f"ValueError: Unsupported unit: {units}. Supported units are: B, KiB, MiB, GiB, "
        "caused by None"
    )


def scenario_two_roots(tracker: Any) -> list[nn.Module]:
    """Names that sort differently as text: "10" before "9", upper case before lower case."""
    modules: list[nn.Module] = [
        nn.Sequential(*(nn.Identity() for _ in range(11))),
        nn.Linear(300, 4),
        nn.ReLU(),
    ]
    with tracker, torch.no_grad():
        for module in modules:
            module(torch.ones(2, 300))
    return modules


def shown(tool: ModuleType, display: Callable[[Any], None]) -> tuple[str, str]:
    tracker = tool.MemTracker()
    keep = scenario_two_roots(tracker)
    result = outcome(lambda: display(tracker))
    assert keep
    return result


@pytest.mark.parametrize("tabulate", [False, True])
@pytest.mark.parametrize("units", [*UNITS, "MB"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_modulewise_display_of_a_run(depth: int, units: str, tabulate: bool) -> None:
    def display(tracker: Any) -> None:
        tracker.display_modulewise_snapshots(depth, units, tabulate)

    text, error = shown(ours, display)
    assert (text, error) == shown(upstream, display)
    assert ("Module:  " in text) == (depth > 0)
    if units == "MB" and depth > 0:  # the error comes after the first line
        assert text.startswith("Module:  Linear\n")
        assert error.startswith("ValueError: Unsupported unit: MB")


def test_modulewise_display_sorts_numbers_by_value() -> None:
    text, _ = shown(ours, lambda tracker: tracker.display_modulewise_snapshots())
    names = [line.split()[1] for line in text.splitlines() if line.startswith("Module:")]
    children = [f"Sequential.{index}" for index in range(11)]
    assert names == ["Linear", "ReLU", "Sequential", *children]


@pytest.mark.parametrize("tabulate", [False, True])
@pytest.mark.parametrize("units", [*UNITS, "MB"])
@pytest.mark.parametrize("type_", ["current", "peak", "foo"])
def test_display_of_a_run(type_: str, units: str, tabulate: bool) -> None:
    def display(tracker: Any) -> None:
        tracker.display_snapshot(type_, units, tabulate)

    assert shown(ours, display) == shown(upstream, display)


def test_defaults_of_display() -> None:
    for display in (
        lambda tracker: tracker.display_snapshot(),
        lambda tracker: tracker.display_modulewise_snapshots(),
    ):
        assert shown(ours, display) == shown(upstream, display)


@pytest.mark.parametrize("tabulate", [False, True])
def test_tracker_that_was_never_entered_displays_nothing(tabulate: bool) -> None:
    text, _ = assert_same(lambda tool: tool.MemTracker().display_snapshot(tabulate=tabulate))
    assert text == "No memory tracked.\n"
    text, _ = assert_same(
        lambda tool: tool.MemTracker().display_modulewise_snapshots(tabulate=tabulate)
    )
    assert text == ""


@pytest.mark.parametrize("units", ["B", "kB"])
def test_missing_tabulate_is_reported(units: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import_module = builtins.__import__

    def no_tabulate(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "tabulate":
            raise ImportError("No module named 'tabulate'")
        return import_module(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_tabulate)
    _, error = assert_same(lambda tool: tool._print_snapshot_tabular(snapshot_of(tool, ONE), units))
    assert error.startswith("ImportError: Please install tabulate to use the tabulate option.")
    assert "No module named 'tabulate'" in error
    assert_same(lambda tool: tool._print_state_snapshots_tabular({}, units))
    assert_same(lambda tool: tool._print_snapshot_tabular({}, units))

    def display(tracker: Any) -> None:
        tracker.display_modulewise_snapshots(units=units, tabulate=True)

    assert shown(ours, display) == shown(upstream, display)
    assert shown(ours, display)[0] == "Module:  Linear\n"
