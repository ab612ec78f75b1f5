# SPDX-License-Identifier: BSD-3-Clause
"""The torch versions that we support, and the one that we were built for. No other Python file
names a version.

torch keeps its C++ ABI only within a minor version. With another minor version, importing the
extension would fail with an undefined symbol or crash, so the package checks the version before it
loads the extension.
"""

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tidegauge.errors import TorchError

# The build reads this line too, and refuses to compile against another minor version.
SUPPORTED = ("2.10", "2.11", "2.12", "2.13", "2.14", "2.15")


def _read_build(name: str) -> str:
    """A fact about the compiled parts; empty if nothing is compiled yet."""
    try:
        return str(getattr(import_module("tidegauge._built_for"), name))  # CMake writes this module
    except ImportError:
        return ""


#: The minor version that the compiled parts need; empty if they were built without torch.
BUILT_FOR = _read_build("TORCH_MINOR")
BUILD_TYPE = _read_build("BUILD_TYPE")

#: Builds tidegauge for the installed torch.
REBUILD = (
    "pip install scikit-build-core ninja && "
    "pip install --no-build-isolation --force-reinstall --no-deps ."
)


_SHARDINGS = "torch.distributed.tensor._decompositions:DecompShardingStrategy"
_STAGE = "torch.distributed.pipelining:PipelineStage"
_SCHEDULE = "torch.distributed.pipelining.schedules:_PipelineSchedule"
# Functions that we patch and that only some versions have: the first and the last of them.
_NEWEST = (99, 0)
_ONLY_IN: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "torch:UntypedStorage._swap_data_ptr_": ((2, 12), _NEWEST),
    f"{_SHARDINGS}.propagate_strategy": ((2, 11), _NEWEST),
    f"{_STAGE}._shape_inference": ((2, 10), (2, 11)),
    f"{_STAGE}._warmup_forward_vote": ((2, 12), (2, 14)),
    f"{_STAGE}._warmup_backward_result": ((2, 12), (2, 14)),
    f"{_STAGE}._send_meta": ((2, 12), _NEWEST),
    f"{_STAGE}._recv_meta": ((2, 12), _NEWEST),
    f"{_SCHEDULE}._warmup_p2p": ((2, 12), (2, 14)),
    f"{_SCHEDULE}._initialize_pipeline_distributed_state": ((2, 15), _NEWEST),
    "torch.distributed.fsdp._fully_shard._fsdp_param:FSDPParam.to_accumulated_grad_if_needed": (
        (2, 10),
        (2, 14),
    ),  # later left to autograd
}


def has_fsdp_group_lists() -> bool:
    """True if a module may have several param groups of FSDP2."""
    return _minor_of(find_torch_version() or "") >= (2, 12)


def is_expected(place: str) -> bool:
    """True if the installed torch should have the attribute at `module:Class.name`."""
    first, last = _ONLY_IN.get(place, ((0, 0), _NEWEST))
    return first <= _minor_of(find_torch_version() or "") <= last


def find_compiled_calls() -> tuple[str, str, str] | None:
    """The module and the names of the functions that dynamo calls before and after compiled code;
    None for the version that has `_ForceDispatchKeyGuard` there."""
    minor = _minor_of(find_torch_version() or "")
    if minor == (2, 13):
        return None
    if minor < (2, 13):
        names = ("get_dynamic_layer_stack_depth", "pop_dynamic_layer_stack_and_undo_to_depth")
        return ("torch._C._functorch", *names)
    names = ("_dynamo_save_local_dispatch_key_set", "_dynamo_restore_local_dispatch_key_set")
    return ("torch._C", *names)


def _minor_of(version: str) -> tuple[int, int]:
    """The newest one that we know if the version cannot be read."""
    numbers = re.match(r"(\d+)\.(\d+)", version) or re.match(r"(\d+)\.(\d+)", SUPPORTED[-1])
    assert numbers is not None
    return int(numbers[1]), int(numbers[2])


def fits(found: str, built_for: str = BUILT_FOR) -> bool:
    """True if torch version `found` has the minor version `built_for`."""
    return found.split(".")[:2] == built_for.split(".")


def _is_supported(found: str) -> bool:
    return any(fits(found, known) for known in SUPPORTED)


def explain_mismatch(found: str, built_for: str = BUILT_FOR) -> str | None:
    """A message that says what to do about torch version `found`; None if it is supported."""
    if fits(found, built_for):
        return None
    install = f"`pip install 'torch=={built_for}.*'`"
    if _is_supported(found):
        todo = f"Run `{REBUILD}` in the sources of tidegauge, or {install}."
    else:
        todo = f"Run {install}; tidegauge supports torch {SUPPORTED[0]} to {SUPPORTED[-1]}."
    return f"tidegauge was built for torch {built_for}, but found torch {found}. {todo}"


def find_torch_version() -> str | None:
    """The version of the installed torch; None if there is none.

    Read from torch's files: importing torch takes seconds, and reports do not need it.
    """
    if "torch" in sys.modules:
        return getattr(sys.modules["torch"], "__version__", None)
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).with_name("version.py")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if match := re.search(r"^__version__ = ['\"](.*)['\"]", text, re.MULTILINE):
        return match[1]
    try:
        return str(import_module("torch").__version__)
    except Exception:  # a torch that cannot be imported counts as absent
        return None


def check_torch_version() -> None:
    """Raises TorchError unless the installed torch has the minor version we were built for."""
    found = find_torch_version()
    if not BUILT_FOR:
        is_enough = found is not None and _is_supported(found)
        first = "" if is_enough else f"`pip install 'torch=={SUPPORTED[-1]}.*'`, then "
        raise TorchError(
            "this needs the part of tidegauge that uses torch, but it was built without torch. "
            f"Run {first}`{REBUILD}` in the sources of tidegauge."
        )
    if found is None:
        raise TorchError(
            f"this needs torch {BUILT_FOR}, but found none. "
            f"Run `pip install 'torch=={BUILT_FOR}.*'`."
        )
    if problem := explain_mismatch(found):
        raise TorchError(problem)


def load_extension() -> ModuleType:
    """Imports `tidegauge._C`; imports torch's Python package only if its libraries need it."""
    check_torch_version()  # before anything compiled is loaded
    try:
        return import_module("tidegauge._C")
    except ImportError:
        import_module("torch")  # which finds libraries in other places, too
        return import_module("tidegauge._C")
