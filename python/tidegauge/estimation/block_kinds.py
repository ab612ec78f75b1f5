# SPDX-License-Identifier: BSD-3-Clause
"""The text that says how each block of a model is checkpointed: `--ac`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from tidegauge._util.formatting import parse_count
from tidegauge._util.suggestions import did_you_mean

CHECKPOINTING = ("none", "attention", "selective", "full")
# And every:N, ops:FILE, policy:..., and keep=OP/OP@MODULE.
_KEEP = r"keep=\w+(?:@[\w.]+)?(?:/\w+(?:@[\w.]+)?)*"


def parse_checkpointing(text: str) -> tuple[str, str]:
    """The kind, and what follows the colon: ("every", "2")."""
    kind, _, rest = text.partition(":")
    return kind, rest


def check_checkpointing(text: str) -> None:
    kind, rest = parse_checkpointing(text)
    if kind == "every":
        if not parse_count(rest):
            raise ValueError(f"invalid ac '{text}' (expected every:N, e.g. every:2)")
    elif kind == "ops":
        if not rest:
            raise ValueError(f"invalid ac '{text}' (expected ops:FILE, a file of names of ops)")
    elif kind == "policy":
        if not all(rest.rpartition(":")):
            raise ValueError(
                f"invalid ac '{text}' (expected policy:FILE.py:FUNCTION or policy:MODULE:FUNCTION)"
            )
    elif rest:
        _read_rules(text)
    elif not re.fullmatch(_KEEP, text):
        check_name("ac", text, CHECKPOINTING)


def describe_checkpointing(text: str) -> str:
    kind, rest = parse_checkpointing(text)
    if kind == "every":
        return f"checkpointing of 1 block in {rest}"
    if kind == "ops":
        return f"checkpointing that keeps the ops of {rest}"
    if kind == "policy":
        return f"checkpointing by {rest}"
    if rest or text.startswith("keep="):
        return f"checkpointing {text}"
    return "no checkpointing" if kind == "none" else f"{kind} checkpointing"


_RULE = re.compile(rf"([a-z]+|{_KEEP}):([0-9]{{1,9}})(?:-([0-9]{{1,9}}))?")


def _read_rules(text: str) -> list[tuple[str, int, int]]:
    """(kind, first block, last block) of each part of `ac`."""
    rules = []
    for part in text.split(","):
        match = _RULE.fullmatch(part)
        if match is None or not (match[1].startswith("keep=") or match[1] in CHECKPOINTING):
            raise ValueError(
                f"invalid ac '{text}' (expected {', '.join(CHECKPOINTING)}, every:N, ops:FILE, "
                "keep=OPS, or blocks such as full:0-11,selective:12-31)"
            )
        kind, first, last = match.groups()
        if int(first) > int(last or first):
            raise ValueError(f"invalid ac '{text}': {part} ends before it begins")
        rules.append((kind, int(first), int(last or first)))
    return rules


def list_kinds(ac: str, count: int) -> tuple[str, ...]:
    """The kind of checkpointing of each of `count` blocks; `ac` is not ops:FILE."""
    kind, rest = parse_checkpointing(ac)
    if not rest:
        return (kind,) * count
    kinds = ["none"] * count
    if kind == "every":
        kinds[int(rest) - 1 :: int(rest)] = ["full"] * (count // int(rest))
        return tuple(kinds)
    for kind, first, last in _read_rules(ac):
        if last >= count:
            raise ValueError(
                f"invalid ac '{ac}': there is no block {last} (expected 0 to {count - 1})"
            )
        kinds[first : last + 1] = [kind] * (last + 1 - first)
    return tuple(kinds)


def render_ac(kinds: Sequence[str]) -> str:
    """The shortest text for the kinds of all blocks: `full:0-11,selective:12-31`."""
    if len(set(kinds)) == 1:
        return kinds[0]
    parts = []
    for kind, group in itertools.groupby(range(len(kinds)), key=kinds.__getitem__):
        positions = [*group]
        if kind != "none":
            last = f"-{positions[-1]}" if len(positions) > 1 else ""
            parts.append(f"{kind}:{positions[0]}{last}")
    return ",".join(parts) or "none"


def check_name(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, [each for each in known if each])
        raise ValueError(f"invalid {name} '{value}': {hint}")
