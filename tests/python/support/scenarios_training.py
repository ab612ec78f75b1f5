# SPDX-License-Identifier: BSD-3-Clause
"""Scenarios: optimizers, precision, checkpoints and features of autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from runs import Run, Scenario, Scenarios
from scenarios_models import Residual, mlp, train
from torch import nn
from torch.autograd.graph import save_on_cpu as save_on_cpu_hooks
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

TRAINING = Scenarios()
scenario = TRAINING.add


def steps(
    run: Run, make_optimizer: Callable[..., torch.optim.Optimizer], count: int = 2, **kwargs: Any
) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = make_optimizer(model.parameters())
    with run.tracking(model, optimizer, x):
        for _ in range(count):
            run.reset()
            run.step(model, x, optimizer=optimizer, **kwargs)
    return model


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "sgd_momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "sgd_foreach": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True),
    "adam": torch.optim.Adam,
    "adam_amsgrad": partial(torch.optim.Adam, amsgrad=True),
    "adamw_foreach": partial(torch.optim.AdamW, foreach=True),
    "adamw_single": partial(torch.optim.AdamW, foreach=False),
    "adamw_fused": partial(torch.optim.AdamW, fused=True),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}
for name, make_optimizer in OPTIMIZERS.items():
    TRAINING[name] = partial(steps, make_optimizer=make_optimizer)
TRAINING["zero_grad_in_place"] = partial(
    steps, make_optimizer=OPTIMIZERS["adam"], set_to_none=False
)


@scenario
def lbfgs(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=2)

    def closure() -> torch.Tensor:
        run.reset()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    with run.tracking(model, optimizer, x):
        optimizer.step(closure)
        run.mark("after step")
        optimizer.zero_grad()
        run.mark("after zero_grad")
    return model


@scenario
def gradient_accumulation(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with run.tracking(model, optimizer, x):
        for _ in range(3):
            run.reset()
            run.step(model, x)
        optimizer.step()
        optimizer.zero_grad()
        run.mark("after zero_grad")
    return model


@scenario
def grad_scaler(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    with run.tracking(model, optimizer, x):
        for _ in range(2):
            run.reset()
            run.mark("before forward")
            loss = scaler.scale(model(x).sum())
            run.mark("after forward")
            loss.backward()
            run.mark("after backward")
            scaler.step(optimizer)
            scaler.update()
            run.mark("after step")
            optimizer.zero_grad()
            run.mark("after zero_grad")
    return model


@scenario
def autocast(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with run.tracking(model, optimizer, x):
        run.mark("before forward")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).sum()
            run.mark("inside autocast")
        run.mark("after forward")
        loss.backward()
        run.mark("after backward")
        optimizer.step()
        run.mark("after step")
    return model


class Checkpointed(nn.Module):
    """Blocks with one checkpoint each."""

    def __init__(self, wrap: Callable[..., Any], blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(blocks)
        )
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.wrap(block, x)
        return x


def with_checkpoint(wrap: Callable[..., Any], *, input_needs_grad: bool = False) -> Scenario:
    def scenario(run: Run) -> object:
        x = torch.randn(512, 32, requires_grad=input_needs_grad)
        return train(run, Checkpointed(wrap), x)

    return scenario


def _as_function(block: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    first, _, second = block

    def function(x: torch.Tensor) -> torch.Tensor:
        hidden = x @ first.weight.t() + first.bias  # type: ignore[operator]
        return hidden.relu() @ second.weight.t() + second.bias  # type: ignore[operator]

    y: torch.Tensor = checkpoint(function, x, use_reentrant=False, preserve_rng_state=False)
    return y


def _nested(block: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    def inner(x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(block[0], x, use_reentrant=False, preserve_rng_state=False)
        return block[2](block[1](hidden))

    y: torch.Tensor = checkpoint(inner, x, use_reentrant=False, preserve_rng_state=False)
    return y


def _keep_matmuls(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    is_matmul = op in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
    return CheckpointPolicy.MUST_SAVE if is_matmul else CheckpointPolicy.PREFER_RECOMPUTE


_PLAIN = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
CHECKPOINTS = {
    "checkpoint": with_checkpoint(_PLAIN),
    "checkpoint_keeps_rng_state": with_checkpoint(partial(checkpoint, use_reentrant=False)),
    "checkpoint_reentrant": with_checkpoint(
        partial(checkpoint, use_reentrant=True, preserve_rng_state=False), input_needs_grad=True
    ),
    "checkpoint_without_early_stop": with_checkpoint(partial(_PLAIN, early_stop=False)),
    "checkpoint_of_function": with_checkpoint(_as_function),
    "checkpoint_nested": with_checkpoint(_nested),
    "checkpoint_selective": with_checkpoint(
        partial(_PLAIN, context_fn=partial(create_selective_checkpoint_contexts, _keep_matmuls))
    ),
}
TRAINING |= CHECKPOINTS


@scenario
def retain_graph(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    with run.tracking(model, x):
        loss = model(x).sum()
        loss.backward(retain_graph=True)
        run.mark("after first backward")
        loss.backward()
        run.mark("after second backward")
    return model


@scenario
def gradient_penalty(run: Run) -> object:
    """autograd.grad with respect to a leaf that is a module's input, then backward through it."""
    model, x = mlp(), torch.randn(8, 32, requires_grad=True)
    with run.tracking(model, x):
        (grad,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        run.mark("after grad")
        grad.square().sum().backward()
        run.mark("after backward")
    return model


def saved_by(run: Run, model: nn.Module, hooks: saved_tensors_hooks) -> object:
    x = torch.randn(8, 32)
    with run.tracking(model, x):
        with hooks:
            loss = model(x).sum()
        run.mark("after forward")
        loss.backward()
        run.mark("after backward")
    return model


@scenario
def saved_tensor_hooks(run: Run) -> object:
    """Saved tensors are packed as bfloat16."""
    return saved_by(run, mlp(), saved_tensors_hooks(torch.Tensor.bfloat16, torch.Tensor.float))


@scenario
def save_on_cpu(run: Run) -> object:
    return saved_by(run, Residual(), save_on_cpu_hooks(pin_memory=False))


@scenario
def hooks_that_free_gradients(run: Run) -> object:
    """Like optimizers that step in backward."""
    model, x = mlp(), torch.randn(8, 32)

    def use_and_free(parameter: torch.Tensor) -> None:
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(use_and_free)
    with run.tracking(model, x):
        run.step(model, x)
    return model


@scenario
def autograd_grad(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    with run.tracking(model, x):
        loss = model(x).sum()
        run.mark("after forward")
        grads = torch.autograd.grad(loss, list(model.parameters()))
        run.mark("after grad")
        del grads
        run.mark("after del")
    return model


@scenario
def double_backward(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    with run.tracking(model, x):
        loss = model(x).square().sum()
        grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        run.mark("after grad")
        sum(grad.square().sum() for grad in grads).backward()  # type: ignore[union-attr]
        run.mark("after backward")
        del grads, loss
        run.mark("after del")
    return model
