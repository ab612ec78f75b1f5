# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge replay FILE`: simulates the device allocator for a recorded run.

A snapshot is compared with the simulation; a trace gives an estimate for a device.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

from tidegauge import _core
from tidegauge.cli.common import (
    EXIT_DOES_NOT_FIT,
    EXIT_DONE,
    UsageError,
    add_alloc_conf,
    add_assume,
    add_device,
    add_output,
    read_device,
    render_bytes,
    write_result,
)
from tidegauge.report.text import wrap

if TYPE_CHECKING:
    from tidegauge.allocator import DeviceReplay, RunFigures

NAME = "replay"
HELP = "simulate the device allocator for a recorded run, with the same or other settings"
EXAMPLES = """\
  tidegauge replay snapshot.pickle
  tidegauge replay snapshot.pickle --alloc-conf expandable_segments:True
  tidegauge replay snapshot.pickle --device-memory 40GiB  # exit code 3: too big
  tidegauge replay run.tide --device a100-40g
  tidegauge replay run.tide --alloc-conf '' --alloc-conf max_split_size_mb:256
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a trace from `tidegauge run`, or a file from torch.cuda.memory._dump_snapshot",
    )
    versions = _core.tie_rules()
    parser.add_argument(
        "--tie",
        choices=tuple(versions),
        help="which of several equally good free blocks to use: address, the lowest (torch "
        f"{versions['address']}); private-counter, that in the oldest segment of a private pool, "
        f"address elsewhere ({versions['private-counter']}); counter, that in the oldest segment "
        f"({versions['counter']}). Default: for a snapshot the rule that "
        "matches it, for a trace that of the torch that recorded it",
    )
    parser.add_argument(
        "--deferred",
        choices=("recorded", "low", "high"),
        help="snapshot only: when a block that another stream used becomes free: recorded "
        "(default), low (at the next request) or high (only when the cache is emptied)",
    )
    add_alloc_conf(
        *(parser, "simulate these settings", "; repeatable for a trace"),
        action="append",
        default=[],
    )
    parser.add_argument(
        "--recorded-conf",
        metavar="SETTINGS",
        help="snapshot only: settings of the recorded run, if the snapshot lacks them",
    )
    add_device(parser)
    add_assume(parser, "trace only: ")
    parser.add_argument(
        "--traced-device",
        metavar="DEVICE",
        help="trace only: replay the storages on this device, e.g. cuda:0",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from tidegauge import _core
    from tidegauge.cli import replay_trace

    try:
        for option in (*args.alloc_conf, args.recorded_conf or ""):
            _core.check_alloc_config(option)
    except ValueError as error:
        raise UsageError(error) from None
    device = read_device(args)
    if replay_trace.is_trace(args.file):
        return replay_trace.run(args, device)
    return _run_snapshot(args, device.memory_bytes if device else 0)


def _run_snapshot(args: argparse.Namespace, device_memory_bytes: int) -> int:
    from tidegauge.allocator import replay_snapshot

    if len(args.alloc_conf) > 1 or args.assume or args.traced_device:
        raise UsageError(
            f"{args.file} is not a trace from `tidegauge run`; several --alloc-conf, --assume and "
            "--traced-device require one"
        )
    alloc_conf = args.alloc_conf[0] if args.alloc_conf else None
    devices = replay_snapshot(
        args.file,
        tie=args.tie,
        alloc_conf=alloc_conf,
        recorded_conf=args.recorded_conf,
        deferred=args.deferred or "recorded",
        device_memory_bytes=device_memory_bytes,
    )
    if args.json:
        json_text = {"snapshot": args.file, "devices": [*map(to_json, devices)]}
        write_result(args, json.dumps(json_text, indent=2))
    else:
        name = os.path.basename(args.file)
        is_other = alloc_conf is not None or args.deferred in ("low", "high")
        write_result(args, render(name, devices, is_other=is_other))
    does_not_fit = any(d.simulated.out_of_memory > d.recorded.out_of_memory for d in devices)
    return EXIT_DOES_NOT_FIT if does_not_fit else EXIT_DONE


def to_json(replay: DeviceReplay) -> dict[str, Any]:
    return {
        "device": replay.device,
        "events": replay.events,
        "tie": replay.tie,
        "deferred": replay.deferred,
        "recorded_conf": replay.recorded_conf,
        "alloc_conf": replay.alloc_conf,
        "is_consistent": replay.is_consistent,
        "recorded": _figures_to_json(replay.recorded),
        "simulated": _figures_to_json(replay.simulated),
        "divergence": replay.divergence and dataclasses.asdict(replay.divergence),
        "same_settings": _figures_to_json(replay.same_settings),
        "what_ifs": [
            {
                "alloc_conf": what_if.alloc_conf,
                "saved_bytes": what_if.saved_bytes,
                **_figures_to_json(what_if.figures),
            }
            for what_if in replay.what_ifs
        ],
    }


def _figures_to_json(figures: RunFigures) -> dict[str, Any]:
    return {**dataclasses.asdict(figures), "fragmentation": round(figures.fragmentation, 6)}


def render(name: str, devices: list[DeviceReplay], *, is_other: bool) -> str:
    """The text output, at most 80 columns wide."""
    if not devices:
        return f"{name}: no device with memory or events"
    return "\n\n".join(_render_device(name, device, is_other) for device in devices)


def _render_device(name: str, replay: DeviceReplay, is_other: bool) -> str:
    lines = wrap(
        f"{name}, device {replay.device}: {replay.events:,} events, ties by {replay.tie}, "
        f"{replay.recorded_conf or 'default settings'}"
    )
    if is_other:
        bound = "" if replay.deferred == "recorded" else f", deferred frees {replay.deferred}"
        lines += wrap(f"simulated with {replay.alloc_conf or 'default settings'}{bound}")
    lines += ["", f"{'':24}{'recorded':>14}{'simulated':>14}"]
    for label, recorded, simulated in _rows(replay.recorded, replay.simulated):
        lines.append(f"{label:24}{recorded:>14}{simulated:>14}")
    lines += ["", *wrap(_verdict(replay, is_other))]
    lines += ["", "Same requests from an empty cache, with only the initial blocks live:"]
    lines.append(f"{'':30}{'peak reserved':>14}{'unused':>12}{'saved':>12}")
    first = "as recorded" if replay.deferred == "recorded" else "recorded settings"
    lines.append(_what_if_row(first, replay.same_settings, ""))
    for what_if in replay.what_ifs:
        saved = render_bytes(what_if.saved_bytes)
        lines.append(_what_if_row(what_if.alloc_conf, what_if.figures, saved))
    return "\n".join(line.rstrip() for line in lines)


def _rows(recorded: RunFigures, simulated: RunFigures) -> list[tuple[str, str, str]]:
    def sizes(label: str, name: str) -> tuple[str, str, str]:
        return label, render_bytes(getattr(recorded, name)), render_bytes(getattr(simulated, name))

    def counts(label: str, name: str) -> tuple[str, str, str]:
        return label, f"{getattr(recorded, name):,}", f"{getattr(simulated, name):,}"

    return [
        sizes("peak reserved", "peak_reserved_bytes"),
        sizes("peak active", "peak_active_bytes"),
        sizes("  unused at the peak", "unused_at_peak_bytes"),
        ("  fragmentation", f"{recorded.fragmentation:.1%}", f"{simulated.fragmentation:.1%}"),
        sizes("  slack at the peak", "slack_at_peak_bytes"),
        sizes("reserved at the end", "final_reserved_bytes"),
        counts("segments at the end", "segments"),
        counts("segment events", "segment_events"),
        counts("out of memory", "out_of_memory"),
    ]


def _what_if_row(label: str, figures: RunFigures, saved: str) -> str:
    peak = render_bytes(figures.peak_reserved_bytes)
    unused = f"{figures.fragmentation:.1%}"
    return f"{label:30}{peak:>14}{unused:>12}{saved:>12}"


def _verdict(replay: DeviceReplay, is_other: bool) -> str:
    if is_other:
        return (
            "The simulation uses other settings and starts with an empty cache. Compare it with "
            "the table below, not with the recording."
        )
    if not replay.is_consistent:
        return (
            "The recording is inconsistent: its events do not lead to its segments. Either the "
            "run used other settings (set --recorded-conf), or events are missing."
        )
    if replay.divergence is None:
        return "The simulation matches the recording at every event and in the final layout."
    return (
        f"The simulation diverges from the recording at event {replay.divergence.event} of "
        f"{replay.events}: {replay.divergence.what}."
    )
