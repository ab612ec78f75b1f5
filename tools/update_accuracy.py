# SPDX-License-Identifier: BSD-3-Clause
"""Writes the tables of docs/accuracy.md: `.venv/bin/python tools/update_accuracy.py` (a minute)."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tidegauge import estimate
from tidegauge.estimation import Plan, load_contract
from update_readme import BLOCK, REPO

sys.path.insert(0, str(REPO / "tests" / "python" / "support"))
import real_run

EXAMPLES = REPO / "examples" / "python"
# Small enough for real tensors; the code is the same as for the large models.
SMALL: dict[str, dict[str, Any]] = {
    "llama.py": {
        "batch": 4,
        "seq": 256,
        "width": 128,
        "hidden": 384,
        "layers": 4,
        "heads": 4,
        "kv_heads": 2,
        "words": 512,
    },
    "vit.py": {"batch": 16, "image": 128, "width": 128, "layers": 4},
    "unet.py": {"batch": 4, "image": 32, "channels": 16, "levels": 3},
    "moe.py": {"batch": 8, "seq": 256, "words": 512, "width": 128, "layers": 2, "experts": 4},
}
PLANS = (Plan(), Plan(mp="bf16"), Plan(ac="selective"), Plan(ac="full", mp="bf16"))


def real() -> str:
    rows = ["| program | plan | predicted | measured | difference |", "|---|---|---:|---:|---:|"]
    for name, settings in SMALL.items():
        contract = load_contract(EXAMPLES / name)
        for plan in PLANS:
            with tempfile.TemporaryDirectory() as folder:
                measured = real_run.train(contract, plan, Path(folder) / "real.tide", settings)
            found = estimate(
                contract, settings=settings, simulated_device="cpu", ac=plan.ac, mp=plan.mp
            )
            real_bytes = measured["peak_bytes"]
            difference = found.peak.total_bytes - real_bytes
            rows.append(
                f"| `{name}` | {plan.describe()} | {found.peak.total_bytes:,} | {real_bytes:,} | "
                f"{difference:,} |"
            )
    return "\n".join([*rows, ""])


def counted() -> str:
    found = estimate(EXAMPLES / "llama.py", fsdp=8, mp="bf16/fp32", ac="selective")
    settings = found.settings
    parameters, tokens = found.parameter_count, settings["batch"] * settings["seq"]
    categories = found.peak.categories
    logits = 4 * tokens * settings["words"]
    largest = max(
        (row for row in found.peak.tensors if row.op.startswith("aten::_log_softmax")),
        key=lambda row: row.size_bytes,
    )
    rows = [
        ("parameter shards", "4 B x parameters / 8", 4 * parameters // 8, "Sharded Param"),
        ("AdamW states", "8 B x parameters / 8", 8 * parameters // 8, "Optstate"),
        (
            "unsharded root, at the loss",
            "2 B x (embedding, norm and head)",
            2 * (2 * settings["words"] * settings["width"] + settings["width"]),
            "Unsharded Param",
        ),
    ]
    lines = ["| memory | formula | computed | predicted |", "|---|---|---:|---:|"]
    lines += [
        f"| {what} | {formula} | {value:,} | {categories.get(name, 0):,} |"
        for what, formula, value, name in rows
    ]
    lines.append(
        "| softmax of the logits, saved for backward | 4 B x tokens x words | "
        f"{logits:,} | {largest.size_bytes:,} |"
    )
    return "\n".join([*lines, ""])


def main() -> None:
    path = REPO / "docs" / "accuracy.md"
    generators = {"real": real, "counted": counted}

    def replace(block: re.Match[str]) -> str:
        if block[2] not in generators:  # tools/update_oracle.py writes it
            return block[0]
        return block[1] + generators[block[2]]() + block[3]

    path.write_text(BLOCK.sub(replace, path.read_text()))


if __name__ == "__main__":
    main()
