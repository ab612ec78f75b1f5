# SPDX-License-Identifier: BSD-3-Clause
"""Patches fit the torch in use, or say which function has changed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from tidegauge._torch import compat
from tidegauge._torch.features import missing_features
from tidegauge._torch.patching import Installation, Patch

torchs = ModuleType("torch.example")


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.example", torchs)


def define(source: str) -> None:
    """Defines a function of a module of torch's."""
    exec(source, vars(torchs))


def reduce(grads: Any, group: Any, *args: Any) -> None: ...


def unshard(self: Any) -> None: ...


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ("def reduce(grads, group): ...", None),
        ("def reduce(grads, group, dtype, device=None): ...", None),
        (
            "def reduce(params, grads, group): ...",
            "it has torch.example.reduce(params, grads, group), and not (grads, group, *args)",
        ),
        (
            "def reduce(grads, group, *, device): ...",
            "it has torch.example.reduce(grads, group, device=), and not (grads, group, *args)",
        ),
        ("reduce = len", None),  # another tool's patch
        ("reduce = None", "it has no torch.example.reduce"),
    ],
)
def test_wrapper_names_the_parameters_that_must_not_change(found: str, reason: str | None) -> None:
    define(found)
    assert Patch("torch.example:reduce", reduce).explain_change() == reason


def test_wrapper_without_further_arguments_needs_the_same_parameters() -> None:
    define("def unshard(self): ...")
    assert Patch("torch.example:unshard", unshard).explain_change() is None
    define("def unshard(self, is_async=False): ...")
    expected = "it has torch.example.unshard(self, is_async), and not (self)"
    assert Patch("torch.example:unshard", unshard).explain_change() == expected


def test_changed_function_switches_off_its_feature_at_the_first_use() -> None:
    define("def unshard(self, is_async): ...")
    before = vars(torchs)["unshard"]
    patches = Installation(
        {"unshard": Patch("torch.example:unshard", unshard)}, {}, feature="Gathering"
    )
    with pytest.raises(NotImplementedError, match=r"^Gathering does not work with torch .*unshard"):
        patches.install(torchs)
    assert vars(torchs)["unshard"] is before


def test_function_that_this_version_lacks_is_not_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    originals: dict[str, Any] = {}
    vars(torchs).pop("unshard", None)
    monkeypatch.setitem(compat._ONLY_IN, "torch.example:unshard", ((0, 0), (0, 0)))
    patch = Patch("torch.example:unshard", unshard)
    patches = Installation({"unshard": patch}, originals, feature="Gathering")
    patches.install(torchs)
    assert originals == {}
    assert not hasattr(torchs, "unshard")
    patches.uninstall(torchs)


def test_all_features_but_claimed_cuda_work() -> None:
    """The torch that the tests run with fits all patches."""
    assert missing_features().keys() <= {"simulate(device='cuda')"}
