# SPDX-License-Identifier: BSD-3-Clause
"""A libtorch program and an equivalent Python program have equal figures, byte for byte."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., str]


@pytest.fixture(scope="module")
def program(run: Run, repo: Path, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ program, built by its own project against the package that `make build` installed."""
    build = tmp_path_factory.mktemp("examples")
    source = repo / "examples" / "cpp"
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={package}")
    run("cmake", "--build", build, "--target", "train_transformer")
    return build / "train_transformer"


@pytest.fixture(scope="module")
def twin() -> Path:
    return Path(__file__).with_name("transformer_twin.py")


def read(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("options", [(), ("--allocator",)], ids=["tensors", "allocator"])
def test_figures_equal_those_of_the_python_twin(
    run: Run, program: Path, twin: Path, options: tuple[str, ...]
) -> None:
    cpp = read(run(program, "--json", *options))
    python = read(run(sys.executable, twin, "--json", *options))
    moments = [record["moment"] for record in cpp if "moment" in record]
    assert moments == [f"{m} {s}" for s in "12" for m in ("start", "forward", "backward", "step")]
    assert len(cpp) == len(moments) + 23  # the model, its 2 x 10 modules below blocks, embed, head
    for ours, theirs in zip(cpp, python, strict=True):
        assert ours == theirs


def test_allocator_channel_counts_scalars_in_adam(run: Run, program: Path) -> None:
    """At the peak of the first step: one number as float64 and as float32. Tensors are equal."""
    plain, channel = (read(run(program, "--json", *more)) for more in ((), ("--allocator",)))
    untracked = {record["moment"]: record["untracked"] for record in channel if "moment" in record}
    assert untracked["step 1"] == [0, 8 + 4]
    for without, with_channel in zip(plain, channel, strict=True):
        if "moment" in without:
            assert without["untracked"] == [0, 0]
            assert with_channel["current"] == without["current"]  # the workspace is freed by then


def test_text_equals_that_of_the_python_twin(run: Run, program: Path, twin: Path) -> None:
    text = run(program)
    assert text == run(sys.executable, twin)
    assert text.startswith("At the peak\nDevice: cpu\n\tParameter: 124.64 KiB\n")


def test_python_adam_has_one_more_step_tensor_per_parameter(
    run: Run, program: Path, twin: Path
) -> None:
    """Python's Adam counts steps in a tensor, also without foreach; C++'s in an integer."""
    cpp = {r["moment"]: r for r in read(run(program, "--json")) if "moment" in r}
    python = {
        r["moment"]: r
        for r in read(run(sys.executable, twin, "--json", "--torch-adam"))
        if "moment" in r
    }
    parameters = 2 * (2 + 4 * 2 + 2) + 1 + 2
    optstate = 5
    for step in "12":
        ours, theirs = (each[f"step {step}"]["current"]["cpu"] for each in (cpp, python))
        assert theirs[optstate] - ours[optstate] == 4 * parameters
        assert ours[:optstate] == theirs[:optstate]


def test_no_python_is_linked(run: Run, program: Path) -> None:
    loaded = [line.split()[0] for line in run("ldd", program).splitlines()]
    assert not [name for name in loaded if "python" in name]
