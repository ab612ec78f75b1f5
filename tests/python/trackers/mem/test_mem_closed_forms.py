# SPDX-License-Identifier: BSD-3-Clause
"""Bytes of common layers by category, computed from their shapes.

`loss = model(x).sum()` keeps 4 bytes of loss and the tensors saved for backward; the output of the
last layer is freed. The gradient of the loss, 4 bytes, is made before the backward begins, so it is
Activation, as in upstream.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from tracked import FLOAT, now, parameter_bytes, peak, split, track, train_once

LOSS = FLOAT
LOSS_AND_ITS_GRADIENT = 2 * FLOAT


@pytest.mark.parametrize("batch", [2, 512])
def test_linear(batch: int) -> None:
    model, x = nn.Linear(16, 8), torch.ones(batch, 16)
    weights = (16 * 8 + 8) * FLOAT
    inputs, outputs = batch * 16 * FLOAT, batch * 8 * FLOAT
    forward, backward, top = train_once(model, x)
    assert forward == split(Parameter=weights, Activation=LOSS, Other=inputs)
    assert backward == split(Parameter=weights, Gradient=weights, Activation=LOSS, Other=inputs)
    if batch == 512:  # the outputs are larger than the gradients: the peak is in forward
        assert top == split(Parameter=weights, Activation=outputs + LOSS, Other=inputs)
    else:
        assert top == split(
            Parameter=weights,
            Gradient=weights,
            Activation=LOSS_AND_ITS_GRADIENT,
            Other=inputs,
        )


def test_linear_with_an_input_that_needs_a_gradient() -> None:
    """The gradient of a leaf that is not a parameter is Temp."""
    model, x = nn.Linear(64, 64), torch.ones(4, 64, requires_grad=True)
    weights, inputs = (64 * 64 + 64) * FLOAT, 4 * 64 * FLOAT
    _, backward, top = train_once(model, x)
    assert backward == split(
        Parameter=weights, Gradient=weights, Activation=LOSS, Temp=inputs, Other=inputs
    )
    assert top == split(
        Parameter=weights,
        Gradient=weights,
        Activation=LOSS_AND_ITS_GRADIENT,
        Temp=inputs,
        Other=inputs,
    )


@pytest.mark.parametrize("batch", [1, 256])
def test_two_linears_and_a_relu(batch: int) -> None:
    """The output of ReLU is saved once, for itself and for the second Linear."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    x = torch.ones(batch, 32)
    first, second = (32 * 64 + 64) * FLOAT, (64 * 8 + 8) * FLOAT
    inputs, hidden = batch * 32 * FLOAT, batch * 64 * FLOAT
    forward, backward, top = train_once(model, x)
    assert forward == split(Parameter=first + second, Activation=hidden + LOSS, Other=inputs)
    assert backward == split(
        Parameter=first + second, Gradient=first + second, Activation=LOSS, Other=inputs
    )
    if batch == 256:
        # In the backward of ReLU, its saved output, the gradient of that and its result are live.
        assert top == split(
            Parameter=first + second,
            Gradient=second,
            Activation=hidden + LOSS_AND_ITS_GRADIENT,
            Temp=2 * hidden,
            Other=inputs,
        )
    else:
        # In the backward of the first Linear, the gradients of its output and all weights are live.
        assert top == split(
            Parameter=first + second,
            Gradient=first + second,
            Activation=LOSS_AND_ITS_GRADIENT,
            Temp=hidden,
            Other=inputs,
        )


def test_convolution_batch_norm_and_relu() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    images, channels, out = 4, 8, 14 * 14  # 16 - 3 + 1
    x = torch.ones(images, 3, 16, 16)
    weights = (8 * 3 * 3 * 3 + 8 + 2 * 8) * FLOAT
    buffers = 2 * channels * FLOAT + 8  # running mean and variance, a 64-bit counter
    inputs, map_bytes = images * 3 * 256 * FLOAT, images * channels * out * FLOAT
    saved = 2 * channels * FLOAT  # the mean and the deviation of this batch
    forward, backward, top = train_once(model, x)
    assert forward == split(
        Parameter=weights,
        Buffer=buffers,
        Activation=2 * map_bytes + saved + LOSS,  # inputs of the norm, outputs of ReLU
        Other=inputs,
    )
    assert backward == split(
        Parameter=weights, Buffer=buffers, Gradient=weights, Activation=LOSS, Other=inputs
    )
    # The gradient of the sum has no memory of its own, so ReLU's result is the first large Temp.
    # The norm then adds its own result and the gradients of its two parameters. ReLU's saved output
    # is freed, the norm's saved input is not.
    norm_gradients = 2 * channels * FLOAT
    assert top == split(
        Parameter=weights,
        Buffer=buffers,
        Gradient=norm_gradients,
        Activation=map_bytes + saved + LOSS_AND_ITS_GRADIENT,
        Temp=2 * map_bytes,
        Other=inputs,
    )


def test_layer_norm() -> None:
    rows, width = 24, 32
    model, x = nn.LayerNorm(width), torch.ones(rows, width)
    weights, inputs = 2 * width * FLOAT, rows * width * FLOAT
    saved = 2 * rows * FLOAT  # mean and reciprocal deviation of each row
    forward, backward, top = train_once(model, x)
    assert forward == split(Parameter=weights, Activation=saved + LOSS, Other=inputs)
    assert backward == split(Parameter=weights, Gradient=weights, Activation=LOSS, Other=inputs)
    assert top == split(Parameter=weights, Activation=inputs + saved + LOSS, Other=inputs)


@pytest.mark.parametrize("sparse", [False, True])
def test_embedding(sparse: bool) -> None:
    words, width, tokens = 100, 16, 24
    model = nn.Embedding(words, width, sparse=sparse)
    x = torch.arange(tokens).view(4, 6)
    weights, inputs = words * width * FLOAT, tokens * 8
    outputs = tokens * width * FLOAT
    # A sparse gradient consists of indices and one row for each.
    gradient = tokens * 8 + outputs if sparse else weights
    forward, backward, top = train_once(model, x)
    assert forward == split(Parameter=weights, Activation=LOSS, Other=inputs)
    assert backward == split(Parameter=weights, Gradient=gradient, Activation=LOSS, Other=inputs)
    assert top == split(
        Parameter=weights,
        Gradient=gradient,
        Activation=LOSS_AND_ITS_GRADIENT,
        Other=inputs,
    )


class Attention(nn.Module):
    """One head, written out so that every tensor saved by autograd can be counted."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.root = width**0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2)
        return self.out(torch.softmax(scores / self.root, -1) @ v)


def test_attention_block() -> None:
    batch, length, width = 3, 10, 32
    model, x = Attention(width), torch.ones(3, length, width)
    weights = (3 * width * width + 3 * width + width * width + width) * FLOAT
    row = batch * length * width * FLOAT
    scores = batch * length * length * FLOAT
    forward, backward, _ = train_once(model, x)
    # q, k, v: one storage of three rows. `bmm` needs each of them contiguous or with a simple
    # stride, as chunks have, so none is copied. softmax and `bmm` share the probabilities.
    assert forward == split(
        Parameter=weights,
        Activation=3 * row + scores + row + LOSS,  # the last row: the input of `out`
        Other=row,
    )
    assert backward == split(Parameter=weights, Gradient=weights, Activation=LOSS, Other=row)


def test_cross_entropy() -> None:
    batch, classes = 32, 50
    model, x = nn.Linear(16, classes), torch.ones(batch, 16)
    labels = torch.zeros(batch, dtype=torch.int64)
    weights, inputs = (16 * classes + classes) * FLOAT, batch * 16 * FLOAT + batch * 8
    logits = batch * classes * FLOAT
    tracker = track(model, x, labels)
    with tracker:
        loss = nn.functional.cross_entropy(model(x), labels)
        # log_softmax saves its result, nll_loss the sum of the weights of the classes (a scalar).
        assert now(tracker) == split(
            Parameter=weights, Activation=logits + FLOAT + LOSS, Other=inputs
        )
        loss.backward()
        assert now(tracker) == split(
            Parameter=weights, Gradient=weights, Activation=LOSS, Other=inputs
        )
    # log_softmax and its gradient; the gradient of nll_loss, the input of log_softmax's backward.
    assert peak(tracker) == split(
        Parameter=weights,
        Activation=logits + LOSS_AND_ITS_GRADIENT,
        Temp=2 * logits,
        Other=inputs,
    )


def test_states_of_adam_and_temporaries_of_its_step() -> None:
    """While a weight is updated, the root of its second moment, its quotient, and the denominator
    of the previous bias are live: 16,384 + 16,384 + 256 bytes."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    x = torch.ones(8, 64)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    weight, bias = 64 * 64 * FLOAT, 64 * FLOAT
    weights = 3 * (weight + bias)
    states = 2 * weights + 6 * FLOAT
    tracker = track(model, optimizer, x)
    with tracker:
        model(x).sum().backward()
        optimizer.step()
        assert now(tracker)["Optstate"] == states == 99_864
        assert peak(tracker) == split(
            Parameter=weights,
            Gradient=weights,
            Optstate=states + 2 * weight + bias,
            Other=8 * 64 * FLOAT,
        )
        assert peak(tracker)["Optstate"] == 132_888


def test_frozen_weight_has_no_gradient_bytes() -> None:
    model = nn.Linear(8, 8)
    model.bias.requires_grad_(False)
    _, backward, top = train_once(model, torch.ones(2, 8))
    assert backward["Parameter"] == top["Parameter"] == (8 * 8 + 8) * FLOAT
    assert backward["Gradient"] == top["Gradient"] == 8 * 8 * FLOAT


def test_storage_of_two_parameters_counts_once() -> None:
    """Upstream has 65,536 in parameter_mem."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            both = torch.ones(2, 64, 64)
            self.a, self.b = nn.Parameter(both[0]), nn.Parameter(both[1])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.a @ self.b

    model, x = Halves(), torch.ones(4, 64)
    tracker = track(model, x)
    with tracker:
        model(x).sum().backward()
        assert now(tracker)["Parameter"] == now(tracker)["Gradient"] == 2 * 64 * 64 * FLOAT
        assert tracker.memory_tracking[model].parameter_mem == 32_768


def test_peak_of_a_module_belongs_to_its_own_call() -> None:
    """Two Linears with one sum: Pre-, Post- and Peak-Forward of each by hand."""
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8))
    x = torch.ones(64, 16)
    weights, inputs = parameter_bytes(model), 64 * 16 * FLOAT
    hidden, outputs = 64 * 32 * FLOAT, 64 * 8 * FLOAT
    tracker = track(model, x)
    with tracker:
        loss = model(x).sum()
        loss.backward()
    device = torch.device("cpu")
    base = weights + inputs

    def totals(module: nn.Module) -> dict[str, int]:
        stats = tracker.memory_tracking[module]
        return {
            state.value: calls[0][device]["Total"]
            for state, calls in stats.snapshots.items()
            if "Forward" in state.value
        }

    assert totals(model[0]) == {
        "Peak-Forward": base + hidden,
        "Pre-Forward": base,
        "Post-Forward": base + hidden,
    }
    assert totals(model[1]) == {
        "Peak-Forward": base + hidden + outputs,
        "Pre-Forward": base + hidden,
        "Post-Forward": base + hidden + outputs,
    }
    stats = tracker.memory_tracking[model[1]]
    assert (stats.input_mem, stats.output_mem) == (hidden, outputs)
