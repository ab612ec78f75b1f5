# SPDX-License-Identifier: BSD-3-Clause
"""Calls whose CUDA kernels request more than their results (test_kernel_requests.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

Call = Callable[[], Any]
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def make_calls() -> dict[str, Call]:
    """By name, on the default CUDA device. The arguments exist before the calls."""
    calls: dict[str, Call] = {}
    for name, dtype in _DTYPES.items():
        for what, call in _make_calls(dtype):
            calls[f"{what}, {name}"] = call
    return calls


def _make(dtype: torch.dtype) -> Callable[..., torch.Tensor]:
    def make(*sizes: int, grad: bool = True) -> torch.Tensor:
        return torch.empty(*sizes, device="cuda", dtype=dtype, requires_grad=grad)

    return make


def _backward(function: Call, *inputs: torch.Tensor) -> Call:
    output = function()
    gradient = torch.ones_like(output)
    return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)


def _make_calls(dtype: torch.dtype) -> Iterator[tuple[str, Call]]:
    make = _make(dtype)
    yield from _make_products(make)
    yield from _make_reductions(make)
    yield from _make_lists(make)
    yield from _make_norms(make)
    yield from _make_attention(make)
    for words, width, count in ((8192, 512, 4096), (65536, 64, 20000), (8192, 512, 2048)):
        table = make(words, width)
        indices = torch.zeros(count, dtype=torch.long, device="cuda")
        embed = lambda i=indices, t=table: F.embedding(i, t)  # noqa: E731
        yield f"embedding backward {words} {width} {count}", _backward(embed, table)
        columns = make(words, width + 8)[:, 4:-4]
        embed_columns = lambda i=indices, t=table, c=columns: F.embedding(i, t) * c[:1]  # noqa: E731
        yield f"embedding backward of a part {count}", _backward(embed_columns, table)
    table = make(65536, 64)
    for count in (2000, 100):
        bags = torch.zeros(count, 20, dtype=torch.long, device="cuda")
        for mode in ("sum", "mean"):
            sum_up = lambda b=bags, m=mode: F.embedding_bag(b, table, mode=m)  # noqa: E731
            yield f"embedding bag {mode} {count}", sum_up
            yield f"embedding bag {mode} backward {count}", _backward(sum_up, table)


def _make_products(make: Callable[..., torch.Tensor]) -> Iterator[tuple[str, Call]]:
    a, b, bias = make(128, 48, grad=False), make(48, 64, grad=False), make(64, grad=False)
    batches = make(4, 128, 48, grad=False)
    thin = make(128, 96, grad=False)[:, ::2]
    yield "mm", lambda: a @ b
    yield "mm of strided", lambda: thin @ b
    yield "addmm", lambda: torch.addmm(bias, a, b)
    yield "addmm beta", lambda: torch.addmm(bias, a, b, beta=0.5)
    yield "bmm", lambda: batches @ batches.transpose(1, 2)


def _make_reductions(make: Callable[..., torch.Tensor]) -> Iterator[tuple[str, Call]]:
    shapes = ((4096, 512), (16384, 384), (3152, 1152), (8, 1000), (65536, 128), (1000, 33))
    for shape in (*shapes, (5000, 1), (32768, 65), (4, 1024, 512), (2048, 8192)):
        x = make(*shape, grad=False)
        for dims in (0, -1, (0, 1), None):
            yield f"sum {shape} {dims}", lambda x=x, d=dims: x.sum(d)
        yield f"mean {shape}", lambda x=x: x.mean()
        yield f"mean rows {shape}", lambda x=x: x.mean(0, keepdim=True)
        yield f"norm {shape}", lambda x=x: torch.linalg.vector_norm(x)
        yield f"max {shape}", lambda x=x: x.max()
    image = make(16, 384, 14, 14, grad=False)
    yield "sum of channels", lambda: image.sum((0, 2, 3))
    yield "sum of transposed", lambda: image.transpose(1, 2).sum((0, 3))
    row = make(1, 512, grad=False)
    yield "sum of expanded", lambda: row.expand(2048, 512).sum(0)
    x, y = make(2048, 256), make(2048, 256, grad=False)
    yield "mse", lambda: F.mse_loss(x, y)


def _make_lists(make: Callable[..., torch.Tensor]) -> Iterator[tuple[str, Call]]:
    for shapes in ([(4096, 4096)], [(1000, 1024)] * 3 + [(1024,)], [(512, 512), (1000, 3), (7,)]):
        tensors = [make(*shape, grad=False) for shape in shapes]
        yield f"foreach norm {shapes}", lambda t=tensors: torch._foreach_norm(t)
        for chunks in (2, 8, 64):
            parts = [
                -(-each.size(0) // chunks) * (each.numel() // each.size(0)) for each in tensors
            ]
            packed = make(chunks, sum(parts), grad=False)
            rows = [make(chunks, part, grad=False) for part in parts]
            yield (
                f"chunk_cat {shapes} {chunks}",
                lambda t=tensors, n=chunks, out=packed: torch._chunk_cat(t, 0, n, out=out),
            )
            yield (
                f"split {shapes} {chunks}",
                lambda p=packed, s=parts, out=rows: torch.split_with_sizes_copy(
                    p, s, dim=1, out=out
                ),
            )


def _make_norms(make: Callable[..., torch.Tensor]) -> Iterator[tuple[str, Call]]:
    x, weight, bias = make(4096, 512), make(512), make(512)
    target, positive = make(4096, 512, grad=False), make(512, grad=False)
    yield "topk of transposed", lambda: x.detach()[:1000].t().topk(4)
    for name, options in (
        ("", {}),
        (" summed", {"reduction": "sum"}),
        (" of each", {"reduction": "none", "pos_weight": positive}),
    ):
        lose = lambda o=options: F.binary_cross_entropy_with_logits(x, target, **o)  # noqa: E731
        yield f"cross entropy of logits{name}", lose
    image, scale, shift = make(4, 32, 64, 64), make(32), make(32)
    kernel, kernel_bias = make(64, 32, 3, 3), make(64)
    norms: dict[str, tuple[Call, tuple[torch.Tensor, ...]]] = {
        "layer norm": (lambda: F.layer_norm(x, (512,), weight, bias), (x, weight, bias)),
        "rms norm": (lambda: F.rms_norm(x, (512,), weight), (x, weight)),
        "silu": (lambda: F.silu(x), (x,)),
        "mish": (lambda: F.mish(x), (x,)),
        "gelu": (lambda: F.gelu(x), (x,)),
        "dropout": (lambda: F.dropout(x, 0.1), (x,)),
        "softmax": (lambda: x.softmax(-1), (x,)),
        "group norm": (lambda: F.group_norm(image, 8, scale, shift), (image, scale, shift)),
        "convolution": (
            lambda: F.conv2d(image, kernel, kernel_bias, padding=1),
            (image, kernel, kernel_bias),
        ),
    }
    for name, (call, inputs) in norms.items():
        yield name, call
        yield f"{name} backward", _backward(call, *inputs)


def _make_attention(make: Callable[..., torch.Tensor]) -> Iterator[tuple[str, Call]]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernels = (
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
    )
    sizes = ((2, 8, 8, 1024, 1024, 64), (16, 6, 6, 197, 197, 64), (2, 8, 2, 1000, 1000, 64))
    for batch, heads, key_heads, queries, keys, head in (
        *sizes,
        (2, 8, 8, 512, 1000, 64),
        (2, 8, 8, 1024, 1024, 128),
        (2, 4, 1, 200, 300, 96),
    ):
        query = make(batch, queries, heads, head)
        key, value = make(batch, keys, key_heads, head), make(batch, keys, key_heads, head)

        def attend(kernel: Any, q: Any = query, k: Any = key, v: Any = value) -> torch.Tensor:
            with sdpa_kernel(kernel):
                return F.scaled_dot_product_attention(
                    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), enable_gqa=True
                )

        name = f"{batch} {heads}/{key_heads} {queries}/{keys} {head}"
        for kernel in kernels:
            if query.dtype == torch.float32 and kernel != kernels[0]:
                continue
            call = lambda kernel=kernel, attend=attend: attend(kernel)  # noqa: E731
            yield f"{kernel.name} {name}", call
            yield f"{kernel.name} backward {name}", _backward(call, query, key, value)
