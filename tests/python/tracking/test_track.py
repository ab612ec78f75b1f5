# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge.track`, the marks of tests, and the loggers."""

from __future__ import annotations

import pytest
import tidegauge
import torch
from tidegauge.callbacks import LoopLogger, MemoryLogger
from torch import nn

pytest_plugins = ["pytester"]

WEIGHT_BYTES = 64 * 64 * 4


def make_model() -> nn.Module:
    return nn.Linear(64, 64, bias=False)


def train(model: nn.Module, steps: int, kept: list[torch.Tensor] | None = None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        output = model(torch.ones(64, 64))
        output.sum().backward()
        optimizer.step()
        if kept is not None:
            kept.append(output.detach())


def test_track_shows_peak_and_lines_without_files() -> None:
    model = make_model()
    with tidegauge.track(model) as memory:
        train(model, 2)
    (peak,) = memory.summary.peaks
    assert peak.categories["Parameter"] == WEIGHT_BYTES
    assert any(line.line.startswith("test_track.py:") for line in peak.lines)
    assert str(memory).startswith("tracked run: 2 steps\npeak ")
    assert "<svg" in memory._repr_html_()


def test_summary_is_refused_within_the_block() -> None:
    with tidegauge.track() as memory, pytest.raises(RuntimeError, match="after the `with` block"):
        _ = memory.summary


def test_growth_is_in_the_text_of_a_tracked_run() -> None:
    kept: list[torch.Tensor] = []
    with tidegauge.track() as memory:
        train(make_model(), 6, kept)
    assert "! Grows 16.0 KiB a step since step 2: 5 tensors float32 [64, 64]" in str(memory)


def test_dir_lists_only_what_is_public() -> None:
    assert not [name for name in dir(tidegauge) if name.startswith("_") and name != "__version__"]
    assert "track" in dir(tidegauge)
    for name in dir(tidegauge):
        assert getattr(tidegauge, name) is not None


TESTS = """
import pytest, torch
from torch import nn

def train(steps, kept):
    model = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        output = model(torch.ones(256, 256))
        output.sum().backward()
        optimizer.step()
        kept.append(output.detach())

@pytest.mark.memory(budget="64 MiB", no_growth=True)
def test_good(): train(3, [])

@pytest.mark.memory(budget="100 KiB")
def test_large(): train(1, [])

@pytest.mark.memory(no_growth=True)
def test_growing(): train(6, [])

@pytest.mark.memory(budget="limits.toml")
def test_file(): train(1, [])

def test_unmarked(): train(6, [])

@pytest.mark.memory(budget="1 GiB")
def test_failing(): assert False

@pytest.mark.memory(bugdet="1 GiB")
def test_misspelled(): pass
"""


def test_marks_limit_the_memory_of_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makefile(".toml", limits='[peak]\nParameter = "1KiB"\n')
    result = pytester.runpytest_inprocess(
        "-p", "tidegauge.pytest_plugin", "--strict-markers", "-p", "no:cacheprovider", "-rf"
    )
    outcomes = {report.nodeid.partition("::")[2]: report for report in _reports(result)}
    passed = {name for name, report in outcomes.items() if report.passed}
    assert passed == {"test_good", "test_unmarked"}
    text = {name: str(report.longrepr) for name, report in outcomes.items()}
    assert "cpu: total has " in text["test_large"]
    assert "; the limit is 100 KiB" in text["test_large"]
    assert "Grows 256 KiB a step since step 2: 5 tensors" in text["test_growing"]
    assert "cpu: Parameter has 257 KiB; the limit is 1.00 KiB" in text["test_file"]
    assert "assert False" in text["test_failing"]
    assert "memory has no option 'bugdet': did you mean budget?" in text["test_misspelled"]


def _reports(result: pytest.RunResult) -> list[pytest.TestReport]:
    recorder = result.reprec  # type: ignore[attr-defined]
    return [r for r in recorder.getreports("pytest_runtest_logreport") if r.when == "call"]


def test_loop_logger_logs_current_and_peak_of_each_step() -> None:
    model = make_model()
    logged: list[dict[str, float]] = []
    with LoopLogger(logged.append, model) as memory:
        train(model, 1)
        memory.log_step()
        large = torch.ones(1 << 20)
        del large
        memory.log_step()
        memory.log_step()
    first, second, third = logged
    assert first["memory/cpu/current/Parameter"] == WEIGHT_BYTES
    assert first["memory/cpu/peak/total"] >= 3 * WEIGHT_BYTES
    assert second["memory/cpu/peak/total"] >= 4 << 20
    assert third["memory/cpu/peak/total"] == third["memory/cpu/current/total"]


def test_anything_that_logs_can_be_used() -> None:
    class Writer:
        def __init__(self) -> None:
            self.rows: list[tuple[str, float, int]] = []

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.rows.append((name, value, step))

    class Run:
        def log(self, figures: dict[str, float]) -> None:
            self.figures = figures

    writer, run = Writer(), Run()
    model = make_model()
    for log in (writer, run):
        with LoopLogger(log, model) as memory:
            memory.log_step()
    assert ("memory/cpu/current/total", float(WEIGHT_BYTES), 1) in writer.rows
    assert run.figures["memory/cpu/current/total"] == WEIGHT_BYTES
    with pytest.raises(TypeError, match="cannot log to a int"):
        LoopLogger(3)


def test_logger_can_be_started_and_stopped_twice() -> None:
    memory = MemoryLogger()
    assert memory.take() == {}
    memory.start()
    memory.start()
    memory.stop()
    memory.stop()
    assert memory.take() == {}


def test_variables_of_any_bytes_are_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument or a variable need not be UTF-8: `train.py caf\\xe9`."""
    monkeypatch.setenv("RANK", "\udce9")
    with tidegauge.track() as memory:
        pass
    assert memory.summary.facts["rank"] == "\ufffd"
