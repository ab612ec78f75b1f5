# SPDX-License-Identifier: BSD-3-Clause
"""Packages are installed from files with known hashes alone."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools" / "lock_requirements.py"), "--check"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def checkout(repo: Path, tmp_path: Path) -> Path:
    """A copy that has no .venv yet."""
    for name in ["tools", "requirements"]:
        shutil.copytree(repo / name, tmp_path / "checkout" / name)
    (tmp_path / "checkout" / "python").mkdir()
    return tmp_path / "checkout"


def test_lists_have_all_pins_and_hashes(repo: Path) -> None:
    done = check(repo)
    assert done.returncode == 0, done.stdout
    for path in (repo / "requirements" / "locked").iterdir():
        lines = path.read_text().replace("\\\n", "").splitlines()
        packages = [line for line in lines if not line.startswith("#")]
        assert packages
        assert all("==" in line and "--hash=sha256:" in line for line in packages), path


@pytest.mark.parametrize("name", ["lock", "build"])
def test_pin_that_moved_alone_is_reported(checkout: Path, name: str) -> None:
    path = checkout / "requirements" / f"{name}.txt"
    path.write_text(path.read_text().replace("ninja==", "ninja==99."))
    done = check(checkout)
    assert done.returncode == 1
    assert "run tools/lock_requirements.py" in done.stdout


def make_wheel(folder: Path) -> str:
    """A package without code; returns its hash."""
    folder.mkdir()
    path = folder / "harbour-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        info = "harbour-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: harbour\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def set_up(checkout: Path, wheels: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    variables |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    variables |= {"PIP_FIND_LINKS": str(wheels), "PYTHON": sys.executable}
    return subprocess.run(
        [str(checkout / "tools" / "setup_venv.sh"), "build"],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def test_file_with_another_hash_is_refused(checkout: Path, tmp_path: Path) -> None:
    right = make_wheel(tmp_path / "wheels")
    wrong = "0" * len(right)
    locked = checkout / "requirements" / "locked" / "build.txt"
    (checkout / "requirements" / "build.txt").write_text("harbour==1.0\n")

    locked.write_text(f"harbour==1.0 --hash=sha256:{wrong}\n")
    done = set_up(checkout, tmp_path / "wheels")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("tidegauge: the package index offers other files than")

    locked.write_text(f"harbour==1.0 --hash=sha256:{wrong} --hash=sha256:{right}\n")
    done = set_up(checkout, tmp_path / "wheels")
    assert done.returncode == 0, done.stderr

    locked.write_text(f"harbour==1.0 --hash=sha256:{wrong}\n")
    pip = str(checkout / ".venv" / "bin" / "pip")
    subprocess.run([pip, "uninstall", "-qy", "harbour"], check=True)
    done = set_up(checkout, tmp_path / "wheels", TIDEGAUGE_NO_HASHES="1")
    assert done.returncode == 0, done.stderr
