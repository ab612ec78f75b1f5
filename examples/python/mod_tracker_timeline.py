# SPDX-License-Identifier: BSD-3-Clause
"""The module timeline of one training step of a small Transformer, from ModTracker's user hooks.

Run it with `.venv/bin/python examples/python/mod_tracker_timeline.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from tidegauge import ModTracker
from torch import nn

BAR_WIDTH = 48


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm_1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm_2(x))


class Transformer(nn.Module):
    def __init__(self, tokens: int = 1000, width: int = 128, depth: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads=4) for _ in range(depth))
        self.head = nn.Linear(width, tokens)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@dataclass
class Span:
    """The times when a module ran: [begin, end] in seconds since the start of the step."""

    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)


def track_step(model: nn.Module, ids: torch.Tensor) -> tuple[dict[str, Span], float]:
    """Runs one step and returns a span for each module, in the order of first calls."""
    optimizer = torch.optim.AdamW(model.parameters())
    tracker = ModTracker()
    spans: dict[str, Span] = {}

    def span_of(module: nn.Module) -> Span:
        return spans.setdefault(str(tracker.get_known_fqn(module)), Span())

    def now() -> float:
        return time.perf_counter() - start

    tracker.register_user_hooks(
        pre_fw_hook=lambda module, inputs: span_of(module).forward.append(now()),
        post_fw_hook=lambda module, inputs, outputs: span_of(module).forward.append(now()),
        pre_bw_hook=lambda module, grads: span_of(module).backward.append(now()),
        post_bw_hook=lambda module, grads: span_of(module).backward.append(now()),
    )
    start = time.perf_counter()
    with tracker:
        logits = model(ids)
        nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
    return spans, now()


def render(spans: dict[str, Span], total: float) -> str:
    """One line per module: forward is solid, backward is shaded."""
    width = max(map(len, spans))
    lines = [f"{'module':{width}}  forward  backward  0 ms{total * 1e3:{BAR_WIDTH - 7}.1f} ms"]
    for name, span in spans.items():
        bar = [" "] * BAR_WIDTH
        for times, mark in ((span.forward, "█"), (span.backward, "▒")):
            if len(times) < 2:
                continue
            first, last = (min(int(t / total * BAR_WIDTH), BAR_WIDTH - 1) for t in times[:2])
            bar[first : last + 1] = mark * (last + 1 - first)
        durations = "".join(
            f"{(times[1] - times[0]) * 1e3:7.2f}  " if len(times) > 1 else "     -   "
            for times in (span.forward, span.backward)
        )
        lines.append(f"{name:{width}} {durations} {''.join(bar).rstrip()}")
    return "\n".join(lines)


def main() -> None:
    torch.manual_seed(0)
    model = Transformer()
    ids = torch.randint(1000, (8, 64))
    track_step(model, ids)  # the first step includes torch's own start-up
    count = sum(p.numel() for p in model.parameters())
    print(f"One training step of a Transformer with {count:,} parameters (milliseconds)\n")
    print(render(*track_step(model, ids)))


if __name__ == "__main__":
    main()
