"""Logs that are reset, switched, cut or exchanged: a reader gets exactly the rest, or says that it cannot."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest

import canal
from canal.gtid import MysqlGtidSet
from canal.parse.source import dump
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line, Pairing
from tests.support.live import end_of_log, ids_of, purge, reset_log, source, wait_for_row
from tests.support.packets import events_in

OLD, NEW, LATER = range(1001, 1021), range(2001, 2041), range(3001, 3004)


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[Pairing], ThrowawayServer]]:
    """One server for each way to replicate, whose log each test begins anew."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda pairing: stack.enter_context(pairing.server()))


@pytest.fixture
def server(pairing: Pairing, servers: Callable[[Pairing], ThrowawayServer]) -> ThrowawayServer:
    found = servers(pairing)
    name_columns(pairing, found, named=True)
    return found


class Log:
    """A server's log of transactions of one row each, all of one size, and instances that read it with one set of cursors."""

    def __init__(self, server: ThrowawayServer, folder: Path) -> None:
        self.server = server
        self.meta = canal.FileMeta(folder)
        self.alarms: list[str] = []

    def begin(self) -> None:
        """Reset it, not in the second in which it was begun, and make the table with the same statements again."""
        next_second(self.server)
        reset_log(self.server)
        with self.server.connect() as connection, connection.cursor() as cursor:
            for sql in ("SET sql_log_bin = 0", "DROP DATABASE IF EXISTS s", "SET sql_log_bin = 1"):
                cursor.execute(sql)
            cursor.execute("CREATE DATABASE s")
            cursor.execute("CREATE TABLE s.t (id INT PRIMARY KEY, a MEDIUMTEXT) ENGINE=InnoDB")

    def write(self, ids: Sequence[int], logs: int = 1, width: int = 1) -> None:
        """Rows in so many logs, over one connection: nothing else comes between."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            for number, one in enumerate(ids):
                if number and number % -(-len(ids) // logs) == 0:
                    cursor.execute("FLUSH LOGS")
                cursor.execute(f"INSERT INTO s.t VALUES ({one}, REPEAT('x', {width}))")

    def instance(self, **options: Any) -> canal.Instance:
        options.setdefault("source", source(self.server, check_interval=0.5, heartbeat_interval=0.2))
        options.setdefault("start", "earliest")
        options.setdefault("filter", r"s\.t")
        return canal.Instance(
            canal.InstanceConfig(
                destination="continuity",
                meta=self.meta,
                dump_error_threshold=1,
                reconnect_backoff=(0.02, 0.1),
                alarm=lambda destination, text: self.alarms.append(text),
                **options,
            )
        )

    def read(self, last: int, **options: Any) -> list[int]:
        """What comes up to a row, of which the next instance knows that it is done."""
        with self.instance(**options) as instance:
            instance.subscribe()
            return collect(instance, last)

    def await_alarm(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while not any(text in alarm for alarm in self.alarms):
            assert time.monotonic() < deadline, self.alarms
            time.sleep(0.02)


def collect(instance: canal.Instance, last: int, found: list[int] | None = None, client_id: int = 1001) -> list[int]:
    """The rows that a client gets, up to one; ``found`` keeps them where an error ends that."""
    found = [] if found is None else found
    while last not in found:
        message = instance.get(1000, timeout=60, client_id=client_id)
        assert message, found
        found += ids_of(message)
    instance.get(1, timeout=0, client_id=client_id)
    return found


def next_second(server: ThrowawayServer) -> None:
    """Wait until the server's clock shows another second: logs know when they were begun by whole seconds."""
    now = server.query("SELECT UNIX_TIMESTAMP()")
    while server.query("SELECT UNIX_TIMESTAMP()") == now:
        time.sleep(0.02)


def store(meta: canal.meta.MetaManager, cursors: dict[int, canal.Position]) -> None:
    """Cursors that something else wrote."""
    meta.start("continuity")
    for client, position in cursors.items():
        meta.subscribe(client, "")
        meta.update_cursor(client, position)
    meta.stop()


def name_columns(pairing: Pairing, server: ThrowawayServer, named: bool) -> None:
    if pairing.line.can("full_metadata"):
        server.query(f"SET GLOBAL binlog_row_metadata = {'FULL' if named else 'MINIMAL'}")


# -- RESET while nobody reads ------------------------------------------------------------------------------------------


class Away(NamedTuple):
    """What is done while nobody reads: how many logs there were, are then, how wide the rows are."""

    on_lost: str
    named: bool = True
    before: int = 1
    after: int = 1
    width: int = 1


#: The first ones on every line; on the main ones all of them in `make test-all`, every second one in `make test`.
AWAY = [
    Away("fail"),
    Away("earliest", before=2, after=3),
    Away("latest", before=3, after=2),
    Away("earliest"),
    Away("latest"),
    Away("fail", before=2),
    Away("earliest", named=False),
    Away("earliest", named=False, before=2, width=9),
]


def chosen(cases: list[Any], pairing: Pairing, thorough: bool) -> list[Any]:
    if pairing.line.is_main:
        return cases if thorough else cases[pairing.gtid :: 2]
    return cases[:3]


@pytest.mark.every_line
def test_a_log_that_was_reset_while_nobody_read_it(
    pairing: Pairing, server: ThrowawayServer, tmp_path: Path, thorough: bool
) -> None:
    """More transactions than before, of the same size: the old offset and the old GTIDs are in the new log, too."""
    for number, case in enumerate(chosen(AWAY, pairing, thorough)):
        name_columns(pairing, server, case.named)
        log = Log(server, tmp_path / str(number))
        log.begin()
        log.write(OLD, case.before)
        assert log.read(OLD[-1]) == list(OLD)

        log.begin()
        log.write(NEW, case.after, case.width)
        if case.on_lost == "fail":
            with pytest.raises(canal.PositionLostError) as caught:
                log.read(NEW[-1])
            assert caught.value.remedy, case
            continue
        with log.instance(on_lost=case.on_lost) as instance:
            instance.subscribe()
            log.await_alarm("IS LOST")
            log.write(LATER)
            expected = [*NEW, *LATER] if case.on_lost == "earliest" else list(LATER)
            assert collect(instance, LATER[-1]) == expected, case


@pytest.mark.parametrize("on_lost", ["earliest", "latest"])
def test_each_client_gets_all_of_a_log_that_was_begun_anew(server: ThrowawayServer, tmp_path: Path, on_lost: str) -> None:
    """Their cursors differ: to be ahead in the old log is not to be ahead in the new one."""
    clients = {1001: OLD[9], 1002: OLD[-1], 1003: OLD[14]}
    log = Log(server, tmp_path)
    log.begin()
    log.write(OLD)
    with log.instance() as instance:
        for client, last in clients.items():
            instance.subscribe(client_id=client)
            found: list[int] = []
            while last not in found:
                found += ids_of(instance.get(1, timeout=60, client_id=client))
            instance.get(1, timeout=0, client_id=client)
            instance.rollback(client_id=client)

    log.begin()
    log.write(NEW)
    with log.instance(on_lost=on_lost) as instance:
        log.await_alarm("IS LOST")
        log.write(LATER)
        for client in clients:
            expected = [*NEW, *LATER] if on_lost == "earliest" else list(LATER)
            assert collect(instance, LATER[-1], client_id=client) == expected, client
    with log.instance() as instance:
        log.write([4001])
        for client in clients:
            assert collect(instance, 4001, client_id=client) == [4001], client


@pytest.mark.parametrize("on_lost", ["fail", "earliest"])
def test_a_log_that_was_reset_and_purged_while_nobody_read_it(server: ThrowawayServer, tmp_path: Path, on_lost: str) -> None:
    """The old GTIDs are there again, the first of them in logs that are gone."""
    log = Log(server, tmp_path)
    log.begin()
    log.write(OLD)
    assert log.read(OLD[-1]) == list(OLD)

    log.begin()
    log.write(NEW[:10])
    purge(server)
    log.write(NEW[10:])
    if on_lost == "earliest":
        assert log.read(NEW[-1], on_lost=on_lost) == list(NEW[10:])
        return
    with pytest.raises(canal.PositionLostError) as caught:
        log.read(NEW[-1])
    assert caught.value.remedy


# -- RESET under a running dump ----------------------------------------------------------------------------------------


class Running(NamedTuple):
    """A dump waits at the end of one of so many logs; then there come so many rows in so many new ones."""

    on_lost: str
    count: int
    before: int = 1
    after: int = 1
    at_once: bool = True


RUNNING = [
    Running("fail", 60),
    Running("earliest", 60, after=3),
    Running("earliest", 60, before=2, after=3),
    Running("earliest", 60),
    Running("fail", 30),
    Running("earliest", 30),
    Running("earliest", 60, at_once=False),
    Running("fail", 60, after=3),
    Running("fail", 60, before=2),
]


@pytest.mark.every_line
def test_a_log_that_is_reset_while_it_is_read(pairing: Pairing, server: ThrowawayServer, tmp_path: Path, thorough: bool) -> None:
    """Servers end such a dump without a word, or with some error, or go on with the second of the new logs."""
    for number, case in enumerate(chosen(RUNNING, pairing, thorough)):
        log = Log(server, tmp_path / str(number))
        log.begin()
        log.write(OLD, case.before)
        new = range(2001, 2001 + case.count)
        with log.instance(on_lost=case.on_lost) as instance:
            instance.subscribe()
            assert collect(instance, OLD[-1]) == list(OLD)
            next_second(server)
            reset_log(server)
            if case.at_once:
                log.write(new, case.after)
            else:
                for one in new:
                    log.write([one])
            found: list[int] = []
            if case.on_lost == "earliest":
                assert collect(instance, new[-1], found) == list(new), case
                continue
            with pytest.raises(canal.PositionLostError):
                collect(instance, 0, found)
            assert found == list(new[: len(found)]), case  # what did come of it is without a gap


@pytest.mark.every_line
@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("new", [NEW, NEW[: len(OLD) + 2]], ids=["more", "as many"])  # the old one has a schema and a table too
def test_a_log_that_is_reset_and_has_the_same_gtids_in_fewer_bytes(
    server: ThrowawayServer, tmp_path: Path, start: str, new: range
) -> None:
    """Servers wait for it to grow beyond where the old one ended, and leave out the GTIDs that the old one had."""
    log = Log(server, tmp_path)
    log.begin()
    log.write(OLD, width=3000)
    with log.instance(start=start) as instance:
        instance.subscribe()
        if start == "earliest":
            assert collect(instance, OLD[-1]) == list(OLD)
        next_second(server)
        reset_log(server)
        log.write(new)
        found: list[int] = []
        with pytest.raises(canal.PositionLostError):
            collect(instance, 0, found)
        assert found == list(new[: len(found)])


WRITERS = 5


@pytest.mark.every_line
def test_logs_that_rotate_beside_commits(server: ThrowawayServer, tmp_path: Path, thorough: bool) -> None:
    """What the head of a log says of the logs before it is not exact where tables without transactions are written meanwhile."""
    log = Log(server, tmp_path)
    log.begin()
    for number in range(WRITERS):
        server.query(f"CREATE TABLE s.t{number} (id INT PRIMARY KEY) ENGINE={'MyISAM' if number else 'InnoDB'}")
    is_done = threading.Event()
    written = [0] * WRITERS

    def write(number: int) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            while not is_done.is_set():
                cursor.execute(f"INSERT INTO s.t{number} VALUES ({written[number]})")
                written[number] += 1
                if written[number] % 5 == 0:
                    cursor.execute(f"ALTER TABLE s.t{number} COMMENT '{written[number]}'")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    with log.instance(filter=r"s\.t\d", start="latest") as instance:
        instance.subscribe()
        for thread in threads:
            thread.start()
        found: dict[str, list[int]] = {f"t{number}": [] for number in range(WRITERS)}
        try:
            for _ in range(200 if thorough else 60):
                server.query("FLUSH LOGS")
                time.sleep(0.01)
        finally:
            is_done.set()
            for thread in threads:
                thread.join()
        while sum(map(len, found.values())) < sum(written):
            message = instance.get(1000, timeout=60)
            assert message, found
            for entry in message.entries:
                if entry.entry_type is canal.EntryType.ROWDATA:
                    found[entry.header.table] += [row.after["id"] for row in entry.rows]
        assert found == {f"t{number}": list(range(count)) for number, count in enumerate(written)}


BIG = range(1001, 1049)


@pytest.mark.every_line
@pytest.mark.parametrize("on_lost", ["fail", "earliest"])
def test_a_log_that_is_reset_while_a_reader_is_behind(server: ThrowawayServer, tmp_path: Path, on_lost: str) -> None:
    """The server sends the removed log to its end, and goes on with the new log of the name that its ROTATE names."""
    log = Log(server, tmp_path)
    log.begin()
    log.write(BIG[:40], 1, 1_000_000)
    server.query("FLUSH LOGS")
    log.write(BIG[40:], 2, 1_000_000)
    with log.instance(on_lost=on_lost, store_bytes=1 << 20) as instance:
        instance.subscribe()
        found = ids_of(instance.get(1, timeout=60))  # the server cannot send more than what some buffers hold
        next_second(server)
        reset_log(server)
        log.write(NEW, 3)
        if on_lost == "fail":
            with pytest.raises(canal.PositionLostError):
                collect(instance, NEW[-1], found)
            assert found == list(BIG[: len(found)])
            return
        collect(instance, NEW[-1], found)
        assert found[-len(NEW) :] == list(NEW)
        assert found[: -len(NEW)] == list(BIG[: len(found) - len(NEW)])


# -- the end of the log is gone ----------------------------------------------------------------------------------------


@pytest.mark.every_line
@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.needs("plain_files")
def test_a_log_whose_end_was_lost_in_a_crash(pairing: Pairing, tmp_path: Path, is_connected: bool) -> None:
    """sync_binlog=0 and the machine went down: the server goes on in a new log, behind less than the reader has."""
    with pairing.server() as server:
        log = Log(server, tmp_path)
        log.begin()
        log.write(OLD[:10])
        kept = end_of_log(server)
        log.write(OLD[10:])
        with log.instance() as instance:
            instance.subscribe()
            assert collect(instance, OLD[-1]) == list(OLD)
            if is_connected:
                lose_end(server, kept)
                log.write(NEW)
                with pytest.raises(canal.PositionLostError):
                    collect(instance, NEW[-1])
                return
        lose_end(server, kept)
        log.write(NEW)
        with pytest.raises(canal.PositionLostError):
            log.read(NEW[-1])


def lose_end(server: ThrowawayServer, kept: canal.Position) -> None:
    server.kill()
    with open(server.binlog_dir / kept.journal, "r+b") as file:
        file.truncate(kept.offset)
    server.start()
    server.query("DELETE FROM s.t WHERE id > 2000")


# -- GTIDs switched off and on -----------------------------------------------------------------------------------------

ON, OFF = ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"), ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")


def switch(server: ThrowawayServer, modes: Iterable[str]) -> None:
    for mode in modes:
        server.query(f"SET GLOBAL gtid_mode = {mode}")


def read_with_remedy(log: Log, last: int, **options: Any) -> list[int]:
    """What comes up to a row where the mode that an error's remedy names is set, as an operator would."""
    found: list[int] = []
    for _ in range(3):
        try:
            with log.instance(**options) as instance:
                instance.subscribe()
                return collect(instance, last, found)
        except canal.errors.ServerError as error:
            mode = next(mode for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE") if f"= {mode}" in error.remedy)
            log.server.query(f"SET GLOBAL gtid_mode = {mode}")
    raise AssertionError(found)


@pytest.mark.lines("mysql")
@pytest.mark.needs("gtid", "online_gtid_mode")
@pytest.mark.every_line
@pytest.mark.parametrize("rest", [(OFF, ON), (OFF,)], ids=["on again", "off"])
@pytest.mark.parametrize("done", [10, 5], ids=["at the switch", "before it"])
def test_gtids_switched_off_while_nobody_reads(line: Line, tmp_path: Path, rest: tuple[Any, ...], done: int) -> None:
    """Transactions without a GTID between others: a GTID set says nothing of them."""
    with Pairing(line, gtid=True).server() as server:
        log = Log(server, tmp_path)
        log.begin()
        log.write(range(1, done + 1))
        assert log.read(done) == list(range(1, done + 1))
        log.write(range(done + 1, 11))
        for number, modes in enumerate(rest):
            switch(server, modes)
            log.write(range(11 + 5 * number, 16 + 5 * number), 2)

        last = 10 + 5 * len(rest)
        assert read_with_remedy(log, last) == list(range(done + 1, last + 1))


@pytest.mark.lines("mysql")
@pytest.mark.needs("gtid", "online_gtid_mode")
@pytest.mark.every_line
def test_gtids_switched_off_while_a_reader_is_behind(line: Line, tmp_path: Path) -> None:
    with Pairing(line, gtid=True).server() as server:
        log = Log(server, tmp_path)
        log.begin()
        log.write(BIG, 1, 1_000_000)
        found: list[int] = []
        with log.instance(store_bytes=1 << 20) as instance:
            instance.subscribe()
            found += ids_of(instance.get(1, timeout=60))
            for number, modes in enumerate((OFF, ON)):
                switch(server, modes)
                log.write(NEW[20 * number : 20 * number + 20], 2)
            try:
                collect(instance, NEW[-1], found)
            except canal.errors.ServerError as error:
                log.alarms.append(error.remedy)
        if NEW[-1] not in found:
            found += read_with_remedy(log, NEW[-1])
        assert found == [*BIG, *NEW]


@pytest.mark.lines("mysql")
@pytest.mark.needs("gtid", "online_gtid_mode")
@pytest.mark.every_line
@pytest.mark.parametrize("mode", ["ON", "ON_PERMISSIVE"])
def test_gtids_switched_off_behind_a_cursor_of_an_earlier_version(line: Line, tmp_path: Path, mode: str) -> None:
    """It does not say when its journal was begun, but it has journal, offset and server."""
    with Pairing(line, gtid=True).server() as server:
        log = Log(server, tmp_path)
        log.begin()
        log.write(OLD)
        cursor = attrs.evolve(end_of_log(server), server_id=1, timestamp=1)
        switch(server, OFF)
        log.write(NEW[:20], 2)
        switch(server, ON[: ON.index(mode) + 1])
        log.write(NEW[20:], 2)
        store(log.meta, {1001: cursor})
        assert read_with_remedy(log, NEW[-1]) == list(NEW)


@pytest.mark.lines("mysql>=5.6,<5.7")
@pytest.mark.needs("gtid")
@pytest.mark.every_line
def test_gtids_switched_off_by_a_restart(line: Line, tmp_path: Path) -> None:
    """MySQL 5.6 has no modes between, and its transactions without a GTID have no event for that."""
    with Pairing(line, gtid=True).server() as server:
        log = Log(server, tmp_path)
        log.begin()
        log.write(range(1, 11))
        assert log.read(10) == list(range(1, 11))
        usual = server.options
        for number, mode in enumerate(("OFF", "ON")):
            server.restart(*usual, f"--gtid-mode={mode}")
            log.write(range(11 + 5 * number, 16 + 5 * number), 2)
        assert log.read(20) == list(range(11, 21))


# -- canal's own cursors -----------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """An event of a log, as canal's cursors name it, and the last row that is done with it."""

    name: str
    row: int
    cursor: canal.Position


def events_of(server: ThrowawayServer) -> list[Event]:
    """BEGIN, XID and DDL events of the log that canal may store, each with the row of its transaction; 0 for DDL."""
    found: list[Event] = []
    (path,) = server.binlog_paths()
    at = 4
    for event in events_in(path):
        name = {16: "END"}.get(event[4]) or ("BEGIN" if b"\0BEGIN" in event else "DDL" if event[4] == 2 else "")
        if name:
            ends = sum(one.name == "END" for one in found)
            position = {
                "journalName": path.name,
                "position": at,
                "timestamp": 1000 * int.from_bytes(event[:4], "little"),
                "serverId": int.from_bytes(event[5:9], "little"),
                "included": False,
                "gtid": "",
            }
            row = 0 if name == "DDL" else OLD[ends]
            found.append(Event(name, row, canal.Position.from_canal({"postion": position})))
        at += len(event)
    return found


@pytest.mark.lines("mysql")
@pytest.mark.every_line
@pytest.mark.needs("plain_files", "uncompressed")
def test_several_clients_go_on_from_the_cursors_of_canal(line: Line, tmp_path: Path) -> None:
    """At a BEGIN the transaction comes whole, behind an END or a DDL what follows; for each client, whichever is ahead."""
    with Pairing(line, gtid=False).server() as server:
        log = Log(server, tmp_path / "log")
        log.begin()
        log.write(OLD)
        events = events_of(server)
        ddl = [event for event in events if event.name == "DDL"][-1]
        begins, ends = ([one for one in events if one.name == name] for name in ("BEGIN", "END"))
        log.write(NEW)
        chosen = [
            (begins[4], begins[9]),
            (ends[4], begins[9]),
            (begins[4], ends[9]),
            (ddl, begins[9]),
            (ends[4], ends[4]),
            (begins[4], ends[4]),
            (begins[5], ends[4]),
            (ddl, ends[0], begins[1]),
        ]
        for number, some in enumerate(chosen):
            log.meta = canal.FileMeta(tmp_path / str(number))
            cursors = dict(enumerate(some, 1001))
            store(log.meta, {client: event.cursor for client, event in cursors.items()})
            with log.instance() as instance:
                for client, event in cursors.items():
                    rest = [one for one in OLD if one > event.row or one == event.row and event.name == "BEGIN"]
                    assert collect(instance, NEW[-1], client_id=client) == [*rest, *NEW], (number, client, event)


@pytest.mark.parametrize("on_lost", ["fail", "earliest"])
@pytest.mark.needs("plain_files")
def test_a_cursor_of_canal_is_none_of_another_server(pairing: Pairing, tmp_path: Path, on_lost: str) -> None:
    """It names an address and no server; in the log of another one an event may begin at the same offset."""
    with pairing.server(server_id=1) as first, pairing.server(server_id=2) as second:
        logs = [Log(server, tmp_path / str(server.server_id)) for server in (first, second)]
        for log, rows in zip(logs, (OLD, NEW)):
            log.begin()
            log.write(rows)
        for number, event in enumerate(one for one in events_of(first)[10:14]):
            logs[1].meta = canal.FileMeta(tmp_path / f"{number}")
            logs[1].alarms.clear()
            store(logs[1].meta, {1001: event.cursor})
            if on_lost == "earliest":
                assert logs[1].read(NEW[-1], on_lost=on_lost) == list(NEW), event
                continue
            with pytest.raises(canal.PositionLostError) as caught:
                logs[1].read(NEW[-1])
            assert caught.value.remedy


# -- another server ----------------------------------------------------------------------------------------------------


@pytest.mark.lines("mysql")
@pytest.mark.every_line
def test_no_client_gets_rows_again_that_it_has_acked_on_the_source(line: Line, tmp_path: Path) -> None:
    """Without GTIDs the one that is behind decides where reading begins in the log of the replica; the other was ahead."""
    with Pairing(line, gtid=False).pair() as (first, second):
        log = Log(first, tmp_path)
        second.stop_replication()
        log.begin()
        second.replicate(first, gtid=False)
        log.write(OLD)
        clients = {1001: OLD[4], 1002: OLD[14]}
        with log.instance() as instance:
            for client, last in clients.items():
                instance.subscribe(client_id=client)
                found: list[int] = []
                while last not in found:
                    found += ids_of(instance.get(1, timeout=60, client_id=client))
                instance.get(1, timeout=0, client_id=client)
                instance.rollback(client_id=client)
        wait_for_row(second, f"SELECT COUNT(*) = {len(OLD)} FROM s.t")
        second.stop_replication()
        log.server = second
        log.write(NEW)
        with log.instance() as instance:
            for client, last in clients.items():
                expected = [*(one for one in OLD if one > last), *NEW]
                assert collect(instance, NEW[-1], client_id=client) == expected, client


# -- servers that do not do what they are asked ------------------------------------------------------------------------


@pytest.mark.needs("gtid")
def test_a_server_that_sends_what_it_was_to_leave_out(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known to be done: nothing of it is delivered again, and an alarm says what the server does."""
    with line.server() as server:
        log = Log(server, tmp_path)
        log.begin()
        log.write(OLD)
        start = canal.Position(gtid=end_of_log(server).gtid)
        log.write(NEW)
        monkeypatch.setattr(dump, "_encode_gtids", lambda position: MysqlGtidSet().encode())
        monkeypatch.setattr(dump, "known_start", lambda position, identity, state: ("", []))
        config = canal.InstanceConfig(
            destination="all",
            source=source(server),
            start=start,
            filter=r"s\.t",
            alarm=lambda destination, text: log.alarms.append(text),
        )
        with canal.Instance(config) as instance:
            instance.subscribe()
            collect(instance, NEW[-1])
        assert any("transactions that are done" in text for text in log.alarms), log.alarms


@pytest.mark.lines("mysql>=8.4", "mariadb>=10.3")
@pytest.mark.needs("gtid")
def test_a_commit_that_waits_for_a_replica_is_not_lost(line: Line, tmp_path: Path) -> None:
    """Where replication is semi-synchronous a server sends it before it counts as executed."""
    with line.server() as server:
        server.query("CREATE DATABASE s")
        server.query("CREATE TABLE s.t (id INT PRIMARY KEY)")
        variable = "rpl_semi_sync_master" if line.kind == "mariadb" else "rpl_semi_sync_source"
        if line.kind == "mysql":
            server.query("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
        else:
            server.query(f"SET GLOBAL {variable}_wait_point = 'AFTER_SYNC'")
        server.query(f"SET GLOBAL {variable}_timeout = 600000")
        server.query(f"SET GLOBAL {variable}_enabled = 1")
        writer = threading.Thread(target=server.query, args=("INSERT INTO s.t VALUES (1)",))
        config = canal.InstanceConfig(
            destination="waiting",
            source=source(server, check_interval=0.2, heartbeat_interval=0.1),
            start="latest",
            filter=r"s\.t",
            meta=canal.FileMeta(tmp_path),
        )
        with canal.Instance(config) as instance:
            instance.subscribe()
            writer.start()
            assert ids_of(instance.get(10, timeout=60)) == [1]
            assert not instance.get(10, timeout=2)
        with canal.Instance(config) as instance:
            instance.subscribe()
            assert not instance.get(10, timeout=2)
            assert writer.is_alive()
            server.query(f"SET GLOBAL {variable}_enabled = 0")
            writer.join(60)
            server.query("INSERT INTO s.t VALUES (2)")
            assert ids_of(instance.get(10, timeout=60)) == [2]
