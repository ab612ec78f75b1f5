# SPDX-License-Identifier: BSD-3-Clause
"""A torch that has removed, renamed or changed what we patch or read: the feature is off, and one
sentence says why. Every table of patches is tried, by a second copy of its module."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tidegauge
from tidegauge._torch import compat
from tidegauge._torch.late_patches import LatePatches
from tidegauge._torch.patching import GlobalHook, Installation, Patch, Reads, _find_owner

TABLES = [
    *("module_patches", "op_patches", "memory_patches", "optimizer_patches", "fsdp_patches"),
    *("dtensor_patches", "simulation_patches", "pipeline_patches", "claimed_cuda"),
]


def load_copy(table: str) -> ModuleType:
    spec = importlib.util.find_spec(f"tidegauge._torch.{table}")
    assert spec is not None
    assert spec.loader is not None
    importlib.import_module(spec.name)  # dataclasses look their module up by name
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def installations(module: ModuleType) -> Iterator[Installation]:
    if hasattr(module, "_replacements"):  # claimed_cuda
        yield module._installation()
    elif hasattr(module, "installation"):  # simulation_patches, pipeline_patches
        yield module.installation()
    for each in vars(module).values():
        if isinstance(each, Installation) and each._variables in (
            vars(module),
            getattr(module, "_originals", None),
        ):
            yield each


def find_problem(table: str) -> str | None:
    """The sentence that a user of the table gets; None if it fits this torch."""
    try:
        for each in installations(load_copy(table)):
            each.check("this feature")
    except NotImplementedError as error:
        return str(error)
    return None


Row = tuple[str, Any]
ROWS: list[Row] = [
    (table, row)
    for table in TABLES
    for each in installations(load_copy(table))
    for row in each._expectations
]
PATCHES = [(table, row) for table, row in ROWS if isinstance(row, Patch) and row.is_expected]
HOOKS = [(table, row) for table, row in ROWS if isinstance(row, GlobalHook)]
READS = [(table, row) for table, row in ROWS if isinstance(row, Reads)]
# Classes that are not part of torch's public interface.
CLASSES = sorted(
    {
        (table, row._place.rpartition(".")[0])
        for table, row in PATCHES
        if "." in row._place.partition(":")[2] and "._" in row._place.rpartition(".")[0]
    }
)


def name_of(row: Any) -> str:
    return getattr(row, "_place", str(row)).partition(":")[2]


@pytest.mark.parametrize("table", TABLES)
def test_table_fits_this_torch(table: str) -> None:
    assert find_problem(table) is None
    assert [each for name, each in ROWS if name == table]


@pytest.mark.parametrize(("table", "row"), [*PATCHES, *HOOKS], ids=name_of)
def test_removed_function_is_reported(
    monkeypatch: pytest.MonkeyPatch, table: str, row: Patch | GlobalHook
) -> None:
    owner, name = _find_owner(row._place)
    if name in vars(owner):
        monkeypatch.delattr(owner, name)
    if hasattr(owner, name):  # inherited
        monkeypatch.setattr(owner, name, None)
    problem = str(find_problem(table))
    assert "does not work with torch" in problem
    assert f"it has no {row._place.replace(':', '.')}" in problem


@pytest.mark.parametrize(("table", "row"), PATCHES, ids=name_of)
def test_changed_parameters_are_reported(
    monkeypatch: pytest.MonkeyPatch, table: str, row: Patch
) -> None:
    def changed(unexpected: Any, *, new: Any = None) -> None: ...

    changed.__module__ = "torch.example"
    monkeypatch.setattr(*_find_owner(row._place), changed)
    names_parameters = names_of(row._wrapper)
    problem = find_problem(table)
    assert (problem is not None) == names_parameters
    if problem is not None:
        assert f"it has {row._place.replace(':', '.')}(unexpected, new=), and not (" in problem


def test_parameter_that_became_keyword_only_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrapper(first: Any, second: Any) -> None: ...
    def before(first: Any, second: Any = None) -> None: ...
    def after(first: Any, *, second: Any = None) -> None: ...

    for function in (before, after):
        function.__module__ = "torch.example"
    patch = Patch("torch.nn.init:constant_", wrapper)
    monkeypatch.setattr("torch.nn.init.constant_", before)
    assert patch.explain_change() is None
    monkeypatch.setattr("torch.nn.init.constant_", after)
    assert "(first, second=), and not (first, second)" in str(patch.explain_change())


def names_of(wrapper: Any) -> bool:
    """True if the wrapper relies on parameters; otherwise it only passes them on, or is in C++."""
    try:
        signature = inspect.signature(getattr(wrapper, "__func__", wrapper), follow_wrapped=False)
    except ValueError:
        return False
    kinds = {each.kind for each in signature.parameters.values()}
    return not kinds or not kinds <= {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }


@pytest.mark.parametrize(("table", "place"), CLASSES)
def test_removed_class_is_reported(monkeypatch: pytest.MonkeyPatch, table: str, place: str) -> None:
    owner, name = _find_owner(place)
    monkeypatch.delattr(owner, name)
    problem = str(find_problem(table))
    assert "does not work with torch" in problem
    assert name in problem


@pytest.mark.parametrize(("table", "row"), READS, ids=name_of)
def test_renamed_attributes_of_instances_are_reported(
    monkeypatch: pytest.MonkeyPatch, table: str, row: Reads
) -> None:
    class Renamed:
        def __init__(self) -> None:
            self.new_name = 1

    monkeypatch.setattr(*_find_owner(row._place), Renamed)
    place = row._place.replace(":", ".")
    assert f"{place} has no {', '.join(row._names)}" in str(find_problem(table))


class Example:
    in_class = 1

    def __init__(self) -> None:
        self.in_instance = 1

    @property
    def is_property(self) -> Any:
        return self.read_by_property  # type: ignore[attr-defined]

    @staticmethod
    def make() -> Any:
        return Example.from_static()  # type: ignore[attr-defined]


def test_attributes_are_found_in_the_class_and_in_its_methods() -> None:
    place = f"{__name__}:Example"
    found = ["in_class", "in_instance", "is_property", "read_by_property", "make", "from_static"]
    assert Reads(place, *found).explain_change() is None
    reason = Reads(place, "in_instance", "gone", "renamed").explain_change()
    assert reason == f"{__name__}.Example has no gone, renamed"
    assert Reads("torch:NoSuchClass", "x").explain_change() == "it has no torch.NoSuchClass"


@pytest.mark.parametrize("place", compat._ONLY_IN)
def test_function_that_only_some_versions_have_is_expected_in_these_only(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """So a function that torch renames is noticed, even if some versions never had it."""
    exists = getattr(*_find_owner(place), None) is not None
    assert compat.is_expected(place) == exists
    patch, other = Patch(place, None), ((0, 0), (0, 0)) if exists else ((0, 0), (99, 0))
    assert patch.explain_change() is None
    monkeypatch.setitem(compat._ONLY_IN, place, other)
    name = place.replace(":", ".")
    expected = f"it has {name}, which this version should not have" if exists else f"no {name}"
    assert expected in str(patch.explain_change())


def test_late_patches_that_fail_warn_and_leave_the_import_alone() -> None:
    def load() -> Any:
        raise AttributeError("no such thing")

    user = Example()
    late = LatePatches("wave", load)
    sys.modules.pop("wave", None)
    late.install(user)
    with pytest.warns(UserWarning, match="tidegauge cannot patch wave: no such thing"):
        module = importlib.import_module("wave")
    late.uninstall(user)
    assert module.open is not None


CHANGED_BEFORE = """\
import tidegauge, torch
from torch.distributed.tensor._sharding_prop import ShardingPropagator
del ShardingPropagator._propagate_tensor_meta_non_cached
with tidegauge.MemTracker(record="run.tide"):
    torch.nn.Linear(2, 2)(torch.ones(2, 2)).sum().backward()
"""
CHANGED_MEANWHILE = """\
import tidegauge, torch
from tidegauge._torch.memory_patches import _FOR_DTENSOR
_FOR_DTENSOR._load = lambda: 1 / 0
with tidegauge.MemTracker(record="run.tide"):
    import torch.distributed.tensor
    torch.nn.Linear(2, 2)(torch.ones(2, 2)).sum().backward()
"""


@pytest.mark.parametrize("options", [[], ["-W", "error::UserWarning"]], ids=["warn", "error"])
@pytest.mark.parametrize("script", [CHANGED_BEFORE, CHANGED_MEANWHILE], ids=["before", "meanwhile"])
def test_report_says_that_a_feature_was_off(
    options: list[str], script: str, tmp_path: Path
) -> None:
    """The training goes on, even if warnings are errors."""
    command = [sys.executable, *options, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    health = tidegauge.read_summary(tmp_path / "run.tide").health
    assert not health.is_good
    assert "patching torch.distributed.tensor._sharding_prop" in health.first_hook_failure


USES = {
    "MemTracker": "torch._subclasses.meta_utils.MetaConverter.__call__",
    "ModTracker": "torch.utils.checkpoint._recomputation_hook",
    "simulate": "torch.nn.init._no_grad_trunc_normal_",
}


@pytest.mark.parametrize("feature", USES)
def test_feature_that_is_off_says_so_and_leaves_torch_alone(feature: str) -> None:
    script = (
        "import torch, torch.utils.checkpoint, torch._subclasses.meta_utils\n"
        f"del {USES[feature]}\n"
        "import tidegauge\n"
        "call = torch.nn.Module.__call__\n"
        f"try: tidegauge.{feature}().__enter__()\n"
        "except NotImplementedError as error: print(error)\n"
        "assert torch.nn.Module.__call__ is call\n"
        "assert 'Fake' not in str(torch._C._dispatch_tls_local_include_set())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{feature} does not work with torch ")
    assert done.stdout.count("\n") == 1
