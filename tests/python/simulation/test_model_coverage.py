# SPDX-License-Identifier: BSD-3-Clause
"""Models of transformers: simulated bytes equal those of the real run (docs/coverage.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from model_coverage import list_models, measure

pytestmark = pytest.mark.filterwarnings("ignore")

DOCUMENT = Path(__file__).parents[3] / "docs" / "coverage.md"
SAMPLE = (
    *("causal/deepseek_v3", "causal/gpt_oss", "causal/jamba", "causal/llama", "causal/mamba"),
    *("masked/bert", "seq2seq/bart", "image/resnet"),
)


def equal_models() -> dict[str, list[int]]:
    """The rows of the document: [peak, after the steps]."""
    row = re.compile(r"\| `([^`]+)`[^|]* \| ([\d,]+) \| ([\d,]+) \|")
    text = DOCUMENT.read_text(encoding="utf-8")
    return {
        name: [int(peak.replace(",", "")), int(after.replace(",", ""))]
        for name, peak, after in row.findall(text)
    }


def others() -> list[str]:
    """The models that are refused or differ, and those that cannot be trained really."""
    text = DOCUMENT.read_text(encoding="utf-8").partition("## Equal bytes")[0]
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_document_has_every_model_once() -> None:
    assert sorted([*equal_models(), *others()]) == sorted(list_models())


def test_nearly_all_models_that_can_be_trained_are_simulated() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    counts = re.search(
        r"Of (\d+) models, (\d+) have equal bytes\. The real run of the small config fails for "
        r"(\d+)\.",
        text,
    )
    assert counts is not None
    models, equal, refused = map(int, counts.groups())
    assert len(equal_models()) == equal
    assert equal >= 0.95 * (models - refused)


@pytest.mark.parametrize(
    "name",
    [
        name if name in SAMPLE else pytest.param(name, marks=pytest.mark.long)
        for name in equal_models()
    ],
)
def test_peak_equals_that_of_the_real_run(name: str) -> None:
    found = measure(name)
    assert found["simulated"] == found["real"]
    assert isinstance(found["real"], list)
