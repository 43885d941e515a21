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

from canal.changes.change import Change, Op
from canal.formats.columns import canal_columns
from canal.formats.encoder import Encoded, TextEncoder, names
from canal.formats.message import Message
from canal.formats.text import dumps
from canal.model import Entry, EntryType, RowData

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
class CanalJson(TextEncoder):
    """canal's FlatMessage, one for each changed row or statement; the key is JSON of the primary key, null without one.

    ``id`` is -1, as there is no batch. Columns that a row image does not hold are left out. A row of a snapshot is an INSERT.

    Args:
        clock: gives ``ts``, in nanoseconds since 1970.
    """

    clock: Callable[[], int] = time.time_ns

    def messages(self, change: Change) -> Sequence[Encoded]:
        database, table = names(change)
        rows = []
        if change.op.is_row:
            before, after = (None if row is None else row.values() for row in (change.before, change.after))
            rows = [RowData(*canal_columns(change.table.columns, before, after))]
        op = Op.INSERT if change.op is Op.READ else change.op  # canal's readers know no other type of a new row
        document = _document(
            op.name,
            rows,
            database=database,
            table=table,
            es=change.origin.ts,
            gtid=change.origin.gtid,
            id=-1,
            isDdl=change.origin.is_ddl,
            sql=change.sql,
            ts=self.clock() // 1_000_000,
        )
        key = {name: document["data"][0].get(name) for name in change.table.keys} if rows and change.table.keys else None
        return (Encoded(None if key is None else dumps(key).encode(), dumps(document).encode()),)


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
