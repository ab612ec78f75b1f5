# SPDX-License-Identifier: BSD-3-Clause
"""What training frameworks read and save although it does not change the training.

They log losses and norms, and save checkpoints. In a simulation the numbers that they read are 1
unless they are known, and nothing is saved.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from tidegauge import _C
from tidegauge._torch.late_patches import LatePatches, Patches
from tidegauge._torch.patching import Installation, Patch
from tidegauge._torch.simulated_tensors import paused

_FRAMEWORKS = (
    *("transformers.trainer", "accelerate.", "trl.", "torchtitan."),
    *("pytorch_lightning.", "lightning.", "lightning_fabric."),
)
_originals: dict[str, Any] = {}

# The frameworks that did so in the running simulation.
_readers: dict[str, None] = {}
_savers: dict[str, None] = {}


def answer(tensor: torch.Tensor, caller: FrameType) -> float | None:
    """The number that a framework reads; None if it is known or the program itself reads it."""
    framework = _find(caller)
    if framework is None or tensor.numel() != 1:
        return None
    local = getattr(tensor, "_local_tensor", tensor)
    if not _C.is_simulated(local):
        return None
    with paused():
        if _C.known_values(local) is not None:
            return None
    _readers[framework] = None
    return 1.0 if tensor.is_floating_point() else 1


def skips_saving(caller: FrameType) -> bool:
    framework = _find(caller)
    if framework is not None:
        _savers[framework] = None
    return framework is not None


def notes() -> tuple[str, ...]:
    read, saved = " and ".join(_readers), " and ".join(_savers)
    found = []
    if read:
        found.append(f"Numbers that {read} reads for its logs (losses, norms) are 1.")
    if saved:
        found.append(f"Checkpoints of {saved} were not written: simulated tensors hold no data.")
    return tuple(found)


def clear() -> None:
    _readers.clear()
    _savers.clear()


def _find(frame: FrameType) -> str | None:
    name = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] if name.startswith(_FRAMEWORKS) else None


def _skip_checkpoint(self: Any, *args: Any, **kwargs: Any) -> None:
    _savers["transformers"] = None


def _refuse_bytes(tensor: torch.Tensor) -> Any:
    """safetensors reads memory at the address of the tensor, where it has none."""
    if not _C.is_simulated(tensor):
        return _originals["to_ndarray"](tensor)
    raise RuntimeError(
        f"safetensors was given a simulated tensor of shape {tuple(tensor.shape)}, which holds no "
        "data; save outside of `simulate`, or skip saving"
    )


def _load_trainer() -> Patches:
    place = "transformers.trainer:Trainer"
    return Installation(
        {
            name: Patch(f"{place}.{name}", _skip_checkpoint, is_named=False)
            for name in ("_save_checkpoint", "save_model")
        },
        _originals,
    )


def _load_safetensors() -> Patches:
    return Installation(
        {"to_ndarray": Patch("safetensors.torch:_to_ndarray", _refuse_bytes)}, _originals
    )


FOR_TRAINER = LatePatches("transformers.trainer", _load_trainer)
FOR_SAFETENSORS = LatePatches("safetensors.torch", _load_safetensors)
