# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge report` opens a trace once and reads its events at most twice, whatever it shows."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tidegauge import _core
from tidegauge.cli.main import main
from tidegauge.report.run import Run

_IN_OPEN = 0x20
# inotify merges consecutive equal events, so accesses are watched, too: they separate two opens.
_IN_ACCESS_OR_OPEN_OR_CLOSE = 0x01 | _IN_OPEN | 0x08 | 0x10


@contextmanager
def counted_opens(path: Path) -> Iterator[list[int]]:
    """Counts how often any code of this process opens the file; the list gets the number."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.inotify_init1(os.O_NONBLOCK)
    assert handle >= 0
    assert libc.inotify_add_watch(handle, os.fsencode(path), _IN_ACCESS_OR_OPEN_OR_CLOSE) >= 0
    opens: list[int] = []
    try:
        yield opens
        count = 0
        try:
            data = os.read(handle, 1 << 16)
        except BlockingIOError:
            data = b""
        while data:
            _, mask, _, name_length = struct.unpack_from("iIII", data)
            count += bool(mask & _IN_OPEN)
            data = data[16 + name_length :]
        opens.append(count)
    finally:
        os.close(handle)


@pytest.mark.parametrize("name", ["before.tide", "sharded.tide"])
@pytest.mark.parametrize("options", [[], ["--json"], ["--html", "page.html", "--force"]])
def test_report_opens_the_trace_once_and_reads_it_twice(
    traces: Path, name: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Run] = []
    init = Run.__init__

    def keep(self: Run, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)  # type: ignore[arg-type]
        runs.append(self)

    monkeypatch.setattr(Run, "__init__", keep)
    with counted_opens(traces / name) as opens:
        assert main(["report", name, "-q", *options]) == 0
    assert opens == [1]
    (run,) = runs
    assert isinstance(run.source, _core.Reader)
    assert run.source.pass_count() == 2


def test_two_files_of_a_page_are_each_read_twice(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[_core.Reader] = []
    reader = _core.Reader

    def keep(path: str) -> _core.Reader:
        opened.append(reader(path))
        return opened[-1]

    monkeypatch.setattr(_core, "Reader", keep)
    arguments = ["diff", "before.tide", "after.tide", "--html", "page.html", "--force", "-q"]
    assert main(arguments) == 0
    assert [each.pass_count() for each in opened] == [2, 2]


def test_report_does_not_import_torch(traces: Path) -> None:
    script = (
        "import sys\n"
        "from tidegauge.cli.main import main\n"
        "assert main(['report', 'sharded.tide', '-q']) == 0\n"
        "assert main(['report', 'sharded.tide', '--html', 'page.html', '--force', '-q']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
