# SPDX-License-Identifier: BSD-3-Clause
"""A tracked run equals the run without a tracker: same numbers, allocations and frees."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import hf_models
import pytest
import torch
from counting import counting
from runs import make_tracker
from scenarios_models import Residual, mlp
from scenarios_training import Checkpointed
from torch import nn
from torch.utils.checkpoint import checkpoint
from tracked import track

MIB = 1 << 20


def _conv() -> tuple[nn.Module, dict[str, Any]]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
    return model, {"input": torch.randn(2, 3, 12, 12)}


def _checkpointed(use_reentrant: bool) -> tuple[nn.Module, dict[str, Any]]:
    def wrap(block: nn.Module, x: torch.Tensor) -> Any:
        return checkpoint(lambda x: block(x).sin(), x, use_reentrant=use_reentrant)

    return Checkpointed(wrap), {"x": torch.randn(8, 32, requires_grad=True)}


PROGRAMS: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    "mlp": lambda: (mlp(), {"input": torch.randn(8, 32)}),
    "residual": lambda: (Residual(), {"x": torch.randn(8, 32)}),
    "convolution": _conv,
    "transformer": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True),
        {"src": torch.randn(2, 5, 16)},
    ),
    "checkpoint": lambda: _checkpointed(False),
    "checkpoint_reentrant": lambda: _checkpointed(True),
    "llama": lambda: hf_models.build("llama"),
    "gpt2": lambda: hf_models.build("gpt2"),
}


def loss_of(output: Any) -> torch.Tensor:
    return output.loss if hasattr(output, "loss") else output.square().mean()


def train(name: str, tracker: Any, steps: int = 5) -> dict[str, Any]:
    """Everything that must not depend on the tracker."""
    torch.manual_seed(0)
    gc.collect()
    gc.disable()
    try:
        with counting(log=True) as allocator, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, inputs = PROGRAMS[name]()
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            losses, gradients = [], []
            if tracker is not None:
                tracker.track_external(model, optimizer, inputs)
            allocator.restart()
            base = allocator.read().live_bytes
            with tracker or nullcontext():
                for _ in range(steps):
                    loss = loss_of(model(**inputs))
                    loss.backward()
                    losses.append(loss.item())
                    gradients += [
                        p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None
                    ]
                    optimizer.step()
                    optimizer.zero_grad()
                    del loss
            counts, log = allocator.read(), allocator.log()
            return {
                "losses": losses,
                "gradients": gradients,
                "parameters": [p.detach().numpy().tobytes() for p in model.parameters()],
                "random": torch.get_rng_state().numpy().tobytes(),
                "peak": counts.peak_bytes - base,
                "allocations": counts.allocations,
                "log": log,
            }
    finally:
        gc.enable()


@pytest.mark.parametrize("name", PROGRAMS)
def test_five_steps_equal_those_without_a_tracker(name: str) -> None:
    """Bit by bit, and allocation by allocation."""
    plain, tracked = train(name, None), train(name, make_tracker("ours"))
    assert len(plain["losses"]) == 5
    assert plain["allocations"] > 0
    for key in ("losses", "gradients", "parameters", "random", "peak", "allocations"):
        assert tracked[key] == plain[key], key
    for line, (ours, theirs) in enumerate(zip(tracked["log"], plain["log"], strict=True)):
        assert ours == theirs, f"event {line}: (serial, bytes) {ours} instead of {theirs}"


def test_upstream_makes_more_allocations() -> None:
    """In a step of Llama, upstream's mode alone changes torch's behaviour."""
    plain, upstream = train("llama", None, 1), train("llama", make_tracker("upstream"), 1)
    assert upstream["losses"] == plain["losses"]
    assert upstream["allocations"] > plain["allocations"]


def chain(tracker: Any) -> tuple[int, int]:
    """(peak of the allocator in backward, peak of the tracker) of a net that saves no tensors."""
    x = torch.ones(MIB, requires_grad=True)  # 4 MiB
    with counting() as allocator:
        if tracker is not None:
            tracker.track_external(x)
        y = x.clone()
        for _ in range(6):
            y = y.flip(0).add_(y)
        loss = y.sum()
        del y
        allocator.restart()
        base = allocator.read().live_bytes
        with tracker or nullcontext():
            loss.backward()
        top = allocator.read().storage_peak_bytes - base
    held = tracker.get_tracker_snapshot("peak") if tracker is not None else {}
    return top, sum(split["Total"] for split in held.values())


def test_accumulation_in_place_stays_in_place() -> None:
    """In the backward of a fan-out, two gradients of 4 MiB are added, one into the other; under a
    dispatch mode like upstream's, into a third. The gradient of the loss has 4 bytes.
    """
    untracked, _ = chain(None)
    ours, tracked = chain(make_tracker("ours"))
    upstream, _ = chain(make_tracker("upstream"))
    assert untracked == ours == 8 * MIB + 4
    assert upstream == 12 * MIB + 4
    assert tracked == ours + 4 * MIB  # x was allocated before the peak was reset


def test_storages_are_freed_with_the_last_tensor() -> None:
    model, x = mlp(), torch.ones(8, 32)
    tracker = track(model, x)
    with tracker, counting() as allocator:
        y = model(x)
        held = allocator.read().live_bytes
        dead = weakref.ref(y)
        del y
        assert dead() is None
        assert allocator.read().live_bytes < held


def use_counts() -> list[int]:
    x = torch.ones(64)
    y = x[1:]
    storage = x.untyped_storage()._cdata
    counts = [x._use_count(), y._use_count()]  # type: ignore[attr-defined]
    return [*counts, torch._C._storage_Use_Count(storage)]  # type: ignore[attr-defined]


def test_no_reference_to_a_tracked_tensor_is_kept() -> None:
    plain = use_counts()
    with track():
        assert use_counts() == plain


def test_copy_on_write_works_on_a_tracked_tensor() -> None:
    x = torch.arange(64.0)
    tracker = track(x)
    with tracker:
        y = torch._lazy_clone(x)
        assert torch._C._is_cow_tensor(x)
        assert torch._C._is_cow_tensor(y)
        y.add_(1)
        assert not torch._C._is_cow_tensor(y)
        assert x[0] == 0
        assert y[0] == 1
    z = torch._lazy_clone(x)  # and after the context
    z.add_(2)
    assert z[0] == 2
    assert x[0] == 0


def test_is_shared_is_right_for_tracked_tensors() -> None:
    x, shared = torch.ones(64), torch.ones(64).share_memory_()
    tracker = track(x, shared)
    with tracker:
        assert not x.is_shared()
        assert shared.is_shared()
        made = torch.zeros(16)
        assert not made.is_shared()
        made.share_memory_()
        assert made.is_shared()
        x.share_memory_()
        assert x.is_shared()
        shared.add_(1)
    assert x.is_shared()
    assert shared[0] == 2


def test_pinned_memory_stays_pinned() -> None:
    tracker = track()
    with tracker:
        x = torch.ones(64)
        try:
            pinned = x.pin_memory()
        except RuntimeError:
            pytest.skip("this torch has no device to pin memory for")
        assert pinned.is_pinned()
        assert not x.is_pinned()


@pytest.mark.parametrize("while_tracking", [True, False], ids=["inside", "after"])
def test_tracked_tensors_can_be_saved_copied_and_pickled(while_tracking: bool) -> None:
    model, x = mlp(), torch.randn(8, 32)
    optimizer = torch.optim.Adam(model.parameters())
    tracker = track(model, optimizer, x)
    with tracker:
        model(x).sum().backward()
        optimizer.step()
        if while_tracking:
            check_copies(model, x, optimizer)
    if not while_tracking:
        check_copies(model, x, optimizer)


def check_copies(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "x": x, "states": optimizer.state_dict()}, file)
    file.seek(0)
    loaded = torch.load(file)
    assert torch.equal(loaded["x"], x)
    assert loaded["model"].keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(loaded["model"][name], value)
    assert torch.equal(pickle.loads(pickle.dumps(x)), x)
    twin = copy.deepcopy(model)
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, other)
        assert mine.data_ptr() != other.data_ptr()
    storage = x.untyped_storage().clone()
    assert storage.tolist() == x.untyped_storage().tolist()
    assert x.numpy().sum() == pytest.approx(x.sum().item(), abs=1e-3)


def test_tensor_can_be_moved_to_shared_memory_by_a_process_queue() -> None:
    """As DataLoader workers do: the storage becomes a file in memory."""
    from torch.multiprocessing.reductions import reduce_tensor

    x = torch.arange(16.0)
    tracker = track(x)
    with tracker:
        rebuild, arguments = reduce_tensor(x)
        twin = rebuild(*arguments)
        twin[0] = 5
        assert x[0] == 5
