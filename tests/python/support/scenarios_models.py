# SPDX-License-Identifier: BSD-3-Clause
"""Scenarios: kinds of models and of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from runs import Run, Scenarios
from torch import nn

MODELS = Scenarios()
scenario = MODELS.add


def mlp(width: int = 32, layers: int = 3) -> nn.Sequential:
    return nn.Sequential(
        *(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU()))
    )


def train(
    run: Run,
    model: nn.Module,
    *args: Any,
    forward: Callable[..., Any] | None = None,
    **kwargs: Any,
) -> object:
    """One step of SGD on trainable parameters; `forward` replaces the plain call of the model."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trainable, lr=0.1)
    with run.tracking(model, optimizer, *args, *kwargs.values()):
        run.step(forward or model, *args, optimizer=optimizer, **kwargs)
    return model


@scenario
def one_linear(run: Run) -> object:
    return train(run, nn.Linear(16, 8), torch.ones(4, 16))


@scenario
def input_needs_grad(run: Run) -> object:
    return train(run, mlp(), torch.ones(8, 32, requires_grad=True))


@scenario
def conv_and_batch_norm(run: Run) -> object:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)
    )
    return train(run, model, torch.randn(2, 3, 12, 12))


@scenario
def pooling(run: Run) -> object:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1))
    return train(run, model, torch.randn(2, 3, 12, 12))


@scenario
def layer_norm(run: Run) -> object:
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.LayerNorm(32))
    return train(run, model, torch.randn(8, 32))


@scenario
def group_norm_and_gelu(run: Run) -> object:
    return train(run, nn.Sequential(nn.GroupNorm(2, 8), nn.GELU()), torch.randn(4, 8, 6))


@scenario
def embedding(run: Run) -> object:
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50))
    return train(run, model, torch.randint(50, (4, 6)))


@scenario
def embedding_sparse(run: Run) -> object:
    """The gradient consists of indices (int64) and values of the 24 looked-up rows."""
    return train(run, nn.Embedding(50, 16, sparse=True), torch.randint(50, (4, 6)))


@scenario
def embedding_bag(run: Run) -> object:
    return train(run, nn.EmbeddingBag(50, 16), torch.randint(50, (4, 6)))


@scenario
def attention(run: Run) -> object:
    model = nn.MultiheadAttention(16, 2, batch_first=True)
    return train(run, model, torch.randn(2, 5, 16), forward=lambda x: model(x, x, x)[0])


@scenario
def transformer_layer(run: Run) -> object:
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return train(run, model, torch.randn(2, 5, 16))


@scenario
def transformer_decoder(run: Run) -> object:
    model = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return train(run, model, torch.randn(2, 5, 16), torch.randn(2, 7, 16))


class LastOutput(nn.Module):
    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.recurrent(x)[0]
        return output


@scenario
def lstm(run: Run) -> object:
    return train(run, LastOutput(nn.LSTM(8, 12, num_layers=2)), torch.randn(5, 3, 8))


@scenario
def gru(run: Run) -> object:
    return train(run, LastOutput(nn.GRU(8, 12, bidirectional=True)), torch.randn(5, 3, 8))


class Residual(nn.Module):
    def __init__(self, width: int = 32, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
            for _ in range(blocks)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


@scenario
def residual(run: Run) -> object:
    return train(run, Residual(), torch.randn(8, 32))


@scenario
def shared_module(run: Run) -> object:
    layer = nn.Linear(32, 32)
    return train(run, nn.Sequential(layer, nn.ReLU(), layer), torch.randn(8, 32))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.relu(self.fc(x)))


@scenario
def module_called_twice(run: Run) -> object:
    return train(run, Twice(), torch.randn(8, 32))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(tokens))


@scenario
def tied_weights(run: Run) -> object:
    return train(run, Tied(), torch.randint(50, (4, 6)))


@scenario
def frozen_layer(run: Run) -> object:
    model = nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8))
    return train(run, model, torch.randn(4, 8))


class Lora(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(32, 32).requires_grad_(False)
        self.down = nn.Linear(32, 4, bias=False)
        self.up = nn.Linear(4, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


@scenario
def lora(run: Run) -> object:
    return train(run, nn.Sequential(Lora(), nn.ReLU(), Lora()), torch.randn(8, 32))


class Int8Linear(nn.Module):
    """An int8 weight with a scale; the weight is a parameter or a buffer."""

    def __init__(self, as_buffer: bool) -> None:
        super().__init__()
        weight = torch.randint(-127, 127, (32, 32), dtype=torch.int8)
        if as_buffer:
            self.register_buffer("weight", weight)
        else:
            self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight.float()) * self.scale


@scenario
def int8_buffer(run: Run) -> object:
    return train(run, Int8Linear(as_buffer=True), torch.randn(8, 32))


@scenario
def int8_parameter(run: Run) -> object:
    return train(run, Int8Linear(as_buffer=False), torch.randn(8, 32))


class ByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 32)

    def forward(self, *, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * scale


@scenario
def keyword_arguments(run: Run) -> object:
    return train(run, ByKeyword(), x=torch.randn(8, 32), scale=torch.randn(8, 32))


class TwoArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * self.fc(y)


@scenario
def same_argument_twice(run: Run) -> object:
    x = torch.randn(8, 32)
    return train(run, TwoArguments(), x, x)


class Chunks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.fc(x).chunk(2, dim=-1)


@scenario
def outputs_that_share_a_storage(run: Run) -> object:
    return train(run, Chunks(), torch.randn(8, 32))


class OneStorage(nn.Module):
    """Two parameters, both halves of one storage of 2 x 64 x 64 float32."""

    def __init__(self) -> None:
        super().__init__()
        halves = torch.randn(2, 64, 64)
        self.a = nn.Parameter(halves[0])
        self.b = nn.Parameter(halves[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.a @ self.b


@scenario
def parameters_that_share_a_storage(run: Run) -> object:
    return train(run, OneStorage(), torch.randn(4, 64))


@scenario
def dropout_and_softmax(run: Run) -> object:
    model = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5), nn.Softmax(-1))
    return train(run, model, torch.randn(8, 32))


@scenario
def modules_that_return_their_input(run: Run) -> object:
    inner = nn.Sequential(nn.Identity(), nn.Dropout(0.0))
    model = nn.Sequential(
        nn.Linear(32, 32), nn.Identity(), inner, nn.Linear(32, 32), nn.Dropout(0.0)
    )
    return train(run, model, torch.randn(8, 32))


@scenario
def relu_in_place(run: Run) -> object:
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(inplace=True), nn.Linear(32, 32))
    return train(run, model, torch.randn(8, 32))


@scenario
def complex_numbers(run: Run) -> object:
    model = nn.Linear(8, 8, dtype=torch.complex64)
    x = torch.randn(4, 8, dtype=torch.complex64)
    return train(run, model, x, forward=lambda x: model(x).abs())


@scenario
def parametrized_weight(run: Run) -> object:
    model = nn.utils.parametrizations.weight_norm(nn.Linear(32, 32))
    return train(run, model, torch.randn(8, 32))
