# SPDX-License-Identifier: BSD-3-Clause
"""Predicts the published steps of benchmarks/published_times.json."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegauge.allocator import find_device
from tidegauge.estimation import Estimator, Plan, load_contract
from tidegauge.estimation.calibration import fit_step
from tidegauge.planning.speed import Speed

REPO = Path(__file__).parents[3]
TABLE = REPO / "benchmarks" / "published_times.json"


@dataclass(frozen=True)
class Prediction:
    """Tokens per second and device. `by_data_sheet`: without a calibration."""

    name: str
    device: str
    calibrates: bool
    measured: float
    by_data_sheet: float
    calibrated: float

    @property
    def error(self) -> float:
        return self.calibrated / self.measured - 1


def predict() -> Iterator[Prediction]:
    """In the order of the table. The first row of a device calibrates it."""
    rows: list[dict[str, Any]] = json.loads(TABLE.read_text())["rows"]
    contract = load_contract(REPO / "examples" / "python" / "llama.py")
    speeds: dict[str, Speed] = {}
    with Estimator(contract, rank="0") as estimator, tempfile.TemporaryDirectory() as folder:
        for row in rows:
            options = dict(row["plan"])
            if "ops" in row:
                path = Path(folder) / "ops.txt"
                path.write_text("\n".join(row["ops"]))
                options["ac"] = f"ops:{path}"
            plan = Plan(settings=tuple(sorted(row["settings"].items())), **options)
            found = estimator.estimate(plan, find_device(row["device"]))
            step, tokens = estimator.step_of(found), estimator.tokens_of(found)
            assert tokens is not None
            plain, measured = Speed(row["device"]), float(row["tokens_per_second"])
            assert row.get("calibrates", False) == (row["device"] not in speeds)
            if row.get("calibrates"):
                speeds[row["device"]] = fit_step(step, plain, tokens / measured * 1e9, row["name"])
            by_data_sheet, calibrated = (
                tokens / step.time(speed)["total_ns"] * 1e9
                for speed in (plain, speeds[row["device"]])
            )
            yield Prediction(
                name=row["name"],
                device=row["device"],
                calibrates=row.get("calibrates", False),
                measured=measured,
                by_data_sheet=by_data_sheet,
                calibrated=calibrated,
            )
