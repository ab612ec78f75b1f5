# SPDX-License-Identifier: BSD-3-Clause
"""Simulated kernels request the memory that torch's CUDA kernels request, in the same order."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from simulated_requests import read_requests
from tidegauge import _C, MemTracker, simulate

sys.path.insert(0, str(Path(__file__).parent))
from kernel_calls import make_calls

Script = Callable[..., str]


def test_requests_of_kernels_are_those_of_torch(run: Script, tmp_path: Path) -> None:
    path = tmp_path / "torch.json"
    run(f"""
        import json, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import oracle_requests
        from kernel_calls import make_calls

        found = {{}}
        for name, call in make_calls().items():
            torch.cuda.memory._record_memory_history(None)
            oracle_requests.start()
            kept = call()
            found[name] = [row["size"] for row in oracle_requests.read() if row["is_new"]]
            del kept
        open({str(path)!r}, "w").write(json.dumps(found))
    """)
    expected = json.loads(path.read_text())
    found = {}
    with simulate("cuda"):
        for number, (name, call) in enumerate(make_calls().items()):
            trace = tmp_path / f"{number}.tide"
            with MemTracker(allocator=True, record=trace):
                kept = call()
            found[name] = [row.size for row in read_requests(trace) if row.is_of_op]
            del kept
    different = {name: (found[name], sizes) for name, sizes in expected.items()}
    different = {name: pair for name, pair in different.items() if pair[0] != pair[1]}
    assert not different


def test_ops_with_kernels_only_on_cuda_are_those_of_torch() -> None:
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    found = {
        name
        for name in names
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    }
    assert found == set(_C.fused_ops())
