"""Maxwell's JSON: one object for each changed row.

Never writes a number that is not the column's own: DECIMAL stands with all its digits, as a JSON number.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import attrs

from canal._util.bounded import Recent
from canal.binlog import type_codes as codes
from canal.changes.change import Change, Op, Table
from canal.formats.columns import column_text, float32_text, float_text, type_code
from canal.formats.encoder import Encoded, TextEncoder, names, unfit
from canal.formats.text import dumps
from canal.formats.texts import document_text
from canal.model import Row
from canal.rows.values import ABSENT, AmbiguousLabel, InvalidText, PartialJson
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
class MaxwellJson(TextEncoder):
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
    _plans: Recent[str, tuple[Table, _Plan]] = attrs.field(factory=Recent, init=False, repr=False, eq=False)

    def messages(self, change: Change) -> Sequence[Encoded]:
        if not change.op.is_row:
            return ()
        plan = self._plan(change.table)
        try:
            rows = plan.texts(change.row)
            old = {} if change.op is not Op.UPDATE else plan.texts(change.before)
        except ValueError as error:
            unfit(change, f"Maxwell's form has nothing for it: {error}", "Park it, or choose another format.")
        database, table = names(change)
        keys = [(name, rows[name]) for name in change.table.keys if name in rows]
        members = [f"{dumps(name)}:{dumps(value)}" for name, value in self._head(change, database, table)]
        if self.primary_keys:
            members.append(f'"primary_key":[{",".join(text for _, text in keys)}]')
        if self.primary_key_columns:
            members.append(f'"primary_key_columns":{dumps(list(change.table.keys))}')
        members.append(f'"data":{self._object(rows)}')
        if change.op is Op.UPDATE:
            members.append(f'"old":{self._object({name: text for name, text in old.items() if rows.get(name) != text}, True)}')
        key = f'{{"database":{dumps(database)},"table":{dumps(table)}'
        key += "".join(f",{dumps(f'pk.{name.lower()}')}:{text}" for name, text in keys) + "}"
        return (Encoded(key.encode(), f"{{{','.join(members)}}}".encode()),)

    def _plan(self, table: Table) -> _Plan:
        known = self._plans.get(table.name)
        if known is None or known[0] is not table:
            known = self._plans[table.name] = table, _Plan(table)
        return known[1]

    def _head(self, change: Change, database: str, table: str) -> list[tuple[str, Any]]:
        origin = change.origin
        op = "bootstrap-insert" if change.op is Op.READ else change.op
        found: list[tuple[str, Any]] = [("database", database), ("table", table), ("type", op), ("ts", origin.ts // 1000)]
        if self.commit_info:
            is_last = change.ord + 1 == origin.rows
            found += [("xid", origin.xid)] if origin.xid else []
            found += [("commit", True)] if is_last else [("xoffset", change.ord)] if self.offsets else []
        options = (
            (self.binlog_position, "position", origin.position),
            (self.gtid_position, "gtid", origin.gtid or None),
            (self.server_id, "server_id", origin.server_id),
            (self.thread_id, "thread_id", origin.thread_id),
        )
        return found + [(name, value) for wanted, name, value in options if wanted]

    def _object(self, texts: dict[str, str], with_nulls: bool = False) -> str:
        shown = (f"{dumps(name)}:{text}" for name, text in texts.items() if self.nulls or with_nulls or text != "null")
        return f"{{{','.join(shown)}}}"


class _Plan:
    """What makes the JSON of each column's values."""

    def __init__(self, table: Table) -> None:
        self._makes = [(column.name, _make(column)) for column in table.columns]

    def texts(self, row: Row | None) -> dict[str, str]:
        """By column; those that the row image does not hold are left out."""
        found = {}
        for (name, make), value in zip(self._makes, () if row is None else row.values()):
            if value is ABSENT:
                continue
            if isinstance(value, (InvalidText, PartialJson)):
                what = "bytes that are no text" if isinstance(value, InvalidText) else "a document of which a part is not known"
                raise ValueError(f"column {name} holds {what}")
            found[name] = "null" if value is None else make(value)
        return found


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
