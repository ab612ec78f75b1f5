# SPDX-License-Identifier: BSD-3-Clause
"""Shardings of ops on lists of DTensors, worked out once for items that are alike.

torch walks the whole lists for each of their items, which takes seconds for the parameters of a
large model. The items of these ops have nothing to do with each other, so that one of each kind
tells for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding

Propagate = Callable[[Any, OpSchema], OutputSharding]


def propagate(torchs: Propagate, propagator: Any, schema: OpSchema) -> OutputSharding:
    """What torch answers, which is asked about lists of one item each."""
    lists = _find_lists(schema)
    if lists is None:
        return torchs(propagator, schema)
    answers: dict[tuple[DTensorSpec, ...], OutputSharding] = {}
    outputs = []
    for position, specs in enumerate(zip(*lists, strict=True)):
        answer = answers.get(specs)
        if answer is None:
            answer = answers[specs] = torchs(propagator, _only(schema, position, len(lists[0])))
        if answer.needs_redistribute:
            return torchs(propagator, schema)
        outputs.append(answer.output_spec)
    if outputs[0] is None:
        return OutputSharding(None)
    return OutputSharding(tuple(spec for output in outputs for spec in output))


def _find_lists(schema: OpSchema) -> list[Any] | None:
    """The arguments that are lists of DTensors; None unless the op is one of items apart."""
    name = schema.op._schema.name
    if not name.startswith(("aten::_foreach_", "aten::_fused_ada", "aten::_fused_sgd")):
        return None
    if any(
        isinstance(value, (list, tuple, DTensorSpec)) for value in schema.kwargs_schema.values()
    ):
        return None
    lists = [arg for arg in schema.args_schema if isinstance(arg, (list, tuple))]
    lists = [arg for arg in lists if any(isinstance(item, DTensorSpec) for item in arg)]
    is_apart = (
        len(lists) > 0
        and len(lists[0]) > 1
        and all(len(arg) == len(lists[0]) for arg in lists)
        and all(isinstance(item, DTensorSpec) for arg in lists for item in arg)
        and not any(isinstance(arg, DTensorSpec) for arg in schema.args_schema)
    )
    return lists if is_apart else None


def _only(schema: OpSchema, position: int, length: int) -> OpSchema:
    def pick(arg: Any) -> Any:
        is_list = isinstance(arg, (list, tuple)) and len(arg) == length
        return type(arg)([arg[position]]) if is_list else arg

    return OpSchema(
        schema.op,
        tuple(pick(arg) for arg in schema.args_schema),
        schema.kwargs_schema,
        schema_info=schema.schema_info,
    )
