# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of mkdocs (`make docs`): the home page, the reference, and links out of docs/.

The reference is made from docstrings and headers, read as text: neither a build nor torch is
needed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPO = Path(__file__).parent.parent
PACKAGE = REPO / "python" / "tidegauge"
# Where the public names are defined, in the order of the page. A name that users know by another
# one is followed by it.
MODULES = {
    "estimation/estimator.py": ["estimate", "Estimate"],
    "estimation/contract.py": ["Contract", "ContractError", "ModelError"],
    "estimation/sweep.py": ["sweep_target sweep", "SweepResult", "SweepPoint"],
    "planning/questions.py": ["find plan.find"],
    "planning/planner.py": ["PlanResult plan.PlanResult", "BudgetError plan.BudgetError"],
    "planning/plan_file.py": ["load plan.load", "AppliedPlan plan.AppliedPlan"],
    "tracking.py": ["track", "TrackedRun"],
    "trackers/mem_tracker.py": ["MemTracker"],
    "trackers/fsdp2_mem_tracker.py": ["FSDPMemTracker"],
    "trackers/mod_tracker.py": ["ModTracker"],
    "trackers/recorder.py": ["Recorder"],
    "trackers/threads.py": ["attach_thread", "detach_thread"],
    "simulation/session.py": ["simulate", "Simulation"],
    "callbacks.py": ["MemoryLogger", "LoopLogger"],
    "report/summary.py": ["read_summary", "Summary", "Peak", "TensorGroup", "LineBytes"],
    "report/growth.py": ["Growth"],
    "allocator/device_memory.py": ["replay_trace"],
    "errors.py": ["FormatError", "IoError", "TorchError"],
}
# Modules with the names of torch.distributed._tools.
DROP_INS = (
    *("mod_tracker", "mem_tracker", "fsdp2_mem_tracker", "memory_tracker", "common_utils"),
    *("runtime_estimator", "sac_estimator", "ilp_utils", "sac_ilp", "fsdp_ilp", "auto_sac"),
    "fake_collectives",
)


_WIDTH = 90  # of a line of code on a page


def on_files(files: Any, *, config: Any) -> Any:
    from mkdocs.structure.files import File

    pages = {
        "index.md": render_home(),
        "reference/python.md": render_python(),
        "reference/drop-ins.md": render_drop_ins(),
        "reference/cpp.md": render_headers(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A link to a file outside docs/ becomes the name of the file."""
    depth = page.file.src_uri.count("/") + 1
    up = rf"(?:\.\./){{{depth},}}"
    outside = rf"\[([^\]]*)\]\({up}([^)#]+)(#[^)]*)?\)"
    return separate_blocks(re.sub(outside, lambda link: f"`{link[2]}`", markdown))


def separate_blocks(markdown: str) -> str:
    """What is a list, a table or code on GitHub is one here, too.

    Python's Markdown wants a blank line before each, four columns to continue an item, and no more
    than one word after the fence.
    """
    lines: list[str] = []
    is_code = False
    item = ""  # the indentation of what continues the item of a list
    for line in markdown.splitlines():
        kind = _LIST.match(line)
        if _FENCE.match(line):
            is_code = not is_code
            line = re.sub(r"^(\s*```\w*).*", r"\1", line)
        elif is_code:
            lines.append(line)
            continue
        starts = (kind and not item) or line.startswith("|") or (_FENCE.match(line) and is_code)
        before = lines[-1] if lines else ""
        if starts and before.strip() and not (line.startswith("|") and before.startswith("|")):
            lines.append("")
        item = kind[0] if kind else item if line.strip() else ""
        lines.append(line)
    return "\n".join(lines) + "\n"


_LIST = re.compile(r"([-*]|\d+\.) +(?=\S)")
_FENCE = re.compile(r"\s*```")


def render_home() -> str:
    """README.md, with links as seen from docs/."""
    text = (REPO / "README.md").read_text(encoding="utf-8")
    text = text.replace("](docs/", "](")
    return re.sub(r"\[([^\]]*)\]\(((?:[A-Z]+\.md)|LICENSE)\)", r"`\2`", text)


def render_python() -> str:
    parts = ["# Python\nMade from the docstrings of the sources.\n"]
    for file, names in MODULES.items():
        nodes = _read_nodes(file)
        for name, _, shown in (each.partition(" ") for each in names):
            parts.append(_render_node(nodes[name], shown or name))
    return "\n".join(parts)


def render_drop_ins() -> str:
    """Each public name in the first of the modules that has it."""
    parts = [
        "# Drop-ins\nThe modules of `torch.distributed._tools`, under `tidegauge`. Made from the "
        "docstrings of the sources.\n"
    ]
    homes: dict[str, str] = {}
    for module in DROP_INS:
        parts.append(f"## tidegauge.{module}\n")
        again = []
        for name, file in list_names(module):
            node = _read_nodes(file).get(name)
            if name in homes:
                again.append(f"`{name}` (as in `tidegauge.{homes[name]}`)")
            elif node is None:
                again.append(f"`{name}` (a constant)")
            else:
                parts.append(_render_node(node, name, "###"))
            homes.setdefault(name, module)
        if again:
            parts.append(f"Also: {', '.join(again)}.\n")
    return "\n".join(parts)


def list_names(module: str) -> Iterator[tuple[str, str]]:
    """The public names of a drop-in, each with the file that defines it."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))
    homes = {
        alias.name: f"{node.module.removeprefix('tidegauge.').replace('.', '/')}.py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    public = [name for name in homes if not name.startswith("_")]
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            public = ast.literal_eval(node.value)
    yield from ((name, homes[name]) for name in public)


def _read_nodes(file: str) -> dict[str, Any]:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if hasattr(node, "name")}


def _render_node(node: Any, shown: str, level: str = "##") -> str:
    is_class = isinstance(node, ast.ClassDef)
    parts = [f"{level} {shown}\n"]
    if is_class:
        parts.append(f"```python\nclass {node.name}{_fields(node)}\n```\n")
    else:
        parts.append(f"```python\n{_signature(node, shown.rpartition('.')[2])}\n```\n")
    parts.append(_text(ast.get_docstring(node)))
    for method in node.body if is_class else ():
        doc = isinstance(method, ast.FunctionDef) and ast.get_docstring(method)
        if doc and (not method.name.startswith("_") or method.name == "__init__"):
            parts.append(f"{level}# {shown}.{method.name}\n")
            parts.append(f"```python\n{_signature(method, method.name)}\n```\n{_text(doc)}")
    return "\n".join(parts)


def _fields(node: ast.ClassDef) -> str:
    """The public members of a dataclass with their types."""
    members = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    lines = [text for text in map(ast.unparse, members) if not text.startswith("_")]
    return ":\n    " + "\n    ".join(lines) if lines else ""


def _signature(node: ast.FunctionDef, name: str) -> str:
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    text = f"def {name}({ast.unparse(node.args)}){result}"
    if len(text) <= _WIDTH:
        return text
    parts = [""]  # one line for each argument
    for letter in ast.unparse(node.args):
        if letter == "," and parts[-1].count("[") == parts[-1].count("]"):
            parts.append("")
        else:
            parts[-1] += letter
    lines = "".join(f"    {part.strip()},\n" for part in parts)
    return f"def {name}(\n{lines}){result}"


def _text(doc: str | None) -> str:
    """Docstrings are plain text; examples in them are indented."""
    return f"{(doc or '').replace('::', ':')}\n"


def render_headers() -> str:
    parts = ["# C++ headers\nThe public headers, as they are.\n"]
    for path in sorted((REPO / "include" / "tidegauge").glob("*.h")):
        text = path.read_text(encoding="utf-8").partition("#pragma once\n")[2].strip()
        parts.append(f"## tidegauge/{path.name}\n\n```cpp\n{text}\n```\n")
    return "\n".join(parts)
