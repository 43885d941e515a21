"""A fake binlog: tables and transactions built in Python, as the genuine binlog bytes of MySQL or MariaDB.

Never talks to a server and never stores a row that it was not given.

    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY, price DECIMAL(10,2), note VARCHAR(40)")
    with fake.transaction():
        orders.insert({"id": 1, "price": Decimal("9.99"), "note": "é"}, {"id": 2})
        orders.update({"id": 1, "price": Decimal("9.99"), "note": "é"}, {"price": Decimal("5.00")})
    orders.delete({"id": 2})                       # outside of a transaction: one of its own

It is a source for an Instance (``InstanceConfig(source=fake, ...)``), a directory of files (``write``) and a server on
loopback (``serve``). All of it may be used from several threads.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
import uuid as uuids
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import attrs

from canal.binlog.event_types import (
    ANNOTATE_ROWS,
    ANONYMOUS_GTID,
    ARTIFICIAL_F,
    BINLOG_CHECKPOINT,
    FL_COMPLETED_XA,
    FL_PREPARED_XA,
    FORMAT_DESCRIPTION,
    HEARTBEAT,
    HEARTBEAT_V2,
    IGNORABLE_F,
    IN_USE_F,
    MARIADB_GTID_LIST,
    PREVIOUS_GTIDS,
    ROTATE,
    ROWS_QUERY,
    STOP,
    TABLE_MAP,
    WRITE_ROWS,
    WRITE_ROWS_COMPRESSED,
    WRITE_ROWS_COMPRESSED_V1,
    WRITE_ROWS_V1,
    XA_PREPARE,
    XID,
)
from canal.errors import ConnectionLostError, LostReason, PositionLostError, ServerError, StateError, UsageError
from canal.gtid import MariadbGtidSet, MysqlGtidSet, parse_gtid_set
from canal.parse.schema.alter import TableState
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.protocol import Description, FullConnection
from canal.position import Position, journal_key
from canal.schema import ColumnSchema, TableSchema, column_from_text
from canal.status import SourceEnd
from canal.testing import _encode
from canal.testing._columns import parse_columns
from canal.testing._encode import FakeColumn, Flavor, Image, Row
from canal.testing._log import COMPRESS_FROM, SUPPRESS_USE, Event, FakeLog, Journal, Piece

if TYPE_CHECKING:
    from canal.testing._serve import FakeServer

__all__ = ["FakeColumn", "Corrupt", "Cut", "ErrorPacket", "FakeBinlog", "FakeTable", "FakeTransaction", "Repeat", "Stall"]


#: What a journal begins with.
_OPENING: Final = frozenset((FORMAT_DESCRIPTION, PREVIOUS_GTIDS, MARIADB_GTID_LIST, BINLOG_CHECKPOINT))
#: Write, update and delete: the first of them in each version, plain and compressed.
_ROWS: Final = {1: (WRITE_ROWS_V1, WRITE_ROWS_COMPRESSED_V1), 2: (WRITE_ROWS, WRITE_ROWS_COMPRESSED)}
_VERSIONS: Final[dict[str, str]] = {"mysql": "8.4.0-fake", "mariadb": "10.11.19-MariaDB-fake"}
#: How many events and bytes one read gives at most.
_READ_EVENTS, _READ_BYTES = 1024, 1 << 20


# -- faults ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Cut:
    """The connection breaks, as by a reset; with ``inside`` half of the next event was sent before (served only)."""

    inside: bool = False


@attrs.frozen
class Corrupt:
    """One byte of the next event is turned over: the one at ``byte``, or in the middle of the event."""

    byte: int | None = None


@attrs.frozen
class Stall:
    """Nothing comes for so many seconds, not even a heartbeat."""

    seconds: float


@attrs.frozen
class Repeat:
    """The last events come once more."""

    events: int = 1


@attrs.frozen
class ErrorPacket:
    """The server ends the stream with an error packet."""

    errno: int = 1236
    text: str = "Could not find first log file name in binary log index file"


Fault = Cut | Corrupt | Stall | Repeat | ErrorPacket


@attrs.define
class _Due:
    """A fault and how many events are delivered before it."""

    remaining: int
    fault: Fault


def _xid_text(xa: str) -> str:
    return f"X'{xa.encode('utf-8').hex()}',X'',1"


Bytes = bytes  # FakeBinlog has a method of that name


class FakeTransaction:
    """One transaction that is being made; the tables' own methods add to it."""

    def __init__(
        self, fake: FakeBinlog, end: str, gtid: str | None, xa: str = "", server_id: int | None = None
    ) -> None:
        self._fake = fake
        self._end = end
        self._gtid = gtid
        self._xa = xa
        self._server_id = server_id
        self._pieces: list[Piece] = []
        self._schema = ""
        self._rolled_back = False

    def query(self, sql: str, schema: str = "") -> None:
        """Add a statement as text, as statement format or SAVEPOINT do."""
        self._add(self._fake.log.query(schema or self._schema, sql))

    def rollback(self) -> None:
        """Leave nothing of the transaction in the log."""
        self._rolled_back = True

    def _add(self, *pieces: Piece, schema: str = "") -> None:
        self._schema = self._schema or schema
        self._pieces.extend(pieces)


class FakeTable:
    """A table of a fake binlog; it knows its columns but keeps no rows, so ``update`` and ``delete`` are given each as it was."""

    def __init__(self, fake: FakeBinlog, schema: str, name: str, columns: Sequence[FakeColumn]) -> None:
        self._fake = fake
        self.schema = schema
        self.name = name
        self.id = fake._next_table_id()
        self._encoder = self._encoder_of(columns)
        self._auto = 0

    @property
    def columns(self) -> tuple[FakeColumn, ...]:
        return self._encoder.columns

    def insert(self, *rows: Row, sql: str | None = None) -> None:
        """Write rows as one statement. A column that is left out is NULL, or the next number of an AUTO_INCREMENT.

        ``sql`` is logged beside the rows, as binlog_rows_query_log_events and MariaDB's annotate events do.
        """
        whole = [self._numbered(self._checked(row)) for row in rows]
        image = self._image([row.keys() for row in whole])
        self._write(0, [image], [self._encoder.image(row, image) for row in whole], sql)

    def update(self, before: Row, after: Row, *more: Row, sql: str | None = None) -> None:
        """Change a row; columns that ``after`` leaves out stay. ``more`` rows are further pairs of a row before and after."""
        pairs = [self._checked(row) for row in (before, after, *more)]
        if len(pairs) % 2:
            raise UsageError(f"update of {self.schema}.{self.name} needs pairs of rows: before, after")
        changes = [(old, {**old, **new}) for old, new in zip(pairs[::2], pairs[1::2], strict=True)]
        first = self._image()
        changed = [[name for name in new if name not in old or old[name] != new[name]] for old, new in changes]
        second = self._image(changed)
        rows = [self._encoder.image(old, first) + self._encoder.image(new, second) for old, new in changes]
        self._write(1, [first, second], rows, sql)

    def delete(self, *rows: Row, sql: str | None = None) -> None:
        """Delete rows as one statement; each is the row as it was."""
        image = self._image()
        self._write(2, [image], [self._encoder.image(self._checked(row), image) for row in rows], sql)

    def alter(self, sql: str, columns: str | Sequence[FakeColumn]) -> None:
        """Log a DDL statement and have these columns from then on, under a new table id."""
        self._fake.ddl(sql, self.schema)
        self._encoder = self._encoder_of(self._fake._columns(columns))
        self.id = self._fake._next_table_id()

    def _encoder_of(self, columns: Sequence[FakeColumn]) -> _encode.TableEncoder:
        fake = self._fake
        return _encode.TableEncoder(fake.flavor, self.schema, self.name, tuple(columns), fake.row_version, fake.is_old)

    def _checked(self, row: Row) -> dict[str, Any]:
        names = {column.name.lower(): column.name for column in self.columns}
        unknown = [name for name in row if name.lower() not in names]
        if unknown:
            raise UsageError(
                f"{self.schema}.{self.name} has no column {unknown[0]!r}; it has {', '.join(names.values())}",
                remedy="alter(sql, columns) of the table gives it others.",
            )
        return {names[name.lower()]: value for name, value in row.items()}

    def _numbered(self, row: Row) -> dict[str, Any]:
        numbered = dict(row)
        for column in self.columns:
            if column.auto_increment:
                self._auto = numbered.setdefault(column.name, self._auto + 1)
        return numbered

    def _image(self, given: Sequence[Iterable[str]] = ()) -> Image:
        """The columns of an image under binlog_row_image; ``given`` are those that each row sets or changes."""
        fake, named = self._fake, set[str]().union(*given)
        no_key = not any(column.key for column in self.columns)
        if fake.row_image == "FULL" or (no_key and (fake.flavor == "mariadb" or not given)):
            return Image((True,) * len(self.columns), fill=fake.flavor == "mysql")
        if fake.row_image == "NOBLOB":
            return Image(tuple(not column.is_blob or column.key > 0 or column.name in named for column in self.columns))
        if given:
            return Image(tuple(column.name in named for column in self.columns))
        return Image(tuple(column.key > 0 for column in self.columns))

    def _write(self, kind: int, images: list[Image], rows: list[bytes], sql: str | None) -> None:
        if not rows:
            raise UsageError(f"a change of {self.schema}.{self.name} needs a row")
        fake = self._fake
        pieces = []
        if sql is not None:
            text = sql.encode("utf-8")
            pieces = [
                Piece(ROWS_QUERY, bytes((min(len(text), 255),)) + text, IGNORABLE_F)
                if fake.flavor == "mysql"
                else Piece(ANNOTATE_ROWS, text)
            ]
        pieces.append(Piece(TABLE_MAP, self._encoder.table_map(self.id, fake.metadata)))
        head = len(self._encoder.rows_head(self.id, 0, images))
        pieces += [
            self._rows_piece(kind, body, head)
            for body in self._encoder.rows_bodies(self.id, images, rows, fake.row_event_max_size)
        ]
        fake._add(self.schema, pieces)

    def _rows_piece(self, kind: int, body: bytes, head: int) -> Piece:
        plain, packed = _ROWS[self._fake.row_version]
        if self._fake.compression != "zlib" or len(body) - head < COMPRESS_FROM:
            return Piece(plain + kind, body)
        return Piece(packed + kind, body[:head] + _encode.compressed(body[head:]))

    def _schema_now(self) -> TableSchema:
        return TableSchema(self.schema, self.name, tuple(self._column_schema(column) for column in self.columns))

    def _column_schema(self, column: FakeColumn) -> ColumnSchema:
        return column_from_text(
            column.name, column.column_type(self._fake.flavor),
            charset=column.charset if column.is_text else "utf8mb4" if column.type == "json" else None,
            nullable=column.nullable, key=column.key > 0, visible=column.visible,
        )  # fmt: skip


def _check_options(flavor: str, metadata: str, row_image: str, compression: str, gtid: bool, version: str) -> None:
    for name, value, known in (
        ("flavor", flavor, ("mysql", "mariadb")),
        ("metadata", metadata, ("FULL", "MINIMAL", "NO_LOG") if flavor == "mariadb" else ("FULL", "MINIMAL")),
        ("row_image", row_image, ("FULL", "MINIMAL", "NOBLOB")),
        ("compression", compression, ("", "zlib") if flavor == "mariadb" else ("", "zstd", "none")),
    ):
        if value not in known:
            raise UsageError(f"{name} is one of {', '.join(map(str, known))}, not {value!r}")
    if flavor == "mariadb" and not gtid:
        raise UsageError("MariaDB always has GTIDs")
    if version and (flavor != "mysql" or not version.startswith("5.1.") or compression):
        raise UsageError("version is one of MySQL 5.1, which compresses nothing")


class FakeBinlog:
    """A server's binary log, made in Python.

    Args:
        flavor: "mysql" (8.4) or "mariadb" (10.11).
        metadata: binlog_row_metadata: "FULL", "MINIMAL", or MariaDB's default "NO_LOG".
        checksum: whether events end in a CRC32.
        row_image: binlog_row_image: "FULL", "MINIMAL" or "NOBLOB".
        gtid: MySQL's gtid_mode; MariaDB always has GTIDs.
        server_id, domain, uuid: who writes; ``domain`` is MariaDB's, ``uuid`` MySQL's.
        charset: of the columns that name none; utf8mb4, or utf8 for a version that has no utf8mb4.
        base_name: the journals are ``<base_name>.000001`` and so on.
        start_offset: the first journal's first transaction begins there, beyond 4 GiB if wanted; what would be before
            it does not exist, "earliest" is there, and such a journal cannot be written as a file.
        row_event_max_size: binlog_row_event_max_size: longer statements are split.
        row_version: of the rows events; 2 for MySQL and 1 for MariaDB where it is not given.
        compression: "zstd" or "none", the compression type of MySQL's binlog_transaction_compression, or "zlib",
            MariaDB's log_bin_compress.
        version: "5.1.73", or another release of MySQL 5.1, to write and to serve as that one does: without GTIDs, checksums,
            metadata and fractions of seconds, whatever the other arguments say.
        clock: seconds since 1970, for the events' times.
    """

    def __init__(
        self,
        flavor: Flavor = "mysql",
        *,
        metadata: Literal["FULL", "MINIMAL", "NO_LOG"] = "FULL",
        checksum: bool = True,
        row_image: Literal["FULL", "MINIMAL", "NOBLOB"] = "FULL",
        gtid: bool = True,
        server_id: int = 1,
        domain: int = 0,
        uuid: str | None = None,
        charset: str = "",
        base_name: str = "binlog",
        start_offset: int = 4,
        row_event_max_size: int = 8192,
        row_version: Literal[1, 2] | None = None,
        compression: Literal["", "zstd", "none", "zlib"] = "",
        version: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        _check_options(flavor, metadata, row_image, compression, gtid, version)
        self.flavor: Flavor = flavor
        self.version: str = version or _VERSIONS[flavor]
        self.is_old = bool(version)
        if self.is_old:
            metadata, checksum, row_image, gtid, row_version, charset = "NO_LOG", False, "FULL", False, 1, charset or "utf8"
        self.metadata = metadata
        self.checksum = checksum
        self.row_image = row_image
        self.gtid = gtid
        self.server_id = server_id
        self.domain = domain
        self.uuid = uuid or str(uuids.UUID(int=0xFA4EFA4E << 96 | 0x4000_8000 << 48 | server_id))
        self.charset = charset or "utf8mb4"
        self.row_event_max_size = row_event_max_size
        self.row_version: int = row_version or (2 if flavor == "mysql" else 1)
        self.compression: str = compression
        self.clock: Callable[[], float] = clock
        self._local = threading.local()
        self._tables: dict[tuple[str, str], FakeTable] = {}
        self._table_ids = 100
        self._beats = 0
        self._faults: deque[_Due] = deque()
        self.log = FakeLog(self, base_name, start_offset)

    def __str__(self) -> str:
        return "a FakeBinlog"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what a test writes --------------------------------------------------------------------------------------------

    def table(self, schema: str, name: str, columns: str | Sequence[FakeColumn]) -> FakeTable:
        """Have a table; nothing is logged. Given again, it replaces the one of that name.

        ``columns`` is the text that CREATE TABLE has in its brackets (types, UNSIGNED, NOT NULL, PRIMARY KEY,
        AUTO_INCREMENT, CHARACTER SET, COLLATE, INVISIBLE, key clauses), or a list of :class:`FakeColumn`.
        """
        with self.log.changed:
            made = FakeTable(self, schema, name, self._columns(columns))
            self._tables[schema, name] = made
            return made

    @contextlib.contextmanager
    def transaction(
        self,
        *,
        end: Literal["XID", "COMMIT", "ROLLBACK", "PREPARE", "ONE PHASE"] = "XID",
        gtid: str | None = None,
        xa: str = "",
        server_id: int | None = None,
    ) -> Iterator[FakeTransaction]:
        """A transaction of this thread: in the log as a whole when the block ends, not at all if the block raises.

        ``end`` is how it ends: "COMMIT" and "ROLLBACK" are what tables without transactions get. ``gtid`` is its GTID,
        such as ``"uuid:5"``, ``"uuid:tag:5"`` or ``"0-1-5"``, where it is not to be the next one, and ``server_id`` that
        of the server where it was made, if a replica logs it (MariaDB's GTIDs tell it). With ``xa``, the name of
        an XA transaction, it ends with XA PREPARE, and ``xa_commit`` or ``xa_rollback`` decide about it; "ONE PHASE" is
        MySQL's commit of it without them. A transaction without a change leaves nothing, as on a server; ``query`` counts
        as one.
        """
        if (end in ("PREPARE", "ONE PHASE")) > bool(xa) or (end == "ONE PHASE" and self.flavor == "mariadb"):
            raise UsageError(f"end={end!r} takes the name of an XA transaction of MySQL")
        if xa and end not in ("XID", "PREPARE", "ONE PHASE"):
            raise UsageError(f"an XA transaction does not end with {end}")
        if self._current() is not None:
            raise StateError("this thread has a transaction open already")
        made = FakeTransaction(self, end, gtid, xa, server_id)
        self._local.transaction = made
        try:
            yield made
        finally:
            self._local.transaction = None
        if made._pieces and not made._rolled_back:
            self._commit(made)

    def xa_commit(self, xa: str, *, gtid: str | None = None) -> None:
        """XA COMMIT of a prepared transaction, which any session may do."""
        self._decide(f"XA COMMIT {_xid_text(xa)}", xa, gtid)

    def xa_rollback(self, xa: str, *, gtid: str | None = None) -> None:
        """XA ROLLBACK of a prepared transaction."""
        self._decide(f"XA ROLLBACK {_xid_text(xa)}", xa, gtid)

    def _decide(self, sql: str, xa: str, gtid: str | None) -> None:
        self._no_transaction("the end of an XA transaction")
        with self.log.changed:
            self.log.append_group(
                [self.log.query("", sql)], standalone=False, is_ddl=False, gtid=gtid, xa=xa, xa_flag=FL_COMPLETED_XA
            )

    def insert(self, table: FakeTable, *rows: Row) -> None:
        """``table.insert(*rows)``."""
        table.insert(*rows)

    def ddl(self, sql: str, schema: str = "", *, gtid: str | None = None) -> None:
        """Log a statement that stands for itself, such as CREATE, ALTER, DROP, TRUNCATE."""
        self._no_transaction("a DDL")
        with self.log.changed:
            piece = self.log.query(schema, sql, ddl_xid=self.log.next_xid())
            self.log.append_group([piece], standalone=True, is_ddl=True, gtid=gtid)

    def query(self, sql: str, schema: str = "") -> None:
        """Log a statement as text: within the open transaction, or alone."""
        current = self._current()
        if current is not None:
            current.query(sql, schema)
            return
        with self.log.changed:
            self.log.append_group([self.log.query(schema, sql)], standalone=True, is_ddl=False, gtid=None)

    def rotate(self) -> str:
        """End the journal as FLUSH BINARY LOGS does; the name of the new one."""
        self._no_transaction("a rotation")
        with self.log.changed:
            name = self.log.journal_name(self.log.journal_number + 1)
            now = self.clock()  # of the one and of the other log: one statement writes both
            self.log.append(ROTATE, struct.pack("<Q", 4) + name.encode("utf-8"), now=now)
            self.log.close_journal()
            self.log.open_journal(created=False, now=now)
            return name

    def restart(self) -> str:
        """End the journal as a shutdown does, with STOP; the name of the new one. Table ids begin anew."""
        return self._start_again(crashed=False)

    def crash(self) -> str:
        """As ``restart``, but the journal just ends: the server was killed between two transactions."""
        return self._start_again(crashed=True)

    def _start_again(self, *, crashed: bool) -> str:
        self._no_transaction("a restart")
        with self.log.changed:
            if not crashed:
                self.log.append(STOP, b"")
            if not crashed or self.flavor == "mysql":
                self.log.close_journal()
            self._table_ids = 100
            for table in self._tables.values():
                table.id = self._next_table_id()
            self.log.open_journal(created=True)
            return self.journal

    def reset(self) -> None:
        """RESET MASTER, RESET BINARY LOGS AND GTIDS: every journal is gone, names and GTIDs begin anew.

        A dump under way ends as a server ends it: at once where its journal has no namesake in the new log; where it has
        one that is being written, when that has grown beyond what was sent; and it goes on behind one that is closed.
        """
        self._no_transaction("a reset")
        with self.log.changed:
            self.log.reset()

    def switch_gtids(self, on: bool) -> None:
        """SET GLOBAL gtid_mode to ON or OFF, which begins a new journal; MySQL's only."""
        if self.flavor != "mysql" or self.is_old:
            raise UsageError("only MySQL from 5.6 on has a gtid_mode")
        self.rotate()
        with self.log.changed:
            self.gtid = on

    def flush_tables(self) -> None:
        """FLUSH TABLES: every table gets a new id."""
        self._no_transaction("FLUSH TABLES")
        with self.log.changed:
            for table in self._tables.values():
                table.id = self._next_table_id()
            self.log.append_group([self.log.query("", "FLUSH TABLES")], standalone=True, is_ddl=False, gtid=None)

    def heartbeat(self) -> None:
        """Send a heartbeat to every open connection that has read all there is; nothing is logged."""
        with self.log.changed:
            self._beats += 1
            self.log.changed.notify_all()

    def purge(self, to: str) -> None:
        """Forget the journals before ``to``."""
        with self.log.changed:
            del self.log.journals[: self.log.journals.index(self.log.find(to))]

    def end(self) -> None:
        """Nothing more will come: connections that have read everything get the end of the log."""
        self.log.end()

    close = end

    # -- faults --------------------------------------------------------------------------------------------------------

    def fail(self, after_events: int, fault: Fault) -> None:
        """Do a fault once, when so many more events of the log were delivered, counted over all connections from now.

        What a journal begins with, artificial events and heartbeats do not count. Several faults come one after the
        other, each counted from the one before. In process a cut is a ConnectionLostError and an error packet a
        ServerError.
        """
        with self.log.changed:
            self._faults.append(_Due(after_events, fault))
            self.log.changed.notify_all()

    def cut_after(self, events: int, *, inside: bool = False) -> None:
        self.fail(events, Cut(inside))

    def corrupt_after(self, events: int, byte: int | None = None) -> None:
        self.fail(events, Corrupt(byte))

    def stall_after(self, events: int, seconds: float) -> None:
        self.fail(events, Stall(seconds))

    def repeat_after(self, events: int, count: int = 1) -> None:
        self.fail(events, Repeat(count))

    def error_after(self, events: int, errno: int, text: str) -> None:
        self.fail(events, ErrorPacket(errno, text))

    # -- what was written ----------------------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """The source's identity, as a connection to the served fake would find it."""
        return self.log.identity

    @property
    def journal(self) -> str:
        """Name of the journal that is being written."""
        return self.log.journals[-1].name

    @property
    def journals(self) -> list[tuple[str, int]]:
        """Names and sizes of the journals that are there, the oldest first."""
        with self.log.changed:
            return [(journal.name, journal.end) for journal in self.log.journals]

    @property
    def position(self) -> Position:
        """The end of the log."""
        with self.log.changed:
            return self.log.position

    @property
    def executed(self) -> str:
        """The GTID set of everything in the log, as text."""
        return str(self.log.executed)

    @property
    def gtid_state(self) -> str:
        """MariaDB's gtid_binlog_state: the last GTID of each domain and server."""
        with self.log.changed:
            return ",".join("-".join(map(str, gtid)) for gtid in self.log.gtid_state())

    @property
    def purged(self) -> str:
        """The GTID set of the journals that were purged."""
        return str(self.log.journals[0].executed)

    def events(self, journal: str | None = None) -> list[Bytes]:
        """The events of one journal, or of all."""
        with self.log.changed:
            chosen = self.log.journals if journal is None else [self.log.find(journal)]
            return [event.data for one in chosen for event in one.events]

    def bytes(self, journal: str | None = None) -> Bytes:
        """A journal as a file has it, with the magic number; the one being written if none is named."""
        with self.log.changed:
            chosen = self.log.find(journal or self.journal)
            if chosen.first != 4:
                raise UsageError(f"{chosen.name} begins at offset {chosen.first}, which no file can")
            head, *rest = (event.data for event in chosen.events)
            head = head[:17] + bytes((head[17] | IN_USE_F * chosen.in_use,)) + head[18:]
            return b"\xfebin" + head + b"".join(rest)

    def write(self, directory: str | Path) -> list[Path]:
        """Write the journals and their index into a directory; the paths of the journals."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        with self.log.changed:
            paths = [folder / name for name, _ in self.journals]
            for path in paths:
                path.write_bytes(self.bytes(path.name))
            (folder / f"{self.log.base_name}.index").write_text("".join(f"./{path.name}\n" for path in paths))
        return paths

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        """A table's columns as of now."""
        with self.log.changed:
            found = self._tables.get((schema, table))
            return found._schema_now() if found else None

    def table_names(self) -> list[tuple[str, str]]:
        """Schema and name of every table, as of now."""
        with self.log.changed:
            return list(self._tables)

    # -- as a source ---------------------------------------------------------------------------------------------------

    def connect(self, server_id_hint: int | None = None) -> FakeConnection:
        """A connection of :class:`canal.parse.Source`, within this process."""
        return FakeConnection(self)

    def read_end(self, timeout: float) -> SourceEnd:
        """The journals with their sizes, and the GTIDs in them."""
        with self.log.changed:
            return SourceEnd(tuple(self.journals), self.executed)

    def serve(self, host: str = "127.0.0.1", port: int = 0, *, user: str = "", password: str = "") -> FakeServer:
        """A server on loopback that speaks the replication protocol; a context manager with ``.host`` and ``.port``.

        Any name and password are accepted, unless a user is given: then only that one with its password.
        """
        from canal.testing._serve import FakeServer

        return FakeServer(self, host, port, user, password)

    def resolve(self, start: str | Position) -> Position:
        """The concrete position that ``start`` means now; see :class:`canal.parse.Connection`."""
        with self.log.changed:
            return self.log.resolve(start)

    def _current(self) -> FakeTransaction | None:
        return getattr(self._local, "transaction", None)

    def _no_transaction(self, what: str) -> None:
        if self._current() is not None:
            raise StateError(f"{what} cannot stand inside of a transaction")

    def _columns(self, columns: str | Sequence[FakeColumn]) -> tuple[FakeColumn, ...]:
        return parse_columns(columns, self.charset) if isinstance(columns, str) else tuple(columns)

    def _next_table_id(self) -> int:
        self._table_ids += 1
        return self._table_ids

    def _add(self, schema: str, pieces: list[Piece]) -> None:
        """Rows of one statement: into this thread's transaction, or one of their own."""
        current = self._current()
        if current is not None:
            current._add(*pieces, schema=schema)
            return
        alone = FakeTransaction(self, "XID", None)
        alone._add(*pieces, schema=schema)
        self._commit(alone)

    def _commit(self, made: FakeTransaction) -> None:
        with self.log.changed:
            pieces = list(made._pieces)
            if self.flavor == "mysql":
                begin = f"XA START {_xid_text(made._xa)}" if made._xa else "BEGIN"
                pieces.insert(0, self.log.query(made._schema, begin, flags=SUPPRESS_USE))
            if made._xa:
                xid = made._xa.encode("utf-8")
                pieces.append(self.log.query(made._schema, f"XA END {_xid_text(made._xa)}"))
                pieces.append(Piece(XA_PREPARE, struct.pack("<BIII", made._end == "ONE PHASE", 1, len(xid), 0) + xid))
                self.log.append_group(
                    pieces, standalone=False, is_ddl=False, gtid=made._gtid, xa=made._xa, xa_flag=FL_PREPARED_XA,
                    server_id=made._server_id,
                )  # fmt: skip
                return
            if made._end == "XID":
                pieces.append(Piece(XID, struct.pack("<Q", self.log.next_xid())))
            else:
                pieces.append(self.log.query(made._schema, made._end))
            self.log.append_group(
                pieces, standalone=False, is_ddl=False, gtid=made._gtid, transactional=made._end == "XID",
                server_id=made._server_id,
            )  # fmt: skip

# -- reading -----------------------------------------------------------------------------------------------------------


class Feed:
    """What one dump sends, in order: the opening events, the log, heartbeats, and the faults that are due.

    ``checksum`` is whether events that are not in the log have one; ``period`` the seconds between heartbeats.
    """

    def __init__(
        self,
        fake: FakeBinlog,
        position: Position,
        *,
        checksum: bool = True,
        period: float | None = None,
        newer_heartbeat: bool = False,
    ) -> None:
        self._fake = fake
        self._checksum = fake.checksum and checksum
        self._period = period
        self._newer_heartbeat = newer_heartbeat
        self._ready: deque[bytes] = deque()
        self._recent: deque[bytes] = deque(maxlen=64)
        self._stalled_until = 0.0
        self._sent_at = time.monotonic()
        self._skipped = 0
        self.cut_inside: bytes = b""
        self.closed = False
        with fake.log.changed:
            number, self._event, self._done = fake.log.locate(position)
            self._beats = fake._beats
            self._journal = fake.log.journals[number]
            # A MySQL that leaves out the first transaction of a dump leaves all times of creation out of it.
            first = next((event for event in self._journal.events if event.gtid is not None), None)
            self._leaves_out_creation = fake.flavor == "mysql" and first is not None and self._is_done(first)
            self._open(self._event)

    def take(self, timeout: float) -> list[bytes] | None:
        """The next events: [] when there were none in time, None at the end of the log."""
        fake, deadline = self._fake, time.monotonic() + timeout
        with fake.log.changed:
            while True:
                if self.closed:
                    raise ConnectionLostError("the connection to the fake binlog was closed")
                now = time.monotonic()
                if now >= self._stalled_until:
                    events = self._collect()
                    if events:
                        self._sent_at = now
                        return events
                    if self._at_end() and fake.log.ended:
                        return None
                if now >= deadline:
                    return []
                wake = self._stalled_until if now < self._stalled_until else self._heartbeat_at()
                fake.log.changed.wait(max(min(wake, deadline) - now, 0.0001))

    def close(self) -> None:
        with self._fake.log.changed:
            self.closed = True
            self._fake.log.changed.notify_all()

    def _heartbeat_at(self) -> float:
        return self._sent_at + self._period if self._period else float("inf")

    def _collect(self) -> list[bytes]:
        events: list[bytes] = []
        size = 0
        while len(events) < _READ_EVENTS and size < _READ_BYTES and time.monotonic() >= self._stalled_until:
            self._repeat()
            if self._ready:
                events.append(self._ready.popleft())
            elif self._meets_fault(events):
                break
            else:
                data = self._next_logged()
                if data is None:
                    break
                events.append(data)
            size += len(events[-1])
        if not events and self._at_end() and self._stalled_until <= time.monotonic():
            events = self._heartbeats()
        return events

    def _due(self) -> Fault | None:
        """The fault whose time has come."""
        faults = self._fake._faults
        return faults[0].fault if faults and faults[0].remaining <= 0 else None

    def _repeat(self) -> None:
        fault = self._due()
        if isinstance(fault, Repeat) and self._recent:
            self._fake._faults.popleft()
            self._ready.extend(list(self._recent)[-fault.events :])

    def _meets_fault(self, events: list[bytes]) -> bool:
        """Whether a fault ends this read."""
        fault = self._due()
        if fault is None or isinstance(fault, (Corrupt, Repeat)):  # those are done to events
            return False
        if events:
            return True  # hand over what came before it
        self._fake._faults.popleft()
        if isinstance(fault, Stall):
            self._stalled_until = time.monotonic() + fault.seconds
            return True
        if isinstance(fault, ErrorPacket):
            raise _server_error(fault)
        if fault.inside:
            self.cut_inside = self._next_logged() or b""
        raise ConnectionLostError("the connection to the fake binlog was cut, as ordered")

    def _next_logged(self) -> bytes | None:
        """The next event of the log that this dump is to see."""
        while True:
            if self._event >= len(self._journal.events):
                if not self._next_journal():
                    return None
                return self._ready.popleft()
            event = self._journal.events[self._event]
            self._event += 1
            if isinstance(self._done, MysqlGtidSet) and event.data[4] == ANONYMOUS_GTID:
                text = f"Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file {self._journal.name}"
                raise _server_error(ErrorPacket(1236, f"{text}, position {event.offset}."))
            if self._is_done(event):
                self._skipped = event.end
                continue
            if self._skipped and event.gtid is not None:
                # A server tells how far it has skipped before it goes on.
                self._ready.append(self._skip_mark())
                self._skipped = 0
                self._event -= 1
                return self._ready.popleft()
            if event.data[4] == FORMAT_DESCRIPTION and self._leaves_out_creation:
                return _encode.without_creation(event.data, checksum=self._fake.checksum)
            return self._delivered(event.data)

    def _delivered(self, data: bytes) -> bytes:
        if data[4] in _OPENING:
            return data
        faults = self._fake._faults
        fault = self._due()
        if isinstance(fault, Corrupt):
            faults.popleft()
            at = len(data) // 2 if fault.byte is None else fault.byte % len(data)
            data = data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]
        elif faults and fault is None:
            faults[0].remaining -= 1
        self._recent.append(data)
        return data

    def _is_done(self, event: Event) -> bool:
        if self._done is None or event.gtid is None:
            return False
        contains: Callable[..., bool] = self._done.contains
        return contains(*event.gtid)

    def _next_journal(self) -> bool:
        """Go on with the journal that the index has behind the present one's name, as a server does: after a reset that
        name may be one of the new log."""
        journals = self._fake.log.journals
        index = next((number for number, one in enumerate(journals) if one.name == self._journal.name), None)
        if index is None or self._journal.is_gone:
            raise _server_error(ErrorPacket(1236, "could not find next log"))
        if index + 1 >= len(journals):
            self._check_is_written(journals[-1])
            return False
        self._journal, self._event, self._skipped = journals[index + 1], 0, 0
        self._open(0)
        return True

    def _check_is_written(self, newest: Journal) -> None:
        """After a reset the file that is read is not the one that is written: a server finds nothing where the other has
        grown beyond it."""
        if newest is self._journal or newest.end <= self._journal.end:
            return
        if self._fake.flavor == "mariadb":
            raise ConnectionLostError("the fake binlog ended the dump", by_source=True)
        raise _server_error(ErrorPacket(1236, "I/O error reading log event"))

    def _open(self, event: int) -> None:
        """The artificial ROTATE, and the FORMAT_DESCRIPTION where the dump does not begin with it."""
        journal = self._journal
        offset = journal.events[event].offset if event < len(journal.events) else journal.end
        body = struct.pack("<Q", offset) + journal.name.encode("utf-8")
        self._ready.append(self._artificial(ROTATE, body, 0, ARTIFICIAL_F))
        if event > 0:
            self._ready.append(_encode.resent(journal.events[0].data, checksum=self._fake.checksum))

    def _artificial(self, kind: int, body: bytes, end: int, flags: int = 0) -> bytes:
        return _encode.event(
            kind, body, timestamp=0, server_id=self._fake.server_id, end=end, flags=flags, checksum=self._checksum
        )

    def _skip_mark(self) -> bytes:
        if self._fake.flavor == "mariadb":
            assert isinstance(self._done, MariadbGtidSet)
            done = [(domain, *last) for domain, last in sorted(self._done.domains.items())]
            return self._artificial(MARIADB_GTID_LIST, FakeLog.gtid_list(done), self._skipped, ARTIFICIAL_F)
        return self._heartbeat(self._skipped)

    def _heartbeat(self, offset: int) -> bytes:
        name = self._journal.name.encode("utf-8")
        if self._newer_heartbeat or (self._fake.flavor == "mysql" and offset >> 32):
            packed = _encode.packed(offset)
            return self._artificial(HEARTBEAT_V2, _encode.tlv(1, name) + _encode.tlv(2, packed) + b"\0", offset)
        return self._artificial(HEARTBEAT, name, offset)

    def _heartbeats(self) -> list[bytes]:
        if self._skipped:
            mark, self._skipped = self._skip_mark(), 0
            return [mark]
        beaten = self._fake._beats - self._beats
        self._beats = self._fake._beats
        if not beaten and time.monotonic() >= self._heartbeat_at():
            beaten = 1
        return [self._heartbeat(self._journal.end)] * beaten

    def _at_end(self) -> bool:
        return (
            not self._ready
            and self._event >= len(self._journal.events)
            and self._journal.name == self._fake.log.journals[-1].name
        )

    @property
    def ended(self) -> bool:
        """Whether all that is in the log now was taken."""
        with self._fake.log.changed:
            return self._at_end() and not self._skipped


def _server_error(fault: ErrorPacket) -> ServerError:
    text = fault.text.lower()
    gone = fault.errno == 1236 and any(word in text for word in ("could not find", "purged", "not in the"))
    return (PositionLostError if gone else ServerError)(fault.text, errno=fault.errno, sqlstate="HY000")


class FakeConnection(FullConnection):
    """A connection to a fake binlog within the process; meets :class:`canal.parse.Connection`."""

    #: The fake compares names as they are.
    lower_case_table_names = 0

    def __init__(self, fake: FakeBinlog) -> None:
        self._fake = fake
        self._feed: Feed | None = None
        self._by_gtid = False
        self._closed = False

    @property
    def identity(self) -> str:
        return self._fake.identity

    @property
    def flavor(self) -> str:
        return self._fake.flavor

    @property
    def has_gtids(self) -> bool:
        return self._fake.gtid

    @property
    def full_metadata(self) -> bool | None:
        return self._fake.metadata == "FULL"

    @property
    def clock_offset(self) -> float:
        """Seconds that the fake's clock is ahead of ours."""
        return self._fake.clock() - time.time()

    def resolve(self, start: str | Position) -> Position:
        return self._fake.resolve(start)

    def dump(self, position: Position) -> None:
        if self._feed is not None:
            raise StateError("this connection streams already")
        if self._closed:
            raise ConnectionLostError("the connection to the fake binlog was closed")
        self._by_gtid = bool(position.gtid and self.has_gtids and not position.incarnation)
        if position.gtid and self.has_gtids and not self._by_gtid:
            self._check_executed(position)
        self._feed = Feed(self._fake, position)

    def _check_executed(self, position: Position) -> None:
        """As of a server: what it has made itself it must have still."""
        wanted = parse_gtid_set(position.gtid, self.flavor)
        with self._fake.log.changed:
            lacking = self._fake.log.lacking(wanted)
        if lacking:
            raise self._lost(lacking, position)

    @staticmethod
    def _lost(lacking: str, position: Position) -> PositionLostError:
        return PositionLostError(
            f"the fake binlog has lost what was read of it: {lacking}", reason=LostReason.DIVERGED, position=position
        )

    def read(self, timeout: float) -> list[bytes] | None:
        if self._feed is None:
            raise StateError("nothing is streamed before dump()")
        return self._feed.take(timeout)

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        return self._fake.table_columns(schema, table)

    def table_names(self) -> list[tuple[str, str]]:
        return self._fake.table_names()

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description | None:
        """One table, as ``table_columns`` tells it."""
        found = self.table_columns(schema, table) if schema else None
        return None if found is None else Description((TableState(found, None),))

    @property
    def can_replay(self) -> bool:
        return True

    def end_of_log(self) -> Position:
        """The present end, with the GTIDs."""
        return self.resolve("latest")

    def journal_names(self) -> list[str]:
        """The journals that are there, the oldest first."""
        return [name for name, _ in self._fake.journals]

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        """The events of one journal from ``offset`` on, its FORMAT_DESCRIPTION first."""
        if journal not in self.journal_names():
            raise PositionLostError(
                f"the fake binlog has no {journal}", position=Position(journal=journal, offset=offset)
            )
        with self._fake.log.changed:
            self._fake.log.locate_offset(Position(journal=journal, offset=offset))
            events = list(self._fake.log.find(journal).events)
        if events and events[0].offset < offset:
            yield _encode.resent(events[0].data, checksum=self._fake.checksum)
        yield from (event.data for event in events if event.offset >= offset)

    def incarnation(self, journal: str) -> str:
        """See ``Position.incarnation``; "" where there is no such journal."""
        with self._fake.log.changed:
            found = [one for one in self._fake.log.journals if one.name == journal]
            return "{}-{}".format(*struct.unpack_from("<IxI", found[0].events[0].data)) if found else ""

    def check_end(self, position: Position) -> bool:
        """As that of a server: whether the log ends where reading stands, which by GTID set, and before a dump, is not looked at.

        Raises:
            PositionLostError: it does not have any more what was read.
        """
        end, is_streaming = self._fake.position, self._feed is not None
        is_by_gtid = self._by_gtid if is_streaming else self.has_gtids
        lacking: object = is_by_gtid and self._fake.log.lacking(parse_gtid_set(position.gtid, self.flavor))
        if not lacking and (is_streaming or not is_by_gtid):
            if (journal_key(end.journal), end.offset) < (journal_key(position.journal), position.offset):
                lacking = f"it ends at {end.journal}:{end.offset}"
            elif is_by_gtid and position.incarnation not in ("", self.incarnation(position.journal)):
                lacking = f"{position.journal} was begun anew"
        if lacking:
            raise self._lost(str(lacking), position)
        return is_by_gtid or (end.journal, end.offset) == (position.journal, position.offset)

    def close(self) -> None:
        self._closed = True
        if self._feed is not None:
            self._feed.close()
