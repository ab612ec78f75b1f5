# SPDX-License-Identifier: BSD-3-Clause
"""`simulate(device="cuda")`, on builds with and without CUDA: kernels, streams and memory.

`make oracle` runs this file on a build with CUDA.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidegauge
import torch
import torch.nn.functional as F  # noqa: N812
from tidegauge import _core
from tidegauge._torch import claimed_cuda
from tidegauge._torch.compat import BUILT_FOR
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker as UpstreamMemTracker
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch_version import CUDNN_ATTENTION_FIRST

MIB = 2**20

pytestmark = pytest.mark.skipif(
    claimed_cuda.find_obstacle() is not None, reason=str(claimed_cuda.find_obstacle())
)


def ops_of(sim: tidegauge.Simulation) -> set[str]:
    return {row.op for row in sim.coverage()}


def test_tensors_are_on_the_device_that_the_code_names() -> None:
    with tidegauge.simulate("cuda", device_count=4):
        named = torch.empty(3, device="cuda")
        assert (named.device, named.is_cuda, named.is_cpu) == (torch.device("cuda:0"), True, False)
        assert torch.empty(3).device.type == "cpu"
        assert torch.empty(3).cuda().device == torch.device("cuda:0")
        assert named.to("cpu").device.type == "cpu"
        assert torch.tensor([1, 2], device="cuda").device.type == "cuda"
        with torch.device("cuda"):
            assert nn.Linear(2, 2).weight.is_cuda
        torch.cuda.set_device(3)
        assert torch.empty(1, device="cuda").device.index == 3
        with torch.cuda.device(1):
            assert torch.cuda.current_device() == 1
        assert torch.cuda.current_device() == 3


def test_simulated_tensor_has_exactly_the_requested_bytes() -> None:
    """We do not round: the simulated allocator does that later. Upstream rounds to 512 B."""

    def run(tracker: Any) -> dict[torch.device, int]:
        with tidegauge.simulate("cuda"), tracker:
            x = torch.empty(100, device="cuda")
            sizes = {device: split["Total"] for device, split in tracker._curr_mem_snap.items()}
            del x
        return sizes

    assert run(tidegauge.MemTracker()) == {torch.device("cuda:0"): 400}
    assert run(UpstreamMemTracker()) == {torch.device("cuda:0"): 512}


def test_torch_is_restored_at_the_end() -> None:
    def state() -> dict[str, Any]:
        return dict(vars(torch.cuda)) | {
            "accelerator": torch._C._get_accelerator().type,
            "threads": torch._C._is_multithreading_enabled(),
            "lifts": torch._C._only_lift_cpu_tensors(),
        }

    has_gpu = torch.cuda.is_available()  # also fills torch's own caches
    before = state()
    with tidegauge.simulate("cuda"):
        assert torch.cuda.is_available()
        assert torch._C._get_accelerator().type == "cuda"
    after = state()
    assert {k for k in before | after if before.get(k) is not after.get(k)} <= {"accelerator"}
    assert before["accelerator"] == after["accelerator"] == ("cuda" if has_gpu else "cpu")
    if not has_gpu:
        with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
            torch.empty(1, device="cuda")


def test_torch_is_restored_after_an_error_in_the_model() -> None:
    device_count = torch.cuda.device_count()
    with pytest.raises(ZeroDivisionError), tidegauge.simulate("cuda"):
        torch.empty(1 // 0, device="cuda")
    assert torch.cuda.device_count() == device_count


@pytest.mark.parametrize("version", ["2.9.1", "3.0.0"])
def test_other_torch_is_refused_with_both_versions(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with (
        pytest.raises(NotImplementedError, match=rf"torch is {version}.*{BUILT_FOR}"),
        tidegauge.simulate("cuda"),
    ):
        pass
    monkeypatch.undo()
    assert torch.ones(1).item() == 1


def test_function_of_torch_that_is_gone_or_has_changed_is_named_before_anything_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changed(backend: str, device: object = None) -> None: ...

    changed.__module__ = "torch.cuda"
    device_count = torch.cuda.device_count()
    monkeypatch.delattr(torch.cuda, "get_device_name")
    monkeypatch.setattr(torch.cuda, "set_device", changed)
    with (
        pytest.raises(NotImplementedError, match=r"set_device\(backend.*no torch.cuda.get_device_"),
        tidegauge.simulate("cuda"),
    ):
        pass
    monkeypatch.undo()
    assert torch.cuda.device_count() == device_count
    with tidegauge.simulate("cuda"):
        assert torch.cuda.get_device_name() == "simulated CUDA device"


def test_failed_self_test_is_reported_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NotImplementedError("off")

    device_count = torch.cuda.device_count()
    monkeypatch.setattr(claimed_cuda, "self_test", fail)
    with pytest.raises(NotImplementedError, match="off"), tidegauge.simulate("cuda"):
        pass
    assert torch.cuda.device_count() == device_count
    assert torch.ones(1).item() == 1


def test_mixing_devices_is_an_error_except_for_numbers() -> None:
    with tidegauge.simulate("cuda"):
        on_device, on_host = torch.ones(3, device="cuda"), torch.ones(3)
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
            on_device + on_host
        assert (on_device + torch.ones(())).is_cuda
        assert on_host.copy_(on_device).is_cpu


H100, A100 = (9, 0), (8, 0)
USUAL = "cudnn" if CUDNN_ATTENTION_FIRST else "flash"
WITH_MASK = "cudnn" if CUDNN_ATTENTION_FIRST else "efficient"


@pytest.mark.parametrize(
    ("capability", "dtype", "head", "options", "expected"),
    [
        (H100, torch.bfloat16, 64, {}, USUAL),
        (H100, torch.float16, 128, {"is_causal": True}, USUAL),
        (H100, torch.bfloat16, 512, {}, "efficient"),
        (H100, torch.float32, 64, {}, "efficient"),
        (H100, torch.bfloat16, 64, {"attn_mask": True}, WITH_MASK),
        (H100, torch.bfloat16, 64, {"dropout_p": 0.5}, USUAL),
        (H100, torch.float64, 64, {}, None),
        (A100, torch.bfloat16, 64, {}, "flash"),
        (A100, torch.bfloat16, 64, {"attn_mask": True}, "efficient"),
    ],
)
def test_attention_kernel_is_chosen_as_on_a_device(
    capability: tuple[int, int],
    dtype: torch.dtype,
    head: int,
    options: dict[str, Any],
    expected: str | None,
) -> None:
    with tidegauge.simulate("cuda", capability=capability) as sim:
        query = torch.empty(1, 2, 16, head, device="cuda", dtype=dtype, requires_grad=True)
        if "attn_mask" in options:
            options = {"attn_mask": torch.ones(16, 16, device="cuda", dtype=torch.bool)}
        before = ops_of(sim)
        F.scaled_dot_product_attention(query, query, query, **options).sum().backward()
        fused = {op for op in ops_of(sim) - before if "scaled_dot_product" in op}
    fused |= {op for op in before if expected and f"_{expected}_attention" in op}
    if expected is None:
        assert not fused
    else:
        assert f"aten::_scaled_dot_product_{expected}_attention_backward" in fused


def test_disabled_attention_kernel_is_not_chosen() -> None:
    with tidegauge.simulate("cuda") as sim:
        query = torch.empty(1, 2, 16, 512, device="cuda", dtype=torch.bfloat16)
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            F.scaled_dot_product_attention(query, query, query)
        assert "aten::_scaled_dot_product_efficient_attention" not in ops_of(sim)


@pytest.mark.parametrize(
    ("function", "fused", "part"),
    [
        (lambda x: F.rms_norm(x, (8,)), "aten::_fused_rms_norm", "aten::rsqrt"),
        (F.silu, "aten::silu_backward", "aten::sigmoid"),
        (F.mish, "aten::mish_backward", "aten::tanh"),
    ],
)
def test_ops_are_those_of_cuda_on_any_build(
    function: Callable[[torch.Tensor], torch.Tensor], fused: str, part: str
) -> None:
    """CUDA has kernels for ops that a build without CUDA makes of others."""
    with tidegauge.simulate("cuda") as sim:
        x = torch.ones(2, 8, device="cuda", requires_grad=True)
        function(x).sum().backward()
        assert fused in ops_of(sim)
        assert part not in ops_of(sim)


@pytest.mark.parametrize(("device", "is_foreach"), [("cpu", False), ("cuda", True)])
def test_optimizer_uses_foreach_as_on_the_device(device: str, is_foreach: bool) -> None:
    with tidegauge.simulate(device) as sim:
        layer = nn.Linear(4, 4, device=device)
        optimizer = torch.optim.AdamW(layer.parameters())
        layer(torch.ones(2, 4, device=device)).sum().backward()
        optimizer.step()
        assert any(op.startswith("aten::_foreach_lerp_") for op in ops_of(sim)) is is_foreach


def test_fused_optimizer_is_one_op() -> None:
    with tidegauge.simulate("cuda") as sim:
        layer = nn.Linear(4, 4, device="cuda")
        optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
        layer(torch.ones(2, 4, device="cuda")).sum().backward()
        optimizer.step()
        assert any(op.startswith("aten::_fused_adamw_") for op in ops_of(sim))


def test_pinned_memory_is_on_the_host_and_marked_as_pinned() -> None:
    with tidegauge.simulate("cuda"):
        plain = torch.empty(4)
        pinned = plain.pin_memory()
        assert (plain.is_pinned(), pinned.is_pinned(), pinned[1:].is_pinned()) == (
            False,
            True,
            True,
        )
        assert pinned.device.type == "cpu"
        assert torch.empty(4, pin_memory=True).is_pinned()
        assert pinned.to("cuda", non_blocking=True).is_cuda


def reserved_for(path: Path, *, is_on_side_stream: bool) -> int:
    """Reserved bytes for two tensors of 15 MiB, one after the other."""
    with tidegauge.simulate("cuda"), tidegauge.MemTracker(record=path):
        with torch.cuda.stream(torch.cuda.Stream() if is_on_side_stream else None):
            first = torch.empty(15 * MIB, dtype=torch.uint8, device="cuda")
        del first
        second = torch.empty(15 * MIB, dtype=torch.uint8, device="cuda")
        del second
    figures = _core.RunRequests(str(path), "cuda:0").simulate("", "counter")
    return int(figures["peak_reserved_bytes"])


def test_allocations_record_their_stream(tmp_path: Path) -> None:
    # 15 MiB get their own segment, rounded up to 2 MiB; another stream cannot reuse it.
    assert reserved_for(tmp_path / "one.tide", is_on_side_stream=False) == 16 * MIB
    assert reserved_for(tmp_path / "two.tide", is_on_side_stream=True) == 32 * MIB


def test_backward_runs_on_the_stream_of_its_forward() -> None:
    seen = []
    with tidegauge.simulate("cuda"):
        x = torch.ones(3, device="cuda", requires_grad=True)
        with torch.cuda.stream(torch.cuda.Stream()) as _:
            side = torch.cuda.current_stream().stream_id
            y = x * 2
        y.register_hook(lambda grad: seen.append(torch.cuda.current_stream().stream_id))
        y.sum().backward()
        assert torch.cuda.current_stream().stream_id == 0
    assert side != 0
    assert seen == [side]


def test_checkpoint_autocast_and_scaler_run() -> None:
    with tidegauge.simulate("cuda"):
        net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 8)).to("cuda")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            out = checkpoint(net, torch.ones(2, 8, device="cuda"), use_reentrant=False)
        assert out.dtype == torch.float16
        scaler.scale(out.sum()).backward()
        assert net[0].weight.grad.is_cuda
        del optimizer


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_fsdp_shards_have_the_same_bytes_on_cpu_and_cuda(device: str) -> None:
    ranks, width = 4, 256
    with tidegauge.simulate(device, world_size=ranks):
        net = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(3)]).to(device)
        for layer in net:
            fully_shard(layer)
        fully_shard(net)
        optimizer = torch.optim.AdamW(net.parameters())
        tracker = tidegauge.FSDPMemTracker(net, optimizer)
        with tracker:
            net(torch.ones(8, width, device=device)).sum().backward()
            optimizer.step()
            now = tracker.get_tracker_snapshot("current")
    (figures,) = [split for where, split in now.items() if where.type == device]
    shard = 3 * width * width * 4 // ranks
    by_name = {str(getattr(key, "value", key)): size for key, size in figures.items()}
    assert by_name["Sharded Param"] == shard
    assert by_name["Sharded Grad"] == shard
    # Two moments of Adam; its steps, 4 bytes per parameter, are on the host.
    assert by_name["OptState"] == 2 * shard + (12 if device == "cpu" else 0)


class StreamsOfOps(TorchDispatchMode):
    """The streams that each op was called on."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[str, set[int]] = defaultdict(set)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.streams[func.name()].add(torch.cuda.current_stream().stream_id)
        return func(*args, **kwargs or {})


def test_fsdp_collectives_use_separate_streams() -> None:
    with tidegauge.simulate("cuda", world_size=8):
        net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(2)]).to("cuda")
        for layer in net:
            fully_shard(layer)
        fully_shard(net)
        with StreamsOfOps() as seen:
            net(torch.ones(2, 64, device="cuda")).sum().backward()
    gathers = seen.streams["fsdp::all_gather_copy_in"]
    reduces = seen.streams["c10d::_reduce_scatter_base_"]
    assert len(gathers) == len(reduces) == 1
    assert len(gathers | reduces | {0}) == 3
    assert seen.streams["aten::mm"] == {0}


def test_device_that_is_not_there_is_refused() -> None:
    with tidegauge.simulate("cuda"):
        with pytest.raises(RuntimeError, match=r"invalid device ordinal 3; .* 1 CUDA device "):
            torch.cuda.set_device(3)
        with pytest.raises(RuntimeError, match=r"simulate.device_count=2. has more"):
            torch.cuda.device(1).__enter__()
