# SPDX-License-Identifier: BSD-3-Clause
"""Programs as people write them: compiled, with CUDA graphs, with experts, with their own group."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tidegauge import MemTracker, simulate
from torch import nn
from torch.distributed import _functional_collectives as collectives
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.parallel import DistributedDataParallel
from tracked import now, parameter_bytes

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_compiled_code_is_simulated_eagerly(device: str) -> None:
    def train(simulation: Any, is_compiled: bool) -> dict[str, int]:
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).to(device)
        run: Any = torch.compile(model, fullgraph=True) if is_compiled else model
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            run(torch.ones(4, 8, device=device)).sum().backward()
            return now(tracker)

    with simulate(device) as simulation:
        plain = train(simulation, False)
        assert simulation.notes == ()
    with simulate(device) as simulation:
        assert train(simulation, True) == plain
        assert "torch.compile was called" in simulation.notes[0]


def test_dynamo_lists_only_functions_of_torch() -> None:
    rules = importlib.import_module("torch._dynamo.trace_rules")
    rules.clear_lru_cache()
    with simulate("cuda"):
        model = torch.compile(nn.Linear(2, 2, device="cuda"))
        model(torch.ones(1, 2, device="cuda"))
    assert torch.cuda.synchronize in rules.get_torch_obj_rule_map()


def test_compiler_works_again_after_a_simulation() -> None:
    with simulate():
        torch.compile(nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
    calls = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(graph)
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert len(calls) == 1
    torch._dynamo.reset()


def test_flex_attention_has_no_score_matrix() -> None:
    """Forward: the output and a float for each row; backward: three gradients, a float per row."""
    heads, tokens, width = 4, 256, 16
    with simulate("cuda"):
        query, key, value = (
            torch.randn(1, heads, tokens, width, device="cuda", requires_grad=True)
            for _ in range(3)
        )
        tracker = MemTracker()
        tracker.track_external(query, key, value)
        with tracker:
            output = torch.compile(flex_attention)(query, key, value)
            held = tracker.get_tracker_snapshot()[torch.device("cuda", 0)]
            rows = heads * tokens * 4
            masks = held["Activation"] - query.nbytes - rows
            assert 0 <= masks < 1024  # the empty block mask
            output.sum().backward()
            peak = tracker.get_tracker_snapshot("peak")[torch.device("cuda", 0)]["Total"]
        assert query.grad is not None
        assert key.grad is not None
        assert value.grad is not None
        scores = heads * tokens * tokens * 4
        assert peak - 3 * query.nbytes < scores


def test_cuda_graphs_are_plain_calls() -> None:
    with simulate("cuda"):
        graph = torch.cuda.CUDAGraph()
        x = torch.ones(4, device="cuda")
        with torch.cuda.graph(graph):
            y = x * 2
        graph.replay()
        assert y.shape == (4,)
        layer = nn.Linear(4, 4, device="cuda")
        run = torch.cuda.make_graphed_callables(layer, (x,))
        run(x).sum().backward()
        assert layer.weight.grad is not None


def test_devices_are_as_many_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    with simulate("cuda", device_count=2, capability=(8, 6)):
        assert torch.cuda.device_count() == 2
        assert torch.cuda.get_device_capability() == (8, 6)
        assert torch.cuda.get_device_properties(0).major == 8
    with simulate("cuda"):
        assert torch.cuda.device_count() == 1
        assert torch.cuda.get_device_capability() == (9, 0)
    with simulate("cuda", world_size=2):
        assert torch.cuda.device_count() == 8
    with monkeypatch.context() as as_rank:
        as_rank.setenv("LOCAL_RANK", "3")
        with simulate("cuda"):
            assert torch.cuda.device_count() == 8
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3,5")
    with simulate("cuda"):
        assert torch.cuda.device_count() == 3
    with pytest.raises(ValueError, match="invalid device_count 0"):
        simulate("cuda", device_count=0)
    with pytest.raises(ValueError, match="invalid capability"):
        simulate("cuda", capability=(9,))  # type: ignore[arg-type]


def test_environment_is_that_of_torchrun() -> None:
    before = dict(os.environ)
    with simulate("cuda", world_size=16, rank=11):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        assert [os.environ[name] for name in names] == ["11", "16", "3", "8"]
        dist.init_process_group("nccl")  # the program's own
        assert (dist.get_rank(), dist.get_world_size()) == (11, 16)
    assert dict(os.environ) == before
    assert not dist.is_initialized()


def test_program_may_make_its_group_itself() -> None:
    with simulate("cuda"):
        dist.init_process_group("nccl", rank=2, world_size=4)
        group = dist.new_group([0, 2], backend="gloo")
        x = torch.ones(3, device="cuda")
        dist.all_reduce(x, group=group)
        assert dist.get_rank() == 2
    assert not dist.is_initialized()
    with simulate(), pytest.raises(ValueError, match="needs rank"):
        dist.init_process_group("nccl", world_size=4)


@pytest.mark.parametrize(
    ("device", "options"),
    [
        ("cpu", {}),
        ("cuda", {}),
        ("cuda", {"static_graph": True}),
        ("cuda", {"find_unused_parameters": True}),
    ],
    ids=str,
)
def test_ddp_has_a_bucket_beside_the_gradients(device: str, options: dict[str, bool]) -> None:
    with simulate(device, world_size=4):
        model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8)).to(device)
        ddp = DistributedDataParallel(model, **options)
        x = torch.ones(4, 16, device=device)
        tracker = MemTracker()
        tracker.track_external(model, x)
        with tracker:
            for _ in range(3):
                ddp(x).sum().backward()
                held = tracker.get_tracker_snapshot()[x.device]
                assert held["Gradient"] == 2 * parameter_bytes(model)
                for parameter in model.parameters():
                    parameter.grad = None


@pytest.mark.parametrize(
    ("routing", "counts"),
    [
        ("balanced", [2, 2, 2, 2]),
        ("worst", [4, 4, 0, 0]),
        (lambda tokens, choices, experts: torch.full((tokens, choices), 3), [0, 0, 0, 8]),
    ],
)
def test_routing_decides_the_counts_of_tokens(routing: Any, counts: list[int]) -> None:
    with simulate(routing=routing):
        _, chosen = torch.randn(4, 4).softmax(-1).topk(2, -1)
        assert torch.bincount(chosen.flatten(), minlength=4).tolist() == counts
        sizes = [(chosen == expert).nonzero().shape[0] for expert in range(4)]
        assert sizes == counts


def test_random_routing_is_the_same_in_each_simulation() -> None:
    def choose() -> list[Any]:
        with simulate(routing=7):
            return [torch.randn(8, 16).topk(4, -1).indices.tolist() for _ in range(2)]

    first = choose()
    assert first == choose()
    assert first[0] != first[1]
    assert all(len(set(row)) == 4 for each in first for row in each)


def test_invalid_routing_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid routing 'best'"):
        simulate(routing="best")
    with (
        simulate(routing=lambda *args: torch.full((2, 1), 9)),
        pytest.raises(RuntimeError, match="outside of 0 to 3"),
    ):
        torch.randn(2, 4).argmax(-1)


def test_without_a_routing_choices_are_unknown() -> None:
    with simulate(), pytest.raises(RuntimeError, match="holds no data"):
        torch.randn(4, 4).topk(2, -1).indices.tolist()


def test_counts_that_equal_ranks_exchange_are_known() -> None:
    """Rank 1 of 2 receives its own half of what each rank sends."""
    with simulate(world_size=2, rank=1):
        sent = torch.tensor([1, 2, 3, 4])
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        assert received.tolist() == [3, 4, 3, 4]
        assert collectives.all_to_all_single(sent, None, None, dist.group.WORLD).tolist() == [
            *(3, 4, 3, 4)
        ]
        gathered = torch.zeros(8, dtype=torch.long)
        dist.all_gather_into_tensor(gathered, sent)
        assert gathered.tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
        dist.all_reduce(sent)
        assert sent.tolist() == [2, 4, 6, 8]
        dist.all_gather_into_tensor(gathered, torch.randint(5, (4,)) * torch.randn(4).long())
        with pytest.raises(RuntimeError, match="holds no data"):
            gathered.tolist()


def test_uneven_splits_give_the_sum_of_the_received() -> None:
    with simulate(world_size=2, rank=1):
        received = torch.empty(6, 5)
        dist.all_to_all_single(received, torch.randn(4, 5), [3, 3], [1, 3])
        assert received.shape == (6, 5)
