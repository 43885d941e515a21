"""canal's FlatMessage JSON ("canal-json"): one line per row or statement entry, for consumers that read canal's topics.

Never decodes anything itself: values are the texts of ``entry.row_change.row_datas``.

Other than canal: ``old`` holds, row by row, the columns updated in that row (canal lets the set grow from row to row),
and it has one item for every row, so that ``old[i]`` belongs to ``data[i]``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from canal.changes.change import Change, Op, Origin, Table
from canal.formats import put
from canal.formats.columns import column_text, fraction_digits
from canal.formats.columns import sql_type as sql_type_of
from canal.formats.encoder import INTEGERS, ColumnPiece, Encoded, RowEncoder, key_object, names, quoted, text_styles, writer_of
from canal.formats.message import Message
from canal.formats.row_writer import Program, RowWriter
from canal.formats.text import dumps
from canal.model import Entry, EntryType, RowData
from canal.rows import native
from canal.schema import ColumnSchema

_ROWS: Final = ("INSERT", "UPDATE", "DELETE")


def to_canal_json(
    message_or_entries: Message | Iterable[Entry], *, batch_id: int | None = None, now: int | None = None
) -> list[str]:
    """One JSON text per ROWDATA entry, keys in alphabetical order; BEGIN and END give none.

    ``id`` is ``batch_id``, or the message's own id (-1 for bare entries without one); ``ts`` is ``now`` in
    milliseconds, by default the time of the call.
    """
    if batch_id is None:
        batch_id = message_or_entries.id if isinstance(message_or_entries, Message) else -1
    if now is None:
        now = time.time_ns() // 1_000_000
    return [
        dumps(flat_message(entry, batch_id=batch_id, now=now))
        for entry in message_or_entries
        if entry.entry_type == EntryType.ROWDATA
    ]


def flat_message(entry: Entry, *, batch_id: int, now: int) -> dict[str, Any]:
    """The FlatMessage of a ROWDATA entry as a dict, its keys in alphabetical order."""
    header, change = entry.header, entry.row_change
    rows = [] if change.is_ddl or entry.event_type.name not in _ROWS else change.row_datas
    return _document(
        entry.event_type.name,
        rows,
        database=header.schema,
        table=header.table,
        es=header.execute_time,
        gtid=header.gtid,
        id=batch_id,
        isDdl=change.is_ddl,
        sql=change.sql,
        ts=now,
    )


@attrs.frozen
class CanalJson(RowEncoder):
    """canal's FlatMessage, one for each changed row or statement. The key is JSON of the primary key, null without one.

    ``id`` is -1, as there is no batch. Columns that a row image does not hold are left out. A row of a snapshot is an
    INSERT, as canal's readers know no other type of a new row.

    Args:
        clock: returns ``ts``, in nanoseconds since 1970.
    """

    clock: Callable[[], int] = time.time_ns

    def _statement(self, change: Change) -> Sequence[Encoded]:
        database, table = names(change.table)
        document = _document(
            change.op.name,
            (),
            database=database,
            table=table,
            es=change.origin.ts,
            gtid=change.origin.gtid,
            id=-1,
            isDdl=change.origin.is_ddl,
            sql=change.sql,
            ts=self.clock() // 1_000_000,
        )
        return (Encoded(None, dumps(document).encode()),)

    def _form(self, table: Table) -> RowWriter:
        return writer_of(table, [_piece(column) for column in table.columns])

    def _key(self, table: Table, side: int) -> Program | None:
        return Program(key_object(table, side)) if table.keys else None

    def _value(self, table: Table, op: Op, has_before: bool, has_after: bool, is_half: bool = False) -> Program:
        return _value(table, Op.INSERT if op is Op.READ else op, has_before, has_after)

    def _literals(self, table: Table, origin: Origin, part: int = 0) -> list[bytes]:
        head = f'"es":{origin.ts},"gtid":{dumps(origin.gtid)},"id":-1,"isDdl":{"true" if origin.is_ddl else "false"},'
        return [head.encode(), b"%d" % (self.clock() // 1_000_000)]


def _value(table: Table, op: Op, has_before: bool, has_after: bool) -> Program:
    database, name = names(table)
    columns = [(dumps(column.name), column) for column in table.columns]
    types = [f"{text}:{dumps(column.column_type)}".encode() for text, column in columns]
    codes = [f"{text}:{sql_type_of(column)}".encode() for text, column in columns]
    keys = [text.encode() if column.key else b"" for text, column in columns]
    return Program(
        [
            (put.TEXT, b'{"data":[{'),
            (put.AFTER if has_after else put.BEFORE, None),
            (put.TEXT, f'}}],"database":{dumps(database)},'.encode()),
            (put.LITERAL, 0),
            (put.TEXT, b'"mysqlType":'),
            (put.PRESENT, _present(types, b"{", b"}")),
            *(
                [(put.TEXT, b',"old":[{'), *([(put.CHANGED, False)] if has_before and has_after else []), (put.TEXT, b"}]")]
                if op is Op.UPDATE
                else [(put.TEXT, b',"old":null')]
            ),
            (put.TEXT, b',"pkNames":'),
            (put.PRESENT, _present(keys, b"[", b"]")),
            (put.TEXT, b',"sql":"","sqlType":'),
            (put.PRESENT, _present(codes, b"{", b"}")),
            (put.TEXT, f',"table":{dumps(name)},"ts":'.encode()),
            (put.LITERAL, 1),
            (put.TEXT, f',"type":"{op.name}"}}'.encode()),
        ]
    )


def _present(texts: Sequence[bytes], before: bytes, after: bytes) -> tuple[bytes, tuple[bytes, ...], bytes, bytes, bytes]:
    found = b",".join(filter(None, texts))
    return before + found + after if found else b"null", tuple(texts), before, after, b"null"


def _piece(column: ColumnSchema) -> ColumnPiece:
    """Return the way to a value as canal's text in a JSON string."""
    digits = fraction_digits(column)
    return ColumnPiece(
        lambda value: quoted(column_text(value, column) or ""),
        {
            **dict.fromkeys((*INTEGERS, native.BIT, native.NUMBER), (put.QUOTED_INTEGER, 0)),
            **text_styles(),
            native.DECIMAL: (put.DECIMAL_TEXT, 0),
            native.DATETIME: (put.MOMENT, digits),
            native.TIMESTAMP: (put.MOMENT, digits),
            native.DATE: (put.DAY, 0),
            native.DOUBLE: (put.REAL, put.QUOTED | put.LIKE_JAVA),
        },
    )


def _document(name: str, rows: Sequence[RowData], **members: Any) -> dict[str, Any]:
    """A FlatMessage, its members in alphabetical order."""
    data: list[dict[str, str | None]] = []
    old: list[dict[str, str | None]] = []
    sql_type: dict[str, int] = {}
    mysql_type: dict[str, str] = {}
    for row in rows:
        columns = row.before_columns if name == "DELETE" else row.after_columns
        data.append({column.name: column.value for column in columns})
        sql_type.update((column.name, column.sql_type) for column in columns)
        mysql_type.update((column.name, column.mysql_type) for column in columns)
        if name == "UPDATE":
            old.append(_old_values(row))
    members |= {
        "data": data or None,
        "mysqlType": mysql_type or None,
        "old": old or None,
        "pkNames": _key_names(rows, name),
        "sqlType": sql_type or None,
        "type": name,
    }
    return {name: members[name] for name in sorted(members)}


def _old_values(row: RowData) -> dict[str, str | None]:
    """Values before the update of the columns that it changed."""
    updated = {column.name for column in row.after_columns if column.updated}
    return {column.name: column.value for column in row.before_columns if column.name in updated}


def _key_names(rows: Sequence[RowData], name: str) -> list[str] | None:
    """The primary key's columns, from the first row."""
    if not rows:
        return None
    columns = rows[0].before_columns if name == "DELETE" else rows[0].after_columns
    return [column.name for column in columns if column.is_key] or None
