"""Encodes entries as bytes for executors, in files of a spool or inside a partition.

Never decodes a row, and never returns part of a damaged record: a truncated or changed record is an error.

A segment is a header and records. A record has a length, a CRC32, a kind and a body. A record of rows has an event and
the offset of its table's record in the same segment. So a reader can start at any record, if it can read earlier tables.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import attrs

from canal.changes.unlogged import statement_of
from canal.errors import CanalError, ChecksumError, ConfigError, DecodeError, TruncatedError, UnsupportedError
from canal.model import Entry, EntryType, EventType, TableMap, Transaction
from canal.rows.decoder import RowDecoder
from canal.schema import ColumnSchema, TableSchema
from canal.statement import Statement

MAGIC: Final = b"CANALSEG"
VERSION: Final = 1
HEADER: Final = MAGIC + struct.pack("<HH", VERSION, 0)

TABLE, ROWS, _STATEMENT = 1, 2, 3
_HEAD: Final = struct.Struct("<IIB")  # length of the body, CRC32 of kind and body, kind
#: Table's record, epoch, offsets of transaction and event, times of both, server id, first_row, skip_rows, row_count, ordinal,
#: body, body_end, kind, event type, lengths of the journal, the GTID and ``selected``.
_ROW_HEAD: Final = struct.Struct("<QHQQIIIQIIIIIBBHHI")
_REMEDY: Final = "The spool is damaged or was written by another version: restart the query."


def made_record(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(len(body), zlib.crc32(body, kind), kind) + body


# -- writing -----------------------------------------------------------------------------------------------------------


class SegmentWriter:
    """Writes one segment. ``size`` is the current length. Only ``flush`` guarantees that data is in the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._tables: dict[int, tuple[int, TableMap]] = {}
        file.write(HEADER)
        self.size = len(HEADER)

    def add(self, entry: Entry, epoch: int) -> None:
        """Write an entry with rows or a statement."""
        table = entry.table
        if table is None:
            self._write(made_record(_STATEMENT, _statement_body(entry, epoch)))
            return
        known = self._tables.get(id(table))
        if known is None:
            known = self._tables[id(table)] = self.size, table  # which keeps its id from being used again
            self._write(made_record(TABLE, _table_body(table)))
        transaction = entry.transaction
        journal, gtid = transaction.journal.encode("utf-8", "surrogateescape"), transaction.gtid.encode()
        selected = entry.selected
        head = _ROW_HEAD.pack(
            known[0],
            epoch,
            transaction.offset,
            entry.offset,
            transaction.timestamp,
            entry.timestamp,
            entry.server_id,
            entry.first_row,
            entry.skip_rows,
            entry.row_count,
            entry.ordinal,
            entry.body,
            entry.body_end,
            entry.kind,
            entry.event_type,
            len(journal),
            len(gtid),
            0 if selected is None else len(selected) + 1,
        )
        chosen = b"" if selected is None else struct.pack(f"<{len(selected)}I", *selected)
        self._write(made_record(ROWS, b"".join((head, journal, gtid, chosen, entry.data))))

    def _write(self, record: bytes) -> None:
        self._file.write(record)
        self.size += len(record)

    def flush(self) -> None:
        self._file.flush()


def _table_body(table: TableMap) -> bytes:
    if table.decoder.masks:  # files of the spool hold events as the server sent them
        raise ConfigError(f"{table.schema.name} is masked, and Spark's spool keeps what the log has", remedy="Mask it in Spark.")
    decoder: Any = table.decoder  # compiled: what it reduces to has no type
    types, metas, columns, wanted = decoder.__reduce__()[1][:4]
    document = {
        "schema": table.schema.schema,
        "table": table.schema.table,
        "types": list(types),
        "metas": list(metas),
        "columns": [attrs.asdict(column, filter=_is_told) for column in columns],
        "wanted": None if wanted is None else list(wanted),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _is_told(attribute: attrs.Attribute[Any], value: Any) -> bool:
    """Return whether a record has the attribute. Uncommon attributes are omitted at their default."""
    return attribute.name not in ("virtual", "logged", "hidden", "unmasked") or bool(value != attribute.default)


def _statement_body(entry: Entry, epoch: int) -> bytes:
    transaction, statement = entry.transaction, statement_of(entry)
    document = {
        "epoch": epoch,
        "journal": transaction.journal,
        "start": transaction.offset,
        "gtid": transaction.gtid,
        "begun": transaction.timestamp,
        "offset": entry.offset,
        "time": entry.timestamp,
        "server": entry.server_id,
        "row": entry.first_row,
        "ordinal": entry.ordinal,
        "type": int(entry.event_type),
        "sql": entry.sql,
        "kind": statement.kind,
        "tables": statement.tables,
        "renames": statement.renames,
        "default": statement.default_schema,
        "database": statement.database,
    }
    return json.dumps(document, separators=(",", ":")).encode()


# -- reading -----------------------------------------------------------------------------------------------------------


def read_entries(data: bytes, table_at: Callable[[int], bytes]) -> Iterator[tuple[int, Entry]]:
    """Yield the epoch and entry of each record. ``table_at`` returns the record of a table at an offset.

    Raises:
        TruncatedError: the bytes end inside a record.
        ChecksumError: a record has changed bytes.
        UnsupportedError, DecodeError: a record is not of this version.
    """
    tables: dict[int, TableMap] = {}
    try:
        for kind, body in records(data):
            if kind == ROWS:
                yield read_rows(body, tables, table_at)
            elif kind == _STATEMENT:
                yield _statement(body)
            elif kind != TABLE:
                raise UnsupportedError(f"a segment has a record of the unknown kind {kind}", remedy=_REMEDY)
    except CanalError:
        raise
    except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise DecodeError(f"a record of a segment is unreadable: {error!r}", remedy=_REMEDY) from error


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and body of each record."""
    at = 0
    while at < len(data):
        kind, body = _one_record(data, at)
        yield kind, body
        at += _HEAD.size + len(body)


def _one_record(data: bytes, at: int) -> tuple[int, bytes]:
    if at + _HEAD.size > len(data):
        raise TruncatedError("a segment ends inside the head of a record", remedy=_REMEDY)
    length, checksum, kind = _HEAD.unpack_from(data, at)
    body = data[at + _HEAD.size : at + _HEAD.size + length]
    if len(body) < length:
        raise TruncatedError(f"a segment ends inside a record of {length} bytes", remedy=_REMEDY)
    if zlib.crc32(body, kind) != checksum:
        raise ChecksumError("a record of a segment fails its checksum", remedy=_REMEDY)
    return kind, body


def tables_of(data: bytes) -> set[int]:
    """Return the offsets of the tables of all rows in ``data``."""
    return {int.from_bytes(body[:8], "little") for kind, body in records(data) if kind == ROWS}


def table_record(file: BinaryIO, at: int) -> bytes:
    """Read the record of a table from a segment file."""
    file.seek(at)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise TruncatedError("a segment ends before the record of a table", remedy=_REMEDY)
    return head + file.read(_HEAD.unpack(head)[0])


def check_header(file: BinaryIO) -> None:
    """Raise UnsupportedError if a file does not begin with the header of this version."""
    file.seek(0)
    if file.read(len(HEADER)) != HEADER:
        raise UnsupportedError("a spool file is not a segment of this version", remedy=_REMEDY)


def read_rows(
    body: bytes, tables: dict[int, TableMap], table_at: Callable[[int], bytes], whole: Transaction | None = None
) -> tuple[int, Entry]:
    (
        at,
        epoch,
        start,
        offset,
        begun,
        time,
        server,
        first,
        skip,
        count,
        ordinal,
        data_body,
        body_end,
        kind,
        event_type,
        journal_size,
        gtid_size,
        chosen,
    ) = _ROW_HEAD.unpack_from(body)
    pos = _ROW_HEAD.size
    journal = body[pos : pos + journal_size].decode("utf-8", "surrogateescape")
    pos += journal_size
    gtid = body[pos : pos + gtid_size].decode()
    pos += gtid_size
    selected = None
    if chosen:
        selected = struct.unpack_from(f"<{chosen - 1}I", body, pos)
        pos += 4 * (chosen - 1)
    data = body[pos:]
    if body_end > len(data):
        raise TruncatedError("an event in a segment is shorter than it was", remedy=_REMEDY)
    table = tables.get(at)
    if table is None:
        table = tables[at] = read_table(table_at(at))
    entry = Entry(
        EntryType.ROWDATA,
        EventType(event_type),
        whole or _transaction(journal, start, server, begun, gtid),
        data,
        offset,
        time,
        server,
    )
    entry.table, entry.kind, entry.body, entry.body_end = table, kind, data_body, body_end
    entry.first_row, entry.skip_rows, entry.row_count, entry.ordinal = first, skip, count, ordinal
    entry.selected = selected
    return epoch, entry


def read_table(record: bytes) -> TableMap:
    kind, body = _one_record(record, 0)
    if kind != TABLE:
        raise DecodeError("a record of rows names a table where none is", remedy=_REMEDY)
    found = json.loads(body)
    columns = tuple(read_column(fields) for fields in found["columns"])
    wanted = found["wanted"]
    decoder = RowDecoder(bytes(found["types"]), tuple(found["metas"]), columns, wanted)  # type: ignore[no-untyped-call]
    delivered = columns if wanted is None else tuple(columns[i] for i in wanted)
    shown = tuple(column for column in columns if not column.hidden)
    return TableMap(TableSchema(found["schema"], found["table"], shown), delivered, decoder, True)


def read_column(fields: dict[str, Any]) -> ColumnSchema:
    labels = fields.pop("labels")
    return ColumnSchema(**fields, labels=None if labels is None else tuple(labels))


def _statement(body: bytes) -> tuple[int, Entry]:
    found = json.loads(body)
    transaction = _transaction(found["journal"], found["start"], found["server"], found["begun"], found["gtid"])
    entry = Entry(EntryType.ROWDATA, EventType(found["type"]), transaction, b"", found["offset"], found["time"], found["server"])
    entry.sql, entry.first_row, entry.ordinal = found["sql"], found["row"], found["ordinal"]
    entry.statement = Statement(
        found["kind"],
        entry.event_type.name,
        tuple(map(tuple, found["tables"])),
        found["default"],
        renames=tuple((tuple(old), tuple(new)) for old, new in found["renames"]),
        database=found["database"],
    )
    return found["epoch"], entry


def _transaction(journal: str, start: int, server: int, begun: int, gtid: str) -> Transaction:
    transaction = Transaction("", journal, start, server, begun)
    if ":" in gtid:
        source, _, number = gtid.rpartition(":")
        transaction.gtid_source, transaction.gtid_number = source, int(number)
    elif gtid:
        domain, origin, number = gtid.split("-")
        transaction.gtid_source, transaction.gtid_number = (int(domain), int(origin)), int(number)
    return transaction
