"""Writes docs/reference/command-line.md from the parser of the command line: `python docs/_command_line.py`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from canal.cli.main import parser

FILE = Path(__file__).parent / "reference" / "command-line.md"


def page() -> str:
    lines = [
        "# The command line",
        "",
        "`canal --version` prints the version and says if the hot modules are compiled. Made by `python docs/_command_line.py`.",
    ]
    for command in commands(parser()):
        name = command.prog
        lines += ["", f"## {name}", "", described(command), "", "| argument | |", "|---|---|"]
        lines += [f"| `{argument(one)}` | {text(one)} |" for one in command._actions if one.dest != "help"]
        if command.epilog:
            lines += ["", command.epilog]
    return "\n".join([*lines, ""])


def commands(found: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the commands that have no commands of their own."""
    groups = [one for one in found._actions if isinstance(one, argparse._SubParsersAction)]
    if not groups:
        yield found
    for group in groups:
        helps = {one.dest: one.help for one in group._choices_actions}
        for name, command in group.choices.items():
            command.description = command.description or f"{(helps[name] or '').capitalize()}."
            yield from commands(command)


def described(command: argparse.ArgumentParser) -> str:
    return (command.description or "").replace("%%", "%")


def argument(one: argparse.Action) -> str:
    value = one.metavar or ("{" + ",".join(map(str, one.choices)) + "}" if one.choices else one.dest.upper())
    if not one.option_strings:
        return f"[{value}]" if one.nargs == "?" else str(value)
    return ", ".join(one.option_strings) + ("" if one.nargs == 0 else f" {value}")


def text(one: argparse.Action) -> str:
    said = (one.help or "").replace("|", "\\|")
    if one.default not in (None, "", False, 0, argparse.SUPPRESS) and "default" not in said:
        said += f" (default: {one.default})"
    return said.strip()


if __name__ == "__main__":
    FILE.write_text(page(), "utf-8")
