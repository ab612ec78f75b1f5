# SPDX-License-Identifier: BSD-3-Clause
"""Simulation covers families of models, layers, optimizers, and the code around them."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from families import FAMILIES
from tidegauge import MemTracker, simulate
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn.utils import clip_grad_norm_
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset
from torch_version import TRUNC_NORMAL_WITHOUT_LOOP

pytestmark = pytest.mark.filterwarnings("ignore")


def train_family(name: str, mode: AbstractContextManager[Any], *, is_tiny: bool) -> tuple[int, int]:
    """(peak, bytes after the last step) of two steps of AdamW."""
    with mode:
        model, inputs = FAMILIES[name].build(is_tiny=is_tiny)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *inputs.values())
        with tracker:
            for _ in range(2):
                model(**inputs).loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            peak, after = (
                tracker.get_tracker_snapshot(kind)[torch.device("cpu")]["Total"]
                for kind in ("peak", "current")
            )
    return peak, after


@pytest.mark.parametrize("name", FAMILIES)
def test_tiny_models_can_be_trained(name: str) -> None:
    peak, after = train_family(name, simulate(), is_tiny=True)
    assert peak > after > 0


class Passing(TorchDispatchMode):
    """Any mode stops autograd from adding gradients in place, like fake tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


SHORT = ("gpt2", "resnet")
FAKE_MODE_FAILS = {"vit", "convnext", "whisper"}
"""They read a random number when they are built or when they run."""
if TRUNC_NORMAL_WITHOUT_LOOP:
    FAKE_MODE_FAILS.remove("vit")


@pytest.mark.parametrize(
    "name",
    [
        name if name in SHORT else pytest.param(name, marks=pytest.mark.long)
        for name in FAMILIES
        if name not in FAKE_MODE_FAILS
    ],
)
def test_full_size_models_have_the_peak_of_fake_tensors(name: str) -> None:
    """Where the peaks differ, the reason is the sums of gradients."""
    fake = train_family(name, FakeTensorMode(), is_tiny=False)
    simulated = train_family(name, simulate(), is_tiny=False)
    assert simulated[1] == fake[1]
    if simulated[0] != fake[0]:
        assert simulated[0] < fake[0]
        with simulate():
            assert train_family(name, Passing(), is_tiny=False) == fake


@pytest.mark.parametrize("name", sorted(FAKE_MODE_FAILS))
def test_full_size_models_are_trained_where_fake_tensors_cannot(name: str) -> None:
    with pytest.raises(DataDependentOutputException):
        train_family(name, FakeTensorMode(), is_tiny=True)
    peak, after = train_family(name, simulate(), is_tiny=False)
    assert peak > after > 0


def unet() -> tuple[nn.Module, tuple[Any, ...]]:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    return model, (torch.randn(2, 4, 16, 16), torch.tensor([1, 7]), torch.randn(2, 5, 32))


def test_diffusers_unet_has_the_bytes_of_the_real_run() -> None:
    def run() -> list[int]:
        model, inputs = unet()
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            loss = model(*inputs).sample.pow(2).mean()
            forward = tracker.get_tracker_snapshot()[torch.device("cpu")]["Total"]
            loss.backward()
            peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
        return [forward, peak]

    real = run()
    with simulate():
        assert run() == real


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(4, 8, 3, padding="same"), (2, 4, 10)),
    "Conv2d, dilated": (lambda: nn.Conv2d(4, 8, 3, dilation=2), (2, 4, 10, 10)),
    "Conv3d": (lambda: nn.Conv3d(2, 4, 3), (2, 2, 6, 6, 6)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 8, 3, stride=2), (2, 4, 10)),
    "channels last": (
        lambda: nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        (2, 4, 10, 10),
    ),
    "channels last, 3 dimensions": (
        lambda: nn.Conv3d(2, 4, 3).to(memory_format=torch.channels_last_3d),  # type: ignore[call-overload]
        (2, 2, 6, 6, 6),
    ),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(8), (4, 8)),
    "RMSNorm": (lambda: nn.RMSNorm(8), (4, 8)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), (2, 4, 8, 8)),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(3), (2, 4, 8, 8)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 4, 8, 8)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (2, 4, 8, 8)),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(2), (2, 4, 8, 8)),
    "Softmax": (lambda: nn.Softmax(-1), (4, 8)),
    "SiLU": (nn.SiLU, (4, 8)),
    "PReLU": (nn.PReLU, (4, 8)),
    "Hardswish": (nn.Hardswish, (4, 8)),
    "GLU": (nn.GLU, (4, 8)),
    "Dropout2d": (nn.Dropout2d, (2, 4, 8, 8)),
    "Bilinear": (lambda: Pair(nn.Bilinear(8, 8, 4)), (4, 8)),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2),
        (4, 2, 8),
    ),
    "CosineSimilarity": (lambda: Pair(nn.CosineSimilarity()), (4, 8)),
    "MSELoss": (lambda: Pair(nn.MSELoss()), (4, 8)),
    "L1Loss": (lambda: Pair(nn.L1Loss(reduction="sum")), (4, 8)),
    "HuberLoss": (lambda: Pair(nn.HuberLoss()), (4, 8)),
    "SmoothL1Loss": (lambda: Pair(nn.SmoothL1Loss()), (4, 8)),
    "BCEWithLogitsLoss": (lambda: Target(nn.BCEWithLogitsLoss()), (4, 8)),
}


class Pair(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.inner(x, x * 2)
        return output


class Target(Pair):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.inner(x, torch.ones_like(x))
        return output


@pytest.mark.parametrize("name", LAYERS)
def test_layers_have_the_bytes_and_strides_of_the_real_ones(name: str) -> None:
    make, shape = LAYERS[name]

    def run() -> list[Any]:
        layer, x = make(), torch.randn(shape, requires_grad=True)
        tracker = MemTracker()
        tracker.track_external(layer, x)
        with tracker:
            y = layer(x)
            y.sum().backward()
            assert x.grad is not None
            peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
        return [peak, y.shape, y.stride(), x.grad.stride()]

    real = run()
    with simulate():
        assert run() == real


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    f"{kind.__name__} {options}": lambda parameters, kind=kind, options=options: kind(
        parameters, lr=0.01, **options
    )
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True})
} | {
    kind.__name__: lambda parameters, kind=kind: kind(parameters, lr=0.01)
    for kind in (torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.NAdam, torch.optim.RAdam)
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_have_the_bytes_of_the_real_ones(name: str) -> None:
    def run() -> list[int]:
        model = nn.Linear(16, 16)
        optimizer = OPTIMIZERS[name](model.parameters())
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(2):
                model(torch.randn(2, 16)).sum().backward()
                clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            return [
                tracker.get_tracker_snapshot(kind)[torch.device("cpu")]["Total"]
                for kind in ("peak", "current")
            ]

    real = run()
    with simulate():
        assert run() == real


NEEDS_A_CLOSURE = {"LBFGS": "its line search depends on data"}
NEEDS_SPARSE_GRADIENTS = {"SparseAdam": "sparse tensors cannot be simulated"}
ALL_OPTIMIZERS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type)
    and issubclass(kind, torch.optim.Optimizer)
    and kind is not torch.optim.Optimizer
    and name not in NEEDS_A_CLOSURE | NEEDS_SPARSE_GRADIENTS
)


@pytest.mark.parametrize("name", ALL_OPTIMIZERS)
def test_every_optimizer_of_torch_has_the_states_of_the_real_one(name: str) -> None:
    def run() -> tuple[dict[str, int], list[int]]:
        model = nn.Sequential(nn.Linear(16, 24, bias=False), nn.Linear(24, 16, bias=False))
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(3):
                model(torch.randn(2, 16)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            splits = [
                tracker.get_tracker_snapshot(kind)[torch.device("cpu")]["Total"]
                for kind in ("peak", "current")
            ]
        states = [state for each in optimizer.state.values() for state in each.items()]
        sizes: dict[str, int] = {}
        for key, value in states:
            if isinstance(value, torch.Tensor):
                sizes[key] = sizes.get(key, 0) + value.nbytes
        return sizes, splits

    real = run()
    with simulate(item=1.0):
        assert run() == real


def test_compiled_model_makes_the_tensors_of_the_model_itself() -> None:
    def run(compile_it: bool) -> tuple[int, int]:
        model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.randn(4, 8)
        forward = torch.compile(model, backend="eager") if compile_it else model
        tracker = MemTracker()
        tracker.track_external(model, x)
        with tracker:
            loss = (forward(x) + torch.ones(8)).sum()
            total = tracker.get_tracker_snapshot()[torch.device("cpu")]["Total"]
            loss.backward()
            return total, tracker.get_tracker_snapshot()[torch.device("cpu")]["Total"]

    real = run(False)
    with simulate():
        assert run(True) == real


def test_attention_kernel_is_chosen_as_on_the_cpu() -> None:
    def choose(**options: Any) -> int:
        query = torch.randn(1, 2, 16, 8, **options)
        return torch._fused_sdp_choice(query, query, query, is_causal=True)

    for options in ({}, {"dtype": torch.bfloat16}, {"requires_grad": True}):
        real = choose(**options)
        with simulate():
            assert choose(**options) == real


@pytest.fixture
def simulation() -> Iterator[Any]:
    with simulate() as entered:
        yield entered


def test_random_generators_of_the_program_are_not_used() -> None:
    generator = torch.Generator().manual_seed(3)
    states = torch.get_rng_state(), generator.get_state(), random.getstate()
    with simulate():
        torch.randn(100)
        torch.randperm(50)
        torch.randint(9, (4,), generator=generator)
        torch.empty(3, dtype=torch.long).random_(generator=generator)
        torch.randn(4, generator=generator)
        nn.Linear(4, 4)
        nn.Dropout()(torch.ones(8))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(generator.get_state(), states[1])
    assert random.getstate() == states[2]


def test_random_integers_are_the_same_in_each_simulation() -> None:
    def draw() -> list[Any]:
        with simulate():
            return [
                torch.randint(5, 9, (6,)).tolist(),
                torch.randperm(6).tolist(),
                torch.empty(2, dtype=torch.long).random_(100).tolist(),
            ]

    first = draw()
    assert first == draw()
    assert all(5 <= number < 9 for number in first[0])
    assert sorted(first[1]) == list(range(6))


def test_data_loader_shuffles(simulation: Any) -> None:
    data = TensorDataset(torch.randn(10, 3), torch.arange(10))
    seen = []
    for x, label in DataLoader(data, batch_size=4, shuffle=True, drop_last=True):
        assert simulation.is_simulated(x)
        seen += label.tolist()
    assert len(set(seen)) == 8


def test_foreign_memory_becomes_simulated(simulation: Any) -> None:
    array = numpy.arange(6.0).reshape(2, 3)
    for made in (
        torch.from_numpy(array),
        torch.as_tensor(array),
        torch.asarray(array),
        torch.tensor(array),
        torch.frombuffer(bytearray(48), dtype=torch.float64).view(2, 3),
    ):
        assert simulation.is_simulated(made)
        assert made.shape == (2, 3)
    assert torch.from_numpy(array).tolist() == array.tolist()
    x = torch.ones(2)
    assert torch.as_tensor(x) is x


def test_pinned_memory_is_simulated(simulation: Any) -> None:
    assert not torch.ones(3).is_pinned()
    assert torch.ones(3).pin_memory().is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()


def test_repr_describes_the_tensor(simulation: Any) -> None:
    assert repr(torch.randn(2, 3)) == (
        "simulated(..., size=(2, 3), dtype=torch.float32, device='cpu')"
    )
    layer = nn.Linear(2, 2)
    assert "requires_grad=True" in repr(layer.weight)
    assert "grad_fn=<AddmmBackward0>" in str(layer(torch.ones(1, 2)))


def test_copies_share_storages_like_the_original(simulation: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    copied = copy.deepcopy(model)
    assert copied[0].weight is copied[1].weight
    assert simulation.is_simulated(copied[0].weight)
    assert copied[0].weight.data_ptr() != model[0].weight.data_ptr()
    assert copied[0].weight.untyped_storage().nbytes() == 64


def test_state_dict_is_saved_and_loaded(simulation: Any) -> None:
    model, other = nn.Linear(4, 4), nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    other.load_state_dict(model.state_dict())
    again = torch.optim.AdamW(other.parameters())
    again.load_state_dict(optimizer.state_dict())
    assert again.state[other.weight]["step"].item() == 1


def test_checkpoint_of_a_real_run_can_be_loaded(tmp_path: Path) -> None:
    real = nn.Linear(4, 4)
    torch.save(real.state_dict(), tmp_path / "model.pt")
    with simulate() as simulation:
        loaded = torch.load(tmp_path / "model.pt")
        assert all(simulation.is_simulated(tensor) for tensor in loaded.values())
        model = nn.Linear(4, 4)
        model.load_state_dict(loaded)
        model.load_state_dict(real.state_dict())  # copies real tensors, checks shapes
        with pytest.raises(RuntimeError, match="size mismatch"):
            nn.Linear(4, 5).load_state_dict(real.state_dict())


def test_adopted_module_gets_its_parameters_back() -> None:
    real = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    real[2].weight = real[0].weight
    before = {name: tensor.clone() for name, tensor in real.state_dict().items()}
    parameter = real[0].weight
    with simulate() as simulation:
        adopted = simulation.adopt(real)
        assert adopted is real
        assert real[0].weight is real[2].weight
        assert simulation.is_simulated(real[1].running_mean)
        real(torch.randn(3, 4)).sum().backward()
        assert simulation.is_simulated(real[0].weight.grad)
    assert real[0].weight is parameter
    assert parameter.grad is None
    assert all(torch.equal(tensor, before[name]) for name, tensor in real.state_dict().items())


def test_meta_modules_and_structures_are_adopted() -> None:
    with torch.device("meta"):
        model = nn.Linear(1000, 1000)
    base = torch.ones(4, 4)
    with simulate() as simulation:
        simulation.adopt(model)
        assert model(torch.ones(2, 1000)).shape == (2, 1000)
        batch = simulation.adopt({"x": [base, base.t()], "n": 3})
        assert batch["n"] == 3
        first, second = batch["x"]
        assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        assert first.tolist() == base.tolist()
    sparse = torch.ones(2, 2).to_sparse()
    refused = pytest.raises(NotImplementedError, match="cannot be brought into a simulation")
    with simulate() as simulation, refused:
        simulation.adopt(sparse)


def test_device_context_chooses_the_device(simulation: Any) -> None:
    with torch.device("cpu"):
        assert simulation.is_simulated(nn.Linear(2, 2).weight)
    with torch.device("meta"):
        assert torch.ones(2).is_meta
    assert simulation.is_simulated(torch.ones(2).to("cpu").to(torch.float16))


def test_coverage_lists_ops(simulation: Any) -> None:
    for _ in range(3):
        nn.functional.gelu(torch.randn(4, 4)).sum()
    coverage = {each.op: each for each in simulation.coverage()}
    gelu = coverage["aten::gelu"]
    assert (gelu.calls, gelu.cached, gelu.is_decomposed) == (3, 2, False)
    assert [each.op for each in simulation.coverage()] == sorted(coverage)
