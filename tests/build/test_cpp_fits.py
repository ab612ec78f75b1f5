# SPDX-License-Identifier: BSD-3-Clause
"""A C++ program without Python records a run, reads it back and lists the devices that fit it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


@pytest.fixture(scope="module")
def output(run: Run, repo: Path, package: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of the example. Its trace is beside the program."""
    build = tmp_path_factory.mktemp("examples")
    source = repo / "examples" / "cpp"
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={package}")
    run("cmake", "--build", build, "--target", "fits_devices")
    trace = build / "run.tide"
    return run(build / "fits_devices", trace) + f"\ntrace: {trace}"


def test_figures_are_those_of_python(output: str) -> None:
    from tidegauge.allocator import device_models, replay_trace

    trace = re.search(r"trace: (.*)", output)
    assert trace is not None
    layers = replay_trace(trace[1]).layers
    printed = re.findall(r"^(.{20}) +([\d.]+) GiB \(([\d.]+) to ([\d.]+)\)", output, re.MULTILINE)
    assert [row[0].strip() for row in printed] == [layer.name for layer in layers]
    for layer, (_, *sizes) in zip(layers, printed, strict=True):
        expected = (layer.size_bytes, layer.low_bytes, layer.high_bytes)
        assert sizes == [f"{size / 2**30:.3f}" for size in expected]
    for model in device_models():
        verdict = replay_trace(trace[1], device=model).verdict
        assert f"{model.memory_bytes / 2**30:7.2f} GiB: {verdict.name}" in output


def test_small_run_fits_every_device(output: str) -> None:
    from tidegauge.allocator import device_models

    assert len(re.findall(r"GiB: fits$", output, re.MULTILINE)) == len(device_models())
