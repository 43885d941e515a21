"""What the live tests share: an Instance on a throwaway server, and reading it up to the server's present end."""

from __future__ import annotations

import queue
import re
import threading
import time
from typing import Any

import pymysql
import pymysql.cursors
from pymysql.constants import ER

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import SETUP
from tests.support.journal import Change, changes_of
from tests.support.lines import SETUPS
from tests.support.load import Load


def source(server: ThrowawayServer, **options: Any) -> canal.MySQLSource:
    address: dict[str, Any] = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    own = {"get_server_public_key": True}  # nobody else answers on this machine
    return canal.MySQLSource(**address | own | dict(SETUPS[SETUP].source) | options)


def is_since(server: ThrowawayServer, **releases: tuple[int, ...]) -> bool:
    """Whether the server is of the release that is given for its kind, or a later one: ``is_since(server, mysql=(8, 2))``."""
    release = releases.get(server.kind)
    return release is not None and server.installation.release >= release


def logs_generated(server: ThrowawayServer) -> bool:
    """Whether the images of updates and deletes have generated columns; those of MariaDB 11.8.9 do not."""
    return not is_since(server, mariadb=(11, 8, 9))


def reset_log(server: ThrowawayServer) -> None:
    """Remove all logs and begin with the first; RESET MASTER of old."""
    server.query("RESET BINARY LOGS AND GTIDS" if is_since(server, mysql=(8, 2)) else "RESET MASTER")


def replica_word(server: ThrowawayServer) -> str:
    """What the server calls a replica in its statements."""
    return "REPLICA" if is_since(server, mysql=(8, 0, 23)) else "SLAVE"


def replica_status(server: ThrowawayServer) -> dict[str, Any]:
    """What a replica says of itself, under the words of today's MySQL."""
    with server.connect(cursorclass=pymysql.cursors.DictCursor) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW {replica_word(server)} STATUS")
        found = cursor.fetchone() or {}
    return {name.replace("Master", "Source").replace("Slave", "Replica"): value for name, value in found.items()}


def end_of_log(server: ThrowawayServer) -> canal.Position:
    connection = source(server).connect()
    try:
        return connection.resolve("latest")
    finally:
        connection.close()


class Reader:
    """Reads an instance on one thread, acks on another, and keeps every change in the order of delivery."""

    def __init__(self, instance: canal.Instance, batch_size: int = 200) -> None:
        self.instance = instance
        self.batch_size = batch_size
        self.changes: list[Change] = []
        self.entries = 0
        self.failure: BaseException | None = None
        self._to_ack: queue.Queue[int | None] = queue.Queue(8)
        self._target: canal.Position | None = None
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._ack)]

    def __enter__(self) -> Reader:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._target = self._target or canal.Position()
        for thread in self._threads:
            thread.join(60)

    def read_up_to(self, target: canal.Position, timeout: float = 60.0) -> list[Change]:
        """All changes, once everything up to ``target`` has been acked."""
        self._target = target
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        if self.failure is not None:
            raise self.failure
        assert not any(thread.is_alive() for thread in self._threads), (
            f"not at {target} within {timeout} s, but at {self.instance.position()}"
        )
        return self.changes

    def _read(self) -> None:
        try:
            while True:
                target = self._target
                behind = target is not None and is_behind(self.instance, target)  # before the look at what there is
                message = self.instance.get_without_ack(self.batch_size, timeout=0.5)
                if message:
                    self.entries += len(message.entries)
                    self.changes.extend(changes_of(message.entries))
                    self._to_ack.put(message.id)
                elif behind:
                    break
        except BaseException as error:
            self.failure = error
        finally:
            self._to_ack.put(None)

    def _ack(self) -> None:
        try:
            while (id := self._to_ack.get()) is not None:
                self.instance.ack(id)
        except BaseException as error:
            self.failure = error


class Watch:
    """An Instance that begins at the present end of a server's log and is read when asked; keeps its alarms."""

    def __init__(self, server: ThrowawayServer, filter: str, **options: Any) -> None:
        self.server = server
        self.alarms: list[str] = []
        self.instance = canal.Instance(
            canal.InstanceConfig(
                destination="watch",
                source=options.pop("source", None) or source(server),
                filter=filter,
                alarm=lambda destination, text: self.alarms.append(text),
                **options,
            )
        )

    def __enter__(self) -> Watch:
        self.instance.start()
        self.instance.subscribe()
        return self

    def __exit__(self, *_: object) -> None:
        self.instance.stop()

    def run(self, *statements: str) -> None:
        """Statements of one session, one after the other."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)

    def read(self, timeout: float = 60.0) -> list[canal.Entry]:
        """The entries since the last call, up to the end of the server's log as it is now."""
        target = end_of_log(self.server)
        deadline = time.monotonic() + timeout
        entries: list[canal.Entry] = []
        while time.monotonic() < deadline:
            behind = is_behind(self.instance, target)
            message = self.instance.get(1000, timeout=0 if behind else 0.1)
            entries += message.entries
            if behind and not message:
                return entries
        raise AssertionError(f"not at {target} within {timeout} s, but at {self.instance.position()}")


def is_behind(instance: canal.Instance, target: canal.Position) -> bool:
    """Whether the parser has delivered everything up to the target, or nothing since a start there (a dump by GTID).

    The decoder's own position does not tell: it is behind an event that may still be worked on. Nor does a position in the log
    of another server: before a switch journals of the two may be called the same.
    """
    parser: Any = instance.parser
    position = instance.position()
    positions = (parser._run.progress._fed, (position.source, position.journal, position.offset))
    received = (canal.Position(journal=journal, offset=offset, source=source) for source, journal, offset in positions)
    end = canal.Position(journal=target.journal, offset=target.offset, source=target.source)
    return any(position.precedes(end) is False for position in received)


def rows_of(entries: list[canal.Entry]) -> list[tuple[str, str, Any, Any]]:
    """Row changes as (table, type, values before, values after), statements as (table, type, sql, None)."""
    found: list[tuple[str, str, Any, Any]] = []
    for entry in entries:
        if entry.entry_type is canal.EntryType.ROWDATA:
            head = (entry.header.table, entry.event_type.name)
            if entry.sql is not None:
                found.append((*head, entry.sql, None))
            for before, after in entry.rows:
                found.append((*head, before and tuple(before), after and tuple(after)))
    return found


def promote(server: ThrowawayServer) -> None:
    """Let the replica apply what it has received, then follow nobody."""
    deadline = time.monotonic() + 60
    while not has_applied(server):
        assert time.monotonic() < deadline, replica_status(server)
        time.sleep(0.1)
    server.stop_replication()


def has_applied(server: ThrowawayServer) -> bool:
    states = (str(row[6]) for row in server.query("SHOW PROCESSLIST"))
    return any(re.match("(Slave|Replica) has read all", state) for state in states)


def settle(load: Load, survivor: ThrowawayServer) -> int:
    """Mark what the survivor does not have as unknown: it may have been delivered. Gives how many transactions that is."""
    rows = survivor.query(f"SELECT id, txn FROM {load.schema}.load_session")
    last = {int(row[0]): int(row[1]) for row in rows}
    lost = 0
    for one in load.journal.transactions:
        if one.outcome != "rolled back":
            survived = one.number <= last[one.session]
            lost += one.outcome == "committed" and not survived
            one.outcome = "committed" if survived else "unknown"
    return lost


def wait_for_row(server: ThrowawayServer, sql: str) -> None:
    """Until a replica, which may lack the database and the table too, answers with something else than 0."""
    deadline = time.monotonic() + 60
    while not has_row(server, sql):
        assert time.monotonic() < deadline, f"{sql}: {replica_status(server)}"
        time.sleep(0.05)


def has_row(server: ThrowawayServer, sql: str) -> bool:
    try:
        return bool(server.query(sql)[0][0])
    except pymysql.MySQLError as error:
        if error.args[0] not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise
        return False


def wait_for_relay(server: ThrowawayServer, of: ThrowawayServer) -> None:
    """Until the replica has received the whole log of its source.

    One of MariaDB 10.2 was seen to wait for a minute for what its source had logged: it is told to connect again.
    """
    end = end_of_log(of)
    began, is_anew = time.monotonic(), False
    while (at := _received(server)) != (end.journal, end.offset):
        waited = time.monotonic() - began
        assert waited < 60, f"the replica has received the log up to {at}, which ends at {end}"
        if waited > 20 and not is_anew:
            is_anew = True
            for verb in ("STOP", "START"):
                server.query(f"{verb} {replica_word(server)} IO_THREAD")
        time.sleep(0.05)


def _received(server: ThrowawayServer) -> tuple[str, int]:
    status = replica_status(server)
    return status["Source_Log_File"], status["Read_Source_Log_Pos"]


def ids_of(message: canal.Message) -> list[int]:
    rows = (entry.rows for entry in message.entries if entry.entry_type is canal.EntryType.ROWDATA)
    return [row.after["id"] for some in rows for row in some if row.after]


def purge(server: ThrowawayServer) -> None:
    """Leave only a new log. MariaDB keeps those that a crash would need, for a moment."""
    server.query("FLUSH LOGS")
    newest = end_of_log(server).journal
    deadline = time.monotonic() + 60
    while len(server.query("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < deadline, server.query("SHOW BINARY LOGS")
        server.query("PURGE BINARY LOGS TO %s", newest)
        time.sleep(0.05)
