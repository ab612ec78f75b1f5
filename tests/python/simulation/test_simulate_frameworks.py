# SPDX-License-Identifier: BSD-3-Clause
"""Training frameworks run unchanged in a simulation: Trainer and Accelerate of Hugging Face."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hf_models
import pytest
import safetensors.torch
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState, GradientState, PartialState
from tidegauge import MemTracker, simulate
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from tracked import parameter_bytes
from transformers import Trainer, TrainingArguments

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS = 3


class Sentences(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(12)
        return {"input_ids": tokens, "labels": tokens}


@pytest.fixture(autouse=True)
def no_state_of_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())  # where plugins leave their options
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()  # type: ignore[no-untyped-call]


def run_trainer(folder: Path, **options: Any) -> tuple[Trainer, dict[torch.device, dict[str, int]]]:
    """As a user would write it: it logs losses and saves at the end."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        max_steps=STEPS,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        **options,
    )
    torch.manual_seed(0)
    trainer = Trainer(model=hf_models.llama(), args=arguments, train_dataset=Sentences())
    tracker = MemTracker()
    tracker.track_external(trainer.model)  # type: ignore[arg-type]
    with tracker:
        trainer.train()
        return trainer, tracker.get_tracker_snapshot("peak")


def test_trainer_has_the_bytes_of_the_real_run(tmp_path: Path) -> None:
    _, real = run_trainer(tmp_path / "real", use_cpu=True)
    no_saved = tmp_path / "simulated"
    with simulate() as simulation:
        _, simulated = run_trainer(no_saved, use_cpu=True)
        notes = simulation.notes
    assert simulated == real
    assert notes == (
        "Numbers that transformers reads for its logs (losses, norms) are 1.",
        "Checkpoints of transformers were not written: simulated tensors hold no data.",
    )
    assert [*(tmp_path / "real").glob("*/model.safetensors")]
    assert not [*no_saved.glob("*/*")]


def test_trainer_without_ranks_uses_one_gpu(tmp_path: Path) -> None:
    """With several devices it would wrap the model in DataParallel."""
    with simulate("cuda"):
        trainer, peak = run_trainer(tmp_path, bf16=True)
        assert trainer.args.n_gpu == 1
        assert trainer.model_wrapped is trainer.model
        weights = parameter_bytes(trainer.model)  # type: ignore[arg-type]
        assert peak[torch.device("cuda", 0)]["Parameter"] == weights


def test_trainer_uses_ddp_on_its_own_gpu(tmp_path: Path) -> None:
    with simulate("cuda", world_size=4, rank=1):
        trainer, peak = run_trainer(tmp_path, bf16=True)
        assert isinstance(trainer.model_wrapped, DistributedDataParallel)
        weights = parameter_bytes(trainer.model)  # type: ignore[arg-type]
        assert peak[torch.device("cuda", 1)]["Gradient"] >= weights  # buckets


def test_trainer_shards_with_fsdp2(tmp_path: Path) -> None:
    with simulate("cuda", world_size=4, rank=1):
        options = {
            "version": 2,
            "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"],
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        }
        trainer, _ = run_trainer(tmp_path, fsdp=True, fsdp_config=options)
        layers = trainer.model.model.layers  # type: ignore[union-attr]
        assert all(isinstance(each, FSDPModule) for each in layers)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_accelerate_prepares_and_trains(kind: str) -> None:
    with simulate("cuda", world_size=4, rank=1):
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
            reshard_after_forward=True,
        )
        options: Any = {"fsdp_plugin": plugin} if kind == "fsdp2" else {}
        accelerator = Accelerator(mixed_precision="bf16", **options)
        model = hf_models.llama()
        optimizer = torch.optim.AdamW(model.parameters())
        parts = model, optimizer, DataLoader(Sentences(), batch_size=2)
        model, optimizer, data = accelerator.prepare(*parts)
        assert isinstance(model, FSDPModule if kind == "fsdp2" else DistributedDataParallel)
        for batch in data:
            accelerator.backward(model(**batch).loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        assert {each.device.index for each in model.parameters()} == {1}


def test_program_itself_cannot_read_a_loss() -> None:
    with simulate(), pytest.raises(RuntimeError, match="holds no data"):
        torch.randn(3).sum().item()


def test_safetensors_does_not_read_memory_that_is_not_there(tmp_path: Path) -> None:
    with simulate(), pytest.raises(RuntimeError, match="safetensors was given a simulated tensor"):
        safetensors.torch.save_file({"x": torch.randn(3)}, tmp_path / "x.safetensors")
    safetensors.torch.save_file({"x": torch.ones(3)}, tmp_path / "x.safetensors")
