# SPDX-License-Identifier: BSD-3-Clause
"""Names that stand for what has none, and short names of ops and commands."""

from __future__ import annotations

import re

NO_MODULE = "(no module)"
UNNAMED_MODULE = "(never called)"
NO_LINE = "(no line)"
ROOT_UNIT = "(root)"
THE_LOSS = "the loss"

# Not the options of Python that take code or another module.
_INTERPRETER = re.compile(r"\S*python\S*( -[A-Za-ln-z]+)* (-m |\S*/)(?=tidegauge( |$))")

_LOSS_OPS = ("_log_softmax", "log_softmax", "binary_cross_entropy", "cross_entropy", "kl_div")


def is_loss_op(op: str) -> bool:
    """True for ops that compute a loss, and for their backward."""
    name = render_op(op)
    return "loss" in name or name.startswith(_LOSS_OPS)


def name_stranger(op: str, category: str = "") -> str:
    """What a storage that no module owns is for: `the loss`, or its op, or else its category."""
    return THE_LOSS if is_loss_op(op) else render_op(op) or category


def render_op(op: str) -> str:
    """Shortens `aten::mm.out` to `mm`; keeps other namespaces."""
    return op.removeprefix("aten::").partition(".")[0]


def shorten_command(command: str) -> str:
    """`tidegauge run train.py`, without the interpreter and the folders of the machine."""
    found = _INTERPRETER.match(command)
    return command[found.end() :] if found else command
