# SPDX-License-Identifier: BSD-3-Clause
"""Plans selective checkpoints for a model and applies them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    create_selective_checkpoint_contexts,
)

from tidegauge.planning.checkpointing import (
    get_optimal_checkpointing_policy_per_module,
    sac_milp,
)
from tidegauge.planning.module_graph import aggregate_stats, parse_module_info
from tidegauge.planning.sac_stats import SACGreedyOrderMeta, SACStats, group_of

# Ops that a selective checkpoint never stores; statistics leave them out.
OPS_TO_ALWAYS_SKIP = SAC_IGNORED_OPS | {
    torch.ops.aten.lift_fresh.default,
    torch.ops.aten.clone.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
}


class SACAlgorithm(StrEnum):
    GREEDY = "greedy"
    OPTIMAL = "optimal"


class SACPolicy:
    """Saves (1) or recomputes (0) the ops of a module, in their order.

    `context_fn` is the argument of that name of `torch.utils.checkpoint.checkpoint`. It starts at
    the first op for each forward and each recomputation, so a module may be called any number of
    times. Ops beyond the list are recomputed.
    """

    def __init__(self, policy_output: list[int]) -> None:
        self.counter = 0
        self.policy_output = policy_output

    def __call__(self, ctx: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if func in OPS_TO_ALWAYS_SKIP:
            return CheckpointPolicy.MUST_RECOMPUTE
        place = self.counter
        self.counter += 1
        is_saved = place < len(self.policy_output) and self.policy_output[place] == 1
        return CheckpointPolicy.PREFER_SAVE if is_saved else CheckpointPolicy.MUST_RECOMPUTE

    def context_fn(self) -> Any:
        phases = {False: SACPolicy(self.policy_output), True: SACPolicy(self.policy_output)}

        def decide(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return phases[ctx.is_recompute](ctx, func, *args, **kwargs)

        # A stored result that an op then changed in place is right: `SACEstimator` keeps all that
        # read the old value together with it.
        return create_selective_checkpoint_contexts(  # type: ignore[no-untyped-call]
            decide, allow_cache_entry_mutation=True
        )


def get_greedy_checkpointing_policy_per_module(
    sac_stats: SACStats, sac_greedy_order_meta: SACGreedyOrderMeta, memory_budget: float
) -> list[int]:
    """Like `get_optimal_checkpointing_policy_per_module`, but recomputes ops in the greedy order
    until the rest is within the budget."""
    if not 0 <= memory_budget <= 1:
        raise ValueError(f"`memory_budget` must be a float between 0 and 1. Got {memory_budget}.")
    limit = memory_budget * sum(sac_stats.memory)
    policy = [1] * len(sac_stats.memory)
    discarded: set[int] = set()
    for op in [
        *sac_greedy_order_meta.recomputed_ops,
        *(each.op_idx for each in sac_greedy_order_meta.msps_meta),
    ]:
        kept = sum(size for i, size in enumerate(sac_stats.memory) if i not in discarded)
        if kept <= limit and op not in sac_greedy_order_meta.recomputed_ops:
            break
        discarded |= group_of(sac_greedy_order_meta, op)
    for op in discarded:
        policy[op] = 0
    return policy


def get_auto_sac_policies(
    model: nn.Module,
    sac_estimator: Any,
    mem_tracker: Any,
    runtime_estimator: Any,
    dev: torch.device | str | int,
    memory_budget: float,
    sac_algo: SACAlgorithm = SACAlgorithm.GREEDY,
    shard_degree: int = 1,
    ac_units: Collection[str] | None = None,
    fsdp_units: Collection[str] | None = None,
) -> dict[str, SACPolicy]:
    """The policy of each module that should be checkpointed so that a step needs at most
    `memory_budget` GiB; empty if none should, or if no plan fits (`sac_milp` tells them apart).
    """
    algorithm = SACAlgorithm(sac_algo)
    info = aggregate_stats(model, mem_tracker, runtime_estimator, sac_estimator, dev)
    shares, _, _ = sac_milp(
        parse_module_info(info), memory_budget, shard_degree, ac_units, fsdp_units
    )
    policies = {}
    for name, share in shares.items():
        stats, budget = sac_estimator.sac_mod_stats[name], 1 - share
        if algorithm is SACAlgorithm.GREEDY:
            order = sac_estimator.sac_mod_greedy_order_meta[name]
            policy = get_greedy_checkpointing_policy_per_module(stats, order, budget)
        else:
            policy = get_optimal_checkpointing_policy_per_module(stats, budget)
        policies[name] = SACPolicy(_without_output(policy, stats))
    return policies


def _without_output(policy: list[int], stats: SACStats) -> list[int]:
    """The output of a module counts as free, but a checkpoint that stores it keeps it alive even if
    nobody else does. So it is recomputed, unless it is random."""
    changed = dict(stats.inplace_ops)
    places = set(range(len(policy))) - set(stats.view_like_ops) - changed.keys()
    last = max(places, default=None)
    output = {last, *(op for op, head in changed.items() if head == last)}
    if output & set(stats.rand_ops):
        return policy
    return [0 if op in output else decision for op, decision in enumerate(policy)]


def apply_auto_sac_policies(model: nn.Module, sac_policies: Mapping[str, SACPolicy]) -> nn.Module:
    """Wraps the named modules, in place, into checkpoints with their policies.

    Names begin with that of the model, as in the keys of `get_auto_sac_policies`. Raises ValueError
    for an unknown one, before anything is wrapped.
    """
    modules = {f"{type(model).__name__}.{path}": path for path, _ in model.named_modules() if path}
    for name in sac_policies:
        if name not in modules:
            raise ValueError(
                f"cannot checkpoint '{name}': expected a module below the model, for example "
                f"'{next(iter(modules), '(it has none)')}'"
            )
    for name, policy in sac_policies.items():
        parent, _, attribute = modules[name].rpartition(".")
        owner, module = model.get_submodule(parent), model.get_submodule(modules[name])
        setattr(owner, attribute, checkpoint_wrapper(module, context_fn=policy.context_fn))
    return model
