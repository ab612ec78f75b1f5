# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from tidegauge._util.formatting import parse_bytes, render_bytes, render_change, squeeze


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (-1536, "-1.50 KiB"),
        (1023 * 1024 + 512, "1.00 MiB"),
        (24 * 2**30, "24.0 GiB"),
        (2**63 - 1, "8388608 TiB"),
        (10**30, "8388608 TiB"),
        (-(10**30), "-8388608 TiB"),
    ],
)
def test_sizes_have_at_most_four_digits_below_the_largest_unit(size_bytes: int, text: str) -> None:
    assert render_bytes(size_bytes) == text


def test_changes_have_a_sign_unless_they_are_zero() -> None:
    assert [render_change(size) for size in (0, 5, -5)] == ["0 B", "+5 B", "-5 B"]


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("512 MiB", 512 * 2**20), ("40GiB", 40 * 2**30), ("1024", 1024), ("1.5KiB", 1536)],
)
def test_sizes_are_parsed_with_and_without_a_space(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "GiB", "24 GB", "-1KiB", "1e3", "9" * 30])
def test_other_texts_are_no_size(text: str) -> None:
    assert parse_bytes(text) is None


def test_a_narrow_terminal_narrows_the_gaps_of_a_table() -> None:
    table = [
        "Memory on cpu",
        "  parameters       1.00 MiB      assumed",
        "  all              1.00 KiB               (1 to 2)",
    ]
    assert squeeze(table, 80) == table
    assert squeeze(table, 40) == [
        "Memory on cpu",
        "  parameters 1.00 MiB  assumed",
        "  all        1.00 KiB           (1 to 2)",
    ]
    assert squeeze(table, 30) == [  # what does not fit continues below
        "Memory on cpu",
        "  parameters 1.00 MiB assumed",
        "  all        1.00 KiB",
        "      (1 to 2)",
    ]


def test_indentation_of_a_narrow_table_stays() -> None:
    assert squeeze(["        1   a      b", "       12   ccc    d"], 10) == [
        "   1 a   b",
        "  12 ccc d",
    ]


def test_columns_that_do_not_fit_continue_below_all_rows() -> None:
    table = ["The largest of all   one    two  three", "  a                    1     22    333"]
    assert squeeze(table, 22) == [  # the title above the first column needs a line of its own
        "The largest of all",
        "      one   two  three",
        "  a     1    22    333",
    ]
    assert squeeze(table, 16) == [
        "The largest of all",
        "    one two",
        "       three",
        "  a   1  22",
        "         333",
    ]
