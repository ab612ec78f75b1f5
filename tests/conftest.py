# SPDX-License-Identifier: BSD-3-Clause
"""Tests marked `long` run only on request: `pytest --long`, or TIDEGAUGE_LONG=1.

Golden tests compare with a file in tests/golden; `pytest --rewrite-golden` rewrites these files.
Helper modules are in tests/python/support, which is on the path: `from runs import run_scenario`.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"

sys.path.insert(0, str(Path(__file__).parent / "python" / "support"))
# Their assertions say what differs.
pytest.register_assert_rewrite("both_mem_trackers", "observe", "random_programs")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long tests too")
    parser.addoption(
        "--rewrite-golden", action="store_true", help="rewrite the files in tests/golden"
    )


def pytest_configure() -> None:
    # A shell makes background processes ignore Ctrl-C, and their children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long") or os.environ.get("TIDEGAUGE_LONG") == "1":
        return
    skip = pytest.mark.skip(reason="long; run `make test-long`")
    for item in items:
        if item.get_closest_marker("long"):  # keywords have the names of folders, too
            item.add_marker(skip)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` fails unless `text` equals the contents of tests/golden/name."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--rewrite-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path} differs; see `pytest --rewrite-golden`"

    return compare


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of traces."""
    from traces import record_all

    return record_all(tmp_path_factory.mktemp("recorded"))
