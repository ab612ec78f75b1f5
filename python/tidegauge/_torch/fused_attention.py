# SPDX-License-Identifier: BSD-3-Clause
"""flex_attention in a simulation: the memory of its fused kernel, which has no score matrix."""

from __future__ import annotations

from typing import Any

import torch


def _empty_like_query(query: torch.Tensor, width: int) -> torch.Tensor:
    """The output has the order of dimensions of the query."""
    sizes = [*query.shape[:-1], width]
    order = sorted(range(query.dim()), key=lambda dim: query.stride(dim), reverse=True)
    permuted = query.new_empty([sizes[dim] for dim in order])
    inverse = sorted(range(query.dim()), key=lambda position: order[position])
    return permuted.permute(inverse)


class FusedAttention(torch.autograd.Function):
    """The tensors that the generated kernels make and save, forward and backward.

    Arguments: query, key, value, whether the log-sum-exp and the maximal scores are made, how many
    of the others belong to the block mask; the tensors of the block mask and those that score_mod
    captures.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query, key, value, has_sums, has_maxima, block_count, *others = args
        output = _empty_like_query(query, value.shape[-1])

        def make_statistic(is_made: bool) -> torch.Tensor:
            shape = query.shape[:-1] if is_made else (0,)
            statistic: torch.Tensor = query.new_empty(shape, dtype=torch.float32)
            return statistic

        sums, maxima = make_statistic(has_sums), make_statistic(has_maxima)
        ctx.mark_non_differentiable(maxima)
        ctx.save_for_backward(query, key, value, output, sums, *others)
        ctx.block_count = block_count
        return output, sums, maxima

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        query, key, value, _, sums, *others = ctx.saved_tensors
        weighted = torch.empty_like(sums)  # the sum of output times gradient, for each row
        found = tuple(torch.empty_like(each) for each in (query, key, value))
        captured = tuple(
            torch.empty_like(each) if i >= ctx.block_count and each.requires_grad else None
            for i, each in enumerate(others)
        )
        del weighted
        return (*found, None, None, None, *captured)


def _captured_tensors(function: Any) -> list[torch.Tensor]:
    """The tensors in the closure of a score_mod; a compiler would make them arguments."""
    cells = getattr(function, "__closure__", None) or ()
    values = (cell.cell_contents for cell in cells)
    return [each for each in values if isinstance(each, torch.Tensor)]


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any,
    block_mask: Any,
    options: Any,
    buffers: Any,
) -> Any:
    """`flex_attention` of simulated tensors, as the operator that dynamo calls returns it."""
    blocks = [each for each in block_mask if isinstance(each, torch.Tensor)]
    captured = [*_captured_tensors(score_mod), *buffers]
    captured = [each for each in captured if isinstance(each, torch.Tensor)]
    needs_grad = torch.is_grad_enabled() and any(
        each.requires_grad for each in (query, key, value, *captured)
    )
    has_sums = needs_grad or bool(options.get("OUTPUT_LOGSUMEXP"))
    has_maxima = bool(options.get("OUTPUT_MAX"))
    return FusedAttention.apply(
        query, key, value, has_sums, has_maxima, len(blocks), *blocks, *captured
    )
