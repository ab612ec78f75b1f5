# SPDX-License-Identifier: BSD-3-Clause
"""The callbacks for Hugging Face's Trainer and for Lightning, in real runs of both."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tidegauge.callbacks import LoopLogger, find_log
from torch import nn

WEIGHT_BYTES = 64 * 64 * 4
PARAMETERS = "memory/cpu/peak/Parameter"


class Regression(nn.Module):
    """Returns its loss, as the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64, bias=False)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layer(x) - labels).square().mean()}


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    transformers = pytest.importorskip("transformers", reason="run: pip install transformers")
    pytest.importorskip("accelerate", reason="run: pip install accelerate")
    rows = [{"x": torch.ones(64), "labels": torch.zeros(64)} for _ in range(8)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        use_cpu=True,
        per_device_train_batch_size=2,
        num_train_epochs=1,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    return transformers.Trainer(model=Regression(), args=arguments, train_dataset=rows)


def test_integrations_of_the_trainer_see_the_memory(trainer: Any) -> None:
    from tidegauge.callbacks import TrainerLogger
    from transformers import TrainerCallback

    seen = []

    class Integration(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append(dict(kwargs["logs"]))

    trainer.add_callback(Integration())
    TrainerLogger.add_to(trainer)
    trainer.train()
    steps = [logs for logs in seen if "loss" in logs]
    assert len(steps) == 4
    assert all(logs[PARAMETERS] == WEIGHT_BYTES for logs in steps)
    assert all(logs["memory/cpu/peak/total"] > 2 * WEIGHT_BYTES for logs in steps)
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [entry[PARAMETERS] for entry in logged] == [WEIGHT_BYTES] * 4


def test_a_callback_of_the_trainer_writes_to_its_history(trainer: Any) -> None:
    from tidegauge.callbacks import TrainerLogger

    trainer.add_callback(TrainerLogger())
    trainer.train()
    (first, *_) = trainer.state.log_history
    assert first[PARAMETERS] == WEIGHT_BYTES


def test_lightning_logs_each_batch_to_all_its_loggers(tmp_path: Path) -> None:
    lightning = pytest.importorskip(
        "pytorch_lightning", reason="run: pip install pytorch-lightning"
    )
    from pytorch_lightning.loggers import CSVLogger
    from tidegauge.callbacks import LightningLogger

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64, bias=False)

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 64)), 2)
    logger = CSVLogger(str(tmp_path), flush_logs_every_n_steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice about workers
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            logger=logger,
            callbacks=[LightningLogger()],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), rows)
    steps = [row for row in logger.experiment.metrics if PARAMETERS in row]
    steps = steps or _read_rows(Path(logger.log_dir) / "metrics.csv")
    assert [float(row[PARAMETERS]) for row in steps] == [WEIGHT_BYTES] * 4


def _read_rows(path: Path) -> list[dict[str, str]]:
    import csv

    with path.open() as file:
        return [row for row in csv.DictReader(file) if row.get(PARAMETERS)]


def test_a_plain_loop_logs_to_a_summary_writer() -> None:
    class Writer:
        def __init__(self) -> None:
            self.rows: list[tuple[str, float, int]] = []

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.rows.append((name, value, step))

    writer = Writer()
    layer = nn.Linear(64, 64, bias=False)
    with LoopLogger(writer, layer) as memory:
        for _ in range(2):
            layer(torch.ones(4, 64)).sum().backward()
            memory.log_step()
    steps = [(value, step) for name, value, step in writer.rows if name == PARAMETERS]
    assert steps == [(WEIGHT_BYTES, 1), (WEIGHT_BYTES, 2)]


def test_what_cannot_log_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot log to a int"):
        find_log(3, lambda: 0)
