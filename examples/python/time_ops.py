# SPDX-License-Identifier: BSD-3-Clause
"""Times a few ops on a GPU, for `tidegauge calibrate --timings`. Needs only torch.

python time_ops.py timings.json
tidegauge calibrate --timings timings.json --device h100-80g
"""

import argparse
import json
import statistics
import time

import torch
from torch.nn import functional


def time_ns(run, device, repeats):
    """The median time of one call on the device."""
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e6)
        else:
            start = time.perf_counter_ns()
            run()
            times.append(time.perf_counter_ns() - start)
    return statistics.median(times)


def list_ops(device, size):
    """(kind, dtype, flops, bytes, function) of each op; `size` is the width of a matrix."""
    for dtype in (torch.bfloat16, torch.float32):
        for rows, inner, columns in ((4, 1, 1), (4, 1, 4), (2, 4, 1), (1, 1, 8)):
            m, k, n = rows * size, inner * size, columns * size
            a = torch.randn(m, k, device=device, dtype=dtype)
            b = torch.randn(k, n, device=device, dtype=dtype)
            yield "matmul", dtype, 2 * m * k * n, 0, lambda a=a, b=b: a @ b
    for heads, length in ((32, size), (16, 2 * size)):
        q = torch.randn(1, heads, length, 128, device=device, dtype=torch.bfloat16)
        flops = 4 * heads * length * length * 128
        yield (
            *("attention", torch.bfloat16, flops, 0),
            lambda q=q: functional.scaled_dot_product_attention(q, q, q),
        )
    channels = max(size // 16, 8)
    image = torch.randn(32, channels, 56, 56, device=device, dtype=torch.bfloat16)
    kernel = torch.randn(channels, channels, 3, 3, device=device, dtype=torch.bfloat16)
    flops = 2 * image.numel() * channels * 9
    yield (
        *("convolution", torch.bfloat16, flops, 0),
        lambda: functional.conv2d(image, kernel, padding=1),
    )
    for count in (16, 64):
        x = torch.randn(count * size * size // 4, device=device)
        y = torch.empty_like(x)
        yield "memory", torch.float32, 0, 2 * x.nbytes, lambda x=x, y=y: torch.mul(x, 2.0, out=y)
    small = torch.zeros(1, device=device)
    yield "launch", torch.float32, 0, 0, lambda: small.add_(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    ops = [
        {
            "kind": kind,
            "dtype": str(dtype).removeprefix("torch."),
            "flops": flops,
            "bytes": size_bytes,
            "ns": time_ns(run, args.device, args.repeats),
        }
        for kind, dtype, flops, size_bytes, run in list_ops(args.device, args.size)
    ]
    name = torch.cuda.get_device_name() if args.device == "cuda" else "a CPU"
    whole = {"format": "tidegauge op timings 1", "device": name, "torch": torch.__version__}
    with open(args.output, "w") as file:
        json.dump({**whole, "ops": ops}, file, indent=2)
    print(f"wrote {len(ops)} timings of {name} to {args.output}")


if __name__ == "__main__":
    main()
