# SPDX-License-Identifier: BSD-3-Clause
"""Snapshots as text, exactly as torch.distributed._tools prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tidegauge._core import BYTE_UNITS

if TYPE_CHECKING:
    import torch

#: {device: {category: bytes}}; a category is an enum member, and "Total" comes last.
Snapshot: TypeAlias = "dict[torch.device, dict[str, int]]"
TOTAL_KEY = "Total"

# Up to GiB and with torch's rounding, not that of `_util.formatting`: torch prints it so.
_DIVISORS = dict(list(BYTE_UNITS.items())[:4])


def find_divisor(units: str) -> int:
    """The bytes in one of `units`. Raises ValueError for an unknown unit."""
    if units not in _DIVISORS:
        raise ValueError(f"Unsupported unit: {units}. Supported units are: {', '.join(_DIVISORS)}")
    return _DIVISORS[units]


def round_bytes(value: int, divisor: int, precision: int) -> float | int:
    return value if divisor == 1 else round(value / divisor, precision)


def print_snapshot(snapshot: Snapshot, units: str) -> None:
    if not snapshot:
        print("No memory tracked.")
        return
    for device, sizes in _visible_devices(snapshot, units):
        print(f"Device: {device}")
        for text, size in sizes.items():
            print(f"\t{text}: {size}")


def print_snapshot_table(snapshot: Snapshot, units: str) -> None:
    if not snapshot:
        print("No memory tracked.")
        return
    tabulate = _import_tabulate()
    rows = [[device, *sizes.values()] for device, sizes in _visible_devices(snapshot, units)]
    headers = ["Device", *map(_text, next(iter(snapshot.values())))]
    print(tabulate(rows, headers=headers, tablefmt="rst"))


def print_states(snapshots: Mapping[Any, Sequence[Snapshot]], units: str) -> None:
    """The snapshots of a module, by state and call."""
    for state, calls in snapshots.items():
        print(_text(state))
        for number, snapshot in enumerate(calls, 1):
            print(f"# {number}:")
            print_snapshot(snapshot, units)
    print()


def print_states_table(snapshots: Mapping[Any, Sequence[Snapshot]], units: str) -> None:
    tabulate = _import_tabulate()
    find_divisor(units)  # an unknown unit is an error even if there is nothing to print
    rows = []
    for state, calls in snapshots.items():
        for number, snapshot in enumerate(calls, 1):
            state_and_call = f"{_text(state)} # {number}"
            for device, sizes in _visible_devices(snapshot, units):
                rows.append({"State & Call": state_and_call, "Device": device, **sizes})
                state_and_call = ""  # only for the first device of the call
    print(tabulate(rows, headers="keys", tablefmt="rst"))


def _visible_devices(snapshot: Snapshot, units: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each device whose total does not round to zero, with its sizes as text."""
    divisor = find_divisor(units)
    for device, sizes in snapshot.items():
        if round_bytes(sizes[TOTAL_KEY], divisor, 2) > 0:
            yield (
                str(device),
                {
                    _text(key): f"{round_bytes(size, divisor, 2)} {units}"
                    for key, size in sizes.items()
                },
            )


def _text(key: Any) -> str:
    return str(key.value if isinstance(key, Enum) else key)


def _import_tabulate() -> Callable[..., str]:
    try:
        from tabulate import tabulate  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError("Please install tabulate to use the tabulate option.") from error
    return cast(Callable[..., str], tabulate)
