# SPDX-License-Identifier: BSD-3-Clause
"""The message for a missing tool is one line that says what to do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Tools that the scripts themselves use.
BASICS = ["bash", "cat", "dirname", "grep", "head", "id", "sed", "sort", "touch"]


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """A PATH with the basics; each test adds the tools that its machine has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in BASICS:
        add_tool(folder, name)
    return folder


def add_tool(folder: Path, name: str, script: str | None = None) -> None:
    if script is None:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    else:
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)


def complaint(repo: Path, bin_dir: Path, script: str, *arguments: str, **variables: str) -> str:
    """The only line that the failing script prints to stderr."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CXX", "PYTHON"))}
    environment |= {"PATH": str(bin_dir), **variables}
    done = subprocess.run(
        [str(repo / "tools" / script), *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("tidegauge: ")
    return line


@pytest.fixture
def checkout(repo: Path, tmp_path: Path) -> Path:
    """A copy that has no .venv yet."""
    for name in ["tools", "requirements"]:
        shutil.copytree(repo / name, tmp_path / "checkout" / name)
    (tmp_path / "checkout" / "python").mkdir()
    return tmp_path / "checkout"


def test_missing_compiler_is_reported(repo: Path, bin_dir: Path) -> None:
    line = complaint(repo, bin_dir, "check_tools.sh")
    assert "no C++ compiler" in line
    assert "apt-get install g++" in line


def test_old_compiler_is_reported(repo: Path, bin_dir: Path) -> None:
    add_tool(bin_dir, "c++", "exit 1")
    assert "does not compile C++20" in complaint(repo, bin_dir, "check_tools.sh")


def test_missing_cmake_is_reported(repo: Path, bin_dir: Path) -> None:
    add_tool(bin_dir, "c++")
    assert "found no CMake" in complaint(repo, bin_dir, "check_tools.sh")


def test_old_cmake_is_reported(repo: Path, bin_dir: Path) -> None:
    add_tool(bin_dir, "c++")
    add_tool(bin_dir, "cmake", "echo cmake version 3.18.4")
    assert "found CMake 3.18.4, need 3.25" in complaint(repo, bin_dir, "check_tools.sh")


def test_missing_python_is_reported(checkout: Path, bin_dir: Path) -> None:
    add_tool(bin_dir, "python3", "exit 1")
    line = complaint(checkout, bin_dir, "setup_venv.sh", "build")
    assert "found no Python 3.11" in line
    assert "apt-get install python3.11" in line


def test_missing_package_index_is_reported(checkout: Path, bin_dir: Path) -> None:
    line = complaint(
        *(checkout, bin_dir, "setup_venv.sh", "build"),
        PYTHON=sys.executable,
        PIP_CONFIG_FILE=os.devnull,
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS="",
    )
    assert "connect to a package index" in line


def test_missing_debian_mirror_is_reported(repo: Path, bin_dir: Path) -> None:
    add_tool(bin_dir, "c++")
    add_tool(bin_dir, "apt-get", "exit 100")
    add_tool(bin_dir, "sudo", "exit 1")
    line = complaint(repo, bin_dir, "setup_debian.sh", "no/such_header.h", "libgtest-dev")
    assert "sudo apt-get install libgtest-dev" in line


def test_missing_sqlite_is_reported(repo: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *("cmake", "-S", str(repo), "-B", str(tmp_path), "-DTIDEGAUGE_WITH_TORCH=OFF"),
            "-DCMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    message = " ".join(done.stderr.split())
    assert "found no SQLite 3.37 or newer" in message
    assert "apt-get install libsqlite3-dev" in message
