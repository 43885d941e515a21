"""The dump of a connection: where it starts, and earlier dumps that must end first."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Final

import attrs

from canal.binlog import event_layout as layout
from canal.errors import LostReason, PositionLostError, StateError
from canal.parse.source import _pymysql
from canal.parse.source.log_check import LogCheck, known_start
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
from canal.parse.source.server import ServerOptions, Thread
from canal.parse.source.server_errors import query_error
from canal.parse.source.session import run
from canal.parse.source.stream import DumpStream
from canal.position import Position

log = logging.getLogger("canal.parse")

#: Start of the process list command of a thread that sends a dump. MariaDB shows "Killed" until a killed dump has ended.
_DUMPING: Final = ("Binlog Dump", "Killed")


class Dump:
    """Starts a dump and holds the stream."""

    def __init__(self, source: ServerOptions, server_id: int, login: Login, logs: ServerLogs, log_check: LogCheck) -> None:
        self._source = source
        self._server_id = server_id
        self._login = login
        self._logs = logs
        self._log_check = log_check
        self.stream: DumpStream | None = None
        #: The connection that streams, as the server's process list shows it.
        self.thread: Thread | None = None
        self.by_offset = False
        #: Warnings for the operator about the start position.
        self.warnings: list[str] = []
        #: (domain, server id, number): transactions up to these are done, but the server may send them (MariaDB).
        self.known: list[tuple[int, int, int]] = []

    def begin(self, position: Position, *, non_block: bool = False) -> DumpStream:
        """Stream from a position, as ``Connection.dump`` does. With ``non_block``, end at the present end of the log."""
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
            self._kill_stale_dumps(login)
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
        if self._login.is_closed():  # closed while the dump started
            stream.close()
        return stream

    def _kill_stale_dumps(self, login: Any) -> None:
        """Kill earlier dump threads of ours that the server still runs because a proxy kept the connection open.

        They block in a write for up to net_write_timeout. MariaDB from 10.6 on starts no other dump with the same server_id
        until they end.
        """
        threads = self._threads(run(login, "SHOW PROCESSLIST"))
        (own,) = run(login, "SELECT CONNECTION_ID()")[0]
        self.thread = next((thread for thread in threads if thread.number == own), None)
        for thread in [one for one in list(self._source.stale_dumps) if one.identity == self._login.server.identity]:
            with contextlib.suppress(ValueError):  # another connection of this source removed it
                self._source.stale_dumps.remove(thread)
            if threads.get(thread, "").startswith(_DUMPING):
                log.info("killing %s on %s: an earlier dump of ours that the server still sends", thread, self._source.address)
                with contextlib.suppress(_pymysql.DriverError):  # it has ended
                    run(login, f"KILL {thread.number}")

    def _threads(self, rows: list[tuple[Any, ...]]) -> dict[Thread, str]:
        """Return the command of each thread, from the rows of SHOW PROCESSLIST."""
        return {Thread(self._login.server.identity, int(row[0]), str(row[1]), str(row[2])): str(row[4]) for row in rows}

    def blocked_by(self) -> str:
        """Describe the dumps that the server must end before it begins ours; "" if it has begun or waits for something else."""
        own, stream = self.thread, self.stream
        if own is None or stream is None or stream.has_begun or not self._login.server.is_mariadb:
            return ""
        rows = self._logs.rows("SHOW PROCESSLIST", doing="find out what blocks the dump")
        if not any(row[0] == own.number and row[4].startswith(_DUMPING) and row[6] == "starting" for row in rows):
            return ""
        others = [str(thread) for thread, doing in self._threads(rows).items() if doing == "Killed"]
        return (
            f"{self._source.address} has not begun our dump: it waits until an earlier dump with our server id "
            f"{self._server_id} ends, and that dump's reader does not receive: {' or '.join(others) or 'of another user'}. "
            "Give each reader a different server_id. If that reader is gone, KILL the connection on the server."
        )

    def _dump_gtid(self, login: Any, position: Position, flags: int) -> None:
        if self._login.server.is_mariadb:
            state = str(run(login, "SELECT @@global.gtid_binlog_state")[0][0] or "")
            start, self.known = known_start(position, self._login.server.identity, state)
            for domain, server, number in self.known:
                self.warnings.append(
                    f"{self._source.address} lacks the transactions of domain {domain} by server {server} up to {number}. "
                    "If they never reach it, delivered changes are missing from the server's tables, and transactions of "
                    "other servers in this domain may be delivered again"
                )
            run(login, "SET @slave_connect_state = %s, @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0", (start,))
            _pymysql.command(login, COM_BINLOG_DUMP, dump_packet(layout.FIRST, flags | SEND_ANNOTATE_ROWS, self._server_id, ""))
        else:
            self.warnings += self._log_check.check_executed(login, position)
            # No file name: with a name the server would start at that file and skip everything before it.
            encoded = _encode_gtids(position)
            _pymysql.command(login, COM_BINLOG_DUMP_GTID, dump_gtid_packet(flags, self._server_id, encoded))

    def _dump_file(self, login: Any, position: Position, flags: int) -> None:
        if not position.journal:
            raise PositionLostError(
                f"{self._source.address} has no GTIDs, and the position has no journal",
                reason=LostReason.UNREACHABLE,
                position=position,
                remedy=self._logs.with_gtid_advice("Start from a journal and an offset"),
            )
        self._logs.check_source(position)
        if position.gtid and self._login.server.has_gtids and not self._login.server.is_mariadb:
            self.warnings += self._log_check.check_executed(login, position)
        elif position.gtid and self._login.server.has_gtids:
            self._log_check.check_state(position, str(run(login, "SELECT @@global.gtid_binlog_state")[0][0] or ""))
        if position.offset > MAX_DUMP_OFFSET:
            position = self._after_large_log(position)
        if self._login.server.is_mariadb:
            flags |= SEND_ANNOTATE_ROWS  # if the server left them out, offsets would have gaps
        _pymysql.command(
            login, COM_BINLOG_DUMP, dump_packet(max(position.offset, layout.FIRST), flags, self._server_id, position.journal)
        )

    def _after_large_log(self, position: Position) -> Position:
        """Return the start of the next log if only the ROTATE follows the position.

        The protocol's offset has 32 bits. A log exceeds 4 GiB only by the last transaction.
        """
        logs = self._logs.listed()
        for (name, size), (following, _) in zip(logs, logs[1:]):
            # Every transaction is longer than a ROTATE.
            rotate = layout.ROTATE_NAME + layout.CHECKSUM + len(following.encode("utf-8"))
            if name == position.journal and size is not None and 0 <= size - position.offset <= rotate:
                return attrs.evolve(position, journal=following, offset=layout.FIRST, incarnation="")
        raise PositionLostError(
            f"cannot start at offset {position.offset} of {position.journal}: the protocol's offsets have 32 bits",
            position=position,
            remedy="Resume by GTID set. If this is the end of that log, run FLUSH BINARY LOGS on the server and start again.",
        )

    def close(self) -> None:
        """End the stream. Remember the dump: the server may not notice that it is closed."""
        stream, thread = self.stream, self.thread
        if stream is not None:
            stream.close()
            if thread is not None and ":" in thread.host:  # without a port, a later thread with the same number looks the same
                self._source.stale_dumps.append(thread)


def dumps_by_offset(position: Position, has_gtids: bool) -> bool:
    """Return whether a dump starts at the position's journal and offset rather than after the GTID set."""
    return bool(position.incarnation or not (position.gtid and has_gtids))


def _encode_gtids(position: Position) -> bytes:
    encode: Any = position.gtid_set.encode  # type: ignore[union-attr]
    return bytes(encode())
