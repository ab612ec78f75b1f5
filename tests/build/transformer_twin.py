# SPDX-License-Identifier: BSD-3-Clause
"""The Python twin of examples/cpp/train_transformer.cpp: the same modules and operators.

`Linear` and `CppAdam` do what torch's C++ classes do where Python's differ. Prints the same as the
C++ program and has the same options `--json` and `--allocator`. `--torch-adam` uses Python's own
optimizer.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import torch
from tidegauge import MemTracker
from torch import Tensor, nn, optim

VOCABULARY, WIDTH, HEADS, LENGTH, BATCH = 100, 32, 4, 16, 2


class Linear(nn.Linear):
    """torch::nn::functional::linear multiplies and then adds, unless the input is a matrix."""

    def forward(self, x: Tensor) -> Tensor:
        output = x.matmul(self.weight.t())
        output += self.bias
        return output


class Attention(nn.Module):
    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv = Linear(WIDTH, 3 * WIDTH)
        self.out = Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).view(BATCH, LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        products = torch.matmul(heads[0], heads[1].transpose(-2, -1))
        # Divides like C++. Python's `/` would make and save a tensor of 8 bytes for the number.
        scores = torch.ops.aten.div.Scalar(products, 8.0)
        del products
        weights = scores.masked_fill(self.mask, -1e9).softmax(-1)
        mixed = torch.matmul(weights, heads[2]).transpose(1, 2)
        return self.out(mixed.reshape(BATCH, LENGTH, WIDTH))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = Linear(WIDTH, 4 * WIDTH)
        self.relu = nn.ReLU()
        self.narrow = Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.wide(x)
        active = self.relu(hidden)
        return self.narrow(active)  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.mlp = Mlp()

    def forward(self, x: Tensor) -> Tensor:
        attended = self.attention(self.norm_1(x))
        y = x + attended
        changed = self.mlp(self.norm_2(y))
        return y + changed  # type: ignore[no-any-return]


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.block_1 = Block()
        self.block_2 = Block()
        self.head = Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.block_2(self.block_1(self.embed(tokens))))  # type: ignore[no-any-return]


class CppAdam(optim.Optimizer):
    """torch::optim::Adam: creates states parameter by parameter, without a step tensor."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            beta_1, beta_2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                    state["exp_avg_sq"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                state["step"] += 1
                correction_1 = 1 - beta_1 ** state["step"]
                correction_2 = 1 - beta_2 ** state["step"]
                state["exp_avg"].mul_(beta_1).add_(p.grad, alpha=1 - beta_1)
                state["exp_avg_sq"].mul_(beta_2).addcmul_(p.grad, p.grad, value=1 - beta_2)
                denom = (state["exp_avg_sq"].sqrt() / math.sqrt(correction_2)).add_(group["eps"])
                p.addcdiv_(state["exp_avg"], denom, value=-group["lr"] / correction_1)
                del denom  # its scope in C++ ends here


def figures(snapshot: Any) -> dict[str, list[int]]:
    return {str(device): list(sizes.values())[:-1] for device, sizes in snapshot.items()}


def train(
    model: nn.Module, optimizer_class: Any, **options: Any
) -> tuple[MemTracker, list[dict[str, Any]]]:
    """Runs the training; returns the tracker and a record for each moment and module."""
    torch.manual_seed(0)
    optimizer = optimizer_class(model.parameters(), **options)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    tracker = MemTracker(allocator="--allocator" in sys.argv)
    tracker.track_external(model, optimizer, tokens)
    records: list[dict[str, Any]] = []

    def report(moment: str) -> None:
        snapshots = {
            kind: figures(tracker.get_tracker_snapshot(kind)) for kind in ("current", "peak")
        }
        untracked = [
            sum(tracker.get_untracked_memory(kind).values()) for kind in ("current", "peak")
        ]
        records.append({"moment": moment, **snapshots, "untracked": untracked})

    with tracker:
        for step in ("1", "2"):
            optimizer.zero_grad()
            report(f"start {step}")
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            report(f"forward {step}")
            torch.autograd.backward(loss)
            report(f"backward {step}")
            optimizer.step()
            report(f"step {step}")
            del loss
    for stats in tracker.memory_tracking.values():  # type: ignore[no-untyped-call]
        records.append(
            {
                "mod_fqn": stats.mod_fqn,
                "sizes": [stats.parameter_mem, stats.buffer_mem, stats.input_mem, stats.output_mem],
                "snapshots": [
                    [state.value, figures(snapshot)]
                    for state, calls in stats.snapshots.items()
                    for snapshot in calls
                ],
            }
        )
    return tracker, records


def main() -> None:
    uses_torch = "--torch-adam" in sys.argv
    model = Transformer()
    adam, options = (optim.Adam, {"foreach": False}) if uses_torch else (CppAdam, {})
    tracker, records = train(model, adam, **options)
    if "--json" in sys.argv:
        print("\n".join(map(json.dumps, records)))
        return
    print("At the peak")
    tracker.display_snapshot("peak", "KiB")
    print("\nThe model in the second step")
    tracker.display_modulewise_snapshots(2, "KiB")


if __name__ == "__main__":
    main()
