"""What ``mysqlbinlog`` and ``mariadb-binlog`` say of a binlog file, compared with what we decode of it.

Never trusts one side: events, statements, rows and values are paired in order, and what is left over on either is a
difference. Where the tools' text says less than the log (a sign, digits of a FLOAT) only what it says is compared.
"""

from __future__ import annotations

import datetime
import re
import struct
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs

from canal.errors import CanalError, DecodeError, HookError
from canal.model import Entry, decode_tuples
from canal.parse.log.events import iter_payload
from canal.parse.parser import BinlogParser
from canal.parse.source.files import LocalBinlogSource
from canal.rows.charsets import codec_of
from canal.rows.values import ABSENT, PartialJson, ZeroDate
from canal.schema import ColumnSchema
from canal.testing.servers import find_installation

PROGRAMS = {"mysql": "mysqlbinlog", "mariadb": "mariadb-binlog"}
#: Else MariaDB's stops at numbers that go back, as they do after a failover.
_OPTIONS = {"mysql": [], "mariadb": ["--skip-gtid-strict-mode"]}


@attrs.frozen
class Change:
    """One row or statement: of ours the values of the columns present, by number from 1; of a tool's (text, type)."""

    kind: str
    table: bytes = b""
    before: dict[int, Any] | None = None
    after: dict[int, Any] | None = None
    columns: tuple[ColumnSchema, ...] = ()
    position: str = ""
    #: The tool gave up at a type that it cannot print, and says nothing of the rest of the row.
    is_cut: bool = False


@attrs.define
class Reading:
    """One side: events by type, changes of finished transactions, and what ended it."""

    events: Counter[str] = attrs.field(factory=Counter)
    changes: list[Change] = attrs.field(factory=list)
    error: Any = None
    gtids: str = ""


@attrs.frozen
class Outcome:
    verdict: str
    detail: str = ""
    events: int = 0
    rows: int = 0


def compare(path: Path, kind: str) -> Outcome:
    """Decode a file, and compare it with what the tool of ``kind`` prints."""
    ours, tools = decode(path), dump(path, kind)
    if "Ignorable" in tools.events:
        known = frozenset(_NAMES.values()) - (_MARIADB_IGNORES if kind == "mariadb" else frozenset())
        ours.events["Ignorable"] = sum(ours.events.pop(name) for name in ours.events.keys() - known)
    rows = sum(change.kind != "STATEMENT" for change in ours.changes)
    fault = next(differences(ours, tools), "")
    error = ours.error
    if error is not None and (type(error) is CanalError or isinstance(error, HookError)):
        verdict = "UNTYPED ERROR"
    elif fault:
        verdict = "DIFFERENT"
    elif error is not None:
        verdict = type(error).__name__
    else:
        verdict = "equal" if tools.error is None else "whole, the tool fails"
    detail = fault or ("" if error is None else str(error)) or (tools.error or "")
    return Outcome(verdict, detail, sum(ours.events.values()), rows)


def differences(ours: Reading, tools: Reading) -> Iterator[str]:
    """What is not the same; a side that ended in an error is compared as far as it came."""
    whole = ours.error is None and tools.error is None
    if whole and ours.events != tools.events:
        yield f"events: ours {ours.events - tools.events}, the tool's {tools.events - ours.events}"
    for number, (our, their) in enumerate(zip(ours.changes, tools.changes, strict=False), 1):
        fault = _fault(our, their)
        if fault:
            yield f"change {number} at {our.position}: {fault}"
    missing = len(tools.changes) - len(ours.changes)
    if missing > 0 and ours.error is None:
        yield f"{missing} changes less than the tool's {len(tools.changes)}"
    if missing < 0 and tools.error is None:
        yield f"{-missing} changes more than the tool's {len(tools.changes)}"


def _fault(our: Change, their: Change) -> str:
    if (our.kind, our.table) != (their.kind, their.table):
        return f"ours {our.kind} {our.table!r}, the tool's {their.kind} {their.table!r}"
    for image in ("before", "after"):
        mine, theirs = getattr(our, image), getattr(their, image)
        if (mine is None) != (theirs is None) or mine and mine.keys() != theirs.keys() and not their.is_cut:
            return f"{image} image: ours has columns {mine and [*mine]}, the tool's {theirs and [*theirs]}"
        for number, cell in (theirs or {}).items():
            value = mine.get(number, ABSENT)
            if isinstance(value, PartialJson):
                value = value.expression(f"@{number}")
            if not agrees(value, *cell, our.columns[number - 1]):
                return f"{image} @{number} of {our.table!r}: ours {value!r:.200}, the tool's {cell!r:.200}"
    return ""


# -- ours --------------------------------------------------------------------------------------------------------------

#: How both tools name the events of a type; what one of them does not name stands in _UNNAMED.
_NAMES = {
    2: "Query",
    3: "Stop",
    4: "Rotate",
    5: "Intvar",
    9: "Append_block",
    13: "Rand",
    14: "User_var",
    15: "Start",
    16: "Xid",
    17: "Begin_load_query",
    18: "Execute_load_query",
    19: "Table_map",
    23: "Write_rows",
    24: "Update_rows",
    25: "Delete_rows",
    26: "Incident",
    29: "Rows_query",
    30: "Write_rows",
    31: "Update_rows",
    32: "Delete_rows",
    33: "GTID",
    34: "Anonymous_GTID",
    35: "Previous-GTIDs",
    38: "XA",
    39: "Update_rows_partial",
    40: "Transaction_Payload",
    42: "GTID",
    160: "Annotate_rows",
    161: "Binlog",
    162: "GTID",
    163: "Gtid",
    164: "Start",
    165: "Query",
    166: "Write_rows",
    167: "Update_rows",
    168: "Delete_rows",
    169: "Write_rows",
    170: "Update_rows",
    171: "Delete_rows",
}
#: What ``mariadb-binlog`` calls Ignorable in a log of MySQL, beside what both do not know.
_MARIADB_IGNORES = frozenset(("GTID", "Anonymous_GTID", "Previous-GTIDs", "Rows_query"))


class _Taps:
    """A source that counts the events which pass."""

    def __init__(self, path: Path) -> None:
        self._source = LocalBinlogSource(str(path))
        self.events: Counter[int] = Counter()

    def connect(self, server_id_hint: int | None = None) -> Any:
        connection = self._source.connect()
        read = connection.read
        self.events = Counter({4: -1})  # the ROTATE that the source itself puts first

        def counted(timeout: float) -> list[bytes] | None:
            events = read(timeout)
            for event in events or ():
                self.events[event[4]] += 1
                if event[4] == 40:
                    self.events.update(inner[4] for inner in iter_payload(event, len(event)))
            return events

        connection.read = counted  # type: ignore[method-assign]
        return connection


class _List:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def start(self, destination: str, store: Any) -> None: ...

    def stop(self) -> None: ...

    def restart(self) -> None: ...

    def sink(self, entries: list[Entry]) -> None:
        self.entries += entries


def decode(path: Path) -> Reading:
    """What the library makes of a file, through the same line as any user's."""
    taps, sink, ended = _Taps(path), _List(), threading.Event()
    parser = BinlogParser(taps, start="earliest", alarm=lambda destination, text: None)
    parser.start("corpus", sink, None, ended.set)
    ended.wait()
    parser.stop()
    reading = Reading(error=parser.error)
    for kind, count in taps.events.items():
        reading.events[_NAMES.get(kind, str(kind))] += count
    reading.events = +reading.events
    reading.gtids = sink.entries[-1].position.gtid if sink.entries else ""
    try:
        for entry in sink.entries:
            reading.changes += _changes(entry)
    except DecodeError as error:
        reading.error = error
    except Exception as error:  # what the walk let pass must decode
        reading.error = CanalError(f"decoding rows: {error!r}")
    return reading


def _changes(entry: Entry) -> Iterator[Change]:
    if entry.entry_type.name != "ROWDATA":
        return
    position = f"{entry.transaction.journal}:{entry.offset}"
    if entry.table is None:
        yield Change("STATEMENT", position=position)
        return
    name = f"`{entry.table.schema.schema}`.`{entry.table.schema.table}`".encode("utf-8", "surrogateescape")
    for before, after in decode_tuples(entry):
        yield Change(entry.event_type.name, name, _present(before), _present(after), entry.table.columns, position)


def _present(values: tuple[Any, ...] | None) -> dict[int, Any] | None:
    if values is None:
        return None
    return {number: value for number, value in enumerate(values, 1) if value is not ABSENT}


# -- the tool's --------------------------------------------------------------------------------------------------------

_HEADER = re.compile(rb"#\d{6} [ \d]\d:\d\d:\d\d server id \d+  end_log_pos \d+ (?:CRC32 0x[0-9a-f]+ )?\t([-\w]+)(.*)")
_LOAD = re.compile(rb"#(Append_block|Begin_load_query): file_id")
_ROW = re.compile(rb"### (INSERT INTO|UPDATE|DELETE FROM) (.*)")
_VALUE = re.compile(rb"###   @(\d+)=(.*) /\* (.*) meta=\d+ nullable=\d is_null=\d \*/", re.DOTALL)
_XA = re.compile(rb"XA (START|END|PREPARE|COMMIT|ROLLBACK) (.*?)( ONE PHASE)?$")
_SAVEPOINT = re.compile(rb"(SAVEPOINT|ROLLBACK TO|RELEASE SAVEPOINT) (.*)", re.IGNORECASE)
_KINDS = {b"INSERT INTO": "INSERT", b"UPDATE": "UPDATE", b"DELETE FROM": "DELETE"}


def dump(path: Path, kind: str) -> Reading:
    """What a tool prints of a file, as far as it gets."""
    command = [*find_installation(kind).program(PROGRAMS[kind]), "--no-defaults", "-vv", "--base64-output=DECODE-ROWS"]
    command += ["--verify-binlog-checksum", *_OPTIONS[kind], str(path)]
    with tempfile.TemporaryFile() as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as tool:
        assert tool.stdout is not None
        reading = _Text().read(tool.stdout)
        tool.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    faults = [line for line in said.splitlines() if "ERROR" in line or "Error" in line]
    if tool.returncode or faults:
        reading.error = " ".join(faults)[:300] or f"exit code {tool.returncode}"
    return reading


class _Text:
    """The tool's text read line by line, with the transactions that it tells of."""

    def __init__(self) -> None:
        self.reading = Reading()
        self._open: list[Change] = []
        self._savepoints: dict[bytes, int] = {}
        self._prepared: dict[bytes, list[Change]] = {}
        self._awaits_statement = False
        self._prints_rows = False
        self._commits_alter = False
        self._is_inside = False
        self._image: dict[int, Any] = {}

    def read(self, lines: Iterable[bytes]) -> Reading:
        for line in lines:
            line = line[:-1]
            if line.startswith(b"###") and self._prints_rows:
                self._row_line(line)
            elif line.startswith(b"###"):  # an ALTER in two phases stands there as a comment
                if self._awaits_statement and self._commits_alter:
                    self._statement(line)
                self._awaits_statement = False
            elif line.startswith(b"#"):
                self._comment(line)
            elif line == b"ROLLBACK/*!*/;":  # a FORMAT_DESCRIPTION of a server that has started
                self._open = []
                self._is_inside = False
            elif self._awaits_statement and (not line.endswith(b"/*!*/;") or line.startswith(b"XA START ")):
                self._awaits_statement = False
                self._statement(line.removesuffix(b"/*!*/;"))
        return self.reading  # what is open or prepared at the end is nobody's change yet

    def _comment(self, line: bytes) -> None:
        load = _LOAD.match(line)
        found = load or _HEADER.match(line)
        if found is None:
            return
        name = found[1].decode()
        if name.startswith(("Write_compressed_rows", "Update_compressed_rows", "Delete_compressed_rows")):
            name = name.partition("_")[0] + "_rows"
        self.reading.events["XA" if name == "XID" else "Query" if name == "Query_compressed" else name] += 1
        self._prints_rows = "_rows" in name
        self._awaits_statement = name in ("Query", "Query_compressed", "Execute_load_query", "GTID", "XA", "XID")
        if name == "GTID":
            self._commits_alter = b" COMMIT ALTER " in found[2]
        elif name == "Xid":
            self._commit(self._open)

    def _commit(self, changes: list[Change]) -> None:
        self.reading.changes += changes
        self._open = []
        self._is_inside = False

    def _statement(self, line: bytes) -> None:
        xa, savepoint = _XA.match(line), _SAVEPOINT.match(line)
        if line in (b"BEGIN", b"START TRANSACTION"):
            self._is_inside = True
        elif line == b"COMMIT":
            self._commit(self._open)
        elif line == b"ROLLBACK":
            self._undo(0)
            self._commit(self._open)
        elif xa is not None:
            self._xa(xa[1], xa[2], one_phase=xa[3] is not None)
        elif savepoint is not None:
            if savepoint[1].upper() == b"SAVEPOINT":
                self._savepoints[savepoint[2]] = len(self._open)
            elif savepoint[1].upper() == b"ROLLBACK TO":
                self._undo(self._savepoints[savepoint[2]])
        else:
            (self._open if self._is_inside else self.reading.changes).append(Change("STATEMENT"))

    def _undo(self, length: int) -> None:
        """Servers log a ROLLBACK for what statements did to tables without transactions; the rows are undone."""
        self._open[length:] = [change for change in self._open[length:] if change.kind == "STATEMENT"]

    def _xa(self, verb: bytes, xid: bytes, *, one_phase: bool) -> None:
        if verb == b"START":
            self._is_inside = True
        elif verb == b"PREPARE":
            self._prepared[xid], self._open, self._is_inside = self._open, [], False
        elif verb == b"COMMIT":
            self._commit(self._open if one_phase else self._prepared.pop(xid, []))
        elif verb == b"ROLLBACK":
            self._prepared.pop(xid, None)
            self._open, self._is_inside = [], False

    def _row_line(self, line: bytes) -> None:
        head = _ROW.match(line)
        if head is not None:
            kind = _KINDS[head[1]]
            self._image = {}
            table = head[2].removesuffix(b" VALUES ()")
            self._open.append(Change(kind, table, None if kind == "INSERT" else {}, None if kind == "DELETE" else {}))
        elif line.endswith(b" /* no columns */"):
            pass
        elif line == b"### WHERE":
            self._image = self._open[-1].before  # type: ignore[assignment]
        elif line == b"### SET":
            self._image = self._open[-1].after  # type: ignore[assignment]
        elif found := _VALUE.fullmatch(line):
            self._image[int(found[1])] = (found[2], found[3].decode())
        elif line.startswith(b"###   @") and b"=!! Don't know how to handle" in line:
            self._open[-1] = attrs.evolve(self._open[-1], is_cut=True)
        elif not line.startswith(b"### Extra row info"):
            raise AssertionError(f"what does the tool mean by {line!r:.200}?")


# -- values ------------------------------------------------------------------------------------------------------------

_INTEGERS = frozenset(("TINYINT", "SHORTINT", "MEDIUMINT", "INT", "LONGINT"))


def agrees(value: Any, text: bytes, kind: str, column: ColumnSchema) -> bool:
    """Whether a value of ours is what the tool printed as ``text`` for a column of type ``kind``."""
    if value is None or text == b"NULL":
        return value is None and text == b"NULL"
    base = kind.partition("(")[0].partition(" ")[0]
    if base in _INTEGERS:
        return _integer_agrees(value, text, column)
    if base == "DECIMAL":
        return isinstance(value, Decimal) and f"{value:f}" == _plain_decimal(text)
    if base == "FLOAT":
        return isinstance(value, float) and f"{_as_stored(value):.6g}" == f"{float(text):.6g}"
    if base == "DOUBLE":
        return isinstance(value, float) and value == float(text)
    if base in ("BIT", "SET"):
        return _bits_agree(value, text, base, column)
    if base == "ENUM":
        return _member(value, column) == int(text)
    if column.type_code in (7, 11, 12) and "(" in column.column_type:  # MariaDB's old form with digits: the log does not tell
        return "(" not in kind  # so the tool reads it as one without
    if base in ("TIMESTAMP", "DATETIME", "DATE", "TIME", "YEAR"):
        return _time_text(value, base, kind) == text.strip(b"'").decode()
    if kind.endswith("COMPRESSED"):  # printed as it is stored, deflated or behind a byte 0
        return not text.startswith(b"'\\x00") or _text_agrees(value, b"'" + text[5:], column)
    if base == "VECTOR":
        return _vector_agrees(value, text)
    if base == "JSON" and not text.startswith(b"'"):  # a partial update
        return isinstance(value, str) and value.encode() == text
    return _text_agrees(value, text, column)


def _integer_agrees(value: Any, text: bytes, column: ColumnSchema) -> bool:
    signed, _, unsigned = text.partition(b" ")
    if not unsigned:
        return bool(value == int(signed))
    return bool(value == int(unsigned.strip(b"()") if column.unsigned else signed))


def _bits_agree(value: Any, text: bytes, base: str, column: ColumnSchema) -> bool:
    bits = text[2:-1]
    number = int(bits, 2)
    if base == "SET":  # its bytes as they are stored: the low one first
        number = int.from_bytes(number.to_bytes(len(bits) // 8, "big"), "little")
        return _members(value, column) == number
    return bool(value == number)


def _member(value: Any, column: ColumnSchema) -> Any:
    """The number of an ENUM's member; the value itself where members are not known."""
    if column.labels is None:
        return value
    return column.labels.index(value) + 1 if value in column.labels else 0 if value == "" else None


def _members(value: Any, column: ColumnSchema) -> Any:
    if column.labels is None:
        return value
    return sum(1 << column.labels.index(label) for label in value.split(",")) if value else 0


def _plain_decimal(text: bytes) -> str:
    return f"{Decimal(text.decode()):f}"


def _time_text(value: Any, base: str, kind: str) -> str:
    digits = int(kind.rpartition("(")[2].rstrip(")")) if "(" in kind else 0
    if base == "YEAR":
        return f"{value or 1900}"  # the tools add 1900 to all, to the year 0000 too
    if base == "TIMESTAMP" and not isinstance(value, ZeroDate):
        return f"{int(value.timestamp())}" + _fraction(value.microsecond, digits)
    if isinstance(value, datetime.timedelta):
        return _duration_text(value, digits)
    if isinstance(value, datetime.datetime):
        return f"{value:%4Y-%m-%d %H:%M:%S}" + _fraction(value.microsecond, digits)
    if isinstance(value, datetime.date):
        return f"{value.year:04}:{value.month:02}:{value.day:02}"
    if base == "TIMESTAMP":
        return "0" + _fraction(0, digits)
    return str(value).replace("-", ":") if base == "DATE" else str(value)


def _fraction(micros: int, digits: int) -> str:
    return f".{micros:06}"[: digits + 1] if digits else ""


def _duration_text(value: datetime.timedelta, digits: int) -> str:
    seconds, sign = abs(value), "-" if value < datetime.timedelta(0) else ""
    whole = seconds.days * 86400 + seconds.seconds
    return f"{sign}{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}" + _fraction(seconds.microseconds, digits)


def _as_stored(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _vector_agrees(value: Any, text: bytes) -> bool:
    numbers = struct.unpack(f"<{len(value) // 4}f", value)
    return b"[" + b",".join(b"%.5e" % number for number in numbers) + b"]" == text


def _text_agrees(value: Any, text: bytes, column: ColumnSchema) -> bool:
    """A string is printed in quotes, as it is stored but for some characters, which are escaped."""
    if text[:1] != b"'" or text[-1:] != b"'":
        return False
    if isinstance(value, str):
        codec = (codec_of(column.charset) if column.charset else None) or "utf-8"
        return any(unescape(text[1:-1]).decode(codec, "replace") == value for unescape in (_mysql_raw, _mariadb_raw))
    return any(
        escape(raw) == text[1:-1]
        for escape in (_mysql_text, _mariadb_text)
        for raw in ((value, value.rstrip(b"\0")) if column.meta >> 8 == 254 else (value,))
    )


_LETTERS = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 39: b"\\'", 92: b"\\\\"}
_BYTES = {text: bytes((byte,)) for byte, text in _LETTERS.items()}
_CONTROL, _SPECIAL = re.compile(rb"[\x00-\x1f]"), re.compile(rb"[\x00-\x1f'\\]")
_HEX, _ESCAPE = re.compile(rb"\\x([01][0-9a-f])"), re.compile(rb"\\(?:x([01][0-9a-f])|.)")


def _mariadb_text(raw: bytes) -> bytes:
    return _CONTROL.sub(lambda found: b"\\x%02x" % found[0][0], raw)


def _mariadb_raw(text: bytes) -> bytes:  # a backslash in the string itself is not escaped
    return _HEX.sub(lambda found: bytes.fromhex(found[1].decode()), text)


def _mysql_text(raw: bytes) -> bytes:
    return _SPECIAL.sub(lambda found: _LETTERS.get(found[0][0]) or b"\\x%02x" % found[0][0], raw)


def _mysql_raw(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else _BYTES.get(found[0], b""), text)
