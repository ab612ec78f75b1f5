# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile keeps its single graph; other transforms of modules behave as without a tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tidegauge
import torch
from compiling import KINDS, Compile, graph_breaks, reset_compiler
from models import Calls, Net, Residual, inputs, train
from observe import HookLog, Tracker, UpstreamModTracker, names, ours, upstream
from torch import fx, nn
from torch._dynamo.testing import CompileCounter

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    reset_compiler()
    yield
    torch._dynamo.reset()


@KINDS
def test_compiled_before_entering_is_not_compiled_again(compiled: Compile) -> None:
    counter = CompileCounter()
    run = compiled(Net(), counter)
    run(inputs()).sum().backward()
    assert counter.frame_count == 1
    for _ in range(3):
        with tidegauge.ModTracker():
            run(inputs()).sum().backward()
        run(inputs()).sum().backward()
    assert counter.frame_count == 1
    assert graph_breaks() == 0


@KINDS
def test_compiled_inside_is_one_graph_and_not_compiled_again(compiled: Compile) -> None:
    counter = CompileCounter()
    run = compiled(Net(), counter)
    tracker = tidegauge.ModTracker()
    tracker.register_user_hooks(*[lambda *_: None] * 4)
    for _ in range(3):
        with tracker:
            run(inputs()).sum().backward()
        run(inputs()).sum().backward()
    assert counter.frame_count == 1
    assert graph_breaks() == 0


@KINDS
def test_graph_compiled_inside_has_only_operators_of_the_model(compiled: Compile) -> None:
    def operators(is_tracked: bool) -> int:
        torch._dynamo.reset()
        counter = CompileCounter()
        run = compiled(Net(), counter)
        if not is_tracked:
            run(inputs())
            return counter.op_count
        with tidegauge.ModTracker():
            run(inputs())
        return counter.op_count

    assert operators(True) == operators(False) > 0


@pytest.mark.filterwarnings("ignore:Using `torch.compile\\(module\\)`")  # upstream's global hooks
def test_compiled_part_is_not_tracked_and_the_rest_is() -> None:
    def scenario() -> nn.Module:
        return train(nn.Sequential(torch.compile(Net(), backend="eager"), nn.Tanh()))

    called = [f"{kind} Sequential{child}" for kind, child in (("pre_fw", ""), ("pre_fw", ".1"))]
    for record in (upstream(scenario), ours(scenario)):
        assert [line for line in record.hooks if line.startswith("pre_fw")] == called


def test_module_that_is_compiled_in_place_is_one_module() -> None:
    """Upstream's hooks become part of the graph, which breaks it."""

    def hooks(tracker: Tracker) -> list[str]:
        model = Net()
        model.compile(backend="eager", fullgraph=True)
        log = HookLog(tracker)
        with tracker:
            train(model)
        return log.calls

    with pytest.raises(torch._dynamo.exc.Unsupported):
        hooks(UpstreamModTracker())
    assert hooks(tidegauge.ModTracker()) == [
        "pre_fw Net",
        "post_fw Net",
        "pre_bw Net",
        "post_bw Net",
    ]


def test_compiled_model_has_the_same_results() -> None:
    torch.manual_seed(0)
    model, x = Residual(), inputs()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    expected = compiled(x)
    with tidegauge.ModTracker():
        assert torch.equal(compiled(x), expected)


def test_exception_in_a_compiled_module_leaves_the_next_ones_visible() -> None:
    tracker = tidegauge.ModTracker()
    compiled = torch.compile(nn.Linear(4, 4), backend="eager")
    with tracker:
        with pytest.raises(
            Exception, match=r"a and b must have same reduction dim|cannot be multiplied"
        ):
            compiled(torch.ones(2, 5))
        model = train(nn.Tanh())
    assert tracker.get_known_fqn(model) == "Tanh"


def test_modules_after_a_compiled_one_are_tracked() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    compiled = torch.compile(Net(), backend="eager")
    outer = Calls(lambda self, x: self.fc(compiled(x)))
    tracker.register_user_hooks(pre_fw_hook=lambda *_: seen.append(names(tracker.parents)))
    with tracker:
        train(outer)
    assert seen == ["Calls", "Calls Calls.fc"]


def functional_call(model: nn.Module) -> Any:
    parameters = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in parameters.values():
        parameter.requires_grad_()
    return torch.func.functional_call(model, parameters, (inputs(),)).sum().backward()


def test_functional_call_agrees() -> None:
    model = Residual()
    theirs = upstream(lambda: functional_call(model))
    mine = ours(lambda: functional_call(model))
    assert mine.forward == theirs.forward
    assert mine.backward == theirs.backward
    assert mine.hooks == theirs.hooks


def in_grad(model: nn.Module) -> Any:
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).sum()

    return torch.func.grad(loss)(parameters, inputs(requires_grad=False))


def in_vmap(model: nn.Module) -> Any:
    return torch.func.vmap(model)(torch.ones(3, 2, 4))


def in_vmap_of_grad(model: nn.Module) -> Any:
    return torch.func.vmap(torch.func.grad(lambda x: model(x).sum()))(torch.ones(3, 2, 4))


def in_jvp(model: nn.Module) -> Any:
    return torch.func.jvp(model, (torch.ones(2, 4),), (torch.ones(2, 4),))


def in_jacobian(model: nn.Module) -> Any:
    return torch.func.jacrev(model)(torch.ones(2, 4))


@pytest.mark.parametrize("run", [in_grad, in_vmap, in_vmap_of_grad, in_jvp, in_jacobian])
@pytest.mark.parametrize("has_hooks", [False, True])
def test_function_transforms_give_the_same_results(
    run: Callable[[nn.Module], Any], has_hooks: bool
) -> None:
    torch.manual_seed(0)
    model = Net()
    expected = torch.utils._pytree.tree_leaves(run(model))
    tracker = tidegauge.ModTracker()
    called: set[str | None] = set()
    if has_hooks:
        tracker.register_user_hooks(
            lambda mod, args: called.add(tracker.get_known_fqn(mod)), *[lambda *_: None] * 3
        )
    with tracker:
        found = torch.utils._pytree.tree_leaves(run(model))
        assert names(tracker.parents) == "-"
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    if has_hooks:
        assert called == {"Net", "Net.fc1", "Net.act", "Net.fc2"}


@pytest.mark.parametrize("make", [UpstreamModTracker, tidegauge.ModTracker])
def test_trace_inside_gives_a_module_that_runs(make: type[Tracker]) -> None:
    model, x = Net(), torch.ones(2, 4)
    tracker = make()
    with tracker:
        traced = torch.jit.trace(model, x)
        assert torch.equal(traced(x), model(x))
        assert names(tracker.parents) == "-"
    assert torch.equal(traced(x), model(x))


def test_traced_module_is_one_module() -> None:
    traced = torch.jit.trace(Net(), torch.ones(2, 4))

    def called(tracker: Tracker) -> list[str | None]:
        calls: list[str | None] = []
        tracker.register_user_hooks(lambda mod, args: calls.append(tracker.get_known_fqn(mod)))
        with tracker:
            train(nn.Sequential(traced))
        return calls

    expected = ["Sequential", "Sequential.0"]
    assert called(UpstreamModTracker()) == called(tidegauge.ModTracker()) == expected


def test_graph_module_agrees() -> None:
    def scenario() -> nn.Module:
        return train(fx.symbolic_trace(Residual()))

    theirs, mine = upstream(scenario), ours(scenario)
    assert mine.forward == theirs.forward
    assert mine.backward == theirs.backward
    assert "addmm: Residual Residual.left" in mine.forward


def test_symbolic_trace_inside_sees_the_same_graph() -> None:
    model = Residual()
    expected = [node.name for node in fx.symbolic_trace(model).graph.nodes]
    with tidegauge.ModTracker():
        found = [node.name for node in fx.symbolic_trace(model).graph.nodes]
    assert found == expected


def test_export_inside_gives_the_same_graph() -> None:
    model, args = Residual(), (torch.ones(2, 4),)
    expected = [node.name for node in torch.export.export(model, args).graph.nodes]
    with tidegauge.ModTracker():
        found = [node.name for node in torch.export.export(model, args).graph.nodes]
    assert found == expected
