"""The command line: parses it and runs one command.

Never keeps a cursor: it is for looking, not for processing.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

import canal
from canal.cli import check, ha, run, tail, top
from canal.cli.terminal import VisibleFormatter
from canal.errors import visible


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = parser().parse_args(arguments)
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if options.verbose else logging.WARNING, handlers=[handler])
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit finds no pipe
        return 0
    except canal.CanalError as error:
        print(f"canal: {visible(str(error))}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    made = argparse.ArgumentParser(prog="canal", description="Changes of a MySQL or MariaDB server, as they happen.")
    build = "compiled" if canal.compiled else "interpreted"
    made.add_argument("--version", action="version", version=f"canal {canal.__version__} ({build})")
    commands = made.add_subparsers(dest="command", required=True)
    for command in (tail, run, check, ha, top):
        command.options(commands)
    return made
