# SPDX-License-Identifier: BSD-3-Clause
"""Scenarios: how a program uses its modules and the tracker, and errors on the way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from one_thread_gloo import init_one_thread_gloo, settle
from runs import Run, Scenarios
from scenarios_models import mlp
from torch import nn

PROGRAMS = Scenarios()
scenario = PROGRAMS.add


class Tower(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).relu()


def add_up(run: Run, left: nn.Module, right: nn.Module) -> object:
    x = torch.randn(8, 32)
    with run.tracking(left, right, x):
        run.step(lambda x: left(x) + right(x), x)
    return left, right


@scenario
def two_roots_of_one_class(run: Run) -> object:
    return add_up(run, Tower(), Tower())


@scenario
def two_roots_of_two_classes(run: Run) -> object:
    return add_up(run, Tower(), mlp())


@scenario
def child_called_alone_after_root(run: Run) -> object:
    model, x = Tower(), torch.randn(8, 32)
    with run.tracking(model, x):
        run.step(lambda x: model(x) + model.fc(x), x)
    return model


def evaluate(run: Run, mode: AbstractContextManager[Any]) -> object:
    model, x = mlp(), torch.randn(8, 32)
    with run.tracking(model, x):
        with mode:
            y = model(x)
        run.mark("after forward")
        del y
        run.mark("after del")
    return model


@scenario
def eval_without_grad(run: Run) -> object:
    return evaluate(run, torch.no_grad())


@scenario
def inference_mode(run: Run) -> object:
    return evaluate(run, torch.inference_mode())


@scenario
def eval_then_train(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())
    with run.tracking(model, optimizer, x):
        with torch.no_grad():
            model.eval()(x)
        run.mark("after eval")
        run.reset()
        run.step(model.train(), x, optimizer=optimizer)
    return model


@scenario
def functional_call(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    with run.tracking(model, x, parameters):
        run.step(lambda x: torch.func.functional_call(model, parameters, (x,)), x)
    return model


@scenario
def torch_func_grad(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    with run.tracking(model, x):
        grads = torch.func.grad(
            lambda p: torch.func.functional_call(model, p, (x,)).square().sum()
        )(parameters)
        run.mark("after grad")
        del grads
        run.mark("after del")
    return model


@scenario
def vmap(run: Run) -> object:
    x, weight = torch.randn(4, 8, 32), torch.randn(32, 32)
    with run.tracking(x, weight):
        y = torch.func.vmap(lambda row: row @ weight)(x)
        run.mark("mapped")
        del y
    return x


@scenario
def model_built_inside(run: Run) -> object:
    with run.tracking():
        model = mlp()
        x = torch.randn(8, 32)
        optimizer = torch.optim.Adam(model.parameters())
        run.mark("built")
        run.step(model, x, optimizer=optimizer)
    return model


@scenario
def gan(run: Run) -> object:
    generator, critic, noise = mlp(), Tower(), torch.randn(8, 32)
    real = torch.randn(8, 32)
    with run.tracking(generator, critic, noise, real):
        fake = generator(noise)
        run.mark("generated")
        loss = critic(torch.cat([real, fake.detach()])).sum()
        loss.backward()
        run.mark("critic trained")
        run.reset()
        critic(fake).sum().backward()
        run.mark("generator trained")
        del fake, loss
        run.mark("after del")
    return generator, critic


@scenario
def truncated_backpropagation(run: Run) -> object:
    cell, x = nn.GRUCell(16, 16), torch.randn(6, 4, 16)
    with run.tracking(cell, x):
        hidden = torch.zeros(4, 16)
        for step in range(6):
            run.reset()
            hidden = cell(x[step], hidden)
            if step % 3 == 2:
                hidden.sum().backward()
                hidden = hidden.detach()
                run.mark("after backward")
    return cell


def fail(*_: object) -> Any:
    raise ArithmeticError("as the scenario wants")


def fail_then_train(
    run: Run, model: nn.Module, failing: Callable[[torch.Tensor, torch.optim.Optimizer], object]
) -> object:
    """Runs `failing`, then a good step, which the failure must not affect."""
    x = torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())
    with run.tracking(model, optimizer, x):
        with contextlib.suppress(ArithmeticError):
            failing(x, optimizer)
        run.mark("caught")
        optimizer.zero_grad()
        run.reset()
        run.step(model, x, optimizer=optimizer)
    return model


class Fails(nn.Module):
    """Raises in its first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)
        self.fails = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.fails:
            self.fails = False
            fail()
        return self.second(x)


@scenario
def exception_in_forward(run: Run) -> object:
    model = Fails()
    return fail_then_train(run, model, lambda x, _: model(x))


class FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return fail()


@scenario
def exception_in_backward(run: Run) -> object:
    model = mlp()

    def failing(x: torch.Tensor, _: torch.optim.Optimizer) -> None:
        model[2:](FailsInBackward.apply(model[:2](x))).sum().backward()

    return fail_then_train(run, model, failing)


@scenario
def exception_in_gradient_hook(run: Run) -> object:
    model = mlp()

    def failing(x: torch.Tensor, _: torch.optim.Optimizer) -> None:
        with model[2].weight.register_post_accumulate_grad_hook(fail):  # removed at its end
            model(x).sum().backward()

    return fail_then_train(run, model, failing)


@scenario
def exception_in_step(run: Run) -> object:
    model = mlp()

    def failing(x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        model(x).sum().backward()
        optimizer.step(fail)

    return fail_then_train(run, model, failing)


@scenario
def reset_between_forward_and_backward(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    with run.tracking(model, x):
        loss = model(x).sum()
        run.reset()
        loss.backward()
        run.mark("after backward")
    return model


@scenario
def entry_between_forward_and_backward(run: Run) -> object:
    model, x = nn.Linear(32, 32), torch.randn(8, 32)
    loss = model(x).sum()
    run.leave_out(4)  # the loss; no other tensor of the forward is kept
    with run.tracking(model, x):
        loss.backward()
        run.mark("after backward")
    return model, loss


@scenario
def exit_between_forward_and_backward(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    with run.tracking(model, x):
        loss = model(x).sum()
        run.mark("after forward")
    loss.backward()
    del loss
    return model


@scenario
def distributed_data_parallel(run: Run) -> object:
    """One step without synchronisation before it: otherwise a gloo thread would free buffers at an
    arbitrary time."""
    init_one_thread_gloo(dist.HashStore(), rank=0, world_size=1)
    try:
        model, x = mlp(), torch.randn(8, 32)
        with run.tracking(model, x):
            parallel = nn.parallel.DistributedDataParallel(model, init_sync=False)
            run.mark("wrapped")
            optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
            run.step(parallel, x, optimizer=optimizer)
        return parallel
    finally:
        # The end of the group waits for gloo's thread while it holds the GIL, but the thread needs
        # the GIL to drop its references to upstream's mode.
        settle()
        dist.destroy_process_group()
