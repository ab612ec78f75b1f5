# SPDX-License-Identifier: BSD-3-Clause
"""Code written for torch.distributed._tools imports the same names from tidegauge."""

from __future__ import annotations

import importlib

import pytest

# Internal to upstream's patches of FSDP2, which we do not have.
NOT_OURS = {"_P", "_R", "_Ts", "_SavedFSDPMethods"}
# What upstream keeps of each op.
NOT_OURS |= {"_SACMetadata", "_SACModMetadata", "_display_stats_tabular"}


@pytest.mark.parametrize(
    "name",
    [
        "common_utils",
        "fake_collectives",
        "fsdp2_mem_tracker",
        "ilp_utils",
        "mem_tracker",
        "mod_tracker",
    ],
)
def test_drop_in_has_the_names_that_upstream_defines(name: str) -> None:
    upstream = importlib.import_module(f"torch.distributed._tools.{name}")
    ours = importlib.import_module(f"tidegauge.{name}")
    defined = {
        key
        for key, value in vars(upstream).items()
        if getattr(value, "__module__", None) == upstream.__name__
    }
    assert defined - vars(ours).keys() <= NOT_OURS


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("mem_tracker", "MemTracker"),
        ("mod_tracker", "ModTracker"),
        ("fsdp2_mem_tracker", "FSDPMemTracker"),
        ("recorder", "Recorder"),
        ("threads", "attach_thread"),
        ("threads", "detach_thread"),
    ],
)
def test_import_path_and_package_have_the_same_object(module: str, name: str) -> None:
    package = importlib.import_module("tidegauge")
    here = importlib.import_module(f"tidegauge.{module}")
    home = importlib.import_module(f"tidegauge.trackers.{module}")
    assert getattr(package, name) is getattr(here, name) is getattr(home, name)
