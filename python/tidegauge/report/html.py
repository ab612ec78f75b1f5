# SPDX-License-Identifier: BSD-3-Clause
"""Renders a page as one self-contained file: the modules of `report/web`, and the data.

Each module becomes a function that returns its exports, so modules share no names. The browser runs
only this script: the page's content security policy names the hash of the script and allows no
requests. Names from a trace occur only in the packed data, which is not parsed as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
import zlib
from importlib import resources

from tidegauge.report.page import Page

_MAIN = "main.js"
_LEVEL = 4  # 7 % more bytes than level 6, in a quarter of the time
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.MULTILINE)


def render_html(page: Page) -> str:
    style = _read("style.css")
    script = join_modules(_MAIN)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(page.title),
        "style": style,
        "script": script,
        "data": base64.b64encode(zlib.compress(page.pack(), _LEVEL)).decode(),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("index.html"))


def join_modules(main: str) -> str:
    """Joins a module and all its imports to one script, each before the modules that import it."""
    joined: dict[str, str] = {}

    def join(name: str) -> None:
        if name in joined:
            return
        source = _read(name)
        for _, imported in _IMPORT.findall(source):
            join(imported)
        names = ", ".join(_EXPORT.findall(source))
        body = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = {_variable(match[2])};\n", source)
        body = _EXPORT.sub("", body)
        joined[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {names} }};\n}})();\n"

    join(main)
    return "\n".join(joined.values())


def _variable(name: str) -> str:
    return name.replace(".", "_")


def _read(name: str) -> str:
    return (resources.files("tidegauge.report") / "web" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
