# SPDX-License-Identifier: BSD-3-Clause
"""The torch version that we were built for: the only place in Python that names one.

torch keeps its C++ ABI within a minor version only. With any other, importing the extension would
end in an undefined symbol or a crash, so the package checks before it loads anything compiled.
"""

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

# The build reads this line too, and refuses to compile against another minor version.
BUILT_FOR = "2.13"

#: How a caching allocator chooses among equally good free blocks, and which torch does so.
TIE_RULES = {"address": "up to 2.11", "private-counter": "2.12", "counter": "2.13"}


def fits(found: str, built_for: str = BUILT_FOR) -> bool:
    """True if torch version `found` has the minor version `built_for`."""
    return found.split(".")[:2] == built_for.split(".")


def explain_mismatch(found: str, built_for: str = BUILT_FOR) -> str | None:
    """A message about torch version `found` with what to do; None if it fits."""
    if fits(found, built_for):
        return None
    return (
        f"tidegauge was built for torch {built_for}, but found torch {found}. "
        f"Run `pip install 'torch=={built_for}.*'`, or build tidegauge from source for your torch."
    )


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
    return str(import_module("torch").__version__)


def check_torch_version() -> None:
    """Raises ImportError unless the installed torch has the minor version we were built for."""
    found = find_torch_version()
    if found is None:
        raise ImportError(
            f"tidegauge needs torch {BUILT_FOR}, but found none. "
            f"Run `pip install 'torch=={BUILT_FOR}.*'`."
        )
    if problem := explain_mismatch(found):
        raise ImportError(problem)


def load_extension() -> ModuleType:
    """Imports `tidegauge._C`, without torch's Python if its libraries can be found without it."""
    check_torch_version()  # before anything compiled is loaded
    try:
        return import_module("tidegauge._C")
    except ImportError:
        import_module("torch")  # which finds libraries in other places, too
        return import_module("tidegauge._C")
