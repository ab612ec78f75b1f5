# SPDX-License-Identifier: BSD-3-Clause
"""The cost of tracking a CUDA step, and rehearsals of large models, on the stand-in for CUDA.

Needs a torch with CUDA, but no GPU. The steps run in a child process, which alone has the stand-in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from measure import Ratio, measure
from tidegauge import MemTracker, Recorder, standin
from tidegauge.allocator import Assumptions, find_device

from cases.mem_tracker import Training, hf_models

EXAMPLES = Path(__file__).parents[2] / "examples" / "python" / "rehearse"
LLAMA_405B = [
    *("--width", "16384", "--hidden", "53248", "--layers", "126", "--heads", "128"),
    *("--seq", "2048", "--tp", "8", "--pp", "8"),
]
# What is rehearsed: options, script and its arguments, and the bar in seconds.
REHEARSALS: dict[str, tuple[list[str], list[str], float]] = {
    "Llama 3 8B, FSDP2 over 8 GPUs": (["--gpus", "8"], ["fsdp.py"], 30),
    "Llama 3 70B, TP 8 x FSDP2 over 64 GPUs": (
        ["--nodes", "8", "--gpus", "8"],
        ["four_dimensions.py", "--tp", "8"],
        180,
    ),
    "Llama 3 405B, PP 8 x TP 8 x FSDP2 over 512 GPUs": (
        ["--nodes", "64", "--gpus", "8"],
        ["four_dimensions.py", *LLAMA_405B],
        180,
    ),
}


def run() -> list[Ratio]:
    if torch.version.cuda is None:
        return []
    gpu = find_device("h100-80g")
    nothing = Assumptions(context_bytes=0, communication_bytes=0)
    environment = standin.make_environment(standin.build(), gpu, 1, assumptions=nothing)
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    child = subprocess.run(
        [sys.executable, "-m", "cases.cuda"], env=environment, check=True, stdout=subprocess.PIPE
    )
    return [Ratio(**row) for row in json.loads(child.stdout.splitlines()[-1])]


def measure_steps() -> list[Ratio]:
    """In CPU time of the process, because another thread runs the backward."""
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    model: Any = hf_models.llama(8, 128, vocab_size=1000, num_key_value_heads=4).cuda()
    tokens = torch.zeros(2, 32, dtype=torch.long, device="cuda")
    training = Training(
        lambda: model(input_ids=tokens, labels=tokens).loss, torch.optim.AdamW(model.parameters())
    )

    @contextmanager
    def recorded() -> Iterator[object]:
        with tempfile.TemporaryDirectory() as folder:
            recorder = Recorder(Path(folder) / "run.tide")
            with training.within(lambda: MemTracker(record=recorder), model, tokens)() as tracker:
                yield tracker
            recorder.close()

    return measure(
        "MemTracker on CUDA (stand-in), Hugging Face Llama, 8 layers, hidden 128, AdamW",
        training.step,
        {
            "tracked": (training.within(MemTracker, model, tokens), 1.10),
            "tracked and recorded": (recorded, 1.15),
        },
        plain=nullcontext,
        steps=5,
        warm_up=2,
        clock=time.process_time,
    )


def bars() -> list[tuple[str, float, float]]:
    """Of three steps of one rank, from start to end. CPU time, because a machine may be busy."""
    if torch.version.cuda is None:
        return []
    rows = []
    for name, (options, script, most_seconds) in REHEARSALS.items():
        seconds, peak_bytes = _rehearse([*options, str(EXAMPLES / script[0]), *script[1:]])
        rows.append((f"CPU seconds to rehearse {name}", seconds, most_seconds))
        rows.append((f"bytes of memory to rehearse {name}", peak_bytes, 1.5 * 2**30))
    return rows


def _rehearse(arguments: list[str]) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tidegauge", "rehearse", "-o", f"{folder}/run.tide"]
        child = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"rehearse {' '.join(arguments)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


if __name__ == "__main__":
    print(json.dumps([asdict(ratio) for ratio in measure_steps()]), flush=True)
    os._exit(0)  # torch's autograd threads may abort a process that ends after a backward
