# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of mkdocs (`make docs`): the home page, the reference, and links out of docs/.

The reference is made from docstrings and headers, read as text: neither a build nor torch is
needed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

REPO = Path(__file__).parent.parent
PACKAGE = REPO / "python" / "tidegauge"
# The modules of the public names, in the order of the page.
MODULES = {
    "estimation/estimator.py": ["estimate", "Estimate"],
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


def on_files(files: Files, *, config: Any) -> Files:
    pages = {
        "index.md": render_home(),
        "reference/python.md": render_python(),
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
    return re.sub(outside, lambda link: f"`{link[2]}`", markdown)


def render_home() -> str:
    """README.md, with links as seen from docs/."""
    text = (REPO / "README.md").read_text(encoding="utf-8")
    text = text.replace("](docs/", "](")
    return re.sub(r"\[([^\]]*)\]\(((?:[A-Z]+\.md)|LICENSE)\)", r"`\2`", text)


def render_python() -> str:
    parts = ["# Python\nMade from the docstrings of the sources.\n"]
    for file, names in MODULES.items():
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        nodes = {node.name: node for node in tree.body if hasattr(node, "name")}
        parts += [_render_node(nodes[name]) for name in names]
    return "\n".join(parts)


def _render_node(node: Any) -> str:
    is_class = isinstance(node, ast.ClassDef)
    parts = [f"## {node.name}\n"]
    if is_class:
        parts.append(f"```python\nclass {node.name}{_fields(node)}\n```\n")
    else:
        parts.append(f"```python\n{_signature(node)}\n```\n")
    parts.append(_text(ast.get_docstring(node)))
    for method in node.body if is_class else ():
        doc = isinstance(method, ast.FunctionDef) and ast.get_docstring(method)
        if doc and (not method.name.startswith("_") or method.name == "__init__"):
            parts.append(f"### {node.name}.{method.name}\n")
            parts.append(f"```python\n{_signature(method)}\n```\n{_text(doc)}")
    return "\n".join(parts)


def _fields(node: ast.ClassDef) -> str:
    """The members of a dataclass with their types."""
    lines = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
    return ":\n    " + "\n    ".join(lines) if lines else ""


def _signature(node: ast.FunctionDef) -> str:
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){result}"


def _text(doc: str | None) -> str:
    """Docstrings are plain text; examples in them are indented."""
    return f"{(doc or '').replace('::', ':')}\n"


def render_headers() -> str:
    parts = ["# C++ headers\nThe public headers, as they are.\n"]
    for path in sorted((REPO / "include" / "tidegauge").glob("*.h")):
        text = path.read_text(encoding="utf-8").partition("#pragma once\n")[2].strip()
        parts.append(f"## tidegauge/{path.name}\n\n```cpp\n{text}\n```\n")
    return "\n".join(parts)
