"""The one dump of a connection: from where it is asked for, and what the server has to end first."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Final

import attrs

from canal.binlog import event_layout as layout
from canal.errors import LostReason, PositionLostError, StateError
from canal.parse.source import _pymysql
from canal.parse.source.login import Login
from canal.parse.source.logs import ServerLogs
from canal.parse.source.packets import (
    COM_BINLOG_DUMP,
    COM_BINLOG_DUMP_GTID,
    MAX_DUMP_OFFSET,
    NON_BLOCK,
    SEND_ANNOTATE_ROWS,
    dump_gtid_packet,
    dump_packet,
)
from canal.parse.source.proofs import Proofs, known_start
from canal.parse.source.server import ServerOptions, Thread
from canal.parse.source.server_errors import query_error
from canal.parse.source.session import run
from canal.parse.source.stream import DumpStream
from canal.position import Position

log = logging.getLogger("canal.parse")

#: What the server says that a connection does which sends a dump; MariaDB says so of one that it wants to end, too.
_DUMPING: Final = ("Binlog Dump", "Killed")


class Dump:
    """Asks for a dump, once, and has its stream."""

    def __init__(self, source: ServerOptions, server_id: int, login: Login, logs: ServerLogs, proofs: Proofs) -> None:
        self._source = source
        self._server_id = server_id
        self._login = login
        self._logs = logs
        self._proofs = proofs
        self.stream: DumpStream | None = None
        #: The connection that streams, as the server sees it.
        self.thread: Thread | None = None
        self.by_offset = False
        #: What an operator should know about the position from which it streams.
        self.warnings: list[str] = []
        #: (domain, server id, number): transactions up to these are done, but the source may send them (MariaDB).
        self.known: list[tuple[int, int, int]] = []

    def begin(self, position: Position, *, non_block: bool = False) -> DumpStream:
        """Stream from a position on, as ``Connection.dump`` does; with ``non_block`` up to the present end of the log."""
        if self.stream is not None:
            raise StateError("this connection streams already")
        with self._login.using:
            return self._begin(position, NON_BLOCK if non_block else 0)

    def _begin(self, position: Position, flags: int) -> DumpStream:
        login = self._login.connection
        if login is None or self._login.is_closed():
            raise self._login.closed()
        server = self._login.server
        try:
            self._end_left(login)
            self.by_offset = dumps_by_offset(position, server.has_gtids)
            if self.by_offset:
                self._dump_file(login, position, flags)
            else:
                self._dump_gtid(login, position, flags)
            sock, ahead = self._login.take_over()
        except (_pymysql.DriverError, OSError) as error:
            raise query_error(error, self._source, "start the dump") from error
        beats = server.has("heartbeats")
        stream = self.stream = DumpStream(sock, ahead, self._source, self._server_id, position, beats=beats)
        if self._login.is_closed():  # while the dump was begun
            stream.close()
        return stream

    def _end_left(self, login: Any) -> None:
        """End the dumps that we have closed and that the server goes on with, because something on the way keeps its side.

        They block in a write for as long as net_write_timeout says, and MariaDB from 10.6 on begins no dump with the same
        server_id before they end.
        """
        threads = self._threads(run(login, "SHOW PROCESSLIST"))
        (own,) = run(login, "SELECT CONNECTION_ID()")[0]
        self.thread = next((thread for thread in threads if thread.number == own), None)
        for thread in [one for one in list(self._source.left_dumps) if one.identity == self._login.server.identity]:
            with contextlib.suppress(ValueError):  # another connection of the source has taken it
                self._source.left_dumps.remove(thread)
            if threads.get(thread, "").startswith(_DUMPING):
                log.info("ending %s on %s, a dump that we have closed", thread, self._source.address)
                with contextlib.suppress(_pymysql.DriverError):  # it has ended by itself
                    run(login, f"KILL {thread.number}")

    def _threads(self, rows: list[tuple[Any, ...]]) -> dict[Thread, str]:
        """What each connection does, by the answer to SHOW PROCESSLIST."""
        return {Thread(self._login.server.identity, int(row[0]), str(row[1]), str(row[2])): str(row[4]) for row in rows}

    def held_up_by(self) -> str:
        """Which dumps the server has to end before it begins ours; "" where it has begun, or it is something else."""
        own, stream = self.thread, self.stream
        if own is None or stream is None or stream.has_begun or not self._login.server.is_mariadb:
            return ""
        rows = self._logs.rows("SHOW PROCESSLIST", doing="ask what holds up the dump")
        if not any(row[0] == own.number and row[4].startswith(_DUMPING) and row[6] == "starting" for row in rows):
            return ""
        others = [str(thread) for thread, doing in self._threads(rows).items() if doing == "Killed"]
        return (
            f"{self._source.address} has not begun our dump: it waits for the end of another one with our server id "
            f"{self._server_id}, which does not take what it is sent: {' or '.join(others) or 'of another user'}. "
            "Give each reader a server_id of its own; if nobody reads there any more, KILL that connection on the server."
        )

    def _dump_gtid(self, login: Any, position: Position, flags: int) -> None:
        if self._login.server.is_mariadb:
            state = str(run(login, "SELECT @@global.gtid_binlog_state")[0][0] or "")
            start, self.known = known_start(position, self._login.server.identity, state)
            for domain, server, number in self.known:
                self.warnings.append(
                    f"{self._source.address} does not have the transactions of domain {domain} by server {server} up to "
                    f"{number}; if they never come to it, what was delivered of them is not in its tables, and what other "
                    "servers of the domain did behind its last one of that server may come again"
                )
            run(login, "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0", (start,))
            _pymysql.command(login, COM_BINLOG_DUMP, dump_packet(layout.FIRST, flags | SEND_ANNOTATE_ROWS, self._server_id, ""))
        else:
            self.warnings += self._proofs.check_executed(login, position)
            # Only the set: with a file as well the server would skip to that file (and past what is before it).
            encoded = _encode_gtids(position)
            _pymysql.command(login, COM_BINLOG_DUMP_GTID, dump_gtid_packet(flags, self._server_id, encoded))

    def _dump_file(self, login: Any, position: Position, flags: int) -> None:
        if not position.journal:
            raise PositionLostError(
                f"{self._source.address} has no GTIDs and the position names no journal",
                reason=LostReason.UNREACHABLE,
                position=position,
                remedy=self._logs.or_gtids("Start from a journal and an offset"),
            )
        self._logs.check_source(position)
        if position.gtid and self._login.server.has_gtids and not self._login.server.is_mariadb:
            self.warnings += self._proofs.check_executed(login, position)
        elif position.gtid and self._login.server.has_gtids:
            self._proofs.check_state(position, str(run(login, "SELECT @@global.gtid_binlog_state")[0][0] or ""))
        if position.offset > MAX_DUMP_OFFSET:
            position = self._behind_large(position)
        if self._login.server.is_mariadb:
            flags |= SEND_ANNOTATE_ROWS  # without them offsets have holes where the server leaves them out
        _pymysql.command(
            login, COM_BINLOG_DUMP, dump_packet(max(position.offset, layout.FIRST), flags, self._server_id, position.journal)
        )

    def _behind_large(self, position: Position) -> Position:
        """The start of the next log, where only the ROTATE stands between: the protocol's offset has 32 bits, and a log
        beyond them ends with the transaction that made it so large."""
        logs = self._logs.listed()
        for (name, size), (following, _) in zip(logs, logs[1:]):
            # No transaction is as short as a ROTATE.
            rotate = layout.ROTATE_NAME + layout.CHECKSUM + len(following.encode("utf-8"))
            if name == position.journal and size is not None and 0 <= size - position.offset <= rotate:
                return attrs.evolve(position, journal=following, offset=layout.FIRST, incarnation="")
        raise PositionLostError(
            f"offset {position.offset} of {position.journal} does not fit into the protocol's 32 bits",
            position=position,
            remedy="Resume by GTID set. At the end of that log: FLUSH BINARY LOGS on the server, and start again.",
        )

    def close(self) -> None:
        """End the stream; the source remembers a dump of which the server may not know it."""
        stream, thread = self.stream, self.thread
        if stream is not None:
            stream.close()
            if thread is not None and ":" in thread.host:  # else nothing tells it from a later one with its number
                self._source.left_dumps.append(thread)


def dumps_by_offset(position: Position, has_gtids: bool) -> bool:
    """Whether a dump begins at the position's journal and offset, not behind its GTID set."""
    return bool(position.incarnation or not (position.gtid and has_gtids))


def _encode_gtids(position: Position) -> bytes:
    encode: Any = position.gtid_set.encode  # type: ignore[union-attr]
    return bytes(encode())
