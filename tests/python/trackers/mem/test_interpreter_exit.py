# SPDX-License-Identifier: BSD-3-Clause
"""A process that exits while it is tracked exits as it would without a tracker.

`make asan` also runs these tests, because objects are destroyed in any order at exit.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

SET_UP = """
import atexit, gc, sys, threading
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from tidegauge import MemTracker, ModTracker

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
x = torch.ones(2, 4)
optimizer = torch.optim.Adam(model.parameters())

def step():
    optimizer.zero_grad()
    checkpoint(model, x, use_reentrant=False).sum().backward()
    optimizer.step()

memory, modules = MemTracker(), ModTracker()
modules.register_user_hooks(*[lambda *_: None] * 4)
memory.track_external(model, optimizer, x)
"""

ENDS = {
    "inside_of_both": """
        memory.__enter__(), modules.__enter__()
        step()
        loss = model(x).sum()
    """,
    "with_a_graph_and_no_tracker": """
        with memory, modules:
            loss = model(x).sum()
        del memory, modules
    """,
    "in_a_forward": """
        model[1].register_forward_hook(lambda *_: sys.exit(0))
        with memory, modules:
            step()
    """,
    "in_a_backward": """
        model[0].weight.register_post_accumulate_grad_hook(lambda _: sys.exit(0))
        with memory, modules:
            step()
    """,
    "in_a_cycle_with_its_model": """
        model.memory, model.modules_too = memory, modules
        model.itself = [model]
        gc.disable()
        memory.__enter__(), modules.__enter__()
        step()
        del model, memory, modules
    """,
    "before_a_step_of_atexit": """
        memory.__enter__(), modules.__enter__()
        atexit.register(step)
    """,
    "after_a_thread_that_entered": """
        def work():
            memory.__enter__(), modules.__enter__()
            step()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        step()
    """,
}


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Starts all processes at once: most of their time is the import of torch."""
    with contextlib.ExitStack() as stack:
        yield {
            end: stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", SET_UP + textwrap.dedent(script)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
            for end, script in ENDS.items()
        }


@pytest.mark.parametrize("end", ENDS)
def test_process_exits_cleanly(end: str, processes: dict[str, subprocess.Popen[str]]) -> None:
    output, _ = processes[end].communicate()
    assert (processes[end].returncode, output) == (0, "")
