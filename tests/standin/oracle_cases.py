# SPDX-License-Identifier: BSD-3-Clause
"""The configurations that are compared with torch's own CUDA allocator."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_FOLDERS = (Path(__file__).parents[2] / "examples" / "python", Path(__file__).parent / "targets")
LLAMA = {"batch": 2, "seq": 1024, "width": 512, "hidden": 1408, "layers": 4, "heads": 8}
SMALL: dict[str, dict[str, Any]] = {
    "llama": {**LLAMA, "kv_heads": 2, "words": 8192},
    "vit": {"batch": 16, "image": 224, "width": 384, "layers": 4},
    "unet": {"batch": 4, "image": 64, "channels": 32, "levels": 3},
    "moe": {"batch": 4, "seq": 512, "words": 4096, "width": 256, "layers": 2, "experts": 4},
}
_TARGETS: dict[str, dict[str, Any]] = {
    **SMALL,
    "eight_bit": SMALL["llama"],
    "gpt": {},
    "recommender": {},
    "context_parallel": {},
}
SHARDED = {"fsdp": 8, "mp": "bf16/fp32"}


@dataclass(frozen=True)
class Case:
    """`is_compiled`: by torch.compile, on the side of CUDA. `is_whole`: with the target's own
    settings instead of smaller ones.
    """

    name: str
    target: str
    plan: dict[str, Any] = field(default_factory=dict)
    alloc_conf: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    is_compiled: bool = False
    is_whole: bool = False

    @property
    def task(self) -> dict[str, Any]:
        """For oracle_run.py."""
        small = {} if self.is_whole else _TARGETS[self.target]
        paths = (folder / f"{self.target}.py" for folder in _FOLDERS)
        return {
            **asdict(self),
            "target": str(next(path for path in paths if path.exists())),
            "settings": {**small, **self.settings},
        }


def _make() -> list[Case]:
    cases = []
    for target in SMALL:
        for name, plan in (
            ("fp32", {}),
            ("autocast", {"mp": "bf16"}),
            # The inputs of the others are images, which stay fp32.
            ("bf16 sgd", {"dtype": "bf16", "optimizer": "sgd"})
            if target in ("llama", "moe")
            else ("sgd", {"optimizer": "sgd"}),
            ("full ac", {"ac": "full"}),
            ("selective ac, autocast", {"ac": "selective", "mp": "bf16"}),
            ("fsdp 8", SHARDED),
            ("fsdp 8, full ac", {**SHARDED, "ac": "full"}),
        ):
            cases.append(Case(f"{target} {name}", target, plan))
    for name, conf in (
        ("expandable", "expandable_segments:True"),
        ("max split", "max_split_size_mb:64"),
        ("rounded up", "roundup_power2_divisions:4"),
    ):
        cases.append(Case(f"llama fp32, {name}", "llama", {}, conf))
        cases.append(Case(f"llama fsdp 8, {name}", "llama", SHARDED, conf))
    for optimizer in ("adam", "sgd-momentum", "adafactor"):
        cases.append(Case(f"llama {optimizer}", "llama", {"optimizer": optimizer}))
    cases += [
        Case("llama hsdp 2x4", "llama", {"hsdp": "2x4", "mp": "bf16/fp32"}),
        Case("llama tp 2", "llama", {"tp": 2}),
        Case("llama fsdp 4, tp 2", "llama", {"fsdp": 4, "tp": 2}),
        Case("llama large vocabulary", "llama", {"mp": "bf16"}, "", {"words": 65536}),
        Case("llama wide", "llama", {"dtype": "bf16"}, "", {"width": 2048, "hidden": 5632}),
        Case("vit large batch", "vit", {"mp": "bf16"}, "", {"batch": 64}),
        Case("llama fused adamw", "llama", {"optimizer": "adamw-fused"}),
        Case("llama fsdp 8, fused adamw", "llama", {**SHARDED, "optimizer": "adamw-fused"}),
        Case("llama 8-bit adamw", "eight_bit", {"mp": "bf16"}),
        Case("llama ddp 8", "llama", {"dp": 8}),
        Case("unet ddp 8", "unet", {"dp": 8, "mp": "bf16"}),
        Case("llama pp 2", "llama", {"pp": 2}),
        Case("llama fsdp 4, pp 2", "llama", {**SHARDED, "fsdp": 4, "pp": 2}),
        Case("attention cp 2", "context_parallel", {"dtype": "bf16", "tp": 2}),
        Case("llama clipped, 2 batches", "llama", {"clip": 1.0, "accumulate": 2}),
        Case("gpt fp32", "gpt"),
        Case("gpt autocast", "gpt", {"mp": "bf16"}),
        Case("gpt fsdp 8", "gpt", SHARDED),
        Case("recommender fp32", "recommender"),
        Case("recommender sgd", "recommender", {"optimizer": "sgd"}),
        Case("llama compiled", "llama", is_compiled=True),
        Case("llama 8B fsdp 8", "llama", {**SHARDED, "ac": "selective"}, is_whole=True),
    ]
    return cases


CASES = _make()
#: Why figures of a configuration are not those of CUDA.
UNKNOWN = {
    "attention cp 2": "when torch frees what a collective sends",
    "llama compiled": "the estimate is one of eager code",
}
