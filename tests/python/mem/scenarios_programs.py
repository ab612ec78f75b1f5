# SPDX-License-Identifier: BSD-3-Clause
"""Scenarios: how a program uses its modules and the tracker, and what goes wrong on the way."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
import torch.distributed as dist
from runs import Run, Scenario
from scenarios_models import mlp
from torch import nn

PROGRAMS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    PROGRAMS[function.__name__] = function
    return function


class Tower(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).relu()


@scenario
def two_roots_of_one_class(run: Run) -> object:
    left, right, x = Tower(), Tower(), torch.randn(8, 32)
    run.track(left, right, x)
    with run.tracking():
        run.step(lambda x: left(x) + right(x), x)
    return left, right


@scenario
def two_roots_of_two_classes(run: Run) -> object:
    left, right, x = Tower(), mlp(), torch.randn(8, 32)
    run.track(left, right, x)
    with run.tracking():
        run.step(lambda x: left(x) + right(x), x)
    return left, right


@scenario
def child_called_alone_after_root(run: Run) -> object:
    model, x = Tower(), torch.randn(8, 32)
    run.track(model, x)
    with run.tracking():
        run.step(lambda x: model(x) + model.fc(x), x)
    return model


@scenario
def eval_without_grad(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    run.track(model, x)
    with run.tracking():
        with torch.no_grad():
            y = model(x)
        run.mark("after forward")
        del y
        run.mark("after del")
    return model


@scenario
def inference_mode(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    run.track(model, x)
    with run.tracking():
        with torch.inference_mode():
            y = model(x)
        run.mark("after forward")
        del y
        run.mark("after del")
    return model


@scenario
def eval_then_train(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())
    run.track(model, optimizer, x)
    with run.tracking():
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
    run.track(model, x, parameters)
    with run.tracking():
        run.step(lambda x: torch.func.functional_call(model, parameters, (x,)), x)
    return model


@scenario
def torch_func_grad(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    run.track(model, x)
    with run.tracking():
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
    run.track(x, weight)
    with run.tracking():
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
    run.track(generator, critic, noise, real)
    with run.tracking():
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
    run.track(cell, x)
    with run.tracking():
        hidden = torch.zeros(4, 16)
        for step in range(6):
            run.reset()
            hidden = cell(x[step], hidden)
            if step % 3 == 2:
                hidden.sum().backward()
                hidden = hidden.detach()
                run.mark("after backward")
    return cell


class Fails(nn.Module):
    """Raises in its forward when told so."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.fails:
            raise ArithmeticError("as the scenario wants")
        return self.second(x)


@scenario
def exception_in_forward(run: Run) -> object:
    model, x = Fails(), torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())
    run.track(model, optimizer, x)
    with run.tracking():
        model.fails = True
        with contextlib.suppress(ArithmeticError):
            model(x)
        model.fails = False
        run.mark("caught")
        run.reset()
        run.step(model, x, optimizer=optimizer)
    return model


class FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, fails: bool) -> torch.Tensor:
        ctx.fails = fails
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        if ctx.fails:
            raise ArithmeticError("as the scenario wants")
        return grad, None


def raises_in_backward(loss: torch.Tensor) -> None:
    with contextlib.suppress(ArithmeticError):
        loss.backward()


@scenario
def exception_in_backward(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())
    run.track(model, optimizer, x)
    with run.tracking():
        hidden = FailsInBackward.apply(model[:2](x), True)
        raises_in_backward(model[2:](hidden).sum())
        del hidden
        run.mark("caught")
        optimizer.zero_grad()
        run.reset()
        run.step(model, x, optimizer=optimizer)
    return model


@scenario
def exception_in_gradient_hook(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())

    def fail(parameter: torch.Tensor) -> None:
        raise ArithmeticError("as the scenario wants")

    handle = model[2].weight.register_post_accumulate_grad_hook(fail)
    run.track(model, optimizer, x)
    with run.tracking():
        raises_in_backward(model(x).sum())
        run.mark("caught")
        handle.remove()
        optimizer.zero_grad()
        run.reset()
        run.step(model, x, optimizer=optimizer)
    return model


@scenario
def exception_in_step(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())

    def closure() -> float:
        raise ArithmeticError("as the scenario wants")

    run.track(model, optimizer, x)
    with run.tracking():
        model(x).sum().backward()
        with contextlib.suppress(ArithmeticError):
            optimizer.step(closure)
        run.mark("caught")
        optimizer.zero_grad()
        run.reset()
        run.step(model, x, optimizer=optimizer)
    return model


@scenario
def reset_between_forward_and_backward(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    run.track(model, x)
    with run.tracking():
        loss = model(x).sum()
        run.reset()
        loss.backward()
        run.mark("after backward")
    return model


@scenario
def entry_between_forward_and_backward(run: Run) -> object:
    model, x = nn.Linear(32, 32), torch.randn(8, 32)
    loss = model(x).sum()
    run.leave_out(4)  # the loss itself; nothing else of the forward is kept
    run.track(model, x)
    with run.tracking():
        loss.backward()
        run.mark("after backward")
    return model, loss


@scenario
def exit_between_forward_and_backward(run: Run) -> object:
    model, x = mlp(), torch.randn(8, 32)
    run.track(model, x)
    with run.tracking():
        loss = model(x).sum()
        run.mark("after forward")
    loss.backward()
    del loss
    return model


@scenario
def distributed_data_parallel(run: Run) -> object:
    """One step, no synchronisation before it: otherwise a thread of gloo frees buffers when it
    likes to."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model, x = mlp(), torch.randn(8, 32)
        run.track(model, x)
        with run.tracking():
            parallel = nn.parallel.DistributedDataParallel(model, init_sync=False)
            run.mark("wrapped")
            optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
            run.step(parallel, x, optimizer=optimizer)
        # Gloo's thread still drops what it kept of upstream's mode, for which it needs the GIL; the
        # end of the group waits for that thread with the GIL held.
        time.sleep(0.2)
        return parallel
    finally:
        dist.destroy_process_group()
