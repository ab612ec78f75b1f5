# SPDX-License-Identifier: BSD-3-Clause
"""Stages of a pipeline in a simulation: what the absent neighbours would say about shapes.

torch infers shapes by running a microbatch through the stages, one rank after the other. In a
simulation only one rank exists. What a stage sends is kept, so that simulations of later ranks in
the same process receive it. A rank with several stages (interleaved and V schedules) needs the
output of ranks that follow: it is assumed to be like that of the rank's own earlier stage. The
gradient of an output is like the output.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from tidegauge._torch.compat import is_expected
from tidegauge._torch.patching import Installation, Patch, Reads

_variables: dict[str, Any] = {}

#: How the shapes of the running simulation were found, one sentence each.
notes: list[str] = []


@dataclasses.dataclass
class _Sent:
    """What a stage sent, or None as long as it is only assumed."""

    metas: Any
    assumed_by: int | None = None


_outputs: dict[tuple[int, int], _Sent] = {}  # by number of stages, and stage


def _set_modes(torchs: Callable[[], None], stages: Any, has_backward: bool) -> None:
    """torch refuses to infer shapes over its fake process group, because nothing is received; or
    the stages vote whether all know their shapes."""
    from torch.distributed.pipelining._utils import InferenceMode, _StageMeta

    asking = [
        stage
        for stage in stages
        if hasattr(stage, "_user_meta")
        and InferenceMode.needs_dynamic(stage._user_meta, has_backward)
    ]
    given = [stage._user_meta for stage in asking]
    try:
        for stage in asking:
            stage._user_meta = _StageMeta(inputs=(), outputs=())  # asks for nothing
        torchs()
    finally:
        for stage, meta in zip(asking, given, strict=True):
            stage._user_meta = meta
    if asking:
        for stage in stages:
            stage._inference_mode = InferenceMode.DYNAMIC


def _initialize_state(self: Any, stages: Any, has_backward: bool, initialize_p2p: bool) -> None:
    torchs = _variables["initialize_state"]
    _set_modes(lambda: torchs(self, stages, has_backward, initialize_p2p), stages, has_backward)


def _warm_up(self: Any, stages: Any, has_backward: bool, p2p_done: bool) -> None:
    """The name in older versions."""
    torchs = _variables["warm_up"]
    _set_modes(lambda: torchs(self, stages, has_backward, p2p_done), stages, has_backward)


def _send_meta(self: Any, meta: Any, dst_stage: int) -> None:
    if dst_stage < self.stage_index:
        return  # of gradients, which are like the outputs
    sent = meta.forward_metas
    key = (self.num_stages, self.stage_index)
    before = _outputs.get(key)
    if self.stage_index == 0 and before is not None and before.metas != sent:
        for other in [each for each in _outputs if each[0] == self.num_stages]:
            del _outputs[other]  # of another pipeline
    elif before is not None and before.assumed_by is not None and before.metas != sent:
        notes.append(
            f"Stage {dst_stage} was simulated with an assumed input, and stage {self.stage_index} "
            f"now sends another one. Simulate the rank of stage {dst_stage} again."
        )
    _outputs[key] = _Sent(sent)


def _recv_meta(self: Any, src_stage: int) -> Any:
    from torch.distributed.pipelining._utils import _StageBackwardMeta, _StageForwardMeta

    if src_stage > self.stage_index:
        return _StageBackwardMeta(backward_metas=tuple(map(_gradient_of, self._stage_meta.outputs)))
    key = (self.num_stages, src_stage)
    if key not in _outputs:
        _outputs[key] = _Sent(_assume_output(self, src_stage), self.stage_index)
    if _outputs[key].assumed_by is None:
        notes.append(
            f"Stage {self.stage_index} receives what stage {src_stage} sent in an earlier "
            "simulation of this process."
        )
    return _StageForwardMeta(forward_metas=_outputs[key].metas)


def _gradient_of(meta: Any) -> Any:
    return dataclasses.replace(meta, requires_grad=False) if meta.requires_grad else None


def _assume_output(stage: Any, src_stage: int) -> Any:
    """What the nearest earlier stage of this rank sends, if there is one."""
    own = [
        index
        for index, rank in stage.stage_index_to_group_rank.items()
        if rank == stage.group_rank and index < src_stage
    ]
    sent = _outputs.get((stage.num_stages, max(own))) if own else None
    if sent is None:
        refuse_shapes_of_neighbours(stage)
    notes.append(
        f"The output of stage {src_stage}, which another rank has, is assumed to be like that of "
        f"stage {max(own)}."
    )
    return sent.metas


def refuse_shapes_of_neighbours(stage: Any) -> NoReturn:
    raise RuntimeError(
        f"stage {stage.stage_index} of a pipeline asks its neighbours for shapes, but a "
        "simulation has no neighbours; simulate the earlier ranks first in this process, or give "
        "`PipelineStage` its input_args and output_args"
    )


def _vote(self: Any, has_backward: bool, received_acc: Any = None) -> torch.Tensor:
    """Older versions ask the neighbours, too, whether they know their shapes."""
    return torch.ones(1, dtype=torch.int32)


def _vote_result(self: Any, received_result: Any = None) -> torch.Tensor:
    return torch.ones(1, dtype=torch.int32)


def _infer_shapes(self: Any, args: Any, kwargs: Any = None) -> Any:
    """Older versions have no votes: a stage waits for the pickled shapes of the one before it."""
    before = self.stage_index - 1
    if not self.is_first and self.stage_index_to_group_rank[before] != self.group_rank:
        refuse_shapes_of_neighbours(self)
    return _variables["infer_shapes"](self, args, kwargs)


_STAGE = "torch.distributed.pipelining:PipelineStage"
_SCHEDULE = "torch.distributed.pipelining.schedules:_PipelineSchedule"
_UTILS = "torch.distributed.pipelining._utils"
_PLACES: dict[str, tuple[str, Callable[..., Any]]] = {
    "vote": (f"{_STAGE}._warmup_forward_vote", _vote),
    "vote_result": (f"{_STAGE}._warmup_backward_result", _vote_result),
    "infer_shapes": (f"{_STAGE}._shape_inference", _infer_shapes),
    "initialize_state": (f"{_SCHEDULE}._initialize_pipeline_distributed_state", _initialize_state),
    "warm_up": (f"{_SCHEDULE}._warmup_p2p", _warm_up),
    "send_meta": (f"{_STAGE}._send_meta", _send_meta),
    "recv_meta": (f"{_STAGE}._recv_meta", _recv_meta),
}


def _find_reads() -> list[Reads]:
    """What the wrappers read."""
    if is_expected(_PLACES["recv_meta"][0]):
        names = ("_user_meta", "_inference_mode", "_stage_meta", "num_stages", "stage_index")
        return [
            Reads(_STAGE, *names, "stage_index_to_group_rank", "group_rank"),
            Reads(f"{_UTILS}:InferenceMode", "needs_dynamic"),
            Reads(f"{_UTILS}:_StageMeta", "is_complete_for_forward"),
            Reads(f"{_UTILS}:_StageForwardMeta", "forward_metas"),
            Reads(f"{_UTILS}:_StageBackwardMeta", "backward_metas"),
        ]
    if is_expected(_PLACES["infer_shapes"][0]):
        return [Reads(_STAGE, "stage_index", "is_first", "stage_index_to_group_rank", "group_rank")]
    return []


@functools.cache
def installation() -> Installation:
    """Raises NotImplementedError if this torch does not fit the patches."""
    patches = {key: Patch(*each, is_named=True) for key, each in _PLACES.items()}
    made = Installation(patches, variables=_variables, reads=_find_reads())
    made.check("simulate")
    return made
