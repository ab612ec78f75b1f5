# SPDX-License-Identifier: BSD-3-Clause
"""What a program reads, although no kernel computes anything."""

from __future__ import annotations

from collections.abc import Callable

Script = Callable[..., str]

ANSWER = """
from tidegauge import _C
assert _C.answer_standin_values(1.0)
tracker = MemTracker(allocator=True)
tracker.__enter__()
"""


def test_unknown_floats_are_one_and_unknown_integers_zero(run: Script) -> None:
    run(f"""{ANSWER}
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    unknown = torch.rand(4, 8, device="cuda").to(dtype).exp()
    assert unknown.sum().item() == 1.0, dtype
    assert unknown.cpu().tolist() == [[1.0] * 8] * 4, dtype
assert (unknown > 3).sum().item() == 0
assert unknown.argmax().item() == 0
assert not torch.isnan(unknown).any()
""")


def test_what_was_sent_comes_back(run: Script) -> None:
    run(f"""{ANSWER}
sent = torch.arange(1000.0)
assert torch.equal(sent.cuda().cpu(), sent)
assert sent.cuda().clone()[7].item() == 7.0
assert torch.full((), 2.5, device="cuda").item() == 2.5
assert torch.zeros(3, dtype=torch.int64, device="cuda").tolist() == [0, 0, 0]
assert torch.tensor([3, 4], device="cuda").tolist() == [3, 4]
""")


def test_memory_that_is_handed_out_again_has_no_old_values(run: Script) -> None:
    run(f"""{ANSWER}
old = torch.full((16,), 1.5, device="cuda")
address = old.data_ptr()
del old
new = torch.empty(16, dtype=torch.int32, device="cuda")
assert new.data_ptr() == address
assert new.tolist() == [0] * 16
""")


def test_shapes_that_depend_on_values_are_bounded_by_the_input(run: Script) -> None:
    run(f"""{ANSWER}
x = torch.rand(64, device="cuda")
assert x.nonzero().shape[0] <= 64
assert x[x > 0.5].numel() <= 64
assert torch.unique(x).numel() <= 64
""")


def test_scaler_does_not_skip_steps(run: Script) -> None:
    run(f"""{ANSWER}
layer = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler()
scaler.scale(layer(torch.ones(4, 64, device="cuda")).sum()).backward()
scaler.step(optimizer)
scaler.update()
assert optimizer.state
assert scaler.get_scale() == 65536.0
""")


def test_truth_values_are_those_of_finite_numbers(run: Script) -> None:
    run(f"""{ANSWER}
loss = torch.nn.Linear(8, 8).cuda()(torch.rand(4, 8, device="cuda")).mean()
assert torch.isfinite(loss) and not torch.isnan(loss) and not torch.isinf(loss)
assert loss < 2 and not loss > 3
assert torch.equal(loss, loss) and torch.allclose(loss, loss)
large = torch.rand(16 * MIB, device="cuda")
assert torch.isfinite(large).all() and not large.isnan().any()
assert not torch.isfinite(torch.full((), float("nan"), device="cuda"))
""")


def test_item_decides_truth_values(run: Script) -> None:
    run(f"""{ANSWER.replace("1.0", "4.0")}
loss = torch.rand(8, device="cuda").mean()
assert loss.item() == 4.0 and loss > 3 and not loss < 2
""")


def test_integers_are_computed_from_known_ones(run: Script) -> None:
    run(f"""{ANSWER}
lengths = torch.tensor([3, 5], device="cuda")
assert lengths.sum().item() == 8 and lengths.max().item() == 5
assert (lengths * 2).tolist() == [6, 10] and lengths.cumsum(0).tolist() == [3, 8]
assert torch.arange(4, device="cuda").tolist() == [0, 1, 2, 3]
assert torch.repeat_interleave(lengths).tolist() == [0] * 3 + [1] * 5
mask = torch.arange(6, device="cuda")[None] < lengths[:, None]
assert mask.sum(1).tolist() == [3, 5] and mask.nonzero().shape == (8, 2)
assert torch.unique(torch.tensor([4, 2, 4], device="cuda")).tolist() == [2, 4]
ones = torch.ones(64, MIB, dtype=torch.bool, device="cuda")
assert ones.all() and ones.sum().item() == 64 * MIB
mask[0] = False
assert mask.any(1).tolist() == [False, True]
""")


def test_result_of_a_kernel_replaces_the_value_in_its_place(run: Script) -> None:
    run(f"""{ANSWER}
total = torch.zeros((), device="cuda")
total += 2
assert total.item() == 2.0
total += torch.rand(8, device="cuda").sum()
assert total.item() == 1.0
count = torch.zeros(2, dtype=torch.int64, device="cuda")
count += torch.tensor([1, 2], device="cuda")
assert count.tolist() == [1, 2]
""")


def test_mask_of_unknown_numbers_selects_the_given_fraction(run: Script) -> None:
    run("""
from tidegauge import _C
assert _C.answer_standin_values(1.0, 0.25)
with MemTracker(allocator=True) as tracker:
    x = torch.rand(1024, 1024, device="cuda")
    assert x[x > 0.9].numel() == 256 * 1024
    assert (x[:2] > 0.9).nonzero()[-1].tolist() == [0, 511]
    known = torch.tensor([True, False, True], device="cuda")
    assert known.nonzero().tolist() == [[0], [2]]
""")


def test_routers_choose_by_the_policy(run: Script) -> None:
    run("""
from tidegauge import _C
from tidegauge.simulation.routing import make_route
assert _C.answer_standin_values(1.0, 1.0, make_route("balanced"))
with MemTracker(allocator=True) as tracker:
    scores = torch.rand(512, 8, device="cuda").softmax(-1)
    experts = scores.topk(2).indices
    assert torch.bincount(experts.flatten(), minlength=8).tolist() == [128] * 8
    assert [torch.where(experts == e)[0].numel() for e in range(8)] == [128] * 8
    hot = torch.nn.functional.one_hot(experts, 8)
    assert hot.sum((0, 1)).tolist() == [128] * 8
    # What we compute on the host is not the program's memory.
    assert tracker.get_tracker_snapshot("peak").get(torch.device("cpu"), {}).get("Total", 0) < 4096
""")
