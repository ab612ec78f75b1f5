# SPDX-License-Identifier: BSD-3-Clause
"""A simulation on a machine with GPUs uses none of them."""

from __future__ import annotations

from collections.abc import Callable

Script = Callable[..., str]


def test_simulation_leaves_cuda_uninitialised_and_allocates_nothing(run: Script) -> None:
    run("""
        with tidegauge.simulate("cuda"), MemTracker() as tracker:
            layer = torch.nn.Linear(1024, 1024, device="cuda")
            layer(torch.ones(8, 1024, device="cuda")).sum().backward()
            assert total(tracker) > 8 * MIB
            assert torch.cuda.device_count() == 8
        assert not torch.cuda.is_initialized()
        assert torch.cuda.device_count() == 2
        kept = torch.empty(MIB, device="cuda")
        assert torch.cuda.memory_reserved() == 20 * MIB  # one segment, for this tensor alone
        assert torch.Generator(device="cuda").device.type == "cuda"
    """)
