# SPDX-License-Identifier: BSD-3-Clause
"""Prints what ops of a module take and keep, with the columns of upstream."""

from __future__ import annotations

from importlib import import_module

from tidegauge.planning.sac_stats import SACGreedyOrderMeta, SACStats
from tidegauge.planning.tradeoff import list_discards


def print_stats(stats: SACStats, as_table: bool) -> None:
    print(
        f"Total Memory: {sum(stats.memory)} B Total Runtime: {sum(stats.runtimes)} ms"
        f" Store Random: {stats.force_store_random}"
    )
    parents = dict(stats.inplace_ops)
    rows = [
        [
            str(op),
            name,
            f"{stats.runtimes[op]:.4f}",
            str(stats.memory[op]),
            str(op in stats.view_like_ops),
            str(op in stats.rand_ops),
            str(op in stats.saved_autograd_ops),
            str(parents.get(op)),
        ]
        for op, name in enumerate(stats.func_names)
    ]
    headers = ["Op Idx", "Op Name", "Runtimes(ms)", "Memory (B)", "View-like", "Random"]
    _print_rows([*headers, "Saved Autograd", "In-place"], rows, as_table)


def print_tradeoff(order: SACGreedyOrderMeta, stats: SACStats, as_table: bool) -> None:
    memory, runtime = sum(stats.memory) or 1, sum(stats.runtimes) or 1.0
    views, stored = len(order.recomputed_ops), len(order.stored_ops)
    discards = list_discards(order)
    rows, size, time = [], 0, 0.0
    for place, (ops, candidate) in enumerate(discards):
        size += sum(stats.memory[op] for op in ops)
        time += sum(stats.runtimes[op] for op in ops)
        rows.append(
            [
                str(ops),
                str({stats.func_names[op] for op in sorted(ops)}),
                f"{size / memory:.4f}",
                str(size),
                f"{time / runtime:.4f}",
                str(time),
                "nan" if candidate is None else f"{candidate.msps:.2e}",
                str(place >= len(discards) - stored),
                str(place < views),
            ]
        )
    headers = ["Op Id(s)", "Op Name(s)", "Discarded Mem (%)", "Discarded Mem (B)"]
    headers += ["Recomp time (%)", "Recomp time (ms)", "MSPS", "Always Stored", "Always Recomputed"]
    _print_rows(headers, rows, as_table)


def _print_rows(headers: list[str], rows: list[list[str]], as_table: bool) -> None:
    if as_table:
        try:
            tabulate = import_module("tabulate").tabulate
        except ImportError as error:
            raise ImportError("Please install tabulate: run `pip install tabulate`") from error
        print(tabulate(rows, headers=headers, tablefmt="rst"))
        return
    lines = [headers, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("\t".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)))
