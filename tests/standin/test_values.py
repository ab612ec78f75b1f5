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
