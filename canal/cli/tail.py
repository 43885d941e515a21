"""``canal tail``: prints the changes of a server or of binlog files."""

from __future__ import annotations

import argparse
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import canal
from canal import formats
from canal.cli.arguments import is_url, local, server
from canal.cli.printers import EncodedPrinter, Printer, has_rich, print_json
from canal.errors import visible
from canal.formats.message import Message
from canal.model import Entry, EntryType
from canal.parse.source.mysql import database
from canal.position import journal_key

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def options(commands: Any) -> None:
    tail = commands.add_parser(
        "tail",
        help="print changes",
        description="Print the changes of a server (mysql://user@host:port/) or of binlog files (a file or directory).",
        epilog="The password comes from the URL, from CANAL_PASSWORD or a prompt.",
    )
    tail.add_argument("source", help="mysql://user[:password]@host[:port]/[?ssl_mode=…], a binlog file, or a directory")
    tail.add_argument(
        "--schema",
        metavar="FILE_OR_URL",
        help="columns of files without names: a file of CREATE TABLE statements, or a server's URL",
    )
    tail.add_argument(
        "--lower-case-table-names", type=int, choices=(0, 1, 2), help="lower_case_table_names of the server that wrote the files"
    )
    tail.add_argument(
        "--unknown-columns",
        choices=("positions", "error", "leave_out"),
        default="positions",
        help="rows of tables with unknown columns: name them @1, @2, … (default), stop with an error, or exclude them",
    )
    tail.add_argument("--filter", default="", help=r"tables to show, in canal's syntax, such as 'shop\..*'")
    tail.add_argument("--black-filter", default="", help="tables not to show")
    tail.add_argument(
        "--start",
        "--since",
        metavar="START",
        help="latest, earliest, JOURNAL:OFFSET, an age such as 90s, 15m, 1h or 2d, or a time such as "
        "2026-11-21T10:00:00+00:00 (default zone: this machine's)",
    )
    tail.add_argument("--follow", action="store_true", help="wait for data appended to the files")
    forms = tail.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one canal-json object per event")
    forms.add_argument(
        "--format", choices=formats.TEXTS, help="print one line per row in this format (docs/formats.md compares them)"
    )
    tail.add_argument("--limit", type=int, default=0, metavar="N", help="stop after N entries (0: never)")
    tail.add_argument("--verbose", action="store_true", help="log what the library does")
    tail.set_defaults(run=_tail)


def _tail(options: argparse.Namespace) -> int:
    if options.limit < 0:
        raise canal.ConfigError(f"--limit must be at least 0, not {options.limit}")
    live = is_url(options.source)
    source: Any = server(options.source) if live else local(options)
    start = _start(options.start or ("latest" if live else "earliest"))
    filter = options.filter or (_database(options.source) if live else "")
    config = canal.InstanceConfig(
        destination="tail",
        source=source,
        filter=filter,
        black_filter=options.black_filter,
        start=start,
        alarm=_alarm,
        unknown_columns=options.unknown_columns,
    )
    if live:
        for name in ("schema", "lower_case_table_names"):
            if getattr(options, name) is not None:
                option = "--" + name.replace("_", "-")
                raise canal.ConfigError(f"{option} is for binlog files", remedy="Remove it: the server provides this.")
        source.connect().close()  # the instance would retry forever
    printer: Callable[[Message], int] = print_json if options.json else Printer().print
    if options.format:
        printer = EncodedPrinter(options.format).print
    total = 0 if live or options.follow else _size(Path(options.source))
    shown = 0
    with _progress(total) as advance, canal.Instance(config) as instance, _ended_by_ctrl_c(instance):
        instance.subscribe()
        if live:
            _greet(source, instance.position(), filter)
        for message in instance.stream(poll=0.2):
            message.entries = [entry for entry in message.entries if entry.entry_type is EntryType.ROWDATA]
            if options.limit:
                message.entries = message.entries[: options.limit - shown]
            shown += len(message.entries)
            printer(message)
            if not total:  # do not delay the reader of a pipe
                sys.stdout.flush()
            if total and message.entries:
                advance(_done(Path(options.source), message.entries[-1]))
            if options.limit and shown >= options.limit:
                break
    sys.stdout.flush()
    return 0


def _greet(source: canal.MySQLSource, start: canal.Position, filter: str) -> None:
    """Print a first line to stderr, because stdout has the changes."""
    colour = "" if has_rich() or not sys.stdout.isatty() else "; pip install 'canal-cdc[cli]' adds colour"
    text = f"connected to {source.address}, from {start}" + (f", {filter}" if filter else "") + f": waiting for changes{colour}"
    print(visible(f"canal: {text} (Ctrl-C ends it)"), file=sys.stderr, flush=True)


@contextmanager
def _ended_by_ctrl_c(instance: canal.Instance) -> Iterator[None]:
    """Stop the instance at Ctrl-C; a second Ctrl-C interrupts.

    A KeyboardInterrupt during a wait can leave a Condition corrupted.
    """
    pressed = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        threading.Thread(target=instance.stop, name="canal-stop").start()

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or another handler
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    except canal.CanalError:
        if not pressed:
            raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _alarm(destination: str, text: str) -> None:
    """Print lost connections at once. main() prints the error that stops the parser."""
    if getattr(text, "kind", None) is not canal.AlarmKind.STOPPED:
        logging.warning(text)


def _database(url: str) -> str:
    """Return a filter for the database of a URL, or "" if it names none."""
    name = database(url)
    return rf"{re.escape(name)}\..*" if name else ""


def _start(text: str) -> str | canal.Position:
    if text in ("latest", "earliest"):
        return text
    journal, _, offset = text.rpartition(":")
    if journal and offset.isdigit() and not journal[0].isdigit():
        return canal.Position(journal=journal, offset=int(offset))
    try:
        if text[:-1].isdigit() and text[-1] in _SECONDS:
            moment = datetime.now(UTC) - timedelta(seconds=int(text[:-1]) * _SECONDS[text[-1]])
        else:
            moment = datetime.fromisoformat(text).astimezone(UTC)
        return canal.Position(timestamp=int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise canal.ConfigError(
            f"--start (or --since) {text!r} is neither latest, earliest, JOURNAL:OFFSET, an age such as 1h nor a time such as "
            "2026-11-21T10:00:00+00:00"
        ) from None


# -- progress over files -----------------------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    names = [name for name in path.iterdir() if name.is_file() and name.suffix[1:].isdigit()]
    return sorted(names, key=lambda name: journal_key(name.name))


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path)) if path.exists() else 0


def _done(path: Path, entry: Entry) -> int:
    done = 0
    for file in _files(path):
        if file.name == entry.header.journal:
            return done + entry.header.offset
        done += file.stat().st_size
    return done


def _progress(total: int) -> AbstractContextManager[Callable[[int], None]]:
    """Return a progress bar on stderr if only stderr is a terminal."""
    if not total or not sys.stderr.isatty() or sys.stdout.isatty():
        return nullcontext(lambda done: None)
    try:
        return _RichProgress(total)
    except ImportError:
        return nullcontext(lambda done: None)


class _RichProgress(AbstractContextManager[Callable[[int], None]]):
    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        self._progress = Progress(
            BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), console=Console(stderr=True)
        )
        self._task = self._progress.add_task("binlog", total=total)
        self._total = total

    def __enter__(self) -> Callable[[int], None]:
        self._progress.start()
        return lambda done: self._progress.update(self._task, completed=done)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self._progress.update(self._task, completed=self._total)
        self._progress.stop()
