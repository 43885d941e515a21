"""Entries, the transactions they belong to, and rows: the values that the library delivers.

Reads no socket, file or clock. An entry keeps a copy of the binlog event and decodes rows on each access to ``entry.rows``.
"""

from canal.model.entry import Entry, Header, Rare, RowChange, count_rows, decode_images, decode_rows, decode_tuples, new_entry
from canal.model.kinds import EntryType, EventType
from canal.model.row import ChangedRow, ColumnNames, Row, RowData, column_names
from canal.model.table import TableMap
from canal.model.transaction import Transaction, new_transaction

__all__ = [
    "ChangedRow",
    "ColumnNames",
    "Entry",
    "EntryType",
    "EventType",
    "Header",
    "Rare",
    "Row",
    "RowChange",
    "RowData",
    "TableMap",
    "Transaction",
    "column_names",
    "count_rows",
    "decode_images",
    "decode_rows",
    "decode_tuples",
    "new_entry",
    "new_transaction",
]
