# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge watch run.tide`: the memory of a run while it goes on.

Reads only the new events each time, in short reads, because the recorder waits while the file is
read.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time

from tidegauge import _core
from tidegauge._util.formatting import (
    is_terminal,
    make_printable,
    parse_count,
    render_duration,
    shorten,
    text_width,
)
from tidegauge.cli.common import EXIT_DONE, EXIT_FAILED, render_bytes
from tidegauge.report.summary import largest_first
from tidegauge.report.text import name_device, wrap

NAME = "watch"
HELP = "show the memory of a run while it goes on"
EXAMPLES = """\
  tidegauge run train.py                (in one terminal)
  tidegauge watch train.tide            (in another one)
  tidegauge watch train.tide | cat      (the present state, once)
"""

_CHUNK = 200_000  # events per read, about 50 ms
_STEPS = 5
_SILENT_S = 60.0
_CLEAR = "\033[H\033[J"
_ALTERNATE, _NORMAL = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"


class LiveRun:
    """A run that may still be recorded. `refresh` reads what is new."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.health: list[str] = []
        self.facts: dict[str, str] = {}
        self.is_complete = False
        self.has_died = False  # the process is gone and has not completed the file
        self._next = 1  # the number of the first event that was not read
        self._dropped = 0
        self._changed_at = time.monotonic()
        self.ledger = _core.Reader(path).replay(0)
        self.refresh()

    def refresh(self) -> None:
        reader = _core.Reader(self.path)  # the file may have been replaced
        self.facts = reader.run_facts()
        # In this order: a process that is gone now has completed the file before, or never will.
        is_gone = _is_gone(self.facts)
        self.is_complete = reader.is_complete()
        self.has_died = is_gone and not self.is_complete
        dropped = sum(drop["events"] for drop in reader.drops())
        if dropped != self._dropped:
            # The numbers of the events have changed.
            self.ledger = reader.replay(0)
            self._next, self._dropped = 1, dropped
        first = self._next
        while (after := reader.continue_replay(self.ledger, self._next, _CHUNK)) > self._next:
            self._next = after
        if self._next > first:
            self._changed_at = time.monotonic()
        self.health = list(self._describe_health(reader))

    def _describe_health(self, reader: _core.Reader) -> list[str]:
        lines = []
        if self.is_complete:
            by = self.facts.get("ended_by")
            lines.append(f"The run was ended by {by}." if by else "The run has ended.")
        elif self.has_died:
            lines.append(
                f"Process {self.facts.get('pid')} is gone and did not complete the trace; what it "
                "recorded is shown."
            )
        elif (silent := time.monotonic() - self._changed_at) > _SILENT_S:
            lines.append(f"No event has been recorded for {render_duration(int(silent * 1e9))}.")
        gaps = reader.gaps()
        if lost := sum(gap["lost_events"] for gap in gaps):
            lines.append(
                f"{lost:,} events are missing ({gaps[0]['reason']}); the true peak may be higher."
            )
        if failures := len(reader.failures()):
            times = "an allocation" if failures == 1 else f"{failures:,} allocations"
            lines.append(f"Memory ran out: {times} failed (`tidegauge report` has the details).")
        anomalies, first = self.ledger.anomalies()
        if anomalies:
            lines.append(
                f"{anomalies:,} events contradict others and were ignored (first: {first})"
            )
        return lines


def _is_gone(facts: dict[str, str]) -> bool:
    """True if the process of a run on this host does not exist. False if that is not known."""
    pid = parse_count(facts.get("pid", ""))
    if facts.get("host") != socket.gethostname() or not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # of another user
    return False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="FILE", help="trace that `tidegauge run` is writing")
    parser.add_argument(
        "--every",
        type=_parse_seconds,
        default=1.0,
        metavar="SECONDS",
        help="time between two looks at the file (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    live = LiveRun(args.trace)
    if not is_terminal(sys.stdout):
        print("\n".join(render(live)))
        return EXIT_FAILED if live.has_died else EXIT_DONE
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)  # so that the terminal becomes as before
    try:
        sys.stdout.write(_ALTERNATE)
        while True:
            rows = os.get_terminal_size(sys.stdout.fileno()).lines - 1
            lines = [shorten(line, text_width()) for line in render(live)]
            sys.stdout.write(_CLEAR + "\n".join(lines[:rows]) + "\n")
            sys.stdout.flush()
            if live.is_complete or live.has_died:
                break
            time.sleep(args.every)
            live.refresh()
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        sys.stdout.write(_NORMAL)
    print("\n".join(render(live)))
    return EXIT_FAILED if live.has_died else EXIT_DONE


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def render(live: LiveRun) -> list[str]:
    """Each device now and at its peak, by category; the last steps; what is wrong."""
    lines = [make_printable(live.path)]
    now = {device: (step, split) for device, _, _, step, split in live.ledger.fine_current()}
    for device, _, _, step, peak in live.ledger.fine_peak():
        current_step, current = now.get(device, (0, {}))
        lines += [
            "",
            f"{name_device(device):20}{f'now, step {current_step:,}':>20}"
            f"{f'peak, step {step:,}':>20}",
            _row("total", sum(current.values()), sum(peak.values())),
        ]
        for name in largest_first({**current, **peak}):
            lines.append(_row("  " + name, current.get(name, 0), peak.get(name, 0)))
        steps = [
            f"{number:,}: {render_bytes(sum(split.values()))}"
            for number, devices in live.ledger.step_peaks()[-_STEPS:]
            for of_step, _, _, _, split in devices
            if of_step == device
        ]
        if steps:
            lines.append("  peaks of the last steps: " + ", ".join(steps))
    if len(lines) == 1:
        lines += ["", "No memory has been recorded yet."]
    if live.health:
        lines.append("")
        lines += [line for sentence in live.health for line in wrap(make_printable(sentence))]
    return lines


def _row(name: str, now_bytes: int, peak_bytes: int) -> str:
    return f"{name:20}{render_bytes(now_bytes):>20}{render_bytes(peak_bytes):>20}"


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"invalid time '{text}' (expected e.g. 0.5, in seconds)")
    return seconds
