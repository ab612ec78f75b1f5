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
    """Most tests collect garbage first. To look through all of torch each time took longer than the
    tests themselves."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _keep_formatwarning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's tracker replaces it for the whole process when it warns."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Some kernels take workspace per thread; one thread makes it the same on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def traces(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The traces are in the current folder, so that output does not depend on where it is."""
    for file in recorded.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
