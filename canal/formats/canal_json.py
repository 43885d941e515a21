"""canal's FlatMessage JSON ("canal-json"): one line per row or statement entry, for consumers that read canal's topics.

Never decodes anything itself: values are the texts of ``entry.row_change.row_datas``.

Other than canal: ``old`` holds, row by row, the columns updated in that row (canal lets the set grow from row to row),
and it has one item for every row, so that ``old[i]`` belongs to ``data[i]``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from canal.model import Entry, EntryType, EventType, Message, RowData

_ROW_TYPES = frozenset((EventType.INSERT, EventType.UPDATE, EventType.DELETE))


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
    header = entry.header
    change = entry.row_change
    rows = [] if change.is_ddl or entry.event_type not in _ROW_TYPES else change.row_datas
    data: list[dict[str, str | None]] = []
    old: list[dict[str, str | None]] = []
    sql_type: dict[str, int] = {}
    mysql_type: dict[str, str] = {}
    for row in rows:
        columns = row.before_columns if entry.event_type == EventType.DELETE else row.after_columns
        data.append({column.name: column.value for column in columns})
        sql_type.update((column.name, column.sql_type) for column in columns)
        mysql_type.update((column.name, column.mysql_type) for column in columns)
        if entry.event_type == EventType.UPDATE:
            old.append(_old_values(row))
    return {
        "data": data or None,
        "database": header.schema,
        "es": header.execute_time,
        "gtid": header.gtid,
        "id": batch_id,
        "isDdl": change.is_ddl,
        "mysqlType": mysql_type or None,
        "old": old or None,
        "pkNames": _key_names(rows, entry.event_type),
        "sql": change.sql,
        "sqlType": sql_type or None,
        "table": header.table,
        "ts": now,
        "type": entry.event_type.name,
    }


def _old_values(row: RowData) -> dict[str, str | None]:
    """Values before the update of the columns that it changed."""
    updated = {column.name for column in row.after_columns if column.updated}
    return {column.name: column.value for column in row.before_columns if column.name in updated}


def _key_names(rows: list[RowData], event_type: EventType) -> list[str] | None:
    """The primary key's columns, from the first row."""
    if not rows:
        return None
    columns = rows[0].before_columns if event_type == EventType.DELETE else rows[0].after_columns
    return [column.name for column in columns if column.is_key] or None


def dumps(message: dict[str, Any]) -> str:
    """JSON that is valid UTF-8, whatever a statement or a name holds."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # bytes of a statement that are no text in its charset: escaped, the line can be written
        return json.dumps(message, separators=(",", ":"))
    return text
