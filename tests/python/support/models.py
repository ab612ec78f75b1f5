# SPDX-License-Identifier: BSD-3-Clause
"""Small models of the kinds that matter to a module tracker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def inputs(requires_grad: bool = True) -> torch.Tensor:
    return torch.ones(2, 4, requires_grad=requires_grad)


def train(model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """Runs one forward and backward; returns the model to keep it alive until then."""
    model(*(args or (inputs(),)), **kwargs).sum().backward()
    return model


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.fc2 = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Residual(nn.Module):
    """Has ops of its own before, between and after its children."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 4)
        self.right = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        x = x + self.left(x).cos()
        return (x * self.right(x)).tanh()


class Twice(nn.Module):
    """Calls one child three times."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.fc(self.fc(x).sin()).cos()).tanh()


class Shared(nn.Module):
    """The same module under two attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).sin()).tanh()


class Tied(nn.Module):
    """Two modules that share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(tokens).sin()).tanh()


class ByKeyword(nn.Module):
    """Calls its child with keyword arguments only."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, *, x: torch.Tensor) -> torch.Tensor:
        return self.fc(input=x.sin()).cos()


class Checkpointed(nn.Module):
    """A checkpointed `body` (of class Net, if none is given) and a plain `head`."""

    def __init__(self, use_reentrant: bool, body: nn.Module | None = None, **options: Any) -> None:
        super().__init__()
        self.body = body or Net()
        self.head = nn.Linear(4, 4)
        self.options = {"use_reentrant": use_reentrant, **options}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint(self.body, x, **self.options)).tanh()


class CheckpointedFunction(nn.Module):
    """Checkpoints a lambda with ops of its own around a child."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(lambda y: self.body(y.sin()).cos(), x, use_reentrant=self.use_reentrant)
        return self.head(hidden).tanh()


class Calls(nn.Module):
    """Calls `function(self, x)` as its forward, with one Linear child `fc`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)
