"""How a query's process and the driver that shares an Instance talk: who may, requests and replies, entries as bytes.

Never unpickles and never trusts a length: what comes in is JSON, and records of segments with their checksums.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import struct
from collections.abc import Sequence
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any, Final

import attrs

from canal import errors
from canal.errors import CanalError, DecodeError
from canal.gtid import MariadbGtidSet, parse_gtid_set
from canal.model import Entry, EntryType, EventType, TableMap, Transaction
from canal.parse.source.files import LocalBinlogSource
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.protocol import Source
from canal.position import TAIL_BYTES, Position, PreparedXa
from canal.schema import TableSchema
from canal.spool.segments import HEADER, ROWS, TABLE, SegmentWriter, made_record, read_column, read_rows, read_table, records
from canal.statement import Statement

_SEGMENT_BYTES: Final = 64 << 20
_LOGIN: Final = 60.0  # seconds that either end waits for the other to prove that it knows the key
_HEAD: Final = struct.Struct("<I")

# -- the connection ----------------------------------------------------------------------------------------------------


class Channel:
    """One end of a connection: JSON and bytes, each way. Used by one thread; only ``shut`` may come from another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._socket.setblocking(True)

    def log_in(self, key: bytes, *, first: bool) -> None:
        """Prove to the other end that we know the key, and have it prove the same; one of the ends goes ``first``.

        Raises:
            multiprocessing.AuthenticationError: it does not know the key.
            EOFError, OSError: it has gone, or does not answer.
        """
        self.limit(_LOGIN)
        for step in (deliver_challenge, answer_challenge) if first else (answer_challenge, deliver_challenge):
            step(self._connection, key)

    def limit(self, seconds: float) -> None:
        """From now on wait so long for bytes of the other end, and for it to take ours; 0: for ever."""
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))

    def send(self, head: dict[str, Any], data: bytes = b"") -> None:
        text = json.dumps(head).encode()
        self._connection.send_bytes(b"".join((_HEAD.pack(len(text)), text, data)))

    def receive(self, most: int | None = None) -> tuple[dict[str, Any], bytes]:
        """What the other end sent, of ``most`` bytes at most. Raises EOFError or OSError when that does not come."""
        data = self._connection.recv_bytes(most)
        try:
            end = _HEAD.size + _HEAD.unpack_from(data)[0]
            head = json.loads(data[_HEAD.size : end])
        except (struct.error, ValueError) as error:
            raise OSError("what came is no message of this protocol") from error
        if not isinstance(head, dict):
            raise OSError("what came is no message of this protocol")
        return head, data[end:]

    def shut(self) -> None:
        """Have every wait of both ends fail."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.shut()
        self.drop()

    def drop(self) -> None:
        """Let go of it, in one of two processes that have it."""
        self._socket.close()
        self._connection.close()


# -- values ------------------------------------------------------------------------------------------------------------


def encode_error(error: CanalError) -> dict[str, Any]:
    position = error.position
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "destination": error.destination,
        "remedy": error.remedy,
        "position": None if position is None else str(position),
    }


def decode_error(found: dict[str, Any]) -> CanalError:
    """The error of the other end, of its own class where that is one of the library's."""
    kind = found["kind"]
    made: CanalError = getattr(errors, kind if kind in errors.__all__ and kind != "LostReason" else "CanalError")(
        found["message"], destination=found["destination"], position=found["position"], remedy=found["remedy"]
    )
    return made


def encode_source(source: Any) -> dict[str, Any] | None:
    """What a source is made from, but for its server id, which is one reader's alone; None where it is of another class."""
    if type(source) is MySQLSource:
        return {
            field.name: getattr(source, field.name)
            for field in attrs.fields(MySQLSource)
            if field.init and field.name != "server_id"
        }
    if type(source) is not LocalBinlogSource:
        return None
    schema: Any = source.schema
    is_server = isinstance(schema, MySQLSource)
    if is_server:
        schema = encode_source(schema)
    elif schema is not None and not isinstance(schema, str):
        schema = dict(schema)
    return {
        "path": os.path.abspath(source.path),
        "follow": source.follow,
        "poll_interval": source.poll_interval,
        "schema": schema,
        "is_server": is_server,
        "lower_case_table_names": source.lower_case_table_names,
    }


def decode_source(found: dict[str, Any] | None) -> Source | None:
    if found is None or "path" not in found:
        return None if found is None else MySQLSource(**found)
    schema = decode_source(found["schema"]) if found["is_server"] else found["schema"]
    return LocalBinlogSource(
        found["path"],
        follow=found["follow"],
        schema=schema,  # type: ignore[arg-type]
        poll_interval=found["poll_interval"],
        lower_case_table_names=found["lower_case_table_names"],
    )


def encode_table(table: TableSchema) -> dict[str, Any]:
    columns = [attrs.asdict(column, filter=attrs.filters.exclude("unmasked")) for column in table.columns]
    return {"schema": table.schema, "table": table.table, "columns": columns}


def decode_table(found: dict[str, Any]) -> TableSchema:
    return TableSchema(found["schema"], found["table"], tuple(map(read_column, found["columns"])))


# -- entries -----------------------------------------------------------------------------------------------------------
#
# Records of rows and tables are those of a segment. Beside them: _NEW begins a segment; _BEGIN gives the transaction of what
# follows, _END what is known of it at its end; _STATEMENT is a statement with all that is known of it.

_NEW, _BEGIN, _END, _STATEMENT = 16, 17, 18, 19
_RECORD_HEAD: Final = len(made_record(_NEW, b""))


class EntryWriter:
    """Entries as bytes for one ``EntryReader``, which gets all that this gives, in this order."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._segment: SegmentWriter | None = None
        self._transaction: Transaction | None = None
        self._base: Any = self  # the GTIDs that the reader knows: none yet, not even that there are none

    def write(self, entries: Sequence[Entry]) -> bytes:
        """What makes the same entries; a BEGIN, and what else is neither a change nor the end of a transaction, is left out."""
        if self._segment is None or self._segment.size >= _SEGMENT_BYTES:
            self._segment = SegmentWriter(self._buffer)
            self._taken()  # its header
            self._add(_NEW, None)
        for entry in entries:
            if entry.transaction is not self._transaction:
                self._begin(entry.transaction)
            is_change = entry.entry_type == EntryType.ROWDATA
            if is_change and entry.table is not None:
                self._segment.add(entry, 0)
            elif is_change:
                self._add(_STATEMENT, _statement_fields(entry))
            if entry.is_end:
                self._end(entry, is_change)
        return self._taken()

    def _begin(self, transaction: Transaction) -> None:
        self._transaction = transaction
        base = transaction.gtid_base
        same = base is self._base
        self._base = base
        tail = transaction.position_before(0).tail if transaction.tape is not None else None
        self._add(
            _BEGIN,
            [
                transaction.source,
                transaction.journal,
                transaction.offset,
                transaction.server_id,
                transaction.timestamp,
                transaction.incarnation,
                transaction.gtid_source,
                transaction.gtid_number,
                transaction.gtid_first,
                transaction.gtid_previous,
                False if same else None if base is None else [isinstance(base, MariadbGtidSet), str(base)],
                [attrs.astuple(one) for one in transaction.xa],
                tail,
            ],
        )

    def _end(self, entry: Entry, is_change: bool) -> None:
        transaction = entry.transaction
        xa = None if transaction.xa_end == transaction.xa else [attrs.astuple(one) for one in transaction.xa_end]
        tail = transaction.position_after().tail if transaction.tape is not None else None
        self._add(_END, [is_change, entry.offset, entry.timestamp, entry.first_row, entry.ordinal, transaction.end, xa, tail])

    def _add(self, kind: int, value: Any) -> None:
        self._buffer.write(made_record(kind, json.dumps(value, separators=(",", ":")).encode()))

    def _taken(self) -> bytes:
        data = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return data


def _statement_fields(entry: Entry) -> list[Any]:
    statement = entry.statement
    return [
        int(entry.event_type),
        entry.offset,
        entry.timestamp,
        entry.server_id,
        entry.first_row,
        entry.ordinal,
        entry.sql,
        None if statement is None else attrs.asdict(statement, recurse=False, filter=attrs.filters.exclude("withheld")),
    ]


class EntryReader:
    """Makes entries of what one ``EntryWriter`` wrote."""

    def __init__(self) -> None:
        self._tables: dict[int, TableMap] = {}
        self._size = len(HEADER)  # of the segment so far
        self._transaction: Transaction | None = None
        self._base: Any = None

    def read(self, data: bytes) -> list[Entry]:
        """The entries.

        Raises:
            TruncatedError, ChecksumError, DecodeError: the bytes are not what was written.
        """
        entries: list[Entry] = []
        try:
            for kind, body in records(data):
                if kind == ROWS:
                    entries.append(read_rows(body, self._tables, _no_table, self._transaction)[1])
                elif kind == TABLE:
                    self._tables[self._size] = read_table(made_record(kind, body))
                else:
                    self._control(kind, json.loads(body), entries)
                if kind in (ROWS, TABLE):
                    self._size += _RECORD_HEAD + len(body)
        except CanalError:
            raise
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, struct.error) as error:
            raise DecodeError(f"what the driver sent does not read: {error!r}", remedy="Restart the query.") from error
        return entries

    def _control(self, kind: int, value: Any, entries: list[Entry]) -> None:
        if kind == _NEW:
            self._tables, self._size = {}, len(HEADER)
        elif kind == _BEGIN:
            self._begin(value)
        elif kind == _STATEMENT:
            entries.append(self._statement(*value))
        elif kind == _END:
            self._end(entries, *value)
        else:
            raise DecodeError(f"the driver sent a record of the unknown kind {kind}", remedy="Use one version on both sides.")

    def _begin(self, value: list[Any]) -> None:
        *head, incarnation, gtid_source, number, first, previous, base, xa, tail = value
        if base is not False:
            self._base = None if base is None else parse_gtid_set(base[1], "mariadb" if base[0] else "mysql")
        transaction = self._transaction = Transaction(*head)
        transaction.incarnation = incarnation
        transaction.gtid_source = tuple(gtid_source) if isinstance(gtid_source, list) else gtid_source
        transaction.gtid_number, transaction.gtid_first, transaction.gtid_previous = number, first, previous
        transaction.gtid_base = self._base
        transaction.xa = transaction.xa_end = _prepared(xa)
        if tail is not None:
            transaction.tape = bytearray.fromhex(tail)
            transaction.tape_start = transaction.tape_end = len(transaction.tape)

    def _statement(self, event: int, offset: int, time: int, server: int, row: int, ordinal: int, sql: str, fields: Any) -> Entry:
        entry = Entry(EntryType.ROWDATA, EventType(event), self._transaction, b"", offset, time, server)  # type: ignore[arg-type]
        entry.first_row, entry.ordinal, entry.sql = row, ordinal, sql
        if fields is not None:
            entry.statement = Statement(**{name: _tuples(value) for name, value in fields.items()})
        return entry

    def _end(
        self, entries: list[Entry], is_change: bool, offset: int, time: int, row: int, ordinal: int, end: int, xa: Any, tail: Any
    ) -> None:
        transaction = self._transaction
        assert transaction is not None
        transaction.end = end
        if xa is not None:
            transaction.xa_end = _prepared(xa)
        if tail is not None and transaction.tape is not None:
            after = bytes.fromhex(tail)
            if len(after) < TAIL_BYTES:  # which what was before is the beginning of
                transaction.tape[:] = after
            else:
                transaction.tape += after
            transaction.tape_end = len(transaction.tape)
        if not is_change:
            entries.append(end_of(transaction, offset, time))
            entries[-1].first_row, entries[-1].ordinal = row, ordinal
        entries[-1].is_end = True


def end_of(transaction: Transaction, offset: int, time: int) -> Entry:
    """An END entry."""
    entry = Entry(EntryType.TRANSACTIONEND, EventType.QUERY, transaction, b"", offset, time, transaction.server_id)
    entry.is_end = True
    return entry


def end_at(position: Position) -> Entry:
    """An END entry behind which a position lies: nothing that anybody wants is before it."""
    transaction = Transaction(position.source, position.journal, position.offset, position.server_id, position.timestamp // 1000)
    transaction.end, transaction.incarnation = position.offset, position.incarnation
    transaction.gtid_base = position.gtid_set if position.gtid else None
    transaction.xa = transaction.xa_end = position.xa
    transaction.tape = bytearray.fromhex(position.tail)
    transaction.tape_start = transaction.tape_end = len(transaction.tape)
    return end_of(transaction, position.offset, position.timestamp // 1000)


def _prepared(found: list[Any]) -> tuple[PreparedXa, ...]:
    return tuple(PreparedXa(*one) for one in found)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _no_table(at: int) -> bytes:
    raise DecodeError("the driver sent rows of a table that it has not described", remedy="Restart the query.")
