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
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Literal, Self

from canal.binlog.event_types import FL_COMPLETED_XA, FL_PREPARED_XA, ROTATE, STOP, XA_PREPARE, XID
from canal.errors import StateError, UsageError
from canal.status import SourceEnd
from canal.testing._binlog import BinlogState
from canal.testing._columns import parse_columns
from canal.testing._connection import FakeConnection
from canal.testing._encode import FakeColumn, Row
from canal.testing._faults import Corrupt, Cut, Due, ErrorPacket, Fault, Repeat, Stall
from canal.testing._log import SUPPRESS_USE, Piece
from canal.testing._serve import FakeServer
from canal.testing._tables import FakeTable, FakeTransaction

__all__ = [
    "Corrupt",
    "Cut",
    "ErrorPacket",
    "FakeBinlog",
    "FakeColumn",
    "FakeConnection",
    "FakeTable",
    "FakeTransaction",
    "Repeat",
    "Stall",
]


def _xid_text(xa: str) -> str:
    return f"X'{xa.encode('utf-8').hex()}',X'',1"


class FakeBinlog(BinlogState):
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

    def __str__(self) -> str:
        return "a FakeBinlog"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- what a test writes --------------------------------------------------------------------------------------------

    def table(self, schema: str, name: str, columns: str | Sequence[FakeColumn]) -> FakeTable:
        """Have a table; nothing is logged. Given again, it replaces the one of that name.

        ``columns`` is the text that CREATE TABLE has in its brackets (types, UNSIGNED, NOT NULL, PRIMARY KEY,
        AUTO_INCREMENT, CHARACTER SET, COLLATE, INVISIBLE, key clauses), or a list of :class:`FakeColumn`.
        """
        with self.log.changed:
            made = FakeTable(self, schema, name, self.columns_of(columns))
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
        made = FakeTransaction(self.log, end, gtid, xa, server_id)
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
                table.id = self.next_table_id()
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
                table.id = self.next_table_id()
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
            self._faults.append(Due(after_events, fault))
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
        return FakeServer(self, host, port, user, password)

    def _current(self) -> FakeTransaction | None:
        return getattr(self._local, "transaction", None)

    def _no_transaction(self, what: str) -> None:
        if self._current() is not None:
            raise StateError(f"{what} cannot stand inside of a transaction")

    def columns_of(self, columns: str | Sequence[FakeColumn]) -> tuple[FakeColumn, ...]:
        return parse_columns(columns, self.charset) if isinstance(columns, str) else tuple(columns)

    def next_table_id(self) -> int:
        self._table_ids += 1
        return self._table_ids

    def add(self, schema: str, pieces: list[Piece]) -> None:
        """Rows of one statement: into this thread's transaction, or one of their own."""
        current = self._current()
        if current is not None:
            current._add(*pieces, schema=schema)
            return
        alone = FakeTransaction(self.log, "XID", None)
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
                    pieces,
                    standalone=False,
                    is_ddl=False,
                    gtid=made._gtid,
                    xa=made._xa,
                    xa_flag=FL_PREPARED_XA,
                    server_id=made._server_id,
                )
                return
            if made._end == "XID":
                pieces.append(Piece(XID, struct.pack("<Q", self.log.next_xid())))
            else:
                pieces.append(self.log.query(made._schema, made._end))
            self.log.append_group(
                pieces,
                standalone=False,
                is_ddl=False,
                gtid=made._gtid,
                transactional=made._end == "XID",
                server_id=made._server_id,
            )
