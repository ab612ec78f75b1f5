# SPDX-License-Identifier: BSD-3-Clause
"""Finds the module that made an autograd node by walking the graph, without a tracker.

When a module begins, the nodes behind its inputs that have no owner yet belong to the modules
around it; when it ends, those behind its outputs belong to the module itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from observe import Tracker, names
from torch import nn
from torch.utils._pytree import tree_leaves


class GraphWalk:
    """The owner of each node of `model`'s modules, as "Net Net.fc1"."""

    def __init__(self, model: nn.Module) -> None:
        self.owners: dict[Any, str] = {}  # holds the nodes, so that they keep their identity
        self._chain: list[str] = []
        root = type(model).__name__
        for path, module in model.named_modules():
            name = f"{root}.{path}" if path else root
            module.register_forward_pre_hook(self._begin(name), with_kwargs=True)
            module.register_forward_hook(self._end)

    def _begin(self, name: str) -> Callable[..., None]:
        def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._claim((args, kwargs))
            self._chain.append(name)

        return begin

    def _end(self, module: nn.Module, args: Any, output: Any) -> None:
        self._claim(output)
        self._chain.pop()

    def _claim(self, tensors: Any) -> None:
        owner = " ".join(sorted(self._chain)) or "-"
        to_do = [
            leaf.grad_fn
            for leaf in tree_leaves(tensors)
            if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None
        ]
        while to_do:
            node = to_do.pop()
            if node in self.owners or type(node).__name__ == "AccumulateGrad":
                continue
            self.owners[node] = owner
            to_do += [below for below, _ in node.next_functions if below is not None]


def nodes_misplaced(
    tracker: Tracker, model: nn.Module, run: Callable[[nn.Module], torch.Tensor]
) -> tuple[int, int]:
    """(nodes for which `tracker` names other modules in backward, nodes seen)."""
    walk = GraphWalk(model)
    seen: list[bool] = []
    with tracker:
        loss = run(model)
        for node, owner in walk.owners.items():
            node.register_prehook(
                lambda grads, owner=owner: seen.append(names(tracker.parents) == owner)
            )
        loss.backward()
    return seen.count(False), len(seen)
