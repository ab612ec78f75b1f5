# SPDX-License-Identifier: BSD-3-Clause
"""Trains small models of `transformers` really and simulated, and compares the peaks.

As a program, `model_coverage.py NAME...`: prints a line of JSON for each.
"""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import transformers
from tidegauge import MemTracker, simulate
from tiny_configs import TOKENS, make_config
from torch import nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

Inputs = dict[str, torch.Tensor]
_SECONDS = 60  # for one training
_SIDE = 32


def _tokens(config: Any) -> Inputs:
    tokens = torch.randint(3, TOKENS - 6, (2, 16))
    return {"input_ids": tokens, "labels": tokens}


def _images(config: Any) -> Inputs:
    side = getattr(config, "image_size", _SIDE)
    side = side[0] if isinstance(side, list | tuple) else side
    channels = getattr(config, "num_channels", 3)
    return {
        "pixel_values": torch.randn(2, channels, side, side),
        "labels": torch.tensor([0, 1]),
    }


def _sounds(config: Any) -> Inputs:
    return {"input_values": torch.randn(2, 4000), "labels": torch.randint(3, TOKENS - 6, (2, 4))}


#: The kinds of models besides causal language models: their class in `transformers`, what they
#: take, and their types.
_OTHERS: dict[str, tuple[str, Callable[[Any], Inputs], tuple[str, ...]]] = {
    "masked": (
        "AutoModelForMaskedLM",
        _tokens,
        (
            *("albert", "bert", "convbert", "deberta", "deberta-v2", "distilbert", "electra"),
            *("fnet", "ibert", "layoutlm", "mobilebert", "modernbert", "mpnet", "nystromformer"),
            *("roberta", "squeezebert", "xlm-roberta", "yoso"),
        ),
    ),
    "seq2seq": (
        "AutoModelForSeq2SeqLM",
        _tokens,
        (
            *("bart", "blenderbot", "led", "longt5", "m2m_100", "marian", "mbart", "mt5"),
            *("nllb-moe", "pegasus", "prophetnet", "switch_transformers", "t5", "umt5"),
        ),
    ),
    "image": (
        "AutoModelForImageClassification",
        _images,
        (
            *("beit", "convnext", "convnextv2", "cvt", "deit", "dinov2", "efficientnet", "levit"),
            *("mobilenet_v2", "mobilevit", "poolformer", "pvt", "regnet", "resnet", "swin"),
            *("swinv2", "vit"),
        ),
    ),
    "ctc": ("AutoModelForCTC", _sounds, ("hubert", "unispeech", "wav2vec2", "wavlm")),
}


def list_models() -> list[str]:
    """`causal/llama`, `masked/bert`, ..."""
    others = [f"{kind}/{name}" for kind, row in _OTHERS.items() for name in row[2]]
    return [*(f"causal/{name}" for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), *others]


def _build(name: str) -> tuple[nn.Module, Inputs]:
    kind, _, model_type = name.partition("/")
    config = make_config(model_type)
    if kind == "causal":
        make, make_inputs = "AutoModelForCausalLM", _tokens
    else:
        make, make_inputs, _ = _OTHERS[kind]
    model = getattr(transformers, make).from_config(config).train()
    return model, make_inputs(config)


def train(name: str, mode: AbstractContextManager[Any]) -> list[int]:
    """The peak, and what is left after two steps."""
    gc.collect()
    with mode:
        torch.manual_seed(0)
        model, inputs = _build(name)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *inputs.values())
        with tracker:
            for _ in range(2):
                model(**inputs).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return [
                tracker.get_tracker_snapshot(kind)[torch.device("cpu")]["Total"]
                for kind in ("peak", "current")
            ]


@contextlib.contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def stop(*args: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _try(name: str, mode: AbstractContextManager[Any]) -> list[int] | str:
    try:
        with _limited(_SECONDS):
            return train(name, mode)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {(lines or [''])[0]}"[:300]


def measure(name: str) -> dict[str, Any]:
    """Figures, or the first line of an error. `routing`: what the simulation needed."""
    real = _try(name, nullcontext())
    found = {"name": name, "real": real, "simulated": None, "routing": ""}
    if isinstance(real, list):
        found["simulated"] = _try(name, simulate())
        if isinstance(found["simulated"], str):
            routed = _try(name, simulate(routing="balanced"))
            if isinstance(routed, list):
                found |= {"simulated": routed, "routing": "balanced"}
    return found


def main(names: Sequence[str]) -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for name in names:
        print(json.dumps(measure(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
