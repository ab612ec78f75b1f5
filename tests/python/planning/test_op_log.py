# SPDX-License-Identifier: BSD-3-Clause
"""The log of ops and their costs, against torch's flop counter and by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import tidegauge
import torch
from tidegauge import _C
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F  # noqa: N812, its usual name
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode
from torch_version import NO_FLOPS_OF_CPU_ATTENTION

BACKWARD, RECOMPUTE, STEP = 1, 2, 4


@contextmanager
def logged() -> Iterator[_C.OpLog]:
    log = _C.OpLog()
    log.start()
    try:
        yield log
    finally:
        log.stop()


def list_calls(log: _C.OpLog) -> list[tuple[_C.PricedCall, int]]:
    """The ops in their order with their facts."""
    calls = log.calls()
    rows = log.entries(0, log.position)
    return [(calls[number], facts) for kind, number, facts, _ in rows if kind == 0]


def count_flops(log: _C.OpLog) -> int:
    return sum(call.flops for call, _ in list_calls(log))


def convolve() -> None:
    x = torch.randn(2, 6, 9, 9, requires_grad=True)
    nn.Conv2d(6, 4, 3, stride=2, padding=1)(x).sum().backward()


def convolve_back() -> None:
    x = torch.randn(2, 6, 9, 9, requires_grad=True)
    nn.ConvTranspose2d(6, 4, 3, stride=2)(x).sum().backward()


def attend() -> None:
    q, k, v = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    F.scaled_dot_product_attention(q, k, v).sum().backward()


def multiply() -> None:
    a, b = (torch.randn(2, 3, 4, requires_grad=True) for _ in range(2))
    torch.bmm(a, b.transpose(1, 2)).sum().backward()
    (a[0] @ b[0].t()).sum().backward()
    torch.baddbmm(torch.zeros(2, 3, 3), a, b.transpose(1, 2)).sum().backward()


def train_layer() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    layer(torch.randn(2, 8, 16)).sum().backward()


PROGRAMS = [
    *(convolve, convolve_back, multiply, train_layer),
    pytest.param(attend, marks=NO_FLOPS_OF_CPU_ATTENTION.skips),
]


def under_nothing() -> Any:
    return nullcontext()


@pytest.mark.parametrize("place", [under_nothing, tidegauge.simulate, FakeTensorMode])
@pytest.mark.parametrize("program", PROGRAMS)
def test_flops_are_those_of_torch(program: Callable[[], None], place: Callable[[], Any]) -> None:
    with FlopCounterMode(display=False) as counter:
        program()
    with place(), logged() as log:
        program()
    assert count_flops(log) == counter.get_total_flops() > 0


@pytest.mark.parametrize(
    ("backend", "op"),
    [
        (SDPBackend.FLASH_ATTENTION, "flash_attention"),
        (SDPBackend.CUDNN_ATTENTION, "cudnn_attention"),
        (SDPBackend.EFFICIENT_ATTENTION, "efficient_attention"),
    ],
)
def test_attention_of_a_gpu_is_counted(backend: SDPBackend, op: str) -> None:
    with tidegauge.simulate("cuda"), logged() as log, sdpa_kernel(backend):
        q, k, v = (
            torch.randn(2, 4, 16, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    rows = [call for call, _ in list_calls(log) if call.kind == "attention"]
    forward = 2 * (2 * 4) * 16 * 16 * (8 + 8)
    assert [op in row.op for row in rows] == [True, True]
    assert [row.flops for row in rows] == [forward, forward * 5 // 2]
    assert [row.masked_flops for row in rows] == [forward // 2, forward * 5 // 4]


def test_bytes_of_a_product_are_those_of_its_matrices() -> None:
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    with logged() as log:
        torch.mm(a, b)
    ((call, facts),) = list_calls(log)
    assert (call.op, call.kind, call.dtype, facts) == ("aten::mm", "matmul", "float32", 0)
    assert (call.read_bytes, call.written_bytes) == ((3 * 5 + 5 * 7) * 4, 3 * 7 * 4)
    assert [tensors for _, tensors, _ in call.arguments] == [
        [([3, 5], "float32", True)],
        [([5, 7], "float32", True)],
    ]


def test_facts_tell_backward_recompute_and_optimizer_step() -> None:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.randn(2, 4, requires_grad=True)
    with tidegauge.mem_tracker.MemTracker(), logged() as log:
        checkpoint(layer, x, use_reentrant=False).sum().backward()
        optimizer.step()
    rows = list_calls(log)
    assert [facts for call, facts in rows if call.op == "aten::addmm"] == [
        0,
        0,
        BACKWARD | RECOMPUTE,  # the backward of the second layer needs only its input
    ]
    assert [facts for call, facts in rows if call.op == "aten::mm"] == [BACKWARD] * 4
    assert STEP in {facts for _, facts in rows}


def test_equal_calls_are_described_once() -> None:
    x = torch.randn(3, 3)
    with logged() as log:
        for _ in range(5):
            x = x @ x
        x[:2] @ x
    assert log.position == 7  # with the slice
    assert [call.op for call in log.calls()] == ["aten::mm", "aten::slice.Tensor", "aten::mm"]
    assert len(log.calls(2)) == 1


def test_nothing_is_logged_before_the_start_and_after_the_stop() -> None:
    log = _C.OpLog()
    torch.ones(3).add(1)
    log.start()
    log.stop()
    torch.ones(3).add(1)
    assert log.position == 0
    assert log.entries(-5, 5) == []


def test_waits_of_streams_are_logged() -> None:
    with tidegauge.simulate("cuda"), logged() as log:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.ones(4, device="cuda")
        event = side.record_event()
        torch.cuda.current_stream().wait_event(event)
        torch.ones(4, device="cuda")
    rows = log.entries(0, log.position)
    recorded = next(row for row in rows if row[0] == 1)
    waits = next(row for row in rows if row[0] == 2)
    assert recorded[1] == waits[1]
    assert (recorded[3], waits[3]) == (side.stream_id, 0)
    assert {row[3] for row in rows if row[0] == 0} == {side.stream_id, 0}


def test_collectives_have_payload_and_group() -> None:
    import torch.distributed as dist

    with tidegauge.simulate("cuda", world_size=4), logged() as log:
        part = torch.ones(100, device="cuda")
        whole = torch.empty(400, device="cuda")
        dist.all_gather_into_tensor(whole, part)
        dist.reduce_scatter_tensor(part, whole)
    rows = [call for call, _ in list_calls(log) if call.kind == "collective"]
    assert [(row.payload_bytes, row.group_size) for row in rows] == [(1600, 4), (1600, 4)]
