# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import gc
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def _freeze_what_stays() -> Iterator[None]:
    """Most tests collect garbage first. Without freezing, each collection scans all of torch, which
    takes longer than the tests."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="session")
def _no_calibrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Figures do not depend on what the user of this machine calibrated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True)
def _keep_formatwarning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores the formatting of warnings, which upstream's tracker replaces when it warns."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Some kernels allocate workspace per thread; one thread gives equal figures everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def traces(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The traces in the current folder, so that the output does not depend on their path."""
    for file in recorded.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
