# SPDX-License-Identifier: BSD-3-Clause
"""Scenarios in which upstream raises, and the right figures, computed from the shapes."""

from __future__ import annotations

from runs import Split
from tracked import FLOAT, split

NO_GRADIENT = (RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")

UPSTREAM_FAILS: dict[str, tuple[type[Exception], str]] = {
    "embedding_sparse": (NotImplementedError, "Cannot access storage of SparseTensorImpl"),
    "sparse_tensor": (NotImplementedError, "Cannot access storage of SparseTensorImpl"),
    "frozen_layer": NO_GRADIENT,
    "lora": NO_GRADIENT,
    "int8_parameter": NO_GRADIENT,
    "gradient_penalty": (RuntimeError, "A leaf node was passed to _will_engine_execute_node"),
    "tensors_swapped": (RuntimeError, "Cannot swap t1 because it has weakref"),
    "torch_func_grad": (NotImplementedError, "Cannot access storage of TensorWrapper"),
    "child_called_alone_after_root": (NotImplementedError, "multiple iterative calls"),
    "gan": (KeyError, "weakref"),
    "reset_between_forward_and_backward": (KeyError, "weakref"),
}

NAMED_APART = {"two_roots_of_one_class"}
"""has its own test"""

LOSS = FLOAT
LOSS_AND_ITS_GRADIENT = 2 * FLOAT
ROW = 8 * 32 * FLOAT  # a batch of most scenarios
LINEAR = (32 * 32 + 32) * FLOAT


def _embedding_sparse() -> dict[str, Split]:
    weights, tokens = 50 * 16 * FLOAT, 24
    indices, values = tokens * 8, tokens * 16 * FLOAT
    return {
        "after forward": split(Parameter=weights, Activation=LOSS, Other=indices),
        "after backward": split(
            Parameter=weights, Gradient=indices + values, Activation=LOSS, Other=indices
        ),
        "after zero_grad": split(Parameter=weights, Activation=LOSS, Other=indices),
        "peak": split(
            Parameter=weights,
            Gradient=indices + values,
            Activation=LOSS_AND_ITS_GRADIENT,
            Other=indices,
        ),
    }


def _sparse_tensor() -> dict[str, Split]:
    indices, values, dense = 2 * 2 * 8, 2 * FLOAT, 9 * FLOAT
    coo = indices + values
    csr = 4 * 8 + 2 * 2 * 8 + values  # rows; columns and the indices of both; values
    external = indices + values
    return {
        "coalesced": split(Activation=coo, Other=external),
        "dense": split(Activation=coo + dense, Other=external),
        "csr": split(Activation=coo + dense + csr, Other=external),
        "after del": split(Other=external),
        "peak": split(Activation=coo + dense + csr, Other=external),
    }


def _frozen_layer() -> dict[str, Split]:
    layer, row = (8 * 8 + 8) * FLOAT, 4 * 8 * FLOAT
    return {
        "after forward": split(Parameter=2 * layer, Activation=row + LOSS, Other=row),
        "after backward": split(Parameter=2 * layer, Gradient=layer, Activation=LOSS, Other=row),
        "peak": split(
            Parameter=2 * layer,
            Gradient=layer,
            Activation=row + LOSS_AND_ITS_GRADIENT,
            Other=row,
        ),
    }


def _lora() -> dict[str, Split]:
    low_rank = 2 * 32 * 4 * FLOAT
    weights, down = 2 * (LINEAR + low_rank), 8 * 4 * FLOAT
    return {
        # Saved: the output of each `down`, and the output of ReLU.
        "after forward": split(Parameter=weights, Activation=2 * down + ROW + LOSS, Other=ROW),
        "after backward": split(
            Parameter=weights, Gradient=2 * low_rank, Activation=LOSS, Other=ROW
        ),
        # In the second sum: both summands and the result, besides saved tensors.
        "peak": split(Parameter=weights, Activation=2 * down + 4 * ROW, Other=ROW),
    }


def _int8_parameter() -> dict[str, Split]:
    weights, scale = 32 * 32, 32 * FLOAT
    return {
        "after forward": split(Parameter=weights + scale, Activation=ROW + LOSS, Other=ROW),
        "after backward": split(
            Parameter=weights + scale, Gradient=scale, Activation=LOSS, Other=ROW
        ),
        # The weight as float32 and the product.
        "peak": split(Parameter=weights + scale, Activation=32 * 32 * FLOAT + ROW, Other=ROW),
    }


def _gradient_penalty() -> dict[str, Split]:
    weights = 3 * LINEAR
    # Temp: the requested gradient, and that of the leaf `x`.
    return {
        "after backward": split(Parameter=weights, Gradient=weights, Temp=2 * ROW, Other=ROW),
    }


def _tensors_swapped() -> dict[str, Split]:
    weight, bias = 32 * 32 * FLOAT, 32 * FLOAT
    return {
        "after backward": split(Parameter=LINEAR, Gradient=LINEAR, Activation=LOSS, Other=ROW),
        # The old weight and its gradient are freed.
        "swapped": split(Parameter=LINEAR, Gradient=bias, Other=ROW),
        "after forward #2": split(Parameter=LINEAR, Gradient=bias, Activation=LOSS, Other=ROW),
        "after backward #2": split(Parameter=LINEAR, Gradient=LINEAR, Activation=LOSS, Other=ROW),
        # While both weights existed, before the swap.
        "peak": split(Parameter=LINEAR + weight, Gradient=LINEAR, Other=ROW),
    }


def _torch_func_grad() -> dict[str, Split]:
    weights = 3 * LINEAR
    return {
        "after grad": split(Parameter=weights, Temp=weights, Other=ROW),
        "after del": split(Parameter=weights, Other=ROW),
    }


def _child_called_alone_after_root() -> dict[str, Split]:
    return {
        "after forward": split(Parameter=LINEAR, Activation=ROW + LOSS, Other=ROW),
        "after backward": split(Parameter=LINEAR, Gradient=LINEAR, Activation=LOSS, Other=ROW),
        # The transposed weight gradients of the two calls are added into a third tensor.
        "peak": split(
            Parameter=LINEAR,
            Gradient=LINEAR,
            Activation=LOSS_AND_ITS_GRADIENT,
            Temp=2 * 32 * 32 * FLOAT,
            Other=ROW,
        ),
    }


def _gan() -> dict[str, Split]:
    critic, generator = LINEAR, 3 * LINEAR
    weights, external = critic + generator, 2 * ROW
    return {
        "generated": split(Parameter=weights, Activation=3 * ROW, Other=external),
        "critic trained": split(
            Parameter=weights, Gradient=critic, Activation=3 * ROW + LOSS, Other=external
        ),
        "generator trained": split(
            Parameter=weights, Gradient=weights, Activation=ROW + LOSS, Other=external
        ),
        "after del": split(Parameter=weights, Gradient=weights, Other=external),
        "peak": split(
            Parameter=weights,
            Gradient=weights,
            Activation=ROW + LOSS + LOSS_AND_ITS_GRADIENT,
            Temp=ROW,
            Other=external,
        ),
    }


def _reset_between_forward_and_backward() -> dict[str, Split]:
    weights = 3 * LINEAR
    return {
        "after backward": split(Parameter=weights, Gradient=weights, Activation=LOSS, Other=ROW),
        "peak": split(
            Parameter=weights,
            Gradient=weights,
            Activation=LOSS_AND_ITS_GRADIENT,
            Temp=ROW,
            Other=ROW,
        ),
    }


EXPECTED: dict[str, dict[str, Split]] = {
    "embedding_sparse": _embedding_sparse(),
    "sparse_tensor": _sparse_tensor(),
    "frozen_layer": _frozen_layer(),
    "lora": _lora(),
    "int8_parameter": _int8_parameter(),
    "gradient_penalty": _gradient_penalty(),
    "tensors_swapped": _tensors_swapped(),
    "torch_func_grad": _torch_func_grad(),
    "child_called_alone_after_root": _child_called_alone_after_root(),
    "gan": _gan(),
    "reset_between_forward_and_backward": _reset_between_forward_and_backward(),
}
