# SPDX-License-Identifier: BSD-3-Clause
"""The torch version that we were built for: the only place in Python that names one.

torch keeps its C++ ABI within a minor version only. With any other, importing the extension would
end in an undefined symbol or a crash, so the package checks before it loads anything compiled.
"""

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


def check_torch_version() -> None:
    """Raises ImportError unless the installed torch has the minor version we were built for."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ImportError(
            f"tidegauge needs torch {BUILT_FOR}, but found none. "
            f"Run `pip install 'torch=={BUILT_FOR}.*'`."
        ) from error
    if problem := explain_mismatch(torch.__version__):
        raise ImportError(problem)
