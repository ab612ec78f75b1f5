# SPDX-License-Identifier: BSD-3-Clause
"""Shardings of ops on lists of DTensors, computed once for equal items.

torch walks the whole lists for each item, which takes seconds for the parameters of a large model.
The items of these ops are independent of each other, so one item of each kind is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge._torch.patching import required_by

with required_by("simulate"):
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor._op_schema import OpSchema, OutputSharding

Propagate = Callable[[Any, OpSchema], OutputSharding]


def propagate(torchs: Propagate, propagator: Any, schema: OpSchema) -> OutputSharding:
    """The same result as torch's, computed with lists of one item each."""
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
    """The arguments that are lists of DTensors; None unless the op treats items independently."""
    name = schema.op._schema.name
    if not name.startswith(("aten::_foreach_", "aten::_fused_ada", "aten::_fused_sgd")):
        return None
    if any(
        isinstance(value, (list, tuple, DTensorSpec)) for value in schema.kwargs_schema.values()
    ):
        return None
    lists = [arg for arg in schema.args_schema if isinstance(arg, (list, tuple))]
    lists = [arg for arg in lists if any(isinstance(item, DTensorSpec) for item in arg)]
    is_independent = (
        len(lists) > 0
        and len(lists[0]) > 1
        and all(len(arg) == len(lists[0]) for arg in lists)
        and all(isinstance(item, DTensorSpec) for arg in lists for item in arg)
        and not any(isinstance(arg, DTensorSpec) for arg in schema.args_schema)
    )
    return lists if is_independent else None


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
