# SPDX-License-Identifier: BSD-3-Clause
"""Paths, links and worked examples in the documents match the repository."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
DOCUMENTS += [str(path.relative_to(REPO)) for path in sorted((REPO / "docs").rglob("*.md"))]
PROSE = DOCUMENTS + [
    str(path.relative_to(REPO))
    for folder in ("src", "tests", "examples", "benchmarks")
    for path in sorted((REPO / folder).rglob("*.md"))
]
# A document may name a file relative to these folders, as an #include or an import does.
BASES = ("", "src", "include", "python", "python/tidegauge", "tests", "tests/python")
ENDINGS = (
    "h",
    "cpp",
    "py",
    "pyi",
    "js",
    "html",
    "md",
    "sh",
    "toml",
    "txt",
    "yaml",
    "cmake",
    "json",
)


def expand(text: str) -> Iterator[str]:
    """`tests/{web,browser}` names two folders."""
    if match := re.search(r"\{([^{}]*)\}", text):
        for part in match[1].split(","):
            yield from expand(text[: match.start()] + part + text[match.end() :])
    else:
        yield text


def find_paths(text: str) -> Iterator[str]:
    """Words in backticks that look like a path of this repository."""
    top_folders = {path.name for path in REPO.iterdir() if path.is_dir()}
    for word in re.findall(r"`([\w./{},-]+/[\w.{},-]*)`", text):
        for path in expand(word):
            is_file = path.rpartition(".")[2] in ENDINGS
            if is_file or path.endswith("/") or path.partition("/")[0] in top_folders:
                yield path


def exists(path: str) -> bool:
    is_elsewhere = path.startswith(("..", "build/", ".venv/"))  # outside, or built
    return is_elsewhere or any((REPO / base / path).exists() for base in BASES)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_paths_exist(document: str) -> None:
    paths = set(find_paths((REPO / document).read_text(encoding="utf-8")))
    assert sorted(path for path in paths if not exists(path)) == []


def anchors_of(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def is_broken(document: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    if not target.exists():
        return True
    return bool(anchor) and anchor not in anchors_of(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = REPO / document
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith("http")]
    assert [link for link in local if is_broken(path, link)] == []


def find_long_lines(text: str) -> list[str]:
    """Lines of more than 120 characters that could be wrapped: not tables, code, or one link."""
    prose = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (line for line in prose.splitlines() if len(line) > 120)
    return [
        line
        for line in lines
        if not line.lstrip().startswith(("|", "<!--")) and " " in re.sub(r"^\s*(- )?", "", line)
    ]


@pytest.mark.parametrize("document", PROSE)
def test_lines_are_wrapped_at_120(document: str) -> None:
    assert find_long_lines((REPO / document).read_text(encoding="utf-8")) == []


def test_tables_code_and_links_may_be_longer_than_120() -> None:
    words, address = "word " * 30, "x" * 130
    allowed = [f"| {words} |", f"```\n{words}\n```", f"- [name]({address})"]
    assert find_long_lines("\n".join(allowed)) == []
    assert find_long_lines(f"{words}\n```\n{words}\n```\n- {words}") == [words, f"- {words}"]


def test_readme_has_at_most_150_lines() -> None:
    assert len((REPO / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_architecture_names_many_paths() -> None:
    text = (REPO / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(set(find_paths(text))) > 60


def test_worked_examples_apply() -> None:
    """Each diff in CONTRIBUTING.md fits the sources as they are."""
    text = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    diffs = re.findall(r"^```diff\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(diffs) == 3
    for diff in diffs:
        done = subprocess.run(
            ["git", "apply", "--check", "-"],
            cwd=REPO,
            input=diff,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_measured_figures_equal_the_results() -> None:
    """The blocks that tools/update_readme.py makes from benchmarks/results.json."""
    spec = importlib.util.spec_from_file_location("update_readme", REPO / "tools/update_readme.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    texts = [(REPO / name).read_text(encoding="utf-8") for name in tool.DOCUMENTS]
    blocks = {block[2]: block[0] for text in texts for block in tool.BLOCK.finditer(text)}
    assert tool.GENERATORS.keys() <= blocks.keys()  # other tools write blocks, too
    for name in ("costs", "speeds", "gains", "rehearsals"):
        assert blocks[name] == f"<!-- begin: {name} -->\n{tool.GENERATORS[name]()}<!-- end -->"


def test_every_promise_names_tests_that_exist() -> None:
    text = (REPO / "docs" / "trust.md").read_text()
    files = (path for path in (REPO / "tests").rglob("*") if path.suffix in (".py", ".cpp"))
    sources = "\n".join(path.read_text() for path in files)
    promises = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert len(promises) > 15
    for line in promises:
        names = re.findall(r"`([^`]+)`", line.rsplit("|", 2)[1])
        assert names, line
        for name in names:
            if "/" in name:
                assert (REPO / name).is_file(), name
            elif "." in name:
                assert f"TEST({name.replace('.', ', ')})" in sources, name
            else:
                assert f"def {name}(" in sources, name
