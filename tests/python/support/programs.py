# SPDX-License-Identifier: BSD-3-Clause
"""Programs to run both really and simulated: models with common optimizers and options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import hf_models
import torch
from faithful import POLICIES, Make, Program
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adamw(**options: Any) -> MakeOptimizer:
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, **options)


def adafactor(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adafactor(parameters, lr=1e-3)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, find_loss: Callable[[], torch.Tensor]
) -> Program:
    def run() -> None:
        loss = find_loss()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return Program(model, optimizer, run)


def supervised(
    make_model: Callable[[], nn.Module], shape: tuple[int, ...], make_optimizer: MakeOptimizer
) -> Make:
    def make() -> Program:
        model, x = make_model(), torch.randn(shape)
        return train(model, make_optimizer(model.parameters()), lambda: model(x).pow(2).mean())

    return make


def mlp(width: int = 32, layers: int = 3) -> nn.Module:
    return nn.Sequential(
        *(each for _ in range(layers) for each in (nn.Linear(width, width), nn.GELU()))
    )


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 16, 3, stride=2, groups=2),
        nn.GroupNorm(4, 16),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(16, 4, 2, stride=2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


class Recurrent(nn.Module):
    """Without oneDNN, whose workspace has a size that no simulation knows."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(8, 12, num_layers=2, bidirectional=True, dropout=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.backends.mkldnn.flags(enabled=False):
            output: torch.Tensor = self.layers(x)[0]
        return output


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Transformer(16, 2, 1, 1, 32, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        output: torch.Tensor = self.layers(x, x, tgt_mask=mask, tgt_is_causal=True)
        return output


class Checkpointed(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(mlp(layers=2) for _ in range(3))
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()  # reentrant checkpoints need an input with a gradient
        for block in self.blocks:
            x = x + checkpoint(block, x, **self.options)
        return x


def save_products() -> Any:
    return create_selective_checkpoint_contexts([torch.ops.aten.addmm.default])


def autocast() -> Program:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = sgd(model.parameters())

    def find_loss() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float().mean()

    return train(model, optimizer, find_loss)


def scaled() -> Program:
    """Gradients are finite also in the real run."""
    model, x = mlp(), torch.randn(8, 32)
    optimizer = adamw(foreach=True)(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def run() -> None:
        with torch.autocast("cpu", torch.float16):
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return Program(model, optimizer, run)


def clipped(foreach: bool) -> Program:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = sgd(model.parameters())

    def run() -> None:
        for part in x.chunk(2):  # gradients are accumulated
            model(part).mean().backward()
        clip_grad_norm_(model.parameters(), 0.1, foreach=foreach)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return Program(model, optimizer, run)


def transformer(name: str, make_optimizer: MakeOptimizer, *, checkpoints: bool = False) -> Make:
    def make() -> Program:
        model, inputs = hf_models.build(name)
        model.train()
        if checkpoints:
            hf_models.with_checkpoints(model)
        optimizer = make_optimizer(model.parameters())
        return train(model, optimizer, lambda: model(**inputs).loss)

    return make


PROGRAMS: dict[str, Make] = {
    "mlp, SGD": supervised(mlp, (8, 32), sgd),
    "mlp, AdamW single": supervised(mlp, (8, 32), adamw(foreach=False)),
    "mlp, AdamW foreach": supervised(mlp, (8, 32), adamw(foreach=True, amsgrad=True)),
    "mlp, AdamW fused": supervised(mlp, (8, 32), adamw(fused=True)),
    "mlp, Adafactor": supervised(mlp, (8, 32), adafactor),
    "mlp, clipped": lambda: clipped(foreach=False),
    "mlp, clipped foreach": lambda: clipped(foreach=True),
    "convolutions": supervised(convolutions, (2, 3, 16, 16), sgd),
    "LSTM": supervised(lambda: Recurrent(nn.LSTM), (5, 3, 8), sgd),
    "GRU": supervised(lambda: Recurrent(nn.GRU), (5, 3, 8), adamw(foreach=True)),
    "Transformer": supervised(Translator, (2, 5, 16), adamw(foreach=True)),
    "checkpoint": supervised(lambda: Checkpointed(use_reentrant=False), (8, 32), sgd),
    "checkpoint, reentrant": supervised(lambda: Checkpointed(use_reentrant=True), (8, 32), sgd),
    "checkpoint, selective": supervised(
        lambda: Checkpointed(use_reentrant=False, context_fn=save_products), (8, 32), sgd
    ),
    "autocast": autocast,
    "GradScaler": scaled,
    **{f"transformers, {name}": transformer(name, adamw()) for name in hf_models.MODELS},
    **{
        f"transformers, {name}, checkpoints": transformer(name, sgd, checkpoints=True)
        for name in ("llama", "bert", "vit")
    },
    "transformers, gpt2, fused": transformer("gpt2", adamw(fused=True)),
    "transformers, t5, Adafactor": transformer("t5", adafactor),
}


# It reads the norm of each parameter as a number to scale its steps.
POLICIES |= {PROGRAMS[name]: {"item": 1.0} for name in PROGRAMS if "Adafactor" in name}


def tensor_parallel(size: int) -> Program:
    mesh = init_device_mesh("cpu", (size,))
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(8, 32)
    return train(model, adamw(foreach=True)(model.parameters()), lambda: model(x).mean())


IN_A_WORLD: dict[str, tuple[int, Make]] = {
    "tensor parallel, 2": (2, functools.partial(tensor_parallel, 2)),
    "tensor parallel, 8": (8, functools.partial(tensor_parallel, 8)),
}
"""with the number of ranks"""
