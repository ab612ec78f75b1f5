# SPDX-License-Identifier: BSD-3-Clause
"""Replays of snapshot files: recorded runs, and hand-made files of every torch version."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any, get_args

import pytest
import snapshots
from snapshots import BASE, MIB, block, deferred_frees, event, segment, three_segments, write
from tidegauge import _core
from tidegauge.allocator import replay_snapshot
from tidegauge.allocator.replay import Tie
from tidegauge.errors import FormatError


def test_recorded_runs_are_simulated_exactly(tmp_path: Path) -> None:
    for trace in snapshots.recorded_traces():
        path = write(tmp_path / "recorded.pickle", snapshots.snapshot_of_trace(trace))
        (device,) = replay_snapshot(path)
        assert device.divergence is None, (trace.name, device.divergence)
        assert device.is_consistent
        assert device.tie == "address", trace.name
        assert device.simulated == device.recorded
        assert device.recorded.peak_reserved_bytes >= device.recorded.peak_active_bytes > 0


def test_figures_of_a_small_run(tmp_path: Path) -> None:
    (device,) = replay_snapshot(write(tmp_path / "s.pickle", three_segments()))
    recorded = device.recorded
    assert (device.device, device.events) == (0, 11)
    assert recorded.peak_reserved_bytes == 150 * MIB
    assert recorded.peak_active_bytes == 70 * MIB
    assert recorded.unused_at_peak_bytes == 80 * MIB
    assert recorded.slack_at_peak_bytes == 1 * MIB
    assert recorded.fragmentation == pytest.approx(80 / 150)
    assert (recorded.segments, recorded.segment_events) == (3, 3)
    assert device.simulated == recorded
    saved = {what_if.alloc_conf: what_if.saved_bytes // MIB for what_if in device.what_ifs}
    assert saved["expandable_segments:True"] == 70  # 50 grow to 70, in pages of 20


def test_other_settings_can_be_simulated(tmp_path: Path) -> None:
    path = write(tmp_path / "s.pickle", three_segments())
    (device,) = replay_snapshot(path, alloc_conf="expandable_segments:True")
    assert device.recorded.peak_reserved_bytes == 150 * MIB
    assert device.simulated.peak_reserved_bytes == 80 * MIB
    assert device.same_settings.peak_reserved_bytes == 150 * MIB


def test_smaller_device_runs_out_of_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "s.pickle", three_segments())
    (device,) = replay_snapshot(path, device_memory_bytes=60 * MIB)
    assert device.simulated.out_of_memory == 1
    # With 120 MiB the cache is released instead.
    (device,) = replay_snapshot(path, device_memory_bytes=120 * MIB)
    assert device.simulated.out_of_memory == 0
    assert device.simulated.peak_reserved_bytes == 80 * MIB
    assert device.divergence is not None


def test_deferred_frees_follow_the_recording_or_a_bound(tmp_path: Path) -> None:
    path = write(tmp_path / "s.pickle", deferred_frees())
    reserved = {}
    for policy in ("low", "recorded", "high"):
        (replay,) = replay_snapshot(path, deferred=policy)  # type: ignore[arg-type]
        assert replay.deferred == policy
        assert replay.recorded.peak_reserved_bytes == 60 * MIB
        assert replay.simulated.peak_reserved_bytes == replay.same_settings.peak_reserved_bytes
        reserved[policy] = replay.simulated.peak_reserved_bytes // MIB
    # low: one block serves all. recorded: a second one while the first waits. high: a third one,
    # because no synchronization frees the others.
    assert reserved == {"low": 30, "recorded": 60, "high": 90}
    with pytest.raises(ValueError, match="'quick': expected 'recorded', 'low', 'high'"):
        replay_snapshot(path, deferred="quick")  # type: ignore[arg-type]


def test_tie_rule_of_torch_2_12_is_detected(tmp_path: Path) -> None:
    """Two segments each in the default and a private pool; the newer has the lower address."""
    events, segments = [], []
    for pool, base in (((0, 0), BASE), ((0, 1), BASE + 100 * MIB)):
        older, younger = base + 30 * MIB, base
        taken, left = (younger, older) if pool == (0, 0) else (older, younger)
        for address in (older, younger):
            events.append(event("segment_alloc", address, 30 * MIB, pool_id=pool))
            events.append(event("alloc", address, 30 * MIB, pool_id=pool))
        for address in (older, younger):
            events.append(event("free_requested", address, 30 * MIB, pool_id=pool))
            events.append(event("free_completed", address, 30 * MIB, pool_id=pool))
        events.append(event("alloc", taken, 30 * MIB, pool_id=pool))
        segments += [
            segment(
                taken,
                30 * MIB,
                [block(taken, 30 * MIB, 30 * MIB, "active_allocated")],
                segment_pool_id=pool,
            ),
            segment(left, 30 * MIB, [block(left, 30 * MIB, 0, "inactive")], segment_pool_id=pool),
        ]
    path = write(tmp_path / "s.pickle", {"segments": segments, "device_traces": [events]})
    (replay,) = replay_snapshot(path)
    assert replay.tie == "private-counter"
    assert replay.divergence is None
    for rule in ("address", "counter"):
        (replay,) = replay_snapshot(path, tie=rule)  # type: ignore[arg-type]
        assert replay.divergence is not None


def test_tie_rule_is_detected(tmp_path: Path) -> None:
    """Two segments, the older at the higher address: the next choice reveals the rule."""
    older, younger = BASE + 30 * MIB, BASE
    for rule, taken in (("address", younger), ("counter", older)):
        events = [
            event(action, address, 30 * MIB)
            for address in (older, younger)
            for action in ("segment_alloc", "alloc")
        ]
        events += [
            event(action, address, 30 * MIB)
            for address in (older, younger)
            for action in ("free_requested", "free_completed")
        ]
        events.append(event("alloc", taken, 30 * MIB))
        states = {a: "active_allocated" if a == taken else "inactive" for a in (older, younger)}
        blocks = {a: [block(a, 30 * MIB, 30 * MIB, states[a])] for a in (older, younger)}
        snapshot = {
            "segments": [segment(a, 30 * MIB, blocks[a]) for a in (younger, older)],
            "device_traces": [events],
        }
        path = write(tmp_path / "s.pickle", snapshot)
        (device,) = replay_snapshot(path)
        assert (device.tie, device.divergence) == (rule, None)
        other = "counter" if rule == "address" else "address"
        (device,) = replay_snapshot(path, tie=other)  # type: ignore[arg-type]
        assert device.divergence is not None
        assert device.divergence.event == 8
        assert "simulated at" in device.divergence.what


def test_settings_of_the_run_are_read_from_the_file(tmp_path: Path) -> None:
    snapshot = {
        "segments": [
            segment(
                BASE,
                20 * MIB,
                [
                    block(BASE, 2 * MIB, 2 * MIB, "active_allocated"),
                    block(BASE + 2 * MIB, 18 * MIB, 0, "inactive"),
                ],
                is_expandable=True,
            )
        ],
        "device_traces": [
            [event("segment_map", BASE, 20 * MIB), event("alloc", BASE, 2 * MIB)],
        ],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    }
    (device,) = replay_snapshot(write(tmp_path / "s.pickle", snapshot))
    assert device.recorded_conf == "expandable_segments:True"
    assert device.divergence is None
    assert device.what_ifs[0].alloc_conf == "expandable_segments:False"

    snapshot["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": True}
    (device,) = replay_snapshot(write(tmp_path / "s.pickle", snapshot))
    assert device.recorded_conf == "expandable_segments:True"

    del snapshot["allocator_settings"]  # torch before 2.3
    path = write(tmp_path / "s.pickle", snapshot)
    assert replay_snapshot(path)[0].divergence is not None
    assert replay_snapshot(path, recorded_conf="expandable_segments:True")[0].divergence is None


def _make_snapshot(version: str) -> dict[str, Any]:
    """The same run in the format of this torch version."""
    snapshot = three_segments()
    if version < "2.14":
        assert "host_segments" not in snapshot
    else:
        snapshot |= {"host_segments": [], "host_traces": []}
        snapshot["device_traces"][0].insert(3, event("annotate", 0, 0, user_metadata="x"))
    if version >= "2.12":
        for entry in snapshot["device_traces"][0]:
            entry["pool_id"] = (0, 0)
    if version < "2.5":
        del snapshot["external_annotations"]
    if version < "2.3":
        del snapshot["allocator_settings"]
    for one in snapshot["segments"]:
        if version < "2.1":
            del one["segment_pool_id"], one["is_expandable"]
        for piece in one["blocks"]:
            if version < "2.1":
                del piece["address"], piece["frames"]
                requested = piece.pop("requested_size")
                if piece["state"] != "inactive":
                    piece["history"] = [{"addr": one["address"], "real_size": requested}]
    return snapshot


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3", "2.5", "2.12", "2.14"])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_files_of_every_torch_version_give_the_same_result(
    tmp_path: Path, version: str, protocol: int
) -> None:
    (expected,) = replay_snapshot(write(tmp_path / "now.pickle", three_segments()))
    path = write(tmp_path / "then.pickle", _make_snapshot(version), protocol)
    (device,) = replay_snapshot(path)
    assert device.divergence is None
    assert device.recorded == expected.recorded
    assert device.events == expected.events


def test_devices_are_replayed_separately(tmp_path: Path) -> None:
    snapshot = three_segments()
    others = copy.deepcopy(snapshot["segments"])
    for one in others:
        one["device"] = 2
    snapshot["segments"] += others
    snapshot["device_traces"] += [[], copy.deepcopy(snapshot["device_traces"][0]), []]
    devices = replay_snapshot(write(tmp_path / "s.pickle", snapshot))
    assert [device.device for device in devices] == [0, 2]
    assert devices[0].recorded == devices[1].recorded


def test_snapshot_without_events_has_only_a_state(tmp_path: Path) -> None:
    for snapshot in ({"segments": three_segments()["segments"]}, three_segments()["segments"]):
        (device,) = replay_snapshot(write(tmp_path / "s.pickle", snapshot))
        assert device.events == 0
        assert device.recorded.peak_reserved_bytes == 150 * MIB
        assert device.divergence is None
    assert replay_snapshot(write(tmp_path / "s.pickle", {"segments": []})) == []


def test_contradiction_names_file_device_and_event(tmp_path: Path) -> None:
    snapshot = three_segments()
    del snapshot["device_traces"][0][5]
    path = write(tmp_path / "s.pickle", snapshot)
    with pytest.raises(FormatError) as caught:
        replay_snapshot(path)
    assert str(caught.value) == (
        f"{path}: device 0: event 4 (segment_alloc of 52428800 bytes at address "
        f"{BASE + 30 * MIB}) contradicts later events: another block exists at this address "
        "before. The file is damaged, or the run used other settings: record it again, or pass "
        "them as recorded_conf."
    )


def test_invalid_settings_give_the_message_of_torch(tmp_path: Path) -> None:
    path = write(tmp_path / "s.pickle", three_segments())
    with pytest.raises(ValueError, match="Unrecognized key 'foo' in Accelerator allocator config"):
        replay_snapshot(path, alloc_conf="foo:1")
    snapshot = three_segments()
    snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = "from_the_future:1"
    with pytest.raises(FormatError, match=r"s\.pickle: its allocator settings .* recorded_conf"):
        replay_snapshot(write(path, snapshot))
    assert replay_snapshot(path, recorded_conf="")[0].divergence is None


def test_unknown_tie_rule_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "s.pickle", three_segments())
    with pytest.raises(ValueError, match="unknown tie rule 'chance'") as caught:
        replay_snapshot(path, tie="chance")  # type: ignore[arg-type]
    assert not isinstance(caught.value, FormatError)


def test_all_names_of_tie_rules_agree(tmp_path: Path) -> None:
    """Those of the type, of the torch versions and of C++, which would reject another one."""
    assert set(get_args(Tie)) == set(_core.tie_rules())
    path = write(tmp_path / "s.pickle", three_segments())
    for rule in get_args(Tie):
        assert replay_snapshot(path, tie=rule)[0].tie == rule


def test_memory_fraction_is_ignored_without_device_memory(tmp_path: Path) -> None:
    snapshot = three_segments()
    conf = "per_process_memory_fraction:0.5,garbage_collection_threshold:0.5"
    snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = conf
    (device,) = replay_snapshot(write(tmp_path / "s.pickle", snapshot))
    assert device.divergence is None
