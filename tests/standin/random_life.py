# SPDX-License-Identifier: BSD-3-Clause
"""`random_life.py ACTIONS FOLDER SEED...`: leads a random life in torch's own CUDA allocator for
each seed, and writes the memory snapshot of each to the folder.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch

MIB = 2**20
STREAMS = 4


class Life:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.streams = [torch.cuda.default_stream()]
        self.streams += [torch.cuda.Stream() for _ in range(STREAMS - 1)]
        self.live: list[torch.Tensor] = []
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.pools: list[torch.cuda.MemPool] = []

    def choose_size(self) -> int:
        kind = self.chance.random()
        if kind < 0.5:
            return self.chance.randint(1, MIB)
        if kind < 0.85:
            return self.chance.randint(MIB, 16 * MIB)
        return self.chance.randint(16 * MIB, 300 * MIB)

    def allocate(self) -> None:
        with torch.cuda.stream(self.chance.choice(self.streams)):
            try:
                self.live.append(torch.empty(self.choose_size(), dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                del self.live[: len(self.live) // 2]

    def free(self) -> None:
        if self.live:
            index = self.chance.randrange(len(self.live))
            self.live[index] = self.live[-1]
            self.live.pop()

    def record_stream(self) -> None:
        if self.live:
            self.chance.choice(self.live).record_stream(self.chance.choice(self.streams))

    def capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=self.streams[1]):
            for _ in range(self.chance.randint(1, 8)):
                size = self.chance.randint(1, 8 * MIB)
                kept = torch.empty(size, dtype=torch.uint8, device="cuda")
                if self.chance.random() < 0.3:
                    self.live.append(kept)
        self.graphs.append(graph)

    def use_pool(self) -> None:
        """Allocates in a pool of the program."""
        if len(self.pools) < 3:
            self.pools.append(torch.cuda.MemPool())
        with torch.cuda.use_mem_pool(self.chance.choice(self.pools)):
            for _ in range(self.chance.randint(1, 8)):
                size = self.chance.randint(1, 4 * MIB)
                kept = torch.empty(size, dtype=torch.uint8, device="cuda")
                if self.chance.random() < 0.3:
                    self.live.append(kept)

    def act(self) -> None:
        chance = self.chance.random()
        # The number of live tensors swings, so that memory is reused and split.
        if chance < 0.47:
            self.allocate()
        elif chance < 0.93:
            self.free()
        elif chance < 0.985:
            self.record_stream()
        elif chance < 0.995:
            self.chance.choice(self.streams).synchronize()
        elif chance < 0.9985:
            torch.cuda.synchronize()
        elif chance < 0.9989:
            self.capture()
        elif chance < 0.9996:
            self.use_pool()
        else:
            torch.cuda.empty_cache()


def main(actions: int, folder: Path, seeds: list[int]) -> None:
    torch.cuda.init()
    for seed in seeds:
        torch.cuda.memory._record_memory_history(
            "all", context=None, max_entries=10_000_000, clear_history=True
        )
        life = Life(seed)
        for _ in range(actions):
            life.act()
        torch.cuda.memory._dump_snapshot(str(folder / f"{seed}.pickle"))
        del life
        torch.cuda.synchronize()
        torch.cuda.memory._record_memory_history(None)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), [int(word) for word in sys.argv[3:]])
