# SPDX-License-Identifier: BSD-3-Clause
"""One rank of many without the others: groups of any size, and all ways to use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from faithful import Program, compare_events
from one_thread_gloo import init_one_thread_gloo, settle
from programs import mlp, sgd, train
from tidegauge import FSDPMemTracker, MemTracker, simulate
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch_version import LATE_PIPELINE_BUFFERS

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 10


def sharded_bytes(world_size: int, rank: int) -> dict[str, int]:
    """Figures after two steps of a layer of 10 x 4 float32 and a bias of 10, sharded by rows."""
    with simulate(world_size=world_size, rank=rank):
        model = nn.Sequential(nn.Linear(4, ROWS))
        fully_shard(model[0])
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        assert isinstance(model, FSDPModule)
        tracker = FSDPMemTracker(model, optimizer)
        with tracker:
            for _ in range(2):
                model(torch.randn(2, 4)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            split = tracker.get_tracker_snapshot()[torch.device("cpu")]
        local = [p.to_local().numel() for p in model.parameters() if isinstance(p, DTensor)]
        return {"held": split["Sharded Param"], "own": 4 * sum(local)}


@pytest.mark.parametrize(
    ("world_size", "rank"), [(1, 0), (2, 1), (3, 0), (3, 2), (8, 7), (512, 300), (4096, 4095)]
)
def test_every_rank_holds_its_rows(world_size: int, rank: int) -> None:
    per_rank = -(-ROWS // world_size)
    own_rows = min(per_rank, max(0, ROWS - rank * per_rank))
    figures = sharded_bytes(world_size, rank)
    assert figures["own"] == 4 * own_rows * (4 + 1)
    assert figures["held"] == 4 * per_rank * (4 + 1)  # shards are padded to equal size


def test_process_group_exists_only_inside() -> None:
    with simulate(world_size=8, rank=3):
        assert (dist.get_world_size(), dist.get_rank()) == (8, 3)
        x = torch.ones(4)
        dist.all_reduce(x)
        gathered = torch.empty(32)
        dist.all_gather_into_tensor(gathered, x)
        dist.broadcast(x, 0)
        dist.all_to_all_single(torch.empty(8), torch.empty(8))
        dist.barrier()
        objects: list[Any] = [None] * 8
        dist.all_gather_object(objects, {"rank": 3})
        assert objects[3] == {"rank": 3}
    assert not dist.is_initialized()


def test_meshes_have_the_right_ranks() -> None:
    with simulate(world_size=8, rank=5):
        mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("outer", "inner"))
        assert list(mesh.get_coordinate() or ()) == [1, 1]
        assert mesh.mesh.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert mesh["inner"].mesh.tolist() == [4, 5, 6, 7]
        assert mesh["outer", "inner"]._flatten().size() == 8


def test_dtensors_are_made_inside() -> None:
    with simulate(world_size=4) as simulation:
        mesh = init_device_mesh("cpu", (4,))
        whole = distribute_tensor(torch.randn(8, 6), mesh, [Shard(0)])
        assert whole.to_local().shape == (2, 6)
        assert simulation.is_simulated(whole.to_local())
        nn.init.trunc_normal_(whole)
        nn.init.kaiming_uniform_(whole)
        assert (whole @ whole.t()).redistribute(mesh, [Replicate()]).to_local().shape == (8, 8)


def data_parallel() -> Program:
    model, x = mlp(), torch.randn(8, 32)
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005)

    def loss() -> torch.Tensor:
        settle()  # the second call makes new buckets and drops these
        result = parallel(x).mean()
        assert isinstance(result, torch.Tensor)
        return result

    return train(parallel, sgd(parallel.parameters()), loss)


def test_data_parallel_run_equals_the_real_run(tmp_path: Path) -> None:
    """DDP sends the sizes of its new buckets, and gloo's thread may still hold them when the
    buckets are allocated: the scheduler decides. Any other difference is in each attempt."""
    init_one_thread_gloo(dist.HashStore(), rank=0, world_size=1)
    try:
        differences = []
        for attempt in range(5):
            folder = tmp_path / str(attempt)
            folder.mkdir()
            differences.append(compare_events(data_parallel, folder))
            if differences[-1] is None:
                return
        pytest.fail(f"differs in each attempt: {differences}")
    finally:
        dist.destroy_process_group()


def test_data_parallel_runs_with_many_ranks() -> None:
    with simulate(world_size=16, rank=9):
        program = data_parallel()
        tracker = MemTracker()
        tracker.track_external(program.model, program.optimizer)
        with tracker:
            program.run()
            program.run()
        assert tracker._native.anomalies() == (0, "")


def test_pipeline_stage_whose_neighbours_were_not_simulated_is_refused() -> None:
    with simulate(world_size=4, rank=1):
        stage = PipelineStage(nn.Linear(16, 16), 1, 4, torch.device("cpu"))
        pipeline = ScheduleGPipe(stage, 8, loss_fn=nn.functional.mse_loss)
        with pytest.raises(RuntimeError, match="asks its neighbours for shapes"):
            pipeline.step()


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_pipeline_stage_keeps_the_microbatches_of_its_schedule(schedule: Any, rank: int) -> None:
    """Bytes at the peak, within the backward of tanh, counted by hand.

    Stages exchange `edge` bytes; the backward of a microbatch needs `hidden` bytes. GPipe has all
    microbatches in flight when the first backward begins. 1F1B has as many as there are stages from
    this one to the last; by then all weights have gradients.
    """
    stages, microbatches, rows = 4, 8, 64
    edge, hidden, weight = 4 * rows * 16, 4 * rows * 64, 4 * 16 * 64
    is_last, is_gpipe = rank == stages - 1, schedule is ScheduleGPipe
    in_flight = microbatches if is_gpipe else stages - rank
    with simulate(world_size=stages, rank=rank):
        layers = nn.Linear(16, 64, bias=False), nn.Tanh(), nn.Linear(64, 16, bias=False)
        model = nn.Sequential(*layers)
        example = torch.randn(rows, 16, requires_grad=rank > 0)  # received inputs get gradients
        stage = PipelineStage(
            model, rank, stages, torch.device("cpu"), input_args=example, output_args=model(example)
        )
        pipeline = schedule(stage, microbatches, loss_fn=nn.functional.mse_loss)
        whole = torch.randn(rows * microbatches, 16)
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            if rank == 0:
                pipeline.step(whole)
            elif is_last:
                pipeline.step(target=whole)
            else:
                pipeline.step()
        assert tracker._native.anomalies() == (0, "")
        # Outputs are freed with their backward, except one that the last send of the warm-up holds.
        # The last stage keeps all outputs to return them.
        outputs = microbatches if is_gpipe or is_last else in_flight + 1
        received_inputs = received_gradients = microbatches
        if LATE_PIPELINE_BUFFERS:
            received_inputs = microbatches if is_last else in_flight  # a graph keeps its inputs
            received_gradients = 1
            if not is_last:
                outputs = 1 if is_gpipe else 0
        expected = {
            "weights": 2 * weight,
            "gradients": weight if is_gpipe else 2 * weight,
            "inputs": (microbatches if rank == 0 else received_inputs) * edge,
            "gradients of outputs": (microbatches if is_last else received_gradients) * edge,
            "outputs": outputs * edge,
            # 1F1B sends the gradient of an input only after the next forward, and holds it longer.
            "gradient of an input": 0 if is_gpipe or rank == 0 else edge,
            # A loss keeps the storage of all its elements; the backward starts from one number.
            "losses": microbatches * edge + 4 if is_last else 0,
            "saved": in_flight * hidden,
            "tanh": 2 * hidden,  # input and output of its backward
        }
        peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
        assert peak == sum(expected.values())
