#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lock_requirements.py [--check]: writes requirements/locked/*.txt for `pip --require-hashes`.

Each list has all that a requirements/*.txt needs, directly or not, in the versions of lock.txt. The
hashes are those of all files that pip may choose on Linux, by the Python and the machine. Run it
with .venv/bin/python after a change of a pin. `--check` needs no index and fails if a pin or a
package is missing in a list.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).parents[1] / "requirements"
GROUPS = ("build", "test", "lint", "wheel", "peers")
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
Environment = tuple[str, str]  # Python, machine
ENVIRONMENTS: list[Environment] = [(p, m) for p in PYTHONS for m in MACHINES]
MARKERS = {
    frozenset(ENVIRONMENTS): "",
    frozenset(e for e in ENVIRONMENTS if e[1] == "x86_64"): ' ; platform_machine == "x86_64"',
    frozenset(e for e in ENVIRONMENTS if e[0] == "3.11"): ' ; python_version < "3.12"',
    frozenset(e for e in ENVIRONMENTS if e[0] != "3.11"): ' ; python_version >= "3.12"',
}
WHEEL = (
    r"(-\d\w*)?-(?:[\w.]*py3|cp3(?:11|12|13)|cp3\d{1,2}-abi3)[\w.]*-[\w.]*-?"
    rf"(?:any|[\w.]*linux[\w.]*_(?:{'|'.join(MACHINES)}))\.whl"
)
SOURCES = r"\.tar\.gz|\.zip"
HEADER = "# Written by tools/lock_requirements.py from {} and lock.txt.\n"


def read_pins(path: Path) -> dict[str, str]:
    """The versions by the canonical names of the packages."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


@cache
def needs_of(name: str, version: str) -> tuple[Requirement, ...]:
    """What a package needs, from its metadata: that of .venv, or of a wheel from the index."""
    try:
        package = importlib.metadata.distribution(name)
        if package.version == version:
            return tuple(map(Requirement, package.requires or ()))
    except importlib.metadata.PackageNotFoundError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "-d", folder]
        subprocess.run([*pip, f"{name}=={version}"], check=True)
        wheel = zipfile.ZipFile(next(Path(folder).glob("*.whl")))
        metadata = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        message = Parser().parsestr(wheel.read(metadata).decode())
        return tuple(map(Requirement, message.get_all("Requires-Dist") or ()))


def find_all(group: str, pins: dict[str, str], environment: Environment) -> set[str]:
    """The names of all packages that a group needs."""
    python, machine = environment
    values = {"python_version": python, "python_full_version": f"{python}.9"}
    values |= {"platform_machine": machine, "platform_system": "Linux", "sys_platform": "linux"}
    found: set[tuple[str, str]] = set()
    waiting = [(name, "") for name in read_pins(REQUIREMENTS / f"{group}.txt")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        if name not in pins:
            raise SystemExit(f"{name} is needed by {group}.txt; add its version to lock.txt")
        for need in needs_of(name, pins[name]):
            if need.marker is None or need.marker.evaluate({**values, "extra": extra}):
                needed = canonicalize_name(need.name)
                waiting += [(needed, each) for each in ("", *need.extras)]
    return {name for name, _ in found}


def marker_of(name: str, needed_in: frozenset[Environment]) -> str:
    if needed_in not in MARKERS:
        raise SystemExit(f"{name} is needed in {sorted(needed_in)}; add a marker for that")
    return MARKERS[needed_in]


def hashes_of(name: str, version: str) -> Iterator[str]:
    """The hashes of all files of a version in pip's index."""
    pip = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(pip, capture_output=True, text=True).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or configured or "https://pypi.org/simple"
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as page:
        links = re.findall(r'/([^/"#]+)#sha256=([0-9a-f]{64})"', page.read().decode())
    begin = name.replace("-", "[-_.]+") + "-" + re.escape(version)
    file_name = re.compile(f"{begin}({WHEEL}|{SOURCES})", re.IGNORECASE)
    found = {digest for file, digest in links if file_name.fullmatch(file)}
    if not found:
        raise SystemExit(f"the index has no hashes for {name}=={version}")
    yield from sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    pins = read_pins(REQUIREMENTS / "lock.txt")
    hashes: dict[str, list[str]] = {}
    for group in GROUPS:
        path = REQUIREMENTS / "locked" / f"{group}.txt"
        if args.check:
            locked = read_pins(path)
            direct = read_pins(REQUIREMENTS / f"{group}.txt")
            wrong = [n for n in locked if locked[n] != pins.get(n)]
            wrong += [n for n in direct if locked.get(n) != direct[n]]
            if wrong:
                print(f"{path} is old ({', '.join(wrong)}); run tools/lock_requirements.py")
                return 1
            continue
        needed = {each: find_all(group, pins, each) for each in ENVIRONMENTS}
        lines = [HEADER.format(f"{group}.txt")]
        for name in sorted(set().union(*needed.values())):
            if name not in hashes:
                hashes[name] = list(hashes_of(name, pins[name]))
            marker = marker_of(name, frozenset(e for e in ENVIRONMENTS if name in needed[e]))
            options = "".join(f" \\\n    --hash=sha256:{digest}" for digest in hashes[name])
            lines.append(f"{name}=={pins[name]}{marker}{options}\n")
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
