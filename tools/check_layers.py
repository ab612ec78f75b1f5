#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the sources follow the map in docs/architecture.md; prints one line per violation.

The map is two fenced blocks, `layers src` and `layers python/tidegauge`. A line of a block names a
folder (or a Python module) and what it may depend on, which must be in the lines above it:

    core/util:
    core/events: include, core/util
    trace: include, core

Here `core` stands for all lines above that begin with `core/`.

The rules:
- cycle: no C++ units (a header and its source) include each other, directly or indirectly, and no
  Python modules import each other. Imports inside functions and under TYPE_CHECKING count, too:
  neither module can be understood without the other. So does `import_module("a.name")`, but not
  `import_module(variable)`.
- layer: a folder depends only on itself and on the names in its line. `torch`, `python` and
  `sqlite` stand for the headers of these libraries, `torch` also for its Python package.
- version: only the files in VERSION_FILES name a version of torch.
- size: no file has more lines than `find_limit` says.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MAP = "docs/architecture.md"
PACKAGE = "tidegauge"
BUILT = ("include", "lib", "share", "_built_for.py")  # `make build` puts them into the package
VERSION_FILES = (
    "src/capture/compat/",
    "src/allocator/tie_rule.",
    "python/tidegauge/_torch/compat.py",
)
VERSION = re.compile(r"TORCH_VERSION\w*|\btorch\W{1,3}[12]\.\d+|(?<![\d.])2\.[12]\d(?!\d)")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
LIBRARIES = {
    "torch": re.compile(r"(ATen|c10|torch)/"),
    "python": re.compile(r"Python\.h|pybind11/|torch/extension\.h|torch/csrc/.*py(thon|bind)"),
    "sqlite": re.compile(r"sqlite3\.h"),
}


@dataclass(frozen=True)
class Dependency:
    source: str  # the path of a file, relative to the root
    target: str  # the same, or the name of a library


class MapError(Exception):
    """The map itself is wrong."""


class Layers:
    """One block of the map: what each folder may depend on."""

    def __init__(self, root: Path, top: str) -> None:
        self.top = top
        block = re.search(
            rf"^```layers {re.escape(top)}\n(.*?)^```", (root / MAP).read_text(), re.M | re.S
        )
        if block is None:
            raise MapError(f"{MAP} has no block ```layers {top}")
        self._allowed: dict[str, set[str]] = {library: set() for library in LIBRARIES}
        for line in filter(str.strip, block[1].splitlines()):
            names, colon, needs = line.partition(":")
            if not colon:
                raise MapError(f"{MAP}: expected 'folder: what it may depend on', found '{line}'")
            allowed: set[str] = set()
            for need in re.findall(r"[^\s,]+", needs):
                known = {name for name in self._allowed if f"{name}/".startswith(f"{need}/")}
                if not known:
                    raise MapError(f"{MAP}: {names} needs {need}, which no line above names")
                allowed |= known
            self._allowed |= dict.fromkeys(re.findall(r"[^\s,]+", names), allowed)

    def find(self, path: str) -> str | None:
        """The layer of a file: the longest name in the map that its path begins with."""
        if path in LIBRARIES:
            return path
        parts = PurePosixPath(path.removeprefix(f"{self.top}/")).with_suffix("").parts
        names = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((name for name in names if name in self._allowed), None)

    def check(self, dependencies: set[Dependency]) -> Iterator[str]:
        files = {dependency.source for dependency in dependencies}
        for file in sorted(file for file in files if self.find(file) is None):
            yield f"{file}: layer: no line of {MAP} has its folder"
        for each in sorted(dependencies, key=lambda each: (each.source, each.target)):
            source, target = self.find(each.source), self.find(each.target)
            if source and target and target != source and target not in self._allowed[source]:
                yield (
                    f"{each.source} depends on {each.target}: layer: {source} may not depend on "
                    f"{target} ({MAP})"
                )


def read_cpp(root: Path) -> set[Dependency]:
    found = set()
    for path in list_files(root, "src", ".h", ".cpp") | list_files(root, "include", ".h"):
        for name in INCLUDE.findall((root / path).read_text()):
            places = (f"src/{name}", f"include/{name}", str(PurePosixPath(path).parent / name))
            own = next((place for place in places if (root / place).is_file()), None)
            if own is not None:
                found.add(Dependency(path, own))
            else:
                libraries = (key for key, header in LIBRARIES.items() if header.match(name))
                found |= {Dependency(path, library) for library in libraries}
    return found


def read_python(root: Path) -> set[Dependency]:
    """A name imported from a package is the module of that name, or else the package itself."""
    modules = {name_module(path): path for path in list_files(root, "python", ".py", ".pyi")}
    found = set()
    for module, path in modules.items():
        package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        for node in ast.walk(ast.parse((root / path).read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: -node.level + 1 or None] if node.level else []
                origin = ".".join([*base, *filter(None, [node.module])])
                within = [f"{origin}.{alias.name}" for alias in node.names]
                names = [name if name in modules else origin for name in within]
            elif isinstance(node, ast.Call):
                names = name_imported(node)
            targets = {modules[name] for name in names if name in modules} - {path}
            targets |= {"torch" for name in names if name.split(".")[0] == "torch"}
            found |= {Dependency(path, target) for target in targets}
    return found


def name_imported(call: ast.Call) -> list[str]:
    """The module in `import_module("a.name")`, `import_module(".name", "a")`, `__import__(...)`."""
    function = call.func
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if called not in ("import_module", "__import__"):
        return []
    texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
    words = [text for text in texts if isinstance(text, str)]
    if not words:
        return []
    name, *package = words
    return [package[0] + name if package and name.startswith(".") else name]


def name_module(path: str) -> str:
    """`tidegauge.report` for python/tidegauge/report/__init__.py."""
    parts = PurePosixPath(path).relative_to("python").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def list_files(root: Path, folder: str, *endings: str) -> set[str]:
    found = {path.relative_to(root) for path in (root / folder).rglob("*")}
    return {
        path.as_posix()
        for path in found
        if path.suffix in endings and not (path.parts[0] == "python" and path.parts[2] in BUILT)
    }


def check_cycles(dependencies: set[Dependency]) -> Iterator[str]:
    """The shortest cycle through each file that is in one, unless a file of it is reported."""
    edges: dict[str, dict[str, Dependency]] = {}
    for each in sorted(dependencies, key=lambda each: (each.source, each.target)):
        source, target = name_unit(each.source), name_unit(each.target)
        if source != target and target not in LIBRARIES:
            edges.setdefault(source, {}).setdefault(target, each)
    reported: set[str] = set()
    for unit in edges:
        cycle = find_cycle(unit, edges)
        if cycle and reported.isdisjoint(cycle):
            reported.update(cycle)
            steps = [edges[a][b] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
            chain = ", ".join(f"{each.source} depends on {each.target}" for each in steps)
            yield f"{chain}: cycle: dependencies must not lead back"


def name_unit(path: str) -> str:
    """A header and its source are one unit."""
    return path.removesuffix(".h").removesuffix(".cpp")


def find_cycle(unit: str, edges: Mapping[str, Mapping[str, Dependency]]) -> list[str]:
    """The units of the shortest cycle through `unit`; none if there is no cycle."""
    came_from: dict[str, str] = {}
    waiting = [unit]
    for current in waiting:
        for target in edges.get(current, {}):
            if target == unit:
                way = [current]
                while way[-1] != unit:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if target not in came_from:
                came_from[target] = current
                waiting.append(target)
    return []


def check_versions(root: Path) -> Iterator[str]:
    files = list_files(root, "src", ".h", ".cpp") | list_files(root, "include", ".h", ".inc")
    for path in sorted(files | list_files(root, "python", ".py", ".pyi")):
        if path.startswith(VERSION_FILES):
            continue
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            if match := VERSION.search(line):
                yield (
                    f"{path}:{number}: version: names the torch version '{match[0]}'; only "
                    f"{' and '.join(VERSION_FILES)} may"
                )


def find_limit(path: str) -> int:
    if path.endswith(".h"):
        return 150
    return 250 if path.startswith("src/bindings/") else 500


def check_sizes(root: Path) -> Iterator[str]:
    files = list_files(root, "include", ".h")
    for folder in ("src", "python", "tests"):
        files |= list_files(root, folder, ".h", ".cpp", ".py")
    for path in sorted(files):
        lines = len((root / path).read_text().splitlines())
        if lines > find_limit(path):
            yield f"{path}: size: has {lines} lines; at most {find_limit(path)} are allowed"


def check(root: Path) -> list[str]:
    violations: list[str] = []
    for top, read in (("src", read_cpp), (f"python/{PACKAGE}", read_python)):
        dependencies = read(root)
        violations += Layers(root, top).check(dependencies)
        violations += check_cycles(dependencies)
    return [*violations, *check_versions(root), *check_sizes(root)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    try:
        violations = check(parser.parse_args().root)
    except MapError as error:
        violations = [str(error)]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
