# SPDX-License-Identifier: BSD-3-Clause
"""The wheel in a new environment and another folder, with torch beside it."""

import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tidegauge._torch.compat import BUILT_FOR

Run = Callable[..., str]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def wheel(run: Run, repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Uses a persistent build folder, so that the second run compiles only changed files.
    run(repo / "tools" / "build_wheel.sh", folder, sys.executable)
    (wheel,) = folder.glob("tidegauge-*.whl")
    return wheel


@pytest.fixture(scope="module")
def site(run: Run, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """site-packages of a new environment that contains the wheel and our torch."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel)
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    site = Path(purelib.strip())
    (site / "torch").symlink_to(Path(torch.__file__).parent)
    # For torch's other imports; as a plain path entry, so that our own .pth files have no effect.
    (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return site


@pytest.fixture
def python(site: Path) -> Path:
    return site.parents[2] / "bin" / "python"


def test_wheel_requires_the_torch_it_was_built_for(wheel: Path, site: Path) -> None:
    minor = ".".join(torch.__version__.split(".")[:2])
    assert re.fullmatch(rf"tidegauge-[\d.]+\+torch{minor}-cp\d+-cp\d+-manylinux_\S+", wheel.name)
    (metadata,) = site.glob("tidegauge-*.dist-info/METADATA")
    assert f"Requires-Dist: torch=={minor}.*\n" in metadata.read_text()
    assert "Classifier: Programming Language :: Python :: 3.11\n" in metadata.read_text()
    facts = json.loads(metadata.with_name("build.json").read_text())
    assert facts == {"torch_minor": minor, "build_type": "Release"}


def test_contains_one_sqlite_for_both_copies_of_the_core(run: Run, site: Path) -> None:
    (sqlite,) = site.glob("tidegauge.libs/*sqlite3*")
    for library in (*site.glob("tidegauge/_core.*.so"), site / "tidegauge/lib/libtidegauge.so"):
        assert f"[{sqlite.name}]" in run("readelf", "-d", library)


def test_imports_from_another_folder(run: Run, site: Path, python: Path, tmp_path: Path) -> None:
    code = "import tidegauge; print(tidegauge._C.__file__); print(tidegauge.cmake_prefix_path)"
    extension, prefix = run(python, "-E", "-c", code, cwd=tmp_path).splitlines()
    assert Path(extension).parent == site / "tidegauge"
    assert Path(prefix) == site / "tidegauge"


def test_wheel_contains_the_command(run: Run, python: Path, tmp_path: Path) -> None:
    output = run(python.parent / "tidegauge", "--version", cwd=tmp_path)
    assert output.startswith("tidegauge ")


def test_wheel_contains_the_files_of_the_html_report(site: Path, repo: Path) -> None:
    web = Path("report") / "web"
    files = {path.name for path in (repo / "python" / "tidegauge" / web).iterdir()}
    assert {"index.html", "main.js", "style.css"} <= files
    assert {path.name for path in (site / "tidegauge" / web).iterdir()} == files


def test_finds_torch_by_relative_path(run: Run, site: Path) -> None:
    libraries = [*site.glob("tidegauge/_C.*.so"), site / "tidegauge" / "lib" / "libtidegauge.so"]
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    for library in libraries:
        assert "not found" not in run("ldd", library, env=environment)
        (line,) = [line for line in run("readelf", "-d", library).splitlines() if "PATH" in line]
        paths = line.split("[")[1].rstrip("]").split(":")
        assert all(path.startswith("$ORIGIN") for path in paths), paths


def test_does_not_name_the_machine_that_built_it(site: Path, repo: Path) -> None:
    # The CMake package must work wherever the wheel is installed.
    for file in (site / "tidegauge" / "share").rglob("*.cmake"):
        assert str(repo) not in file.read_text(), file


def test_refuses_another_torch(run: Run, python: Path, tmp_path: Path) -> None:
    other = tmp_path / "torch"
    other.mkdir()
    (other / "__init__.py").write_text("__version__ = '2.99.0'\n")
    with pytest.raises(AssertionError) as error:
        run(
            python,
            "-c",
            "import tidegauge; tidegauge.MemTracker",
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
    assert f"TorchError: tidegauge was built for torch {BUILT_FOR}, but found torch 2.99.0" in str(
        error.value
    )


def test_find_package_finds_the_wheel(run: Run, site: Path, repo: Path, tmp_path: Path) -> None:
    prefix = site / "tidegauge"
    run("cmake", "-S", repo / "examples/cpp", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    for source in sorted((repo / "examples" / "cpp").glob("*.cpp")):
        run(tmp_path / source.stem, cwd=tmp_path)
