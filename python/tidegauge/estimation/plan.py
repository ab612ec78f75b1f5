# SPDX-License-Identifier: BSD-3-Clause
"""How a model is trained. Equal plans make equal runs."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegauge._util.formatting import parse_count
from tidegauge.estimation.block_kinds import (
    check_checkpointing,
    check_name,
    describe_checkpointing,
    list_kinds,
)
from tidegauge.estimation.optimizers import DEFAULT_OPTIMIZER, OPTIMIZERS, OptimizerKind

if TYPE_CHECKING:
    import torch

ATTENTION = ("flash", "efficient", "cudnn", "math")


DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def find_dtype(name: str) -> torch.dtype:
    """The type of torch for a name in DTYPES."""
    import torch

    found: torch.dtype = getattr(torch, DTYPES[name])
    return found


@dataclass(frozen=True)
class ScheduleKind:
    """A schedule of pipelines. `is_v_shaped`: a rank has a stage and its mirror image."""

    class_name: str  # in torch.distributed.pipelining.schedules
    stages_per_rank: int = 1
    is_v_shaped: bool = False


SCHEDULES = {
    "gpipe": ScheduleKind("ScheduleGPipe"),
    "1f1b": ScheduleKind("Schedule1F1B"),
    "bfs": ScheduleKind("ScheduleLoopedBFS", 2),
    "interleaved": ScheduleKind("ScheduleInterleaved1F1B", 2),
    "interleaved-zb": ScheduleKind("ScheduleInterleavedZeroBubble", 2),
    "zbv": ScheduleKind("ScheduleZBVZeroBubble", 2, is_v_shaped=True),
    "dualpipev": ScheduleKind("ScheduleDualPipeV", 2, is_v_shaped=True),
}
DEFAULT_SCHEDULE = "1f1b"


@dataclass(frozen=True)
class Plan:
    """The options of the command line, by name. Raises ValueError for invalid combinations.

    `dp`: number of ranks of DistributedDataParallel; 0 means none. `zero`: these ranks share the
    optimizer's states (ZeroRedundancyOptimizer). `fsdp`: number of ranks of FSDP2; 0 means not
    sharded. `hsdp`: replicas x ranks, as in "2x4". `tp`: number of ranks of tensor parallelism.
    `cp`: number of ranks that share each sequence; FSDP2 shards over them, too. `ep`: number of
    ranks that share the experts, among those of FSDP2, `cp` and `tp`. `pp`: number of ranks of
    pipeline parallelism, `schedule`: one of SCHEDULES, `microbatches`: of a step; 0: as many as
    stages. `reshard`: parameters after forward: "auto" (the default of FSDP2: all but the root),
    "yes", "no", or a number of ranks. `wrap`: the blocks of an FSDP2 unit. `mp`: the types of
    computation and reduction, as in "bf16/fp32"; without sharding, the type for autocast. `dtype`:
    convert the parameters to this type; empty: keep their type. `ac`: checkpointing of the blocks:
    "none", "attention", "selective", "full", "every:2" (every second block in full),
    "full:0-11,selective:12-31" (by block), "keep=mm@mlp.up/bmm" (ops of the blocks that are kept,
    perhaps only in a submodule), "ops:FILE" (the ops whose outputs are kept) or
    "policy:FILE.py:FUNCTION". `lora`: "rank=16,targets=q_proj/v_proj". `attention`: the kernel that
    scaled_dot_product_attention uses; empty: torch's choice. `optimizer`: empty means the
    contract's, or adamw. `clip`: the largest norm of the gradients; 0: not clipped. `accumulate`:
    the number of batches for one optimizer step. `offload`: keep shards in host memory. `routing`:
    the experts that tokens choose: "balanced", "worst" or a seed; empty: unknown. `item`: the value
    that `item()` returns if it is not known; empty: raise an error. `settings`: the contract's
    settings that differ from their defaults.
    """

    dp: int = 0
    zero: bool = False
    fsdp: int = 0
    hsdp: str = ""
    tp: int = 1
    cp: int = 1
    ep: int = 1
    pp: int = 1
    schedule: str = DEFAULT_SCHEDULE
    microbatches: int = 0
    reshard: str = "auto"
    wrap: int = 1
    mp: str = ""
    dtype: str = ""
    ac: str = "none"
    lora: str = ""
    attention: str = ""
    optimizer: str = ""
    clip: float = 0.0
    accumulate: int = 1
    offload: bool = False
    routing: str = ""
    item: str = ""
    settings: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.hsdp and not re.fullmatch(r"[1-9][0-9]{,8}x[1-9][0-9]{,8}", self.hsdp):
            raise ValueError(f"invalid hsdp '{self.hsdp}' (expected replicas x ranks, e.g. 2x4)")
        if self.hsdp and self.fsdp:
            raise ValueError(
                f"fsdp={self.fsdp} and hsdp={self.hsdp} are mutually exclusive; hsdp includes the "
                "number of ranks"
            )
        if self.dp < 0 or self.fsdp < 0 or min(self.tp, self.cp, self.ep) < 1:
            raise ValueError(
                f"invalid dp={self.dp}, fsdp={self.fsdp}, tp={self.tp}, cp={self.cp}, "
                f"ep={self.ep} (expected at least 1 rank each)"
            )
        if self.world_size > _MOST_RANKS:
            raise ValueError(
                f"{self.world_size:,} ranks are too many (expected at most {_MOST_RANKS:,})"
            )
        self._check_replicas()
        self._check_pipeline()
        self._check_shared_work()
        self._check_steps()
        check_checkpointing(self.ac)
        if self.lora:
            parse_lora(self.lora)
        check_name("attention", self.attention, ("", *ATTENTION))
        check_name("optimizer", self.optimizer, ("", *OPTIMIZERS))
        check_name("dtype", self.dtype, ("", *DTYPES))
        for part in self.mp.split("/") if self.mp else ():
            check_name("mp", part, tuple(DTYPES))
        if self.mp.count("/") > 1:
            raise ValueError(f"invalid mp '{self.mp}' (expected e.g. bf16 or bf16/fp32)")
        if self.item:
            _check_number("item", self.item)
        self._check_sharding()

    def _check_replicas(self) -> None:
        others = {"fsdp": self.fsdp, "hsdp": self.hsdp, "tp": self.tp if self.tp > 1 else 0}
        for name, value in others.items():
            if self.dp and value:
                raise ValueError(
                    f"dp={self.dp} and {name}={value} are mutually exclusive: "
                    "DistributedDataParallel takes whole parameters; use hsdp to replicate shards"
                )
        if self.zero and not self.dp:
            raise ValueError("zero requires dp, the number of ranks that share optimizer states")

    def _check_pipeline(self) -> None:
        if self.pp < 1 or self.microbatches < 0:
            raise ValueError(
                f"invalid pp={self.pp}, microbatches={self.microbatches} (expected at least 1 each)"
            )
        check_name("schedule", self.schedule, tuple(SCHEDULES))
        if self.pp == 1:
            for name in ("schedule", "microbatches"):
                if getattr(self, name) not in (0, DEFAULT_SCHEDULE):
                    raise ValueError(f"{name} requires pp, the number of ranks of the pipeline")
        elif self.dp:
            raise ValueError(
                f"dp={self.dp} and pp={self.pp} are mutually exclusive; use hsdp={self.dp}x1 to "
                "replicate the stages"
            )

    def _check_shared_work(self) -> None:
        """Ranks that share sequences or experts."""
        for name, value in (("cp", self.cp), ("ep", self.ep)):
            if value == 1:
                continue
            if not self.is_sharded:
                raise ValueError(
                    f"{name}={value} requires fsdp or hsdp, which reduces the gradients (fsdp=1 "
                    "adds no ranks)"
                )
            if self.pp > 1:
                raise ValueError(
                    f"{name}={value} and pp={self.pp} together are not supported; remove one"
                )
        if self.data_shards * self.tp % self.ep or (self.ep > 1 and self.ep % self.tp):
            raise ValueError(
                f"ep={self.ep} does not fit {self.data_shards * self.tp} ranks of fsdp x cp x tp "
                f"(expected a multiple of tp={self.tp} that divides them)"
            )

    def _check_steps(self) -> None:
        if not self.clip >= 0 or math.isinf(self.clip):
            raise ValueError(f"invalid clip={self.clip} (expected the largest norm, e.g. 1.0)")
        if self.accumulate < 1:
            raise ValueError(f"invalid accumulate={self.accumulate} (expected at least 1 batch)")
        if self.routing not in ("", "balanced", "worst") and parse_count(self.routing) is None:
            raise ValueError(
                f"invalid routing '{self.routing}' (expected balanced, worst, or a seed such as 7)"
            )

    def _check_sharding(self) -> None:
        if self.reshard not in ("auto", "yes", "no"):
            degree = parse_count(self.reshard)
            if not degree or self.data_shards % degree:
                raise ValueError(
                    f"invalid reshard '{self.reshard}' (expected auto, yes, no, or a number of "
                    f"ranks that divides {self.data_shards})"
                )
        if self.wrap < 1:
            raise ValueError(f"invalid wrap={self.wrap} (expected at least 1 block in each unit)")
        if not self.is_sharded:
            for name in ("offload", "reshard", "wrap"):
                if getattr(self, name) not in (False, "auto", 1):
                    raise ValueError(f"{name} requires fsdp or hsdp")

    @property
    def is_sharded(self) -> bool:
        return bool(self.fsdp or self.hsdp)

    @property
    def copies(self) -> int:
        """The number of replicas: ranks that hold the same shard."""
        return int(self.hsdp.partition("x")[0]) if self.hsdp else 1

    @property
    def shards(self) -> int:
        return int(self.hsdp.partition("x")[2]) if self.hsdp else self.fsdp or 1

    @property
    def data_shards(self) -> int:
        """The ranks over which FSDP2 shards parameters."""
        return self.shards * self.cp

    @property
    def expert_shards(self) -> int:
        """The ranks over which FSDP2 shards the experts of a rank: those with the same ones."""
        return self.data_shards * self.tp // self.ep

    @property
    def world_size(self) -> int:
        return (self.dp or self.copies * self.data_shards) * self.tp * self.pp

    @property
    def stage_count(self) -> int:
        """The stages of the pipeline; 1 without one."""
        return self.pp * (SCHEDULES[self.schedule].stages_per_rank if self.pp > 1 else 1)

    @property
    def microbatch_count(self) -> int:
        return self.microbatches or self.stage_count

    @property
    def optimizer_kind(self) -> OptimizerKind:
        """The default if the plan names none; the contract may then make another."""
        return OPTIMIZERS[self.optimizer or DEFAULT_OPTIMIZER]

    @property
    def has_dtensors(self) -> bool:
        return self.is_sharded or self.tp > 1

    @property
    def compute_dtype(self) -> torch.dtype | None:
        return find_dtype(self.mp.partition("/")[0]) if self.mp else None

    @property
    def reduce_dtype(self) -> torch.dtype | None:
        name = self.mp.partition("/")[2]
        return find_dtype(name) if name else None

    def checkpointing_of(self, count: int) -> tuple[str, ...]:
        """The kind of checkpointing of each of `count` blocks, a member of CHECKPOINTING."""
        return list_kinds(self.ac, count)

    def change(self, **changes: Any) -> Plan:
        return dataclasses.replace(self, **changes)

    def change_setting(self, name: str, value: Any) -> Plan:
        return self.change(settings=tuple(sorted({**dict(self.settings), name: value}.items())))

    def describe(self) -> str:
        """`FSDP2 over 8 ranks, bf16/fp32, selective checkpointing`."""
        parts = []
        if self.dp:
            parts.append(f"DDP over {self.dp} rank{'' if self.dp == 1 else 's'}")
        if self.zero:
            parts.append("shared optimizer states")
        if self.hsdp:
            parts.append(f"FSDP2 over {self.copies} x {self.shards} ranks")
        elif self.fsdp:
            parts.append(f"FSDP2 over {self.fsdp} rank{'' if self.fsdp == 1 else 's'}")
        if self.tp > 1:
            parts.append(f"tensor parallelism over {self.tp} ranks")
        if self.cp > 1:
            parts.append(f"sequences over {self.cp} ranks")
        if self.ep > 1:
            parts.append(f"experts over {self.ep} ranks")
        if self.pp > 1:
            parts.append(
                f"pipeline over {self.pp} ranks ({self.schedule}, {self.microbatch_count} "
                "microbatches)"
            )
        if self.reshard != "auto":
            parts.append(f"reshard {self.reshard}")
        if self.wrap > 1:
            parts.append(f"{self.wrap} blocks a unit")
        if self.dtype:
            parts.append(f"parameters in {self.dtype}")
        if self.mp:
            parts.append(self.mp if self.is_sharded else f"autocast to {self.mp}")
        parts.append(describe_checkpointing(self.ac))
        if self.lora:
            parts.append(f"LoRA {self.lora}")
        if self.attention:
            parts.append(f"{self.attention} attention")
        if self.accumulate > 1:
            parts.append(f"{self.accumulate} batches a step")
        if self.clip:
            parts.append(f"gradients clipped to {self.clip:g}")
        if self.routing:
            parts.append(
                f"random routing {self.routing}"
                if self.routing.isdecimal()
                else f"{self.routing} routing"
            )
        if self.offload:
            parts.append("shards in host memory")
        return ", ".join(parts)


OPTIONS = tuple(field.name for field in dataclasses.fields(Plan) if field.name != "settings")


def parse_option(name: str, text: str) -> Any:
    """The value of a command-line option. Raises ValueError if it is invalid."""
    if name in _COUNTS:
        count = parse_count(text)
        if not count:
            raise ValueError(
                f"invalid {name} '{text}' (expected a number of {_COUNTS[name]}, at least 1)"
            )
        return count
    if name in ("offload", "zero"):
        if text not in ("yes", "no"):
            raise ValueError(f"invalid {name} '{text}' (expected yes or no)")
        return text == "yes"
    if name == "clip":
        return _check_number(name, text)
    return text


def render_options(plan: Plan) -> list[str]:
    """The words of a command line that asks for this plan: `--fsdp 8 --set batch=2`."""
    words, default = [], Plan()
    for name in OPTIONS:
        if (value := getattr(plan, name)) != getattr(default, name):
            words += [f"--{name}"] if value is True else [f"--{name}", f"{value}"]
    for name, value in plan.settings:
        words += ["--set", f"{name}={value}"]
    return words


_MOST_RANKS = 1 << 20
_COUNTS = dict.fromkeys(("dp", "fsdp", "tp", "cp", "ep", "pp"), "ranks")
_COUNTS |= {"wrap": "blocks", "accumulate": "batches", "microbatches": "microbatches"}


def parse_lora(text: str) -> tuple[int, tuple[str, ...]]:
    """The rank and the names of the modules; no names: all linear layers but the output."""
    found = re.fullmatch(r"rank=([1-9][0-9]{,8})(?:,targets=([^=]+))?", text)
    if found is None:
        raise ValueError(
            f"invalid lora '{text}' (expected e.g. rank=16 or rank=16,targets=q_proj/v_proj)"
        )
    targets = re.split("[,/]", found[2] or "")
    return int(found[1]), tuple(filter(None, targets))


def _check_number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"invalid {name} '{text}' (expected a number)") from None
