# SPDX-License-Identifier: BSD-3-Clause
"""libtidegauge_cuda attaches to torch's CUDA allocator whenever CUDA is initialised."""

from __future__ import annotations

from collections.abc import Callable

Script = Callable[..., str]


def test_tracker_that_starts_before_cuda_equals_the_allocator(run: Script) -> None:
    run("""
        assert not torch.cuda.is_initialized()
        with MemTracker(allocator=True) as tracker:
            kept = torch.empty(MIB, device="cuda")
            workspace = torch.cuda.caching_allocator_alloc(8 * MIB)
            assert torch.cuda.memory_allocated() == 12 * MIB
            assert total(tracker) == 12 * MIB
            assert tracker.get_untracked_memory() == {GPU: 8 * MIB}
            torch.cuda.caching_allocator_delete(workspace)
            assert total(tracker) == torch.cuda.memory_allocated() == 4 * MIB
        assert total(tracker, kind="peak") == torch.cuda.max_memory_allocated() == 12 * MIB
    """)


def test_tracker_that_starts_after_cuda_equals_the_allocator(run: Script) -> None:
    run("""
        torch.cuda.init()
        with MemTracker(allocator=True) as tracker:
            kept = torch.empty(MIB, device="cuda")
            workspace = torch.cuda.caching_allocator_alloc(8 * MIB)
            assert total(tracker) == torch.cuda.memory_allocated() == 12 * MIB
    """)


def test_training_step_equals_the_allocator(run: Script) -> None:
    run("""
        with MemTracker(allocator=True) as tracker:
            layer = torch.nn.LayerNorm(1024).cuda()
            optimizer = torch.optim.AdamW(layer.parameters())
            for _ in range(2):
                layer(torch.ones(64, 1024, device="cuda")).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            assert total(tracker) == torch.cuda.memory_allocated() > 0
        assert total(tracker, kind="peak") == torch.cuda.max_memory_allocated()
        snapshot = tracker.get_tracker_snapshot()[GPU]
        assert (snapshot["Parameter"], snapshot["Optstate"]) == (8192, 16384)
    """)


def test_cuda_that_another_thread_initialises_is_observed(run: Script) -> None:
    run("""
        with MemTracker(allocator=True) as tracker:
            def work():
                kept.append(torch.empty(MIB, device="cuda"))
                kept.append(torch.cuda.caching_allocator_alloc(2 * MIB))
            kept = []
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            assert total(tracker) == torch.cuda.memory_allocated() == 6 * MIB
    """)


def test_threads_that_allocate_first_on_two_devices_do_not_wait_for_each_other(run: Script) -> None:
    run("""
        with MemTracker(allocator=True) as tracker:
            start, kept = threading.Barrier(2), []
            def work(index):
                start.wait()
                for _ in range(50):
                    kept.append(torch.empty(MIB, device=torch.device("cuda", index)))
            threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            for index in range(2):
                assert total(tracker, torch.device("cuda", index)) == 200 * MIB
    """)


def test_each_of_several_trackers_sees_each_allocation_once(run: Script) -> None:
    run("""
        with MemTracker(allocator=True) as outer:
            with MemTracker(allocator=True) as inner:
                kept = torch.empty(MIB, device="cuda")
                raw = torch.cuda.caching_allocator_alloc(2 * MIB)
                assert total(outer) == total(inner) == 6 * MIB
            with MemTracker(allocator=True) as later:
                also = torch.cuda.caching_allocator_alloc(2 * MIB)
                assert (total(outer), total(later)) == (8 * MIB, 2 * MIB)
            torch.cuda.caching_allocator_delete(raw)
            del kept
            assert total(outer) == torch.cuda.memory_allocated() == 2 * MIB
    """)


def test_segment_that_torch_gives_back_is_not_counted_twice(run: Script) -> None:
    run("""
        with MemTracker(allocator=True) as tracker:
            for _ in range(3):
                kept = torch.empty(32 * MIB, device="cuda")
                del kept
                torch.cuda.empty_cache()
            kept = torch.empty(MIB, device="cuda")
            assert total(tracker) == torch.cuda.memory_allocated() == 4 * MIB
        assert tracker._native.anomalies() == (0, "")
    """)


def test_allocator_without_a_trace_is_reported_and_tensors_are_still_counted(run: Script) -> None:
    text = run(
        """
        with MemTracker(allocator=True) as tracker:
            kept = torch.empty(MIB, device="cuda")
            assert total(tracker) == 4 * MIB
        """,
        PYTORCH_ALLOC_CONF="backend:cudaMallocAsync",
    )
    assert "tidegauge cannot observe the CUDA allocator (cudaMallocAsync" in text
