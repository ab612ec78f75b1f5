# SPDX-License-Identifier: BSD-3-Clause
import sys
import types

import pytest
from tidegauge._torch_version import BUILT_FOR, check_torch_version, explain_mismatch


@pytest.mark.parametrize("found", ["2.13.0", "2.13.1", "2.13.0+cpu", "2.13.0a0+git1234"])
def test_same_minor_version_fits(found: str) -> None:
    assert explain_mismatch(found, "2.13") is None


@pytest.mark.parametrize("found", ["2.12.1", "2.14.0+cu130", "3.13.0", "2.1.3", "2", "unknown"])
def test_other_version_is_explained(found: str) -> None:
    message = explain_mismatch(found, "2.13")
    assert message is not None
    assert f"found torch {found}" in message
    assert "built for torch 2.13" in message
    assert "pip install 'torch==2.13.*'" in message


def test_installed_torch_passes() -> None:
    check_torch_version()


def test_other_torch_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__="2.99.0"))
    with pytest.raises(ImportError, match=r"found torch 2\.99\.0"):
        check_torch_version()


def test_missing_torch_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=f"needs torch {BUILT_FOR}, but found none"):
        check_torch_version()
