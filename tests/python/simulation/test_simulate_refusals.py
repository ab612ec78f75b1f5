# SPDX-License-Identifier: BSD-3-Clause
"""A simulation accepts and refuses the same dtypes and shapes as the real kernels.

Each op is called with matching tensors, then with one of them in every other dtype and in other
shapes. The simulated tensors have no known values: known values would go through the real kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tidegauge import simulate
from torch.nn import functional
from torch.utils._pytree import tree_leaves

Spec = tuple[tuple[int, ...], torch.dtype]
FLOAT, LONG, BOOL, BF16 = torch.float32, torch.int64, torch.bool, torch.bfloat16
DTYPES = (FLOAT, torch.float64, BF16, LONG, torch.int32, BOOL)
X: Spec = ((4, 3), FLOAT)
ROWS: Spec = ((2, 3), FLOAT)
INDEX: Spec = ((2,), LONG)
PLACES: Spec = ((2, 3), LONG)
C: Spec = ((4,), FLOAT)

OPS: dict[str, tuple[Callable[..., Any], list[Spec]]] = {
    "index_add": (lambda x, i, y: x.index_add(0, i, y), [X, INDEX, ROWS]),
    "index_add_": (lambda x, i, y: x.index_add_(0, i, y), [X, INDEX, ROWS]),
    "index_copy": (lambda x, i, y: x.index_copy(0, i, y), [X, INDEX, ROWS]),
    "index_copy_": (lambda x, i, y: x.index_copy_(0, i, y), [X, INDEX, ROWS]),
    "index_reduce": (lambda x, i, y: x.index_reduce(0, i, y, "amax"), [X, INDEX, ROWS]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1), [X, INDEX]),
    "index_select": (lambda x, i: x.index_select(0, i), [X, INDEX]),
    "index": (lambda x, i: torch.ops.aten.index(x, [i]), [X, INDEX]),
    "index_put": (lambda x, i, y: x.index_put((i,), y), [X, INDEX, ROWS]),
    "index_put_": (lambda x, i, y: x.index_put_((i,), y, accumulate=True), [X, INDEX, ROWS]),
    "index_put_mask": (lambda x, i, y: x.index_put((i,), y), [X, ((4,), BOOL), ((), FLOAT)]),
    "put_": (lambda x, i, y: x.put_(i, y), [X, INDEX, ((2,), FLOAT)]),
    "gather": (lambda x, i: x.gather(0, i), [X, PLACES]),
    "scatter": (lambda x, i, y: x.scatter(0, i, y), [X, PLACES, ROWS]),
    "scatter_add_": (lambda x, i, y: x.scatter_add_(0, i, y), [X, PLACES, ROWS]),
    "scatter_reduce": (lambda x, i, y: x.scatter_reduce(0, i, y, "amax"), [X, PLACES, ROWS]),
    "masked_fill": (lambda x, m: x.masked_fill(m, 1), [X, ((4, 3), BOOL)]),
    "masked_scatter": (lambda x, m, y: x.masked_scatter(m, y), [X, ((4, 3), BOOL), X]),
    "masked_scatter_": (lambda x, m, y: x.masked_scatter_(m, y), [X, ((4, 3), BOOL), X]),
    "masked_select": (lambda x, m: x.masked_select(m).sum(), [X, ((4, 3), BOOL)]),
    "slice_scatter": (lambda x, y: x.slice_scatter(y, 0, 1, 3), [X, ROWS]),
    "select_scatter": (lambda x, y: x.select_scatter(y, 0, 1), [X, ((3,), FLOAT)]),
    "as_strided": (lambda x: x.as_strided((4, 3), (3, 1)), [X]),
    "softmax": (lambda x: x.softmax(1), [X]),
    "log_softmax": (lambda x: x.log_softmax(-2), [X]),
    "sort": (lambda x: x.sort(1), [X]),
    "mul_": (lambda x, y: x.mul_(y), [X, X]),
    "pow_": (lambda x, y: x.pow_(y), [X, X]),
    "eq_": (lambda x, y: x.eq_(y), [X, X]),
    "addcmul": (torch.addcmul, [X, X, X]),
    "addcmul_": (lambda x, y, z: x.addcmul_(y, z), [X, X, X]),
    "addcdiv_": (lambda x, y, z: x.addcdiv_(y, z), [X, X, X]),
    "mm": (torch.mm, [X, ((3, 2), FLOAT)]),
    "matmul": (torch.matmul, [((2, 4, 3), FLOAT), ((3, 2), FLOAT)]),
    "mv": (torch.mv, [X, ((3,), FLOAT)]),
    "addmm": (torch.addmm, [((2,), FLOAT), X, ((3, 2), FLOAT)]),
    "addbmm": (torch.addbmm, [((4, 2), FLOAT), ((2, 4, 3), FLOAT), ((2, 3, 2), FLOAT)]),
    "linear": (functional.linear, [((2, 4, 3), FLOAT), ROWS, ((2,), FLOAT)]),
    "conv2d": (functional.conv2d, [((2, 3, 8, 8), FLOAT), ((4, 3, 2, 2), FLOAT), C]),
    "conv_transpose2d": (
        functional.conv_transpose2d,
        [((2, 3, 8, 8), FLOAT), ((3, 4, 2, 2), FLOAT), C],
    ),
    "layer_norm": (
        lambda x, w, b: functional.layer_norm(x, (3,), w, b),
        [X, ((3,), FLOAT), ((3,), FLOAT)],
    ),
    "group_norm": (
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        [((2, 4, 5), FLOAT), C, C],
    ),
    "batch_norm": (
        lambda x, m, v, w, b: functional.batch_norm(x, m, v, w, b, training=True),
        [((2, 4, 5), FLOAT), C, C, C, C],
    ),
    "cross_entropy": (functional.cross_entropy, [X, ((4,), LONG), ((3,), FLOAT)]),
    "binary_cross_entropy": (functional.binary_cross_entropy, [X, X]),
    "cross": (torch.linalg.cross, [X, X]),
    "grid_sample": (
        lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
        [((2, 3, 4, 4), FLOAT), ((2, 5, 5, 2), FLOAT)],
    ),
}


def list_variants(specs: list[Spec]) -> Iterator[list[Spec]]:
    yield specs
    for place, (shape, dtype) in enumerate(specs):
        shapes = [(2, *shape), *([(shape[0] + 1, *shape[1:]), shape[1:]] if shape else [])]
        shapes += [(*shape[:-1], shape[-1] + 1)] if len(shape) > 1 else []
        others = [(shape, other) for other in DTYPES if other != dtype]
        others += [(other, dtype) for other in shapes]
        yield from ([*specs[:place], other, *specs[place + 1 :]] for other in others)


Outcome = tuple[str, list[tuple[torch.Size, torch.dtype]]]


def call(function: Callable[..., Any], tensors: list[torch.Tensor]) -> Outcome:
    try:
        results = tree_leaves(function(*tensors))
    except (RuntimeError, IndexError, ValueError, AssertionError) as error:
        return str(error) or "refused", []
    return "", [(each.shape, each.dtype) for each in results]


@pytest.mark.parametrize("name", OPS)
def test_op_refuses_the_same_arguments_as_the_kernel(name: str) -> None:
    function, specs = OPS[name]
    accepted = refused = 0
    for variant in list_variants(specs):
        real, results = call(
            function, [torch.zeros(shape, dtype=dtype) for shape, dtype in variant]
        )
        if "not implemented for" in real:
            continue  # missing on this device, another may have it
        with simulate(mask_fraction=0):
            simulated, found = call(
                function, [torch.empty(shape, dtype=dtype) for shape, dtype in variant]
            )
        assert (bool(simulated), found) == (bool(real), results), (variant, real, simulated)
        accepted += not real
        refused += bool(real)
    assert accepted
    assert refused or name == "sort"


def test_error_names_the_mismatch() -> None:
    with simulate():
        x, index = torch.empty(4, 3), torch.empty(2, dtype=torch.long)
        with pytest.raises(RuntimeError, match="self and source must have the same dtype, but got"):
            x.index_add(0, index, torch.empty(2, 3, dtype=BF16))
