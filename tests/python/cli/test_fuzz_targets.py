# SPDX-License-Identifier: BSD-3-Clause
"""A sample of `make fuzz`: mutated files that keep their structure, and old findings."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from sealing import edit_trace
from tidegauge.allocator import replay_snapshot

REPO = Path(__file__).parents[3]


def load_fuzz() -> Any:
    spec = importlib.util.spec_from_file_location("fuzz", REPO / "tests" / "fuzz" / "fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module
    spec.loader.exec_module(module)
    return module


fuzz = load_fuzz()


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_mutated_files_end_cleanly(target: str, tmp_path: Path) -> None:
    count, findings = fuzz.fuzz(target, seconds=15, seed=1, keep=tmp_path / "kept")
    assert count > 3
    assert findings == []


@pytest.mark.parametrize("script", sorted((fuzz.CORPUS / "trace").iterdir()), ids=lambda p: p.stem)
def test_hostile_traces_of_the_corpus_end_cleanly(script: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.tide"
    shutil.copy(fuzz.TRACES[0], path)
    with edit_trace(path) as database:
        database.executescript(script.read_text())
    out = str(tmp_path / "out")
    for command in (
        ["report", str(path)],
        ["info", str(path)],
        ["replay", str(path)],
        ["report", str(path), "--html", f"{out}.html"],
        ["export", str(path), "--to", "memory-viz", "-o", f"{out}.pickle"],
        ["export", str(path), "--to", "perfetto", "-o", f"{out}.perfetto"],
    ):
        assert fuzz.find_fault(command) is None


def corrupt(script: str, path: Path) -> None:
    shutil.copy(fuzz.CORPUS.parents[1] / "golden/traces/format_1.2_plain.tide", path)
    with edit_trace(path) as database:
        database.executescript((fuzz.CORPUS / "trace" / f"{script}.sql").read_text())


def test_events_with_unknown_numbers_are_counted_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.tide"
    corrupt("events_out_of_range", path)
    assert fuzz.main(["report", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    health = report["health"]
    assert health["anomaly_count"] > 0
    assert "event of kind 0 has a value that this version does not know" in health["first_anomaly"]
    (peak,) = report["peaks"]
    assert (peak["device"], peak["total_bytes"]) == ("cpu", 841_320)  # as without these events


def test_devices_that_torch_does_not_have_are_counted_by_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.tide"
    corrupt("events_on_unknown_devices", path)
    assert fuzz.main(["report", str(path), "--json"]) == 0
    peaks = json.loads(capsys.readouterr().out)["peaks"]
    sizes = {peak["device"]: peak["total_bytes"] for peak in peaks}
    assert sizes.pop("cpu") == 841_320
    assert set(sizes.values()) == {2**20}
    unknown = ["type-1", "type-1:7", "type107:0", "type107", "type127:127", "type-128:-128"]
    assert list(sizes) == [*unknown, "cuda", "cuda:100", "cpu:-128"]
    for device in unknown:
        assert fuzz.main(["replay", str(path), "--traced-device", device]) == 0
        assert f"on {device}, default settings" in capsys.readouterr().out


@pytest.mark.parametrize("seed", sorted((fuzz.CORPUS / "flipped").iterdir()), ids=lambda p: p.stem)
def test_flipped_bits_of_the_corpus_are_noticed(
    seed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outside of the events, which had the only checksums."""
    path = tmp_path / "bad.tide"
    shutil.copy(fuzz.CORPUS.parents[1] / "golden/traces/format_1.3_plain.tide", path)
    fuzz.flip_bit(path, seed.read_bytes(), random.Random(1))
    assert fuzz.main(["report", str(path)]) == 1
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((fuzz.CORPUS / "config").iterdir()), ids=lambda p: p.stem)
def test_configs_of_the_corpus_end_cleanly(path: Path) -> None:
    assert fuzz.find_fault(path) is None


@pytest.mark.parametrize("path", sorted((fuzz.CORPUS / "snapshot").iterdir()), ids=lambda p: p.stem)
def test_hostile_snapshots_of_the_corpus_end_cleanly(path: Path) -> None:
    assert fuzz.find_fault(["replay", str(path)]) is None


def test_close_ranges_of_expandable_segments_are_replayed() -> None:
    """Their ranges were assumed to have 1 TiB, and the recording was refused as damaged."""
    (replayed,) = replay_snapshot(fuzz.CORPUS / "snapshot" / "ranges_closer_than_1_tib.json")
    assert replayed.divergence is None


def test_fault_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fuzzer notices internal errors, and keeps the file."""

    def break_down(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(fuzz, "main", break_down)
    assert fuzz.find_fault(["report", "x"]) == "ZeroDivisionError: "
    _, findings = fuzz.fuzz("budget", seconds=0, seed=1, keep=tmp_path / "kept")
    assert len(findings) == 1
    assert list((tmp_path / "kept").rglob("budget.toml"))


def test_same_seed_makes_the_same_file(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        fuzz.fuzz_snapshot(folder, random.Random(3))
        made.append([path.read_bytes() for path in sorted(folder.iterdir())])
    assert made[0] == made[1]
