# SPDX-License-Identifier: BSD-3-Clause
"""Which experts the tokens of a mixture of experts choose in a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tidegauge._torch.simulated_tensors import paused

#: (tokens, choices, experts) -> int64 tensor of shape [tokens, choices]
Route = Callable[[int, int, int], torch.Tensor]


def balanced(tokens: int, choices: int, experts: int) -> torch.Tensor:
    """Each expert gets the same number of tokens, or one more."""
    return (torch.arange(tokens * choices) % experts).view(tokens, choices)


def worst(tokens: int, choices: int, experts: int) -> torch.Tensor:
    """All tokens choose the same experts, the first ones."""
    return torch.arange(choices).expand(tokens, choices).contiguous()


def _make_random(seed: int) -> Route:
    """Each router draws other numbers, the same ones on all ranks."""
    generator = torch.Generator().manual_seed(seed)

    def route(tokens: int, choices: int, experts: int) -> torch.Tensor:
        return torch.rand(tokens, experts, generator=generator).topk(choices, -1).indices

    return route


def make_route(routing: Any) -> Route | None:
    """Raises ValueError for an unknown routing."""
    named: dict[str, Route] = {"balanced": balanced, "worst": worst}
    if routing is None:
        return None
    if isinstance(routing, str) and routing in named:
        route = named[routing]
    elif isinstance(routing, int) and not isinstance(routing, bool):
        route = _make_random(routing)
    elif callable(routing):
        route = routing
    else:
        raise ValueError(
            f"invalid routing {routing!r} (expected 'balanced', 'worst', a seed, or a function of "
            "the numbers of tokens, choices and experts)"
        )

    def route_really(tokens: int, choices: int, experts: int) -> torch.Tensor:
        with paused():
            return route(tokens, choices, experts)

    return route_really
