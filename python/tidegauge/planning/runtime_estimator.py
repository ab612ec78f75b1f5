# SPDX-License-Identifier: BSD-3-Clause
"""RuntimeEstimator: the time of each module on a device that need not be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from torch import nn

from tidegauge._torch.entering import Entering
from tidegauge._torch.optimizer_patches import FOR_STEPS
from tidegauge.planning.op_times import OpTimes, check_mode, choose_device, find_ms
from tidegauge.trackers.mod_tracker import ModTracker

# Of `_C.OpLog.entries`.
_BACKWARD = 1
_RECOMPUTE = 2


class _Mark(NamedTuple):
    """A forward or backward of a module begins (+1) or ends (-1) before the op at `position`."""

    position: int
    name: str
    change: int
    is_forward: bool
    in_backward: bool


class RuntimeEstimator(Entering):
    """Estimates the time of forward and backward of each module, op by op::

        estimator = RuntimeEstimator(device="h100-80g")
        with FakeTensorMode():  # or tidegauge.simulate(), or real tensors
            ...
            with estimator("operator-level-cost-model"):
                model(x).sum().backward()
                optimizer.step()
        estimator.display_modulewise_stats(depth=2)

    When the context was left, `mod_runtimes[name]["fw" or "bw"]` are the milliseconds of a module,
    "Global" those of everything, `total_runtime` their sum, and `mod_fw_pre_order` and the like the
    names of modules in the order in which their forward or backward began or ended. Of several
    training steps the last one counts. The recomputation of a checkpoint is part of backward.

    Ops are observed as by `MemTracker`, without a dispatch mode. Their times come from shapes and
    the data sheet of the device; `gpu_type` is a name as CUDA reports it, `device` one of
    `tidegauge devices`.
    """

    gpu_type: str | None = None

    def __init__(self, gpu_type: str | None = None, *, device: str | None = None) -> None:
        self._device = choose_device(gpu_type, device)
        self._times: OpTimes | None = None
        self._mode = "operator-level-cost-model"
        self._mod_tracker = ModTracker()
        self._marks: list[_Mark] = []
        self._begin = 0  # of the step
        self._open_forwards = 0
        self._has_stepped = False
        self.mod_runtimes: dict[str, dict[str, float]] = {}
        self.mod_fw_pre_order: list[str] = []
        self.mod_bw_pre_order: list[str] = []
        self.mod_fw_post_order: list[str] = []
        self.mod_bw_post_order: list[str] = []
        self.total_runtime = 0.0

    def __call__(self, estimate_mode_type: str) -> Self:
        self._mode = check_mode(estimate_mode_type)
        return self

    def _set_depth(self, depth: int) -> None:
        if depth > 1:
            raise RuntimeError("this RuntimeEstimator is entered already; make another one")
        if depth > self._depth:
            self._begin_tracking()
        elif depth == 0:
            self._end_tracking()
        self._depth = depth

    def _begin_tracking(self) -> None:
        self._times = OpTimes(self._device)
        self._open_forwards = 0
        self._restart(0)
        self._mod_tracker.clear_user_hooks()
        self._mod_tracker.register_user_hooks(
            pre_fw_hook=self._forward_begins,
            post_fw_hook=self._forward_ends,
            pre_bw_hook=self._backward_begins,
            post_bw_hook=self._backward_ends,
        )
        self._mod_tracker._set_depth(1)
        FOR_STEPS.install(self)
        self._times.start()

    def _end_tracking(self) -> None:
        """Undoes `_begin_tracking`, which may not have ended."""
        if (times := self._times) is None:
            return
        times.stop()
        FOR_STEPS.uninstall(self)
        self._mod_tracker._set_depth(0)
        self._mod_tracker.clear_user_hooks()
        is_whole = self._depth > 0
        if is_whole:
            self._sum_up(times)
        self._times = None
        if is_whole:
            print(
                f"Estimated ({self._mode})total_time: {self.total_runtime:.3f} ms on "
                f"{self._device}, from its data sheet"
            )

    def display_modulewise_stats(self, depth: int = 2) -> None:
        """Prints the orders of forward and backward and the times of modules down to `depth`."""
        for phase, names in (
            ("Forward", self.mod_fw_pre_order),
            ("Backward", self.mod_bw_pre_order),
        ):
            print(f"Pre-{phase} Execution Order: ")
            print(*(name for name in names if name.count(".") < depth), sep="\n")
        for name, times in self.mod_runtimes.items():
            if name.count(".") < depth:
                print(f"{name} fw: {times['fw']:.3f}ms bw: {times['bw']:.3f}ms")

    @classmethod
    def _roofline_estimate(cls, func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        """Runs one op; its result and its milliseconds."""
        times = OpTimes(choose_device(cls.gpu_type, None))
        times.start()
        try:
            return find_ms(times, func, args, kwargs)
        finally:
            times.stop()

    def _restart(self, position: int) -> None:
        self._begin = position
        self._has_stepped = False
        for record in (
            self._marks,
            self.mod_fw_pre_order,
            self.mod_bw_pre_order,
            self.mod_fw_post_order,
            self.mod_bw_post_order,
        ):
            record.clear()

    def _step_ends(self) -> None:
        self._has_stepped = True

    def _forward_begins(self, module: nn.Module, inputs: Any) -> None:
        if not (in_backward := self._mod_tracker.is_bw):
            if self._has_stepped and self._open_forwards == 0 and self._times is not None:
                self._restart(self._times.position)
            self._open_forwards += 1
        self._mark(module, self.mod_fw_pre_order, +1, True, in_backward)

    def _forward_ends(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        in_backward = self._mod_tracker.is_bw
        self._open_forwards -= not in_backward
        self._mark(module, self.mod_fw_post_order, -1, True, in_backward)

    def _backward_begins(self, module: nn.Module | None, grads: Any) -> None:
        self._mark(module, self.mod_bw_pre_order, +1, False, True)

    def _backward_ends(self, module: nn.Module | None, grads: Any) -> None:
        self._mark(module, self.mod_bw_post_order, -1, False, True)

    def _mark(
        self,
        module: nn.Module | None,
        order: list[str],
        change: int,
        is_forward: bool,
        in_backward: bool,
    ) -> None:
        if module is None or self._times is None:
            return
        if (name := self._mod_tracker.get_known_fqn(module)) is None:
            return
        if not (is_forward and in_backward):  # a recomputation does not count as a call
            order.append(name)
        self._marks.append(_Mark(self._times.position, name, change, is_forward, in_backward))

    def _sum_up(self, times: OpTimes) -> None:
        """Ops between two marks belong to the same modules, so only their sums are added."""
        self.mod_runtimes = {"Global": {"fw": 0.0, "bw": 0.0}}
        self.total_runtime = 0.0
        forward: Counter[str] = Counter()
        backward: Counter[str] = Counter()
        ops = times.list_ops(self._begin, times.position)
        begin = self._begin
        for mark in [*self._marks, None]:
            end = times.position if mark is None else mark.position
            between = ops[begin - self._begin : end - self._begin]
            if milliseconds := sum(ms for ms, _ in between):
                back = sum(ms for ms, facts in between if facts & (_BACKWARD | _RECOMPUTE))
                self._add("fw", milliseconds - back, forward)
                self._add("bw", back, forward.keys() | backward)
            begin = end
            if mark is not None:
                if not mark.in_backward:
                    backward.clear()  # what did not end with its backward
                active = forward if mark.is_forward else backward
                active[mark.name] += mark.change
                if active[mark.name] <= 0:
                    del active[mark.name]

    def _add(self, phase: str, ms: float, names: Iterable[str]) -> None:
        if ms > 0:
            for name in ("Global", *names):
                self.mod_runtimes.setdefault(name, {"fw": 0.0, "bw": 0.0})[phase] += ms
            self.total_runtime += ms
