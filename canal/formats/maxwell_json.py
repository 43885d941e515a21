"""Maxwell's JSON: one object for each changed row.

Never writes a number that is not the column's own: DECIMAL stands with all its digits, as a JSON number.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NoReturn

import attrs

from canal.binlog import type_codes as codes
from canal.changes.change import Change, Op, Origin, Table
from canal.formats import put
from canal.formats.columns import column_text, float32_text, float_text, fraction_digits, type_code
from canal.formats.encoder import INTEGERS, ColumnPiece, RowEncoder, names, text_styles, unfit, writer_of
from canal.formats.row_writer import Program, RowWriter
from canal.formats.text import dumps
from canal.formats.texts import document_text
from canal.rows import native
from canal.rows.values import AmbiguousLabel, InvalidText, PartialJson
from canal.schema import ColumnSchema

_SHAPES: Final = {
    2: "LINESTRING",
    3: "POLYGON",
    4: "MULTIPOINT",
    5: "MULTILINESTRING",
    6: "MULTIPOLYGON",
    7: "GEOMETRYCOLLECTION",
}


@attrs.frozen(kw_only=True)
class MaxwellJson(RowEncoder):
    """Maxwell's rows: ``data`` is the row, of an update ``old`` the former values of what was changed.

    A row of a snapshot has the type ``bootstrap-insert``, without Maxwell's rows that begin and end a bootstrap.

    SET is an array, JSON stands as it is, bytes are base64, geometries are WKT, BIT and YEAR are numbers, TIMESTAMP is text in
    UTC. The key is Maxwell's: database, table and the primary key's columns as ``pk.<name>``. ``commit`` is there at the last row
    of a transaction, if no filter took that; else ``xoffset`` with ``offsets``. Statements give nothing, as Maxwell's
    ``output_ddl`` tells columns before and after, which the log does not.

    Args:
        binlog_position, gtid_position, server_id, thread_id, primary_keys, primary_key_columns: Maxwell's ``output_…`` options.
        commit_info, nulls: the same; true, as there.
        offsets: ``output_xoffset``.
    """

    binlog_position: bool = False
    gtid_position: bool = False
    commit_info: bool = True
    offsets: bool = False
    nulls: bool = True
    server_id: bool = False
    thread_id: bool = False
    primary_keys: bool = False
    primary_key_columns: bool = False

    def _unfit(self, change: Change, error: Exception) -> NoReturn:
        unfit(change, f"Maxwell's form has nothing for it: {error}", "Park it, or choose another format.")

    def _form(self, table: Table) -> RowWriter:
        return writer_of(table, [_piece(column) for column in table.columns], nulls=self.nulls)

    def _key(self, table: Table, side: int) -> Program:
        database, name = names(table)
        found: list[tuple[int, Any]] = [(put.TEXT, f'{{"database":{dumps(database)},"table":{dumps(name)}'.encode())]
        if table.keys:
            texts = tuple([f"{dumps(f'pk.{one.lower()}')}:".encode() for one in table.keys])
            found += [(put.TEXT, b","), (side, (True, texts, False))]
        return Program([*found, (put.TEXT, b"}")])

    def _value(self, table: Table, op: Op, has_before: bool, has_after: bool, is_half: bool = False) -> Program:
        database, name = names(table)
        kind = "bootstrap-insert" if op is Op.READ else op.value
        head = f'{{"database":{dumps(database)},"table":{dumps(name)},"type":"{kind}","ts":'
        steps: list[tuple[int, Any]] = [(put.TEXT, head.encode()), (put.LITERAL, 0)]
        if self.commit_info:
            steps.append((put.LAST, (b',"commit":true', b',"xoffset":' if self.offsets else b"")))
        steps.append((put.LITERAL, 1))
        if self.primary_keys:
            side = put.KEY if has_after else put.KEY_BEFORE
            values = side, (False, (b"",) * len(table.keys), False)
            steps += [(put.TEXT, b',"primary_key":['), values, (put.TEXT, b"]")]
        if self.primary_key_columns:
            steps.append((put.TEXT, f',"primary_key_columns":{dumps(list(table.keys))}'.encode()))
        steps += [(put.TEXT, b',"data":{'), (put.AFTER if has_after else put.BEFORE, None)]
        if op is Op.UPDATE:
            steps.append((put.TEXT, b'},"old":{'))
            steps += [(put.CHANGED, True)] if has_before and has_after else []
        return Program([*steps, (put.TEXT, b"}}")])

    def _literals(self, table: Table, origin: Origin, part: int = 0) -> list[bytes]:
        xid = f',"xid":{origin.xid}' if self.commit_info and origin.xid else ""
        options = (
            (self.binlog_position, "position", origin.position),
            (self.gtid_position, "gtid", origin.gtid or None),
            (self.server_id, "server_id", origin.server_id),
            (self.thread_id, "thread_id", origin.thread_id),
        )
        more = "".join(f",{dumps(name)}:{dumps(value)}" for wanted, name, value in options if wanted)
        return [f"{origin.ts // 1000}{xid}".encode(), more.encode()]


def _piece(column: ColumnSchema) -> ColumnPiece:
    """Return the way to a value as Maxwell's JSON."""
    make, code = _make(column), type_code(column)
    is_document = code == codes.JSON or column.base_type == "json"
    digits = fraction_digits(column)
    styles = {
        **dict.fromkeys((*INTEGERS, native.YEAR, native.BIT, native.NUMBER), (put.INTEGER, 0)),
        **text_styles(),
        native.DECIMAL: (put.DECIMAL_NUMBER, 0),
        native.DATETIME: (put.MOMENT, digits),
        native.TIMESTAMP: (put.MOMENT, digits | put.IN_UTC),
        native.DATE: (put.DAY, 0),
        native.DOUBLE: (put.REAL, put.LIKE_JAVA),
        native.BYTES: (put.BASE64, 0),
    }

    def made(value: Any) -> bytes:
        if isinstance(value, (InvalidText, PartialJson)):
            what = "bytes that are no text" if isinstance(value, InvalidText) else "a document of which a part is not known"
            raise ValueError(f"column {column.name} holds {what}")
        return make(value).encode()

    return ColumnPiece(made, {} if is_document or code == codes.GEOMETRY else styles)


def _make(column: ColumnSchema) -> Callable[[Any], str]:
    code = type_code(column)
    if code == codes.SET:
        return lambda value: dumps(_members(value, column.labels or ()))
    if code == codes.JSON or column.base_type == "json":
        return lambda value: value if isinstance(value, str) else document_text(value)
    if code == codes.GEOMETRY:
        return lambda value: dumps(_geometry(value, 4)[0])
    if code == codes.FLOAT:
        return lambda value: _number(value, float32_text)
    if code in (codes.TIMESTAMP, codes.TIMESTAMP2):
        return lambda value: dumps(_text(value.astimezone(UTC) if isinstance(value, datetime) else value, column))
    return lambda value: _json(value, column)


def _members(value: str, labels: Sequence[str]) -> list[str]:
    """The members of a SET value."""
    if isinstance(value, AmbiguousLabel):
        return [label for bit, label in enumerate(labels) if value.number >> bit & 1]
    return value.split(",") if value else []


def _json(value: Any, column: ColumnSchema) -> str:
    if isinstance(value, bytes):
        return dumps(base64.b64encode(value).decode())
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return _number(value, float_text)
    if isinstance(value, (date, timedelta)):
        return dumps(_text(value, column))
    return document_text(value) if isinstance(value, (dict, list)) else dumps(value)


def _text(value: Any, column: ColumnSchema) -> str | None:
    return column_text(value, column)


def _number(value: float, text: Callable[[float], str]) -> str:
    if value - value != 0:
        raise ValueError("JSON has no infinite numbers")
    return text(value)


# -- geometries --------------------------------------------------------------------------------------------------------


def _geometry(data: bytes, at: int) -> tuple[str, int]:
    """The WKT of a geometry, and where it ends."""
    order = "<" if data[at] else ">"
    (kind,) = struct.unpack_from(f"{order}I", data, at + 1)
    at += 5
    if kind == 1:
        point, at = _point(data, at, order)
        return f"POINT ({point})", at
    if kind not in _SHAPES:
        raise ValueError(f"a geometry of the type {kind}")
    (count,) = struct.unpack_from(f"{order}I", data, at)
    parts, at = [], at + 4
    for _ in range(count):
        if kind == 2:
            part, at = _point(data, at, order)
        elif kind == 3:
            part, at = _line(data, at, order)
        else:
            part, at = _geometry(data, at)
            part = part if kind == 7 else part.partition(" ")[2]
        parts.append(part)
    return f"{_SHAPES[kind]} ({', '.join(parts)})" if parts else f"{_SHAPES[kind]} EMPTY", at


def _line(data: bytes, at: int, order: str) -> tuple[str, int]:
    (count,) = struct.unpack_from(f"{order}I", data, at)
    points, at = [], at + 4
    for _ in range(count):
        point, at = _point(data, at, order)
        points.append(point)
    return f"({', '.join(points)})", at


def _point(data: bytes, at: int, order: str) -> tuple[str, int]:
    x, y = struct.unpack_from(f"{order}2d", data, at)
    return f"{_coordinate(x)} {_coordinate(y)}", at + 16


def _coordinate(value: float) -> str:
    return repr(value).removesuffix(".0")
