# SPDX-License-Identifier: BSD-3-Clause
"""What tests expect of some versions of torch only.

Each row is stated in docs/torch-versions.md too, and no test names a version itself
(tests/python/docs/test_torch_versions.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

TORCH = tuple(int(number) for number in torch.__version__.split(".")[:2])


@dataclass(frozen=True)
class Only:
    """A behaviour of the versions `first` to `last`. True if this torch has it."""

    text: str
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (99, 0)

    def __bool__(self) -> bool:
        return self.first <= TORCH <= self.last

    @property
    def skips(self) -> pytest.MarkDecorator:
        """Marks a test that cannot run with this behaviour."""
        return pytest.mark.skipif(bool(self), reason=self.text)

    @property
    def versions(self) -> str:
        """As in the document."""
        first, last = (".".join(map(str, each)) for each in (self.first, self.last))
        if self.first == self.last:
            return first
        return f"up to {last}" if self.first == (0, 0) else f"since {first}"


NO_SCATTER_OF_FAKES = Only("DTensor cannot scatter fake tensors", last=(2, 10))
NO_COMPILE_IN_FAKE_MODE = Only(
    "`torch.compile` does not work within a FakeTensorMode of the program", last=(2, 10)
)
NO_DECOMPOSED_SHARDINGS = Only("DTensor shards no op by its decomposition", last=(2, 10))
LARGE_LSTM_ON_META = Only("simulated LSTMs keep more than in later versions", last=(2, 10))
NO_SWAPPED_STORAGES = Only("storages cannot swap their memory", last=(2, 11))
NO_FLATTENED_SHARDS = Only("DTensor cannot flatten a sharded dimension", last=(2, 11))
LISTS_PROPAGATED_AGAIN = Only(
    "DTensor may propagate the shardings of a list again under a FakeTensorMode", last=(2, 11)
)
TRUNC_NORMAL_WITHOUT_LOOP = Only(
    "`trunc_normal_` draws once, so it works under a FakeTensorMode", last=(2, 11)
)
NO_QUANTISED_FAKES = Only("a FakeTensorMode refuses quantised tensors", last=(2, 11))
ONE_GROUP_PER_MODULE = Only("FSDP2 has one param group per module", last=(2, 11))
CUDNN_ATTENTION_FIRST = Only("attention prefers cuDNN's kernel on H100 and B200", first=(2, 11))
PADDED_SCATTER = Only("DTensor pads fake tensors that it scatters", (2, 12), (2, 12))
NO_ADAM_ON_META = Only("Adam fails on meta tensors", last=(2, 12))
UNWRITTEN_GATHER = Only(
    "the fake process group does not write what it gathers, so values are undefined", last=(2, 12)
)
PEAK_TIMES_1000 = Only(
    "upstream's RuntimeEstimator takes the peak of a device for 1,000 times as large", last=(2, 12)
)
PROPAGATION_IN_UPSTREAM = Only(
    "upstream's MemTracker counts DTensor's sharding propagation", last=(2, 12)
)
FEWER_FSDP_SETTINGS = Only(
    "FSDP2 has no `set_reduce_scatter_max_input_buffers`, `set_reduce_scatter_unused_params` and "
    "`set_separate_reduce_scatter_group`",
    last=(2, 12),
)
MUTATED_PRODUCTS = Only(
    "selective checkpointing refuses an in-place op, such as `ReLU(inplace=True)`, on what a "
    "linear layer makes of a sequence",
    last=(2, 13),
)
NO_FLOPS_OF_CPU_ATTENTION = Only(
    "FlopCounterMode does not count attention on the CPU", last=(2, 14)
)
KEPT_WORKSPACES = Only(
    "workspaces of cuBLAS are kept, so the first step of a GPU may peak at another op", last=(2, 14)
)
NO_FLOAT32_GROUPED_MM = Only(
    "the meta kernel of `grouped_mm` takes bfloat16 only, so float32 models with experts "
    "(Qwen3-MoE, Jamba) cannot be simulated",
    last=(2, 14),
)
LATE_PIPELINE_BUFFERS = Only(
    "pipeline stages allocate a buffer when they receive, and drop outputs once sent",
    first=(2, 15),
)
NO_PIPELINE_SHAPES = Only("a simulation cannot infer the shapes of pipeline stages", last=(2, 11))
