"""Print changes as JSON, in other systems' formats, or as readable lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import canal
from canal import formats
from canal.changes import Reader
from canal.cli.terminal import json_line
from canal.errors import visible
from canal.formats.canal_json import to_canal_json
from canal.formats.message import Message
from canal.model import Entry, EventType, Row

_STYLES = {EventType.INSERT: "green", EventType.UPDATE: "yellow", EventType.DELETE: "red"}


def has_rich() -> bool:
    try:
        import rich.console  # noqa: F401
    except ImportError:
        return False
    return True


def print_json(message: Message) -> int:
    for line in to_canal_json(message.entries, batch_id=message.id):
        print(json_line(line))
    return 0


class EncodedPrinter:
    """Prints changes in a format of ``canal.formats``."""

    def __init__(self, name: str) -> None:
        self._encode = formats.encoder_of(name)
        self._reader = Reader(is_log=True)

    def print(self, message: Message) -> int:
        for entry in message.entries:
            for change in self._reader.changes(entry):
                if text := self._encode(change):
                    print("\n".join(map(json_line, text.split("\n"))))
        self._reader.forget(self._reader.mark())
        return 0


class Printer:
    """Prints readable lines, in colour if rich is installed."""

    def __init__(self) -> None:
        try:
            from rich.console import Console
            from rich.markup import escape

            console = Console(highlight=False, soft_wrap=True)
            self._out: Callable[[str], None] = console.print
            self._escape: Callable[[str], str] = escape
            self._colour = True
        except ImportError:
            self._out, self._escape, self._colour = print, str, False

    def print(self, message: Message) -> int:
        for entry in message.entries:
            self._entry(entry)
        return 0

    def _entry(self, entry: Entry) -> None:
        header = entry.header
        when = datetime.fromtimestamp(header.execute_time / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        name = f"{header.schema}.{header.table}" if header.table else header.schema
        position = f"{header.journal}:{header.offset}" + (f"  {header.gtid}" if header.gtid else "")
        style = _STYLES.get(header.event_type, "cyan")
        self._line("bold " + style, f"{header.event_type.name} {name}", "dim", f"  {when}Z  {position}")
        if entry.table is None:
            first, *more = entry.row_change.sql.replace("\r\n", "\n").split("\n")
            for line in (first, *("  " + line for line in more)):
                self._line("cyan", "  " + line)
        for row in entry.rows:
            if row.before is None:
                self._line("green", "  + " + _values(row.after))
            elif row.after is None:
                self._line("red", "  - " + _values(row.before))
            else:
                self._line("yellow", "  ~ " + _difference(row.before, row.after))

    def _line(self, *pairs: str) -> None:
        pairs = tuple(map(visible, pairs))
        if self._colour:
            self._out("".join(f"[{style}]{self._escape(text)}[/]" for style, text in zip(pairs[::2], pairs[1::2])))
        else:
            self._out("".join(pairs[1::2]))


def _values(row: Row | None) -> str:
    return "" if row is None else "  ".join(f"{name}={_text(value)}" for name, value in row.as_dict().items())


def _difference(before: Row, after: Row) -> str:
    parts = []
    for name, new in after.as_dict().items():
        old = before[name]
        if old == new and type(old) is type(new):
            parts.append(f"{name}={_text(new)}")
        elif new is canal.ABSENT:
            parts.append(f"{name}={_text(old)}")
        else:
            parts.append(f"{name}: {_text(old)} → {_text(new)}")
    return "  ".join(parts)


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return "0x" + value[:32].hex() + ("…" if len(value) > 32 else "")
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if len(value) <= 200 else json.dumps(value[:200], ensure_ascii=False) + "…"
    return str(value)
