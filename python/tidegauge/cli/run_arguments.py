# SPDX-License-Identifier: BSD-3-Clause
"""The arguments of commands that simulate a training run: the target, the plan, the device."""

from __future__ import annotations

import argparse

from tidegauge.cli.common import add_alloc_conf, add_assume, add_device


def add_run_arguments(parser: argparse.ArgumentParser, *, is_target_needed: bool = True) -> None:
    """The target, how it is trained, and the device."""
    parser.add_argument(
        "target",
        nargs=None if is_target_needed else "?",
        metavar="TARGET",
        help="a Python file, a Hugging Face config.json, or module:Class",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="JSON or TOML: arguments and inputs for module:Class"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a setting of the target, e.g. batch=4",
    )
    plan = parser.add_argument_group("training plan")
    plan.add_argument("--dp", metavar="N", help="DistributedDataParallel over N ranks")
    plan.add_argument(
        "--zero",
        action="store_const",
        const="yes",
        help="the ranks of --dp share optimizer states (ZeroRedundancyOptimizer)",
    )
    plan.add_argument("--fsdp", metavar="N", help="shard with FSDP2 over N ranks")
    plan.add_argument("--hsdp", metavar="RxN", help="R replicas, each sharded over N ranks")
    plan.add_argument("--tp", metavar="N", help="tensor parallelism over N ranks")
    plan.add_argument(
        "--cp", metavar="N", help="N ranks share each sequence (ring attention), beside --fsdp"
    )
    plan.add_argument(
        "--ep", metavar="N", help="N of the ranks of --fsdp x --cp x --tp share the experts"
    )
    plan.add_argument("--pp", metavar="N", help="pipeline parallelism over N ranks")
    plan.add_argument(
        "--schedule",
        metavar="NAME",
        help="of the pipeline: 1f1b (default), gpipe, interleaved, interleaved-zb, bfs, zbv or "
        "dualpipev",
    )
    plan.add_argument(
        "--microbatches", metavar="M", help="of the pipeline; default: one for each stage"
    )
    plan.add_argument(
        "--reshard",
        metavar="WHEN",
        help="reshard parameters after forward: auto, yes, no, or over a number of ranks",
    )
    plan.add_argument("--wrap", metavar="N", help="blocks of an FSDP2 unit; default: 1")
    plan.add_argument(
        "--mp",
        metavar="TYPES",
        help="mixed precision, compute/reduce types: e.g. bf16/fp32 or bf16",
    )
    plan.add_argument("--dtype", metavar="TYPE", help="parameter type: bf16, fp16 or fp32")
    plan.add_argument(
        "--ac",
        metavar="KIND",
        help="activation checkpointing: none, attention, selective, full, every:N, ops:FILE, "
        "policy:FILE.py:FUNCTION, or by block: full:0-11,selective:12-31",
    )
    plan.add_argument(
        "--lora",
        metavar="rank=R,targets=A/B",
        help="train LoRA adapters of PEFT beside these modules, or all linear ones",
    )
    plan.add_argument(
        "--attention",
        metavar="KERNEL",
        help="scaled_dot_product_attention: flash, efficient, cudnn or math",
    )
    plan.add_argument(
        "--optimizer",
        metavar="NAME",
        help="e.g. sgd-momentum; default: that of the target, or adamw",
    )
    plan.add_argument("--clip", metavar="NORM", help="clip the gradients to this norm")
    plan.add_argument(
        "--accumulate", metavar="K", help="accumulate the gradients of K batches in each step"
    )
    plan.add_argument(
        "--offload", action="store_const", const="yes", help="keep shards in host memory"
    )
    plan.add_argument(
        "--routing",
        metavar="KIND",
        help="experts that tokens choose: balanced, worst or a seed; several: one estimate each",
    )
    plan.add_argument(
        "--item", metavar="VALUE", help="value that Tensor.item() returns if it is not known"
    )
    plan.add_argument(
        "--rank",
        default="worst",
        metavar="RANK",
        help="which ranks to simulate: worst (default), all, or a number",
    )
    where = parser.add_argument_group("device")
    add_device(where)
    add_alloc_conf(
        where, "allocator settings", "; by default the band covers plain and expandable segments"
    )
    add_assume(where)
    where.add_argument(
        "--simulate",
        choices=("cuda", "cpu"),
        default="cuda",
        help="device to simulate (default: cuda, which needs no GPU)",
    )
