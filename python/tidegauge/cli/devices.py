# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge devices`: the devices that --device can name."""

from __future__ import annotations

import argparse
import textwrap

from tidegauge._util.formatting import text_width
from tidegauge.cli.common import EXIT_DONE, add_output, render_bytes, to_json, write_result

NAME = "devices"
HELP = "list the devices that `estimate`, `rehearse` and `replay` know"
EXAMPLES = """\
  tidegauge devices
  tidegauge devices -v          (with the source of each memory)
  tidegauge devices --json | jq '.[].key'
"""

_INDENT = " " * 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from tidegauge.allocator.devices import device_models

    models = device_models()
    if args.json:
        write_result(args, to_json(models))
        return EXIT_DONE
    width = max(len(model.key) for model in models) + 2
    rows = [f"{'device':{width}}{'memory':>9}  name"]
    for model in models:
        rows.append(f"{model.key:{width}}{render_bytes(model.memory_bytes):>9}  {model.name}")
        if args.verbose:
            rows += textwrap.wrap(
                model.source,
                text_width(),
                initial_indent=_INDENT,
                subsequent_indent=_INDENT,
                break_on_hyphens=False,
            )
    write_result(args, "\n".join(rows))
    return EXIT_DONE
