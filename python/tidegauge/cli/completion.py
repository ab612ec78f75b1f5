# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge completion bash`: a script that completes commands, options and their values."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from tidegauge.cli.common import EXIT_DONE

NAME = "completion"
HELP = "print a script that completes the command line in bash, zsh or fish"
EXAMPLES = """\
  source <(tidegauge completion bash)                      (in ~/.bashrc)
  tidegauge completion zsh > ~/.zfunc/_tidegauge           (a folder of $fpath)
  tidegauge completion fish > ~/.config/fish/completions/tidegauge.fish
"""


@dataclass(frozen=True)
class Option:
    names: tuple[str, ...]  # "-o", "--output"
    help: str
    takes_value: bool
    values: tuple[str, ...]  # to choose from; none: a file


@dataclass(frozen=True)
class Command:
    name: str
    help: str
    options: tuple[Option, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SHELLS), help="the shell to print it for")


def run(args: argparse.Namespace) -> int:
    print(_SHELLS[args.shell](list_commands(args.parser)), end="")
    return EXIT_DONE


def list_commands(parser: argparse.ArgumentParser) -> list[Command]:
    """The commands of the parser of `tidegauge`, with their options."""
    choices = find_commands(parser)
    helps = {action.dest: action.help or "" for action in choices._choices_actions}
    return [
        Command(name, helps[name], tuple(_list_options(command)))
        for name, command in choices.choices.items()
    ]


def find_commands(
    parser: argparse.ArgumentParser,
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """The action of the parser of `tidegauge` that has the parsers of the commands."""
    (commands,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return commands


def _list_options(parser: argparse.ArgumentParser) -> list[Option]:
    from tidegauge.allocator.devices import device_models

    options = []
    for action in parser._actions:
        if not action.option_strings:
            continue
        values = tuple(map(str, action.choices or ()))
        if "--device" in action.option_strings:
            values = tuple(device.key for device in device_models())
        text = " ".join((action.help or "").replace("%%", "%").split())
        takes_value = action.nargs != 0
        options.append(Option(tuple(action.option_strings), text, takes_value, values))
    return options


def _render_bash(commands: list[Command]) -> str:
    names = " ".join(command.name for command in commands)
    cases = "".join(
        f"    {command.name}) options={_quote(' '.join(_all_names(command)))} ;;\n"
        for command in commands
    )
    values = "".join(
        f"    {option.names[-1]}) values={_quote(' '.join(option.values))} ;;\n"
        for option in _unique(commands)
        if option.values
    )
    return f"""\
_tidegauge() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}"
  local options= values=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {_quote(names)} -- "$current"))
    return
  fi
  case "$before" in
{values}  esac
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _tidegauge tidegauge
"""


def _render_zsh(commands: list[Command]) -> str:
    listed = "\n".join(
        f"    {_quote(f'{_escape(command.name)}:{_escape(command.help)}')}" for command in commands
    )
    cases = "".join(
        f"    {command.name}) _arguments {' '.join(map(_zsh_option, command.options))} "
        f"{_quote('*:file:_files')} ;;\n"
        for command in commands
    )
    return f"""\
#compdef tidegauge
_tidegauge() {{
  local -a commands=(
{listed}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=${{words[2]}}
  shift words
  (( CURRENT-- ))
  case $command in
{cases}  esac
}}
if [ "$funcstack[1]" = _tidegauge ]; then _tidegauge "$@"; else compdef _tidegauge tidegauge; fi
"""


def _zsh_option(option: Option) -> str:
    value = ""
    if option.takes_value:
        value = f":value:({' '.join(option.values)})" if option.values else ":file:_files"
    help_text = _escape(option.help).replace("[", "\\[").replace("]", "\\]")
    return " ".join(_quote(f"*{name}[{help_text}]{value}") for name in option.names)


def _render_fish(commands: list[Command]) -> str:
    lines = ["complete -c tidegauge -n __fish_use_subcommand -f"]
    for command in commands:
        lines.append(
            f"complete -c tidegauge -n __fish_use_subcommand -a {command.name} "
            f"-d {_quote(command.help)}"
        )
        where = f"-n {_quote(f'__fish_seen_subcommand_from {command.name}')}"
        for option in command.options:
            flags = "".join(
                f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}"
                for name in option.names
            )
            if option.takes_value:
                values = _quote(" ".join(option.values))
                flags += f" -x -a {values}" if option.values else " -r"
            lines.append(f"complete -c tidegauge {where}{flags} -d {_quote(option.help)}")
    return "\n".join([*lines, ""])


_SHELLS: dict[str, Callable[[list[Command]], str]] = {
    "bash": _render_bash,
    "zsh": _render_zsh,
    "fish": _render_fish,
}


def _all_names(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names]


def _unique(commands: list[Command]) -> list[Option]:
    """One option of each name; their values are the same in all commands."""
    return [*{option.names: option for command in commands for option in command.options}.values()]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")


def _quote(text: str) -> str:
    return shlex.quote(text)
