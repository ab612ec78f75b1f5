# SPDX-License-Identifier: BSD-3-Clause
"""Damaged or hostile files give a clear error; they never run code and never crash."""

from __future__ import annotations

import collections
import json
import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snapshots import event, three_segments, write
from tidegauge._util import plain_pickle
from tidegauge.allocator import replay_snapshot
from tidegauge.allocator.snapshot_file import read_snapshot
from tidegauge.errors import FormatError


class _Runs:
    """Calls `function(*args)` when an ordinary unpickler loads it."""

    def __init__(self, function: Any, *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> Any:
        return self._call


def _complaint(path: Path) -> str:
    with pytest.raises(FormatError) as caught:
        replay_snapshot(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert len(message) < 600
    return message


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("where", ["all", "in a list", "as a number", "as a key"])
def test_pickled_calls_are_refused(tmp_path: Path, protocol: int, where: str) -> None:
    target = tmp_path / "made by the pickle"
    attack: Any = _Runs(os.mkdir, str(target))
    snapshot: Any = three_segments()
    if where == "all":
        snapshot = attack
    elif where == "in a list":
        snapshot["external_annotations"].append(attack)
    elif where == "as a number":
        snapshot["segments"][0]["total_size"] = attack
    else:
        snapshot[(attack,)] = 1
    path = write(tmp_path / "s.pickle", snapshot, protocol)
    assert "the pickle names, makes or calls an object" in _complaint(path)
    assert not target.exists()
    pickle.loads(path.read_bytes())  # the attack works
    assert target.exists()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("class by GLOBAL", b"cos\nsystem\n(S'true'\ntR."),
        ("class by INST", b"(S'true'\nios\nsystem\n."),
        ("class by STACK_GLOBAL", b"\x80\x04\x8c\x02os\x8c\x06system\x93."),
        ("object by persistent id", b"Pid\n."),
        ("object by binary persistent id", b"K\x01Q."),
        ("harmless class", pickle.dumps(collections.OrderedDict())),
        ("extension code", b"\x82\x01."),
        ("buffer from outside", b"\x80\x05\x97."),
    ],
)
def test_imports_and_lookups_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(data)
    assert "refused" in _complaint(path), name


def test_unpickler_itself_cannot_import() -> None:
    for data in (b"cos\nsystem\n.", b"Pid\n.", pickle.dumps(collections.OrderedDict())):
        with pytest.raises(FormatError, match="refused"):
            plain_pickle._PlainUnpickler(data, may_have_defaultdicts=True).load()


def test_memo_cannot_exhaust_memory(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(b"\x80\x02Nr\xff\xff\xff\x7f.")
    assert "damaged at byte 3" in _complaint(path)


@pytest.mark.parametrize(
    ("snapshot", "complaint"),
    [
        ([1], "segments[0] is of type int, expected a dictionary."),
        ("text", "expected a dictionary with 'segments', found 'text'; write the file with"),
        ({"device_traces": []}, "expected a dictionary with 'segments', found of type dict"),
        ({"segments": {}}, "segments is of type dict, expected a list."),
        ({"segments": [{}]}, "'address' of segments[0] is missing, expected an integer."),
        ({"segments": [], "device_traces": 5}, "device_traces is of type int, expected a list."),
        ({"segments": [], "device_traces": [[7]]}, "device_traces[0][0] is of type int"),
        ({"segments": [], "device_traces": [[{}]]}, "device_traces[0][0] has the action None"),
        (
            {"segments": [], "device_traces": [[event("alloc", True, 1)]]},
            "'addr' of device_traces[0][0] is True, expected an integer.",
        ),
        (
            {"segments": [], "device_traces": [[event("alloc", 1 << 64, 1)]]},
            "device_traces[0][0] has a number that exceeds 64 bits",
        ),
        (
            {"segments": [], "device_traces": [[event("alloc", 512, 1)]]},
            "device 0: event 0 (alloc of 1 bytes at address 512) contradicts later events: "
            "there is no segment at this address.",
        ),
        (
            {"segments": [], "device_traces": [[event("alloc", 1, 1, pool_id="x")]]},
            "device_traces[0][0] has the pool 'x', expected two numbers.",
        ),
    ],
)
def test_invalid_value_is_reported_with_its_place(
    tmp_path: Path, snapshot: Any, complaint: str
) -> None:
    assert complaint in _complaint(write(tmp_path / "s.pickle", snapshot))


def test_impossible_blocks_are_refused(tmp_path: Path) -> None:
    for key, value in (("size", 1 << 62), ("size", -1), ("size", 0), ("address", -1)):
        snapshot = three_segments()
        snapshot["segments"][1]["blocks"][0][key] = value
        _complaint(write(tmp_path / "s.pickle", snapshot))
    snapshot = three_segments()
    snapshot["segments"][0]["blocks"][0]["state"] = "haunted"
    path = write(tmp_path / "s.pickle", snapshot)
    assert "segments[0].blocks[0] has the unknown state 'haunted'" in _complaint(path)


def test_numbers_of_any_size_are_refused_in_one_line(tmp_path: Path) -> None:
    """Python cannot even print a number of 5,000 digits."""
    huge = 10**5000
    for key in ("device", "address", "total_size", "stream"):
        snapshot = three_segments()
        snapshot["segments"][0][key] = huge
        _complaint(write(tmp_path / "s.pickle", snapshot))
    _complaint(
        write(tmp_path / "s.pickle", {"segments": [], "device_traces": [[event("oom", huge, 1)]]})
    )


def test_devices_are_those_that_torch_can_have(tmp_path: Path) -> None:
    """Numbers that all have the same hash would take a time that grows with their square."""
    snapshot = three_segments()
    snapshot["segments"][0]["device"] = 128
    complaint = _complaint(write(tmp_path / "s.pickle", snapshot))
    assert "the device of segments[0] is not a number from 0 to 127" in complaint
    snapshot = {"segments": [], "device_traces": [[]] * 129}
    complaint = _complaint(write(tmp_path / "s.pickle", snapshot))
    assert "device_traces has 129 devices, expected at most 128" in complaint


def test_files_above_the_size_limit_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "s.pickle", three_segments())
    size = path.stat().st_size
    read_snapshot(path, max_file_bytes=size)
    with pytest.raises(FormatError, match=r"but the limit is .*; record fewer events"):
        read_snapshot(path, max_file_bytes=size - 1)


def test_small_file_cannot_claim_endless_entries(tmp_path: Path) -> None:
    """A list with a hundred references to a list with a thousand references to one event."""
    events = [event("oom", 0, 0)] * 1000
    snapshot = {"segments": [], "device_traces": [events] * 100}
    assert "more entries than it has bytes" in _complaint(write(tmp_path / "s.pickle", snapshot))


def test_list_that_contains_itself_is_refused(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    for snapshot in (endless, {"segments": endless}, {"segments": [], "device_traces": endless}):
        _complaint(write(tmp_path / "s.pickle", snapshot))


def test_deep_nesting_does_not_crash(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(b"\x80\x02" + b"(" * 200_000 + b"t" * 200_000 + b".")
    _complaint(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "damaged (Expecting property name"),
        ("[" * 100_000, "not a memory snapshot, or damaged ("),
        ('{"segments": 1}', "segments is of type int, expected a list"),
        ('{"segments": [{"address": 1e3}]}', "'address' of segments[0] is of type float"),
        ('{"segments": [{"address": 99999999999999999999, "total_size": 1}]}', "exceeds 64 bits"),
        ('{"device_traces": []}', "expected a dictionary with 'segments'"),
        ('{"segments": [], "segments": \udcff}', "damaged"),
    ],
)
def test_invalid_json_snapshot_is_reported(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert complaint in _complaint(path)


def test_json_equals_the_pickle(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(three_segments()))
    assert replay_snapshot(path) == replay_snapshot(write(tmp_path / "s.pickle", three_segments()))


def test_lengths_beyond_the_file_do_not_crash(tmp_path: Path) -> None:
    for opcode in (b"\x8d", b"\x8e", b"\x96"):  # BINUNICODE8, BINBYTES8, BYTEARRAY8
        path = tmp_path / "s.pickle"
        path.write_bytes(b"\x80\x05" + opcode + struct.pack("<Q", 1 << 62) + b"abc.")
        _complaint(path)


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replay_snapshot(tmp_path / "nothing.pickle")
    with pytest.raises(IsADirectoryError):
        replay_snapshot(tmp_path)


def _replay_or_complain(path: Path) -> bool:
    """True if it was accepted. Any error but FormatError fails the test."""
    try:
        replay_snapshot(path)
    except FormatError:
        return False
    return True


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    data = pickle.dumps(three_segments())
    path = tmp_path / "s.pickle"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert not _replay_or_complain(path), length


def test_flipped_bits_are_an_error_or_a_valid_run(tmp_path: Path) -> None:
    chance = random.Random(5)
    path = tmp_path / "s.pickle"
    rounds = 20_000 if os.environ.get("TIDEGAUGE_LONG") == "1" else 1_000
    accepted = 0
    for _ in range(rounds):
        data = bytearray(pickle.dumps(three_segments(), protocol=chance.randrange(6)))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        accepted += _replay_or_complain(path)
    assert 0 < accepted < rounds


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 65), 1 << 65),
    st.sampled_from([0, 1, 512, 1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 63)]),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=1),
)


@given(data=st.data())
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_mutated_snapshot_is_rejected_or_replayed(tmp_path: Path, data: st.DataObject) -> None:
    snapshot = three_segments()
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = snapshot
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            deeper = place[key]
            if isinstance(deeper, dict | list) and deeper and data.draw(st.integers(0, 9)) > 0:
                place = deeper
                continue
            if data.draw(st.booleans()):
                place[key] = data.draw(_VALUES)
            else:
                del place[key]
            break
    _replay_or_complain(write(tmp_path / "s.pickle", snapshot))
