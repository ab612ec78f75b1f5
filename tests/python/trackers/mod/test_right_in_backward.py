# SPDX-License-Identifier: BSD-3-Clause
"""In backward, an operator belongs to the module that made its node. Compared with upstream."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tidegauge
import torch
from graph_walk import nodes_misplaced
from models import ByKeyword, Calls, Net, Residual, Shared, Tied, Twice, inputs, train
from observe import UpstreamModTracker, differences, names, ours, upstream
from torch import nn

Run = Callable[[nn.Module], torch.Tensor]


def on_inputs(model: nn.Module) -> torch.Tensor:
    return model(inputs()).sum()


def on_sequence(model: nn.Module) -> torch.Tensor:
    return model(torch.ones(1, 3, 4, requires_grad=True)).sum()


#: model, how it is run, nodes that upstream names wrongly, nodes
GRAPHS: dict[str, tuple[Callable[[], nn.Module], Run, int, int]] = {
    "net": (Net, on_inputs, 1, 5),
    "residual": (Residual, on_inputs, 0, 9),
    "one_module_three_times": (Twice, on_inputs, 1, 9),
    "shared_module": (Shared, on_inputs, 1, 6),
    "tied_weights": (Tied, lambda m: m(torch.tensor([1, 2])).sum(), 0, 5),
    "keyword_only": (ByKeyword, lambda m: m(x=inputs()).sum(), 1, 4),
    "encoder_layer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0),
        on_sequence,
        40,
        42,
    ),
    "transformer": (
        lambda: nn.Transformer(4, 2, 1, 1, 8, dropout=0.1, batch_first=True),
        lambda m: m(torch.ones(1, 3, 4), torch.ones(1, 3, 4)).sum(),
        108,
        177,
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_node_belongs_to_the_module_that_made_it(name: str) -> None:
    build, run, wrong_upstream, nodes = GRAPHS[name]
    assert nodes_misplaced(UpstreamModTracker(), build(), run) == (wrong_upstream, nodes)
    assert nodes_misplaced(tidegauge.ModTracker(), build(), run) == (0, nodes)


def test_module_called_by_keyword_ends_when_its_gradients_have_arrived() -> None:
    def scenario() -> nn.Module:
        model = ByKeyword()
        model(x=inputs()).sum().backward()
        return model

    assert differences(upstream(scenario).backward, ours(scenario).backward) == [
        ("cos: ByKeyword ByKeyword.fc", "cos: ByKeyword"),
        ("mul: ByKeyword ByKeyword.fc", "mul: ByKeyword"),
    ]


@pytest.mark.parametrize(("model", "owner"), [(Twice, "Twice.fc"), (Shared, "Shared.first")])
def test_last_accumulation_of_a_shared_weight_belongs_to_its_owner(
    model: type[nn.Module], owner: str
) -> None:
    root = model.__name__
    assert differences(
        upstream(lambda: train(model())).backward, ours(lambda: train(model())).backward
    ) == [("add: -", f"add: {root} {owner}")]


def test_pass_through_module_is_not_active_while_others_run() -> None:
    """A dropout with p=0 returns its input: upstream pops it before it pushes it."""

    def scenario() -> nn.Module:
        return train(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)))

    wrong, right = "Sequential Sequential.0 Sequential.1", "Sequential Sequential.0"
    assert differences(upstream(scenario).backward, ours(scenario).backward) == [
        (f"{op}: {wrong}", f"{op}: {right}") for op in ("mm", "mm", "sum")
    ]


def test_two_roots_of_one_class_are_distinguished() -> None:
    def scenario() -> nn.Module:
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        second(first(inputs())).sum().backward()
        return nn.ModuleList([first, second])

    assert upstream(scenario).backward == ["mm: Linear", "mm: Linear", "sum: Linear"] * 2
    assert ours(scenario).backward == [
        *["mm: Linear#2", "mm: Linear#2", "sum: Linear#2"],
        *["mm: Linear", "mm: Linear", "sum: Linear"],
    ]
    forward = [line for line in ours(scenario).forward if line.startswith("addmm")]
    assert forward == ["addmm: Linear", "addmm: Linear#2"]


def test_module_nested_in_one_of_the_same_class_is_another_module() -> None:
    def scenario() -> nn.Module:
        inner = Calls(lambda self, x: x.sin())
        outer = Calls(lambda self, x: inner(x).cos())  # not a child of outer: its own root
        train(outer)
        return nn.ModuleList([inner, outer])

    with pytest.warns(UserWarning, match="hierarchy tracking maybe be messed up"):
        theirs = upstream(scenario)
    assert theirs.backward == ["sin: Calls", "neg: Calls", "mul: Calls", "cos: Calls", "mul: Calls"]
    assert ours(scenario).backward == [
        *["sin: Calls", "neg: Calls", "mul: Calls"],
        *["cos: Calls Calls#2", "mul: Calls Calls#2"],
    ]


def test_outer_module_begins_before_the_inner_one_with_the_same_output() -> None:
    def pre_bw(hooks: list[str]) -> list[str]:
        return [line for line in hooks if line.startswith("pre_bw")][:2]

    assert pre_bw(upstream(lambda: train(Net())).hooks) == ["pre_bw Net.fc2", "pre_bw Net"]
    assert pre_bw(ours(lambda: train(Net())).hooks) == ["pre_bw Net", "pre_bw Net.fc2"]


def test_backward_hook_sees_only_its_module_and_the_enclosing_ones() -> None:
    def bw(lines: list[str]) -> list[str]:
        return [line for line in lines if "_bw" in line]

    assert bw(upstream(lambda: train(Net())).hooks_within) == [
        "pre_bw Net.fc2: Net.fc2",
        "pre_bw Net: Net Net.fc2",
        "pre_bw Net.act: Net Net.act Net.fc2",
        "post_bw Net.fc2: Net Net.act Net.fc2",
        "pre_bw Net.fc1: Net Net.act Net.fc1",
        "post_bw Net.act: Net Net.act Net.fc1",
        "post_bw Net: Net Net.fc1",
        "post_bw Net.fc1: Net.fc1",
    ]
    assert bw(ours(lambda: train(Net())).hooks_within) == [
        "pre_bw Net: Net",
        "pre_bw Net.fc2: Net Net.fc2",
        "pre_bw Net.act: Net Net.act",
        "post_bw Net.fc2: Net Net.fc2",
        "pre_bw Net.fc1: Net Net.fc1",
        "post_bw Net.act: Net Net.act",
        "post_bw Net: Net",
        "post_bw Net.fc1: Net Net.fc1",
    ]


def test_module_run_without_grad_has_no_backward() -> None:
    def scenario() -> nn.Module:
        body, head = nn.Linear(4, 4), nn.Tanh()
        with torch.no_grad():
            hidden = body(inputs(requires_grad=False))
        head(hidden.requires_grad_()).sum().backward()
        return nn.ModuleList([body, head])

    def bw(hooks: list[str]) -> list[str]:
        return [line for line in hooks if "_bw" in line]

    assert bw(upstream(scenario).hooks) == ["pre_bw Tanh", "post_bw Tanh", "post_bw Linear"]
    assert bw(ours(scenario).hooks) == ["pre_bw Tanh", "post_bw Tanh"]


def test_eval_loop_leaves_no_state_for_the_next_backward() -> None:
    def ended(tracker: tidegauge.ModTracker | UpstreamModTracker) -> int:
        evaluated, trained = nn.Linear(4, 4), nn.Tanh()
        calls: list[object] = []
        tracker.register_user_hooks(post_bw_hook=lambda mod, grads: calls.append(mod))
        with tracker:
            with torch.no_grad():
                for _ in range(100):
                    evaluated(inputs(requires_grad=False))
            train(trained)
        return len(calls)

    assert ended(UpstreamModTracker()) == 101
    assert ended(tidegauge.ModTracker()) == 1


def test_only_global_is_active_after_backward() -> None:
    tracker = tidegauge.ModTracker()
    with tracker:
        train(Net())
        assert names(tracker.parents) == "-"
        assert not tracker.is_bw
