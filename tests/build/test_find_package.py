# SPDX-License-Identifier: BSD-3-Clause
"""Another C++ project finds tidegauge, and through it torch."""

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]

PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(tidegauge REQUIRED)
add_executable(user user.cpp)
target_link_libraries(user PRIVATE tidegauge::tidegauge)
"""


def write_project(folder: Path, headers: list[str]) -> None:
    """Writes a project that includes every public header, so that none needs a private one."""
    (folder / "CMakeLists.txt").write_text(PROJECT)
    includes = "".join(f"#include <tidegauge/{header}>\n" for header in headers)
    (folder / "user.cpp").write_text(includes + "int main() {}\n")


def public_headers(repo: Path) -> list[str]:
    return sorted(path.name for path in (repo / "include" / "tidegauge").glob("*.h"))


def configure(run: Run, source: Path, build: Path, prefix: Path) -> None:
    run("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")


def test_package_is_found_at_cmake_prefix_path(run: Run, tmp_path: Path) -> None:
    from tidegauge._build_info import cmake_prefix_path

    write_project(tmp_path, [])
    configure(run, tmp_path, tmp_path / "build", Path(cmake_prefix_path))


def test_other_minor_version_is_refused(run: Run, tmp_path: Path, package: Path) -> None:
    write_project(tmp_path, [])
    text = PROJECT.replace("(tidegauge REQUIRED)", "(tidegauge 0.99 REQUIRED)")
    (tmp_path / "CMakeLists.txt").write_text(text)
    with pytest.raises(AssertionError, match=r"version\s+\"0\.99\""):
        configure(run, tmp_path, tmp_path / "build", package)


@pytest.mark.long
def test_program_with_all_public_headers_builds_and_runs(
    run: Run, tmp_path: Path, repo: Path, package: Path
) -> None:
    write_project(tmp_path, public_headers(repo))
    configure(run, tmp_path, tmp_path / "build", package)
    run("cmake", "--build", tmp_path / "build")
    run(tmp_path / "build" / "user")


@pytest.mark.long
def test_examples_build_against_an_install_prefix(run: Run, tmp_path: Path, repo: Path) -> None:
    run("cmake", "--install", repo / "build" / "release", "--prefix", tmp_path / "prefix")
    configure(run, repo / "examples" / "cpp", tmp_path / "build", tmp_path / "prefix")
    run("cmake", "--build", tmp_path / "build")
    for source in sorted((repo / "examples" / "cpp").glob("*.cpp")):
        run(tmp_path / "build" / source.stem, cwd=tmp_path)
