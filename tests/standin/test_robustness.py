# SPDX-License-Identifier: BSD-3-Clause
"""The stand-in survives what programs do to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Script = Callable[..., str]


def test_hostile_sizes_are_refused(run: Script) -> None:
    run("""
        for size in (1 << 50, 1 << 61, (1 << 62) - 1):
            try:
                torch.empty(size, dtype=torch.uint8, device="cuda")
                raise AssertionError(size)
            except torch.OutOfMemoryError:
                pass
        assert torch.empty(0, device="cuda").numel() == 0
        assert torch.cuda.memory_allocated() == 0
    """)


def test_fork_leaves_parent_and_child_usable(run: Script) -> None:
    run("""
        import os
        kept = torch.ones(1024, device="cuda")
        pinned = torch.ones(1024).pin_memory()
        child = os.fork()
        if child == 0:
            os._exit(0 if pinned.sum() == 1024 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (kept + 1).shape == (1024,)
    """)


def test_several_processes_use_the_standin_at_once(run: Script) -> None:
    run("""
        import subprocess, sys
        script = "import torch, os; x = torch.tensor([1.0, 2.0]).cuda(); "
        script += "assert x.tolist() == [1, 2]"
        script += "; (x * torch.nn.Parameter(x)).sum().backward(); os._exit(0)"
        children = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
        assert [child.wait() for child in children] == [0] * 3
    """)


def test_device_is_usable_after_an_exception_and_after_running_out_of_memory(run: Script) -> None:
    run("""
        a = torch.ones(4, 4, device="cuda")
        other = torch.ones(3, device="cuda")
        for wrong in (lambda: a @ other, lambda: torch.empty(1 << 44, device="cuda")):
            try:
                wrong()
                raise AssertionError("no error")
            except RuntimeError:
                pass
        assert (a @ a).shape == (4, 4) and torch.cuda.memory_allocated() < 64 * MIB
    """)


def test_data_loader_with_workers_and_pinned_memory(run: Script) -> None:
    run("""
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(64.0))
        for (batch,) in DataLoader(data, 8, num_workers=2, pin_memory=True):
            assert batch.is_pinned()
            assert torch.equal(batch.cuda(non_blocking=True).cpu(), batch)
    """)


def test_record_stream_is_bounded_by_both_kinds_of_events(run: Script) -> None:
    script = """
        side = torch.cuda.Stream()
        for _ in range(8):
            x = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
            x.record_stream(side)
            del x
        print(torch.cuda.memory_reserved() // MIB)
    """
    quick, slow = int(run(script)), int(run(script, events="slow"))
    assert (quick, slow) == (20, 40)


def test_graph_keeps_its_memory_in_a_pool_of_its_own(run: Script) -> None:
    run("""
        layer = torch.nn.Linear(1024, 1024).cuda()
        x = torch.ones(8, 1024, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            layer(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(x)
        graph.replay()
        pools = {tuple(each["segment_pool_id"]) for each in torch.cuda.memory_snapshot()}
        assert len(pools) == 2, pools
    """)


@pytest.mark.long
def test_many_streams_and_many_allocations(run: Script) -> None:
    run("""
        import ctypes
        runtime = ctypes.CDLL(None)
        handles = []
        for _ in range(10_000):
            handle = ctypes.c_void_p()
            assert runtime.cudaStreamCreate(ctypes.byref(handle)) == 0
            handles.append(handle.value)
        assert len(set(handles)) == 10_000
        for handle in handles[:200]:
            with torch.cuda.stream(torch.cuda.ExternalStream(handle)):
                torch.empty(MIB, device="cuda")
        torch.cuda.empty_cache()
        for index in range(1_000_000):
            pointer = ctypes.c_void_p()
            assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(512 + index)) == 0
            assert runtime.cudaFree(pointer) == 0
        assert torch.cuda.mem_get_info()[0] == 16 << 30
    """)
