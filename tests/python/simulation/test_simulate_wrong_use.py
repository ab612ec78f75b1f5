# SPDX-License-Identifier: BSD-3-Clause
"""Errors for code that cannot be simulated name the line, and torch is always restored."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tidegauge import MemTracker, simulate
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode


def is_real(tensor: torch.Tensor) -> bool:
    """Checks that new tensors have readable memory."""
    return tensor.clone().fill_(3).sum().item() == 3 * tensor.numel()


def test_unknown_value_is_an_error_with_the_line() -> None:
    with simulate():
        loss = nn.Linear(4, 4)(torch.randn(2, 4)).sum()
        with pytest.raises(RuntimeError) as caught:
            loss.item()
    assert "aten::_local_scalar_dense asks for the value of a simulated tensor" in str(caught.value)
    assert f"(at {__file__}:{caught.traceback[0].lineno + 1})" in str(caught.value)
    assert "simulate(item=1)" in str(caught.value)


@pytest.mark.parametrize(
    "ask",
    [bool, float, lambda x: x.tolist(), lambda x: x.numpy(), lambda x: x.__array__(), torch.equal],
)
def test_other_ways_to_read_unknown_values_are_errors(ask: Callable[..., Any]) -> None:
    with simulate():
        x = torch.randn(2, 2).sum()
        with pytest.raises(RuntimeError, match="simulated tensor"):
            ask(x, x) if ask is torch.equal else ask(x)


def test_policy_answers_for_unknown_values() -> None:
    with simulate(item=2.5):
        x = torch.randn(3)
        assert x.sum().item() == 2.5
        assert x.sum().long().item() == 2
        assert bool(x.sum() > 0) is True
    with simulate(item=0):
        assert bool(torch.randn(3).sum() > 0) is False


def test_masks_select_all_or_a_fraction() -> None:
    with simulate():
        x = torch.randn(10, 4)
        assert x[x > 0].shape == (40,)
        assert (x > 0).nonzero().shape == (40, 2)
        assert x.masked_select(x > 0).shape == (40,)
    with simulate(mask_fraction=0.25):
        x = torch.randn(10, 4)
        assert x[x > 0].shape == (10,)
        assert x[(x > 0).any(dim=1)].shape == (3, 4)
        assert len(torch.where(x > 0)[0]) == 10
        x[x > 0] = 1.0


def test_known_masks_select_their_elements() -> None:
    with simulate(mask_fraction=0.25):
        x = torch.randn(10)
        assert x[torch.arange(10) < 4].shape == (4,)
        assert torch.tensor([0, 2, 2, 0]).nonzero().tolist() == [[1], [2]]
        assert torch.tensor([3, 1, 3]).unique().tolist() == [1, 3]


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="invalid item 'any'"):
        simulate(item="any")  # type: ignore[arg-type]
    with (
        pytest.raises(ValueError, match=r"mask_fraction 1\.5"),
        simulate(mask_fraction=1.5),
    ):
        pass
    with pytest.raises(NotImplementedError, match="device 'mps'"):
        simulate("mps")
    with pytest.raises(ValueError, match="invalid world_size 0"):
        simulate(world_size=0)
    with pytest.raises(ValueError, match=r"invalid rank 8 \(expected 0 to 7 for 8 ranks\)"):
        simulate(world_size=8, rank=8)
    assert is_real(torch.ones(2))


def test_nested_simulation_is_refused_and_the_outer_one_continues() -> None:
    with simulate() as outer:
        with pytest.raises(ValueError, match="a simulation is already running"), simulate():
            pass
        assert outer.is_simulated(torch.ones(2))
    assert is_real(torch.ones(2))


def test_simulation_inside_fake_mode_is_refused() -> None:
    with (
        FakeTensorMode(),
        pytest.raises(RuntimeError, match="entered inside a FakeTensorMode"),
        simulate(),
    ):
        pass
    assert is_real(torch.ones(2))


def test_fake_mode_inside_a_simulation_is_refused() -> None:
    with simulate() as simulation:
        mode = FakeTensorMode()
        with pytest.raises(RuntimeError, match="entered inside `simulate`"), mode:
            pass
        assert simulation.is_simulated(torch.ones(2))
    with FakeTensorMode():
        torch.ones(2)


def test_existing_process_group_is_not_replaced() -> None:
    with simulate(world_size=2):
        with pytest.raises(ValueError, match="already running"), simulate(world_size=4):
            pass
        assert dist.get_world_size() == 2
    dist.init_process_group("fake", rank=0, world_size=3)
    try:
        with pytest.raises(RuntimeError, match="one already exists"), simulate(world_size=2):
            pass
        assert is_real(torch.ones(2))
        with simulate():
            assert dist.get_world_size() == 3
    finally:
        dist.destroy_process_group()


def test_real_argument_is_named() -> None:
    real = torch.ones(4, 4)
    with simulate():
        x = torch.ones(2, 4)
        with pytest.raises(
            RuntimeError, match=r"aten::mm: argument 'mat2' is a real tensor \(Float of shape \[4"
        ):
            x @ real
        with pytest.raises(RuntimeError, match="is a real tensor"):
            real.copy_(torch.ones(4, 4))
        with pytest.raises(RuntimeError, match="is a real tensor"):
            torch.cat([torch.ones(4, 4), real])
        assert real.sum().item() == 16
        x.copy_(real[:2])


def test_real_0d_tensors_may_be_mixed_in() -> None:
    scale = torch.tensor(2.0)
    with simulate() as simulation:
        assert simulation.is_simulated(torch.randn(3) * scale)


def test_op_without_a_meta_kernel_is_named() -> None:
    with torch.library._scoped_library("tidegauge_test", "DEF") as library:
        library.define("opaque(Tensor x) -> Tensor")
        library.impl("opaque", lambda x: x.clone(), "CPU")
        with simulate():
            x = torch.ones(2)
            with pytest.raises(NotImplementedError) as caught:
                torch.ops.tidegauge_test.opaque(x)
    assert "tidegauge_test::opaque cannot be simulated" in str(caught.value)
    assert "torch.library.register_fake" in str(caught.value)
    assert f"(at {__file__}:" in str(caught.value)


def test_op_whose_shape_depends_on_data_is_named() -> None:
    with simulate():
        with pytest.raises(NotImplementedError, match="aten::bincount makes a result whose shape"):
            torch.randn(4).long().bincount()
        assert torch.tensor([0, 2, 2]).bincount().tolist() == [1, 0, 2]


def test_sparse_tensors_are_refused() -> None:
    with simulate():
        with pytest.raises(NotImplementedError, match="aten::_to_sparse cannot be simulated"):
            torch.ones(2, 2).to_sparse()
        layer = nn.Embedding(4, 2, sparse=True)
        loss = layer(torch.tensor([1, 2])).sum()
        with pytest.raises(NotImplementedError, match="only dense tensors can"):
            loss.backward()


def test_error_of_the_model_propagates_and_torch_is_restored() -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught, simulate(), MemTracker():
        Failing()(torch.ones(2))
    assert caught.traceback[-1].name == "forward"
    assert is_real(torch.ones(2))


def test_wrong_shapes_give_the_message_of_torch() -> None:
    with (
        simulate(),
        pytest.raises(RuntimeError, match=r"reduction dim, but got \[2, 5\] X \[4, 4\]"),
    ):
        nn.Linear(4, 4)(torch.ones(2, 5))


def test_interrupt_ends_the_simulation() -> None:
    with pytest.raises(KeyboardInterrupt), simulate(world_size=2):
        raise KeyboardInterrupt
    assert not dist.is_initialized()
    assert is_real(torch.ones(2))


LEFT_OVER: dict[str, Callable[[torch.Tensor], Any]] = {
    "repr": repr,
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x[0, 0].item(),
    "numpy": lambda x: x.numpy(),
    "array": lambda x: x.__array__(),
    "data_ptr": lambda x: x.data_ptr(),
    "add": lambda x: x + 1,
    "view": lambda x: x.view(-1),
    "save": lambda x: torch.save(x, io.BytesIO()),
    "pickle": lambda x: pickle.dumps(x),
    "dlpack": lambda x: torch.utils.dlpack.to_dlpack(x),
    "clone": lambda x: x.clone(),
    "deepcopy": lambda x: copy.deepcopy(x),
    "storage item": lambda x: x.untyped_storage()[0],
    "storage list": lambda x: x.untyped_storage().tolist(),
    "storage bytes": lambda x: bytes(x.untyped_storage()),
    "storage copy": lambda x: torch.UntypedStorage(16).copy_(x.untyped_storage()),
    "typed storage": lambda x: x.storage()[0],
    "copy to real": lambda x: torch.zeros(2, 2).copy_(x),
    "copy from real": lambda x: x.copy_(torch.zeros(2, 2)),
    "format": lambda x: f"{x[0, 0]:.3f}",
    "multiprocessing": lambda x: x.share_memory_(),
    "set_": lambda x: torch.zeros(1).set_(x.untyped_storage()),
    "storage address": lambda x: 1 // x.untyped_storage().data_ptr(),
    "backward": lambda x: (x.requires_grad_() * 2).sum().backward(),
}


@pytest.mark.parametrize("use", LEFT_OVER)
@pytest.mark.parametrize("has_values", [False, True])
def test_left_over_tensor_cannot_be_used(use: str, has_values: bool) -> None:
    """No use reads missing memory, also for tensors whose values were known."""
    with simulate():
        x = torch.zeros(2, 2) if has_values else torch.randn(2, 2)
    with pytest.raises((RuntimeError, NotImplementedError, ZeroDivisionError, TypeError)):
        LEFT_OVER[use](x)


def test_left_over_tensor_can_be_inspected() -> None:
    with simulate():
        x = torch.randn(2, 3, requires_grad=True)
    assert (x.shape, x.dtype, x.device, x.requires_grad) == (
        (2, 3),
        torch.float32,
        torch.device("cpu"),
        True,
    )


def test_simulation_in_a_thread_affects_only_that_thread() -> None:
    made: dict[str, torch.Tensor] = {}
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        with simulate():
            made["there"] = torch.ones(2)
            go.set()
            done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    go.wait()
    made["here"] = torch.ones(2)
    with pytest.raises(ValueError, match="already running"), simulate():
        pass
    done.set()
    thread.join()
    assert is_real(made["here"])
    with pytest.raises(RuntimeError, match="after its simulation has ended"):
        made["there"] + 1


def test_threads_that_start_inside_simulate_as_well() -> None:
    with simulate() as simulation:
        results: list[torch.Tensor] = []

        def work() -> None:
            x = torch.ones(3, requires_grad=True)
            (x * 2).sum().backward()
            assert x.grad is not None
            results.append(x.grad)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [simulation.is_simulated(x) for x in results] == [True] * 4


def test_fork_inside_continues_in_both_processes() -> None:
    with simulate() as simulation:
        x = torch.ones(1000)
        child = os.fork()
        if child == 0:
            os._exit(0 if simulation.is_simulated((x + 1).sum()) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert simulation.is_simulated(x + 1)


def test_interpreter_may_exit_inside() -> None:
    program = (
        "import tidegauge, torch\n"
        "simulation = tidegauge.simulate(world_size=2)\n"
        "simulation.__enter__()\n"
        "kept = torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum()\n"
        "kept.backward()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
