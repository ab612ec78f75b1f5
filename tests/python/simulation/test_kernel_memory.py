# SPDX-License-Identifier: BSD-3-Clause
"""Memory that CUDA kernels request besides their results, on a simulated GPU.

tests/standin compares these requests with those of torch's own kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from tidegauge import MemTracker, simulate
from torch_version import CUDNN_ATTENTION_FIRST

GPU = torch.device("cuda", 0)
MIB = 2**20
HALF_PRECISION = torch.bfloat16


def peak_of(
    call: Callable[[], object], *, allocator: bool = True, device: str = "cuda"
) -> tuple[int, int]:
    """Bytes at the peak above those before the call, and after it."""
    with MemTracker(allocator=allocator) as tracker:
        found = call()
        where = torch.device(device, 0) if device == "cuda" else torch.device(device)
        peak = tracker.get_tracker_snapshot("peak")[where]["Total"]
        current = tracker.get_tracker_snapshot()[where]["Total"]
    del found
    return peak, current


def test_product_requests_a_workspace_of_cublas() -> None:
    with simulate("cuda", capability=(9, 0)):
        a = torch.empty(256, 256, device=GPU)
        product = 256 * 256 * 4
        peak, after = peak_of(lambda: a @ a)
    assert peak == product + 32 * MIB
    assert after in (product, peak)  # before 2.15, torch keeps the workspace


def test_workspace_depends_on_the_capability() -> None:
    with simulate("cuda", capability=(8, 0)):
        a = torch.empty(256, 256, device=GPU)
        assert peak_of(lambda: a @ a)[0] == 256 * 256 * 4 + 8_519_680


def test_product_that_is_made_of_others_requests_its_own_workspace() -> None:
    with simulate("cuda", capability=(9, 0)):
        a = torch.empty(256, 256, device=GPU)
        assert peak_of(lambda: torch.addmm(a, a, a))[0] == 256 * 256 * 4 + 32 * MIB


def test_only_the_allocator_channel_sees_workspaces() -> None:
    with simulate("cuda"):
        a = torch.empty(256, 256, device=GPU)
        assert peak_of(lambda: a @ a, allocator=False) == (256 * 256 * 4, 256 * 256 * 4)


def test_simulated_cpu_has_no_workspaces() -> None:
    with simulate():
        a = torch.empty(256, 256)
        assert peak_of(lambda: a @ a, device="cpu") == (256 * 256 * 4,) * 2


def test_sum_over_rows_requests_partial_sums_and_counters() -> None:
    """512 results by 64 blocks of 32 threads with 4 results each, for 128 groups of 32 threads."""
    with simulate("cuda", multiprocessors=132):
        x = torch.empty(4096, 512, device=GPU)
        peak, after = peak_of(lambda: x.sum(0))
    assert after == 512 * 4
    assert peak - after == 512 * 64 * 32 * 4 * 4 + 4 * 4


def test_backward_of_silu_is_one_kernel() -> None:
    with simulate("cuda"):
        x = torch.empty(1024, 1024, device=GPU, requires_grad=True)
        y = F.silu(x)
        gradient = torch.empty_like(y)
        peak, after = peak_of(lambda: torch.autograd.grad(y, x, gradient))
    assert peak == after == 4 * MIB


def test_rms_norm_saves_one_number_for_each_row() -> None:
    with simulate("cuda"):
        x = torch.empty(1024, 512, device=GPU, dtype=HALF_PRECISION, requires_grad=True)
        weight = torch.empty(512, device=GPU, dtype=HALF_PRECISION, requires_grad=True)
        assert peak_of(lambda: F.rms_norm(x, (512,), weight)) == (MIB + 1024 * 4,) * 2
        y = F.rms_norm(x, (512,), weight)
        gradient = torch.empty_like(y)
        assert peak_of(lambda: torch.autograd.grad(y, (x, weight), gradient))[0] == MIB + 512 * 2


def test_attention_of_a_device_is_the_one_that_torch_prefers() -> None:
    def choose(*capability: int) -> str:
        with simulate("cuda", capability=capability):  # type: ignore[arg-type]
            q = torch.empty(1, 2, 128, 64, device=GPU, dtype=HALF_PRECISION)
            return torch.nn.attention.SDPBackend(torch._fused_sdp_choice(q, q, q)).name

    assert choose(8, 0) == choose(12, 0) == "FLASH_ATTENTION"
    expected = "CUDNN_ATTENTION" if CUDNN_ATTENTION_FIRST else "FLASH_ATTENTION"
    assert choose(9, 0) == choose(10, 0) == expected


def test_losses_of_logits_need_a_log_sigmoid_besides() -> None:
    with simulate("cuda"):
        x = torch.empty(1024, 1024, device=GPU)
        peak, after = peak_of(lambda: F.binary_cross_entropy_with_logits(x, x, reduction="none"))
    assert (peak, after) == (8 * MIB, 4 * MIB)


def test_gradient_of_bags_needs_sorted_indices() -> None:
    with simulate("cuda"):
        table = torch.empty(1000, 256, device=GPU, requires_grad=True)
        bags = torch.zeros(4096, 32, dtype=torch.long, device=GPU)  # 1 MiB
        output = F.embedding_bag(bags, table, mode="sum")
        gradient = torch.empty_like(output)
        peak, after = peak_of(lambda: torch.autograd.grad(output, table, gradient))
    assert after == 1_024_000  # as large as the table
    assert peak > after + 4 * MIB  # sorted indices, where they were, where segments begin, parts
