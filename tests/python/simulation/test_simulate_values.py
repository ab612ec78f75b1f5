# SPDX-License-Identifier: BSD-3-Clause
"""Values that a simulation knows: constants of any size, short lists, finite numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tidegauge import simulate

MANY = 1 << 20


def resize_and_write(x: torch.Tensor) -> torch.Tensor:
    """As context_parallel does with its buffers."""
    x.resize_(4).copy_(torch.arange(4) + 5)
    return x.resize_(8)


ANSWERS: dict[str, Callable[[], Any]] = {
    "ones": lambda: torch.ones(MANY).all().item(),
    "zeros": lambda: torch.zeros(MANY).any().item(),
    "full": lambda: torch.full((MANY,), 3.5).max().item(),
    "view": lambda: torch.ones(4, MANY)[2:, 5].view(1, 2).sum().item(),
    "cast": lambda: torch.ones(MANY).bool().all().item(),
    "sum": lambda: torch.ones(MANY, dtype=torch.long).sum().item(),
    "sum of a dimension": lambda: torch.ones(4, MANY).sum(1)[0].item(),
    "mean": lambda: torch.full((MANY,), 0.25).mean().item(),
    "arithmetic": lambda: ((torch.ones(MANY) * 2 - 1) == 1).all().item(),
    "mask": lambda: (1.0 - torch.ones(8, MANY)).masked_fill(torch.zeros(1).bool(), 9).max().item(),
    "like": lambda: torch.zeros_like(torch.rand(MANY)).eq(0).all().item(),
    "in place": lambda: torch.zeros(MANY).add_(1).mul_(3).min().item(),
    "fill": lambda: torch.empty(MANY).fill_(7).min().item(),
    "cat": lambda: torch.cat([torch.ones(MANY), torch.ones(MANY)]).all().item(),
    "expand": lambda: torch.ones(1, 1).expand(MANY, 4).contiguous().all().item(),
    "bool": lambda: bool(torch.ones(MANY).all()),
    "count": lambda: torch.ones(MANY).count_nonzero().item(),
    "linspace": lambda: torch.linspace(0, 1, 256).tolist(),
    "arange": lambda: torch.arange(0, 3, 0.01).max().item(),
    "item of a constant": lambda: torch.full((2, MANY), 4)[1, 77].item(),
    "tensor of tensors": lambda: torch.tensor([torch.tensor(3), torch.tensor(4)]).tolist(),
    "tensor of tensors, nested": lambda: torch.tensor(
        [[torch.tensor(3.5), 1.0], [torch.ones(1)[0], 2.0]]
    ).tolist(),
    "dtype of a tensor of tensors": lambda: torch.tensor([torch.tensor(1.0)]).dtype,
    "transposed in place": lambda: torch.arange(6).view(2, 3).t_().tolist(),
    "resized and back": lambda: resize_and_write(torch.arange(8)).tolist(),
    "nonzero": lambda: torch.ones(64).nonzero().shape,
    "indexing": lambda: torch.rand(1000)[torch.ones(1000).bool()].shape,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_known_value_equals_the_real_one(name: str) -> None:
    real = ANSWERS[name]()
    with simulate():
        assert ANSWERS[name]() == real


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[0].fill_(1),
        lambda x: x.view(torch.int32)[3:5].zero_(),
        lambda x: x.add_(torch.rand(MANY)),
        lambda x: x.copy_(torch.rand(MANY)),
        lambda x: x.normal_(),
    ],
)
def test_constant_that_is_written_to_is_unknown(change: Callable[[torch.Tensor], Any]) -> None:
    with simulate():
        x = torch.full((MANY,), 2.0)
        change(x)
        with pytest.raises(RuntimeError, match="asks for the value"):
            x.max().item()


def test_view_as_another_dtype_does_not_have_the_same_value() -> None:
    with simulate():
        x = torch.full((MANY,), 2.0).view(torch.int32)
        with pytest.raises(RuntimeError, match="asks for the value"):
            x.max().item()
        assert torch.zeros(MANY).view(torch.int32).max().item() == 0


@pytest.mark.parametrize("size", [3, MANY])
def test_unknown_numbers_are_finite(size: int) -> None:
    with simulate():
        x = torch.randn(size)
        assert not torch.isnan(x).any()
        assert not torch.isinf(x).any()
        assert not torch.isposinf(x).any()
        assert torch.isfinite(x).all()
        assert torch.isnan(torch.tensor([1.0, float("nan")])).any()
        assert not torch.isfinite(torch.tensor(float("inf"))).all()
        assert not (x != x).any()


def test_counts_of_integers_that_only_a_gpu_can_make_are_known() -> None:
    """Transformers counts the tokens of each expert with histc, of integers on CUDA."""
    with simulate("cuda"):
        chosen = torch.tensor([0, 2, 2, 3, 2], device="cuda", dtype=torch.int32)
        counts = torch.histc(chosen, bins=4, min=0, max=3)
        assert counts.dtype == torch.int32
        assert counts.tolist() == [1, 0, 3, 1]


def test_memory_that_a_resize_adds_is_unknown() -> None:
    with simulate():
        x = torch.arange(4)
        x.resize_(8)
        with pytest.raises(RuntimeError):
            x.tolist()
