# SPDX-License-Identifier: BSD-3-Clause
"""Files that users name: nothing blocks, nothing else is overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tidegauge._util.files import read_file, replace_file
from tidegauge.errors import FormatError


def test_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match=r"pipe is not a regular file; copy its content to one$"):
        read_file(tmp_path / "pipe", 100)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev"])
def test_only_regular_files_are_read(path: str) -> None:
    with pytest.raises((FormatError, IsADirectoryError)):
        read_file(path, 100)


def test_limit_counts_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.touch()
    os.truncate(path, 1 << 40)  # needs no space
    with pytest.raises(FormatError, match=r"has 1,099,511,627,776 bytes, but the limit is 100; x"):
        read_file(path, 100, "x")
    os.truncate(path, 100)
    assert read_file(path, 100) == bytes(100)


def test_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with replace_file(str(path)) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_error_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def write() -> None:
        with replace_file(str(path)) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out"]


def test_own_part_file_and_planted_link_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "out.part").symlink_to("precious")
    with replace_file(str(tmp_path / "out")) as file:
        file.write(b"new")
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert (tmp_path / "out.part").is_symlink()


def test_error_names_the_file_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error, replace_file(str(tmp_path / "no" / "out")):
        pass
    assert error.value.filename == str(tmp_path / "no" / "out")
