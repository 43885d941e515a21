"""Kinds of events that real servers write, one way or another: what comes out is what was done. Traps T12–T20, T35–T48."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.parse.source.file_listing import MAGIC
from canal.testing import MariaDBServer, MySQLServer
from canal.testing.servers import Installation, ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import Watch, end_of_log, is_since, rows_of, source
from tests.support.packets import events_in

FULL = "--binlog-row-metadata=FULL"
ROWS_QUERY = {"mysql": 29, "mariadb": 160}


def sealed(event: bytes) -> bytes:
    return event[:-4] + struct.pack("<I", zlib.crc32(event[:-4]))


def from_files(path: Path, schema: str | None = None, **options: Any) -> list[canal.Entry]:
    binlogs = canal.LocalBinlogSource(path, schema=schema)
    config = canal.InstanceConfig(destination="files", source=binlogs, start="earliest", **options)
    with canal.Instance(config) as instance:
        instance.subscribe()
        return [entry for message in instance.stream() for entry in message.entries]


def inserts(table: str, *values: tuple[Any, ...]) -> list[tuple[str, str, Any, Any]]:
    return [(table, "INSERT", None, row) for row in values]


# -- texts and statements ------------------------------------------------------------------------------------------------


@pytest.mark.lines("mysql>=5.6.2", "mariadb")
def test_the_text_of_a_statement_comes_with_its_rows(server: ThrowawayServer, database: str) -> None:
    on = "SET binlog_rows_query_log_events = 1" if server.kind == "mysql" else "SET binlog_annotate_row_events = 1"
    texts = [f"INSERT INTO {database}.t VALUES (1)", f"UPDATE {database}.t SET id = id + 1 /* é {'x' * 600} */"]
    with Watch(server, rf"{database}\..*") as watch:
        watch.run(
            on,
            f"CREATE TABLE {database}.t (id INT)",
            "BEGIN",
            *texts,
            "COMMIT",
            "SET binlog_rows_query_log_events = 0" if server.kind == "mysql" else "SET binlog_annotate_row_events = 0",
            f"DELETE FROM {database}.t",
        )
        entries = [entry for entry in watch.read() if entry.rows]

    assert [entry.query for entry in entries] == [*texts, None]
    assert rows_of(entries) == [("t", "INSERT", None, (1,)), ("t", "UPDATE", (1,), (2,)), ("t", "DELETE", (2,), None)]


@pytest.mark.lines("mysql<5.6", "mysql>=8.0.21", "mariadb")  # those between refuse it with GTIDs
def test_create_table_select_is_the_statement_and_its_rows_in_one_transaction(server: ThrowawayServer, database: str) -> None:
    """T45."""
    with Watch(server, rf"{database}\..*") as watch:
        watch.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY) SELECT 1 AS id UNION SELECT 2", f"DROP TABLE {database}.t")
        create, *others = [entry for entry in watch.read() if entry.sql is not None or entry.rows]

    assert create.event_type is canal.EventType.CREATE
    assert create.is_ddl
    assert rows_of(others[:-1]) == inserts("t", (1,), (2,))
    assert {entry.transaction for entry in others[:-1]} == {create.transaction}
    assert others[-1].event_type is canal.EventType.ERASE


def test_a_statement_format_change_is_delivered_as_a_statement(server: ThrowawayServer, database: str) -> None:
    """T47."""
    update = f"UPDATE {database}.t SET v = RAND() WHERE id = @id"
    with Watch(server, rf"{database}\..*") as watch:
        watch.run(
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v DOUBLE)",
            f"INSERT INTO {database}.t VALUES (1, 0)",
            "SET SESSION binlog_format = STATEMENT",
            "SET @id = 1",
            update,
        )
        entries = watch.read()

    (statement,) = [entry for entry in entries if entry.sql is not None and not entry.is_ddl]
    assert (statement.sql, statement.event_type.name, statement.header.table) == (update, "UPDATE", "t")
    assert any("its rows are not in the log" in alarm for alarm in watch.alarms)
    assert watch.instance.parser.statement_changes == 1  # type: ignore[attr-defined]
    assert [e.entry_type.name for e in entries if e.transaction is statement.transaction] == [
        "TRANSACTIONBEGIN",
        "ROWDATA",
        "TRANSACTIONEND",
    ]


def test_ddl_without_rows_is_an_event_of_its_own(server: ThrowawayServer, database: str) -> None:
    """T43, T48."""
    statements = [
        f"CREATE TABLE {database}.my_commit (begin INT) PARTITION BY HASH (begin) PARTITIONS 4",
        f"INSERT INTO {database}.my_commit VALUES (1), (2), (3)",  # T19: MySQL's rows name their partition
        f"ALTER TABLE {database}.my_commit TRUNCATE PARTITION p1, p2",
        f"ALTER TABLE {database}.my_commit REBUILD PARTITION p1",
        f"TRUNCATE TABLE {database}.my_commit",
        f"DROP TABLE {database}.my_commit",
        f"DROP DATABASE {database}",
    ]
    with Watch(server, rf"{database}\..*") as watch:
        watch.run(*statements)
        entries = watch.read()

    found = [(entry.event_type.name, entry.header.schema, entry.header.table) for entry in entries if entry.is_ddl]
    table = (database, "my_commit")
    assert found == [
        ("CREATE", *table),
        ("ALTER", *table),
        ("ALTER", *table),
        ("TRUNCATE", *table),
        ("ERASE", *table),
        ("QUERY", database, ""),
    ]
    assert sorted(row[3] for row in rows_of(entries) if row[1] == "INSERT") == [(1,), (2,), (3,)]


# -- transactions --------------------------------------------------------------------------------------------------------


def run_transactions(watch: Watch, database: str) -> None:
    watch.run(
        f"CREATE TABLE {database}.i (id INT PRIMARY KEY) ENGINE=InnoDB",
        f"CREATE TABLE {database}.m (id INT PRIMARY KEY) ENGINE=MyISAM",
        f"INSERT INTO {database}.m VALUES (1)",  # ends in a QUERY COMMIT
        "BEGIN",
        f"INSERT INTO {database}.i VALUES (1)",
        "SAVEPOINT `a b`",
        f"INSERT INTO {database}.i VALUES (2)",
        "ROLLBACK TO SAVEPOINT `a b`",
        f"INSERT INTO {database}.i VALUES (3)",
        "RELEASE SAVEPOINT `a b`",
        "COMMIT",
        "BEGIN",
        f"INSERT INTO {database}.i VALUES (4)",
        "ROLLBACK",
    )


def transactions_in(entries: list[canal.Entry]) -> list[list[tuple[str, Any]]]:
    """(table, row) of the inserts, by transaction."""
    found: dict[int, list[tuple[str, Any]]] = {}
    for entry in entries:
        for row in entry.rows:
            found.setdefault(id(entry.transaction), []).append((entry.header.table, row.after and row.after[0]))
    return list(found.values())


def test_myisam_and_savepoints(server: ThrowawayServer, database: str) -> None:
    """T41."""
    with Watch(server, rf"{database}\.[im]") as watch:
        run_transactions(watch, database)
        entries = watch.read()

    assert transactions_in(entries) == [[("m", 1)], [("i", 1), ("i", 3)]]


def mix_engines(watch: Watch) -> list[list[tuple[str, Any]]]:
    """A transaction over both kinds of engines: a server logs the MyISAM part at once, or all at the end."""
    watch.run("BEGIN", "INSERT INTO d.i VALUES (5)", "INSERT INTO d.m VALUES (5)", "INSERT INTO d.i VALUES (6)", "COMMIT")
    return transactions_in(watch.read())


def test_a_mixed_transaction_of_mariadb(mariadb_server: ThrowawayServer) -> None:
    """T41."""
    mariadb_server.query("CREATE OR REPLACE DATABASE d")
    with Watch(mariadb_server, r"d\.[im]") as watch:
        run_transactions(watch, "d")
        watch.read()
        assert sorted(sum(mix_engines(watch), [])) == [("i", 5), ("i", 6), ("m", 5)]
    mariadb_server.query("DROP DATABASE d")


def test_mysql_without_gtids(mysql_server: ThrowawayServer) -> None:
    """ANONYMOUS_GTID events: no GTIDs, so journal and offset say where to resume. T41, T32."""
    with MySQLServer(FULL, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF") as server:
        server.query("CREATE DATABASE d")
        with Watch(server, r"d\.[im]") as watch:
            run_transactions(watch, "d")
            entries = watch.read()
            assert transactions_in(entries) == [[("m", 1)], [("i", 1), ("i", 3)]]
            assert {entry.header.gtid for entry in entries} == {""}
            assert sorted(sum(mix_engines(watch), [])) == [("i", 5), ("i", 6), ("m", 5)]
        end = next(entry for entry in entries if entry.is_end and entry.transaction.row_count)
        assert not end.position.gtid
        with Watch(server, r"d\.[im]", start=end.position) as watch:
            assert transactions_in(watch.read())[0] == [("i", 1), ("i", 3)]


# -- the log's own events ------------------------------------------------------------------------------------------------


def test_offsets_and_gtids_are_those_of_the_file(mariadb_server: ThrowawayServer) -> None:
    """T13: from 11.4 on MariaDB's events have no position inside a transaction. A GTID_LIST opens each journal."""
    server = mariadb_server
    server.query("CREATE OR REPLACE DATABASE d")
    server.query("CREATE TABLE d.t (id INT)")
    server.query("INSERT INTO d.t VALUES (1)")
    server.query("SET STATEMENT gtid_domain_id = 7 FOR INSERT INTO d.t VALUES (2)")
    server.query("FLUSH BINARY LOGS")
    with Watch(server, r"d\..*") as watch:
        watch.run("BEGIN", "INSERT INTO d.t VALUES (3)", "INSERT INTO d.t VALUES (4)", "COMMIT")
        entries = watch.read()
    path = server.binlog_paths()[-1]
    types, ends, at, zeros = {}, {}, len(MAGIC), set[int]()
    for event in events_in(path):
        if event[13:17] == bytes(4):
            zeros.add(event[4])
        types[at] = event[4]
        at += len(event)
        ends[at] = event[4]
    assert zeros == ({19, 23, 160} if server.version >= "11.4" else set())
    assert {types[e.header.offset] for e in entries if e.rows} <= {23, 30}
    assert [(types[e.header.offset], ends[e.position.offset]) for e in entries if e.is_end] == [(16, 16)]
    assert entries[-1].position.gtid == end_of_log(server).gtid
    # From the file alone, whose GTID_LIST tells what came before it.
    with Watch(server, r"d\..*", start=canal.Position(journal=path.name, offset=4)) as watch:
        again = watch.read()
    server.query("DROP DATABASE d")
    assert [e.position for e in again] == [e.position for e in entries]
    assert "7-1-" in again[-1].position.gtid


@pytest.mark.parametrize("flag", [0, 2], ids=["v1", "v2"])
def test_heartbeats_change_nothing(server: ThrowawayServer, flag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """T12."""
    monkeypatch.setattr("canal.parse.source.dump.NON_BLOCK", flag)  # bit 2 asks MySQL for the second version
    connection = source(server, heartbeat_interval=0.1).connect()
    try:
        connection._dump.begin(connection.resolve("latest"), non_block=True)
        events: list[bytes] = []
        while not any(event[4] in (27, 41) for event in events):
            events += connection.read(5.0) or []
    finally:
        connection.close()
    assert events[-1][4] == (41 if flag and is_since(server, mysql=(8, 0, 26)) else 27)
    with Watch(server, "", source=source(server, heartbeat_interval=0.05)) as watch:
        before = watch.instance.position()
        assert watch.instance.get(100, timeout=0.5).entries == []
        assert watch.instance.position() == before


@pytest.mark.lines("mysql>=5.6.2", "mariadb")
@pytest.mark.needs("plain_files", "uncompressed")
def test_an_event_of_an_unknown_type(server: ThrowawayServer, database: str, tmp_path: Path) -> None:
    """T17: one that may be ignored is, any other is an error that names it."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute(f"SET binlog_{'rows_query_log' if server.kind == 'mysql' else 'annotate_row'}_events = 1")
        cursor.execute(f"CREATE TABLE {database}.t (id INT)")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1)")
    log = tmp_path / "binlog.000001"

    def write(flags: int) -> None:
        def changed(event: bytes) -> bytes:
            if event[4] != ROWS_QUERY[server.kind]:
                return event
            return sealed(event[:4] + b"\xf0" + event[5:17] + flags.to_bytes(2, "little") + event[19:])

        log.write_bytes(MAGIC + b"".join(map(changed, events_in(server.binlog_paths()[-1]))))

    write(0x80)
    assert [row for row in rows_of(from_files(log)) if row[1] == "INSERT"] == inserts("t", (1,))
    write(0)
    with pytest.raises(canal.errors.UnsupportedError, match="240"):
        from_files(log, alarm=lambda destination, text: None)


# -- stops, crashes and incidents ------------------------------------------------------------------------------------------


@pytest.mark.needs("checksum")
@pytest.mark.needs("plain_files")
def test_a_restart(own_server: ThrowawayServer) -> None:
    """T35, T42: a STOP event, a new journal, and the statement that empties a MEMORY table. T15: checksums off and on."""
    server = own_server
    server.query("CREATE DATABASE d")
    with Watch(server, r"d\..*", source=source(server, heartbeat_interval=0.2)) as watch:
        watch.run(
            "CREATE TABLE d.t (id INT)",
            "CREATE TABLE d.memory (id INT) ENGINE=MEMORY",
            "INSERT INTO d.memory VALUES (1)",
            "SET GLOBAL binlog_checksum = NONE",
            "INSERT INTO d.t VALUES (1)",
            "SET GLOBAL binlog_checksum = CRC32",
            "INSERT INTO d.t VALUES (2)",
        )
        entries = watch.read()
    server.restart()  # MySQL takes seconds to end while somebody reads its log, or did until the last heartbeat
    assert server.query("SELECT * FROM d.memory") == []
    server.query("INSERT INTO d.t VALUES (3)")
    with Watch(server, r"d\..*", start=entries[-1].position) as watch:
        entries += watch.read()

    rows = [row for row in rows_of(entries) if row[1] != "CREATE"]
    assert [row for row in rows if row[1] == "INSERT"] == [*inserts("memory", (1,)), *inserts("t", (1,), (2,), (3,))]
    (emptied,) = [row for row in rows if row[1] != "INSERT"]
    assert (emptied[0], emptied[1]) in (("memory", "DELETE"), ("memory", "TRUNCATE"))
    stops = [path.name for path in server.binlog_paths() if any(event[4] == 3 for event in events_in(path))]
    assert len(stops) == 1
    # The order of delivery is that of the files.
    files = [row for row in rows_of(from_files(server.binlog_dir, filter=r"d\..+")) if row[1] != "CREATE"]
    assert files == rows


@pytest.mark.needs("plain_files", "uncompressed")
def test_a_crash_in_the_middle_of_a_transaction(own_server: ThrowawayServer, tmp_path: Path) -> None:
    """T35: the file stays marked as in use and ends inside an event; the next one says that its transaction is undone."""
    server = own_server
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT)")
    server.query("INSERT INTO d.t VALUES (1)")
    server.query("INSERT INTO d.t VALUES (2)")
    server.kill()
    first = server.binlog_paths()[-1]
    events = list(events_in(first))
    last = max(number for number, event in enumerate(events) if event[4] in (23, 30))
    cut = MAGIC + b"".join(events[:last]) + events[last][:-3]
    for path in (first, tmp_path / first.name):  # else the next file lists the transaction, and a gap is what that is
        path.write_bytes(cut)
    server.start()
    server.query("INSERT INTO d.t VALUES (3)")
    second = server.binlog_paths()[-1]
    assert events[0][17] & 1
    shutil.copy(second, tmp_path)

    assert [row for row in rows_of(from_files(tmp_path)) if row[1] == "INSERT"] == inserts("t", (1,), (3,))


@pytest.mark.needs("uncompressed")  # so that it is more than the cache holds
def test_an_incident_is_an_error(own_server: ThrowawayServer) -> None:
    """T36: a change that the server could not write to its log."""
    server = own_server
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT, note LONGTEXT) ENGINE=MyISAM")
    with Watch(server, r"d\..*") as watch:
        watch.run("SET GLOBAL max_binlog_stmt_cache_size = 4096", "INSERT INTO d.t VALUES (1, 'a')")
        with pytest.raises(Exception, match="cache"):
            watch.run("INSERT INTO d.t SELECT 2, REPEAT('x', 20000) UNION SELECT 3, REPEAT('y', 20000)")
        with pytest.raises(canal.SourceError, match="INCIDENT"):
            while True:
                watch.instance.get(100, timeout=5)
    assert len(watch.alarms) == 1


# -- a version set by hand -----------------------------------------------------------------------------------------------


@pytest.mark.lines("mariadb==11.4")  # its version_comment names it; Debian's does not
@pytest.mark.every_line
def test_a_mariadb_that_says_it_is_mysql(line: Line) -> None:
    """Some do for the sake of old clients; types of its own are told apart all the same."""
    with line.server("--version=8.0.36") as server:
        server.query("CREATE DATABASE d")
        with Watch(server, r"d\..*") as watch:
            watch.run("CREATE TABLE d.t (id INT, u UUID, a INET6)", "INSERT INTO d.t VALUES (1, UUID(), '::1')")
            rows = rows_of([entry for entry in watch.read() if entry.rows])
        held = server.query("SELECT id, CAST(u AS CHAR), CAST(a AS CHAR) FROM d.t")

    assert rows == inserts("t", *held)


# -- encrypted and compressed logs -----------------------------------------------------------------------------------------


def check_encrypted(server: ThrowawayServer) -> None:
    server.query("CREATE DATABASE d")
    with Watch(server, r"d\..*") as watch:
        watch.run("CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (2)")
        assert [row for row in rows_of(watch.read()) if row[1] == "INSERT"] == inserts("t", (1,), (2,))
    server.query("SET GLOBAL binlog_checksum = NONE")
    server.query("INSERT INTO d.t VALUES (3)")
    position = end_of_log(server)
    server.query("INSERT INTO d.t VALUES (4)")
    with Watch(server, r"d\..*", start=canal.Position(position.journal, position.offset)) as watch:
        assert rows_of(watch.read()) == inserts("t", (4,))
    with pytest.raises(canal.errors.UnsupportedError, match="is encrypted.*server"):
        from_files(server.binlog_dir, alarm=lambda destination, text: None)


def test_mariadb_with_an_encrypted_log(mariadb_server: ThrowawayServer, tmp_path: Path) -> None:
    installation = mariadb_server.installation
    if not list((installation.usr / "lib/mysql/plugin").glob("file_key_management.so")):
        pytest.skip(f"{installation} comes without file_key_management")
    keys = tmp_path / "keys"
    keys.write_text("1;" + "ab" * 32 + "\n")
    options = ("--plugin-load-add=file_key_management", f"--file-key-management-filename={keys}", "--encrypt-binlog=ON")
    with MariaDBServer(FULL, *options) as server:
        check_encrypted(server)


@attrs.frozen
class Beside(Installation):
    """A MySQL whose program takes ``folder`` for its own directory: that is where it reads which keyring to load."""

    folder: Path = Path()

    def version(self) -> str:
        return Installation(self.kind, self.tree).version()  # without the program's place, which templates are kept by

    def program(self, name: str) -> list[str]:
        loader, *rest = Installation.program(self, name)
        return [loader, "--argv0", str(self.folder / name), *rest]


def test_mysql_with_an_encrypted_log(mysql_server: ThrowawayServer, tmp_path: Path) -> None:
    real = mysql_server.installation
    if real.tree is None:
        pytest.skip("the keyring of an installed MySQL is its owner's business")
    shutil.copy(real.usr / "lib/mysql/plugin/component_keyring_file.so", tmp_path)
    (tmp_path / "mysqld.my").write_text('{"components": "file://component_keyring_file"}')
    keyring = {"path": str(tmp_path / "keys"), "read_only": False}
    (tmp_path / "component_keyring_file.cnf").write_text(json.dumps(keyring))
    options = (FULL, f"--plugin-dir={tmp_path}", "--binlog-encryption=ON")
    with MySQLServer(*options, installation=Beside(real.kind, real.tree, tmp_path)) as server:
        check_encrypted(server)


@pytest.mark.every_line
@pytest.mark.lines("mariadb>=10.2.3")
@pytest.mark.needs("plain_files", "full_image")
def test_mariadb_with_a_compressed_log(line: Line) -> None:
    """T39: compressed statements, also in a transaction; T14: no stand-ins for events that we did not ask for."""
    with line.server("--log-bin-compress=ON", "--log-bin-compress-min-len=10") as server:
        server.query("CREATE DATABASE d")
        note = "x" * 1000
        create = f"CREATE TABLE d.t (id INT PRIMARY KEY, note TEXT COMMENT '{note}')"
        insert = f"INSERT INTO d.t VALUES (2, '{note}') /* é */"
        with Watch(server, r"d\..*") as watch:
            watch.run(
                create,
                f"INSERT INTO d.t VALUES (1, '{note}')",
                f"UPDATE d.t SET note = '{note}y'",
                "DELETE FROM d.t",
                "SET binlog_format = STATEMENT",
                insert,
            )
            found = rows_of(watch.read())
        kinds = {event[4] for path in server.binlog_paths() for event in events_in(path)}
        from_log = rows_of(from_files(server.binlog_dir, create, filter=r"d\.t"))

    assert (
        found
        == from_log
        == [
            ("t", "CREATE", create, None),
            ("t", "INSERT", None, (1, note)),
            ("t", "UPDATE", (1, note), (1, note + "y")),
            ("t", "DELETE", (1, note + "y"), None),
            ("t", "INSERT", insert, None),
        ]
    )
    assert kinds >= {165, 166, 167, 168} or kinds >= {165, 169, 170, 171}


@pytest.mark.every_line
@pytest.mark.lines("mysql>=5.6,<8.1")
@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
@pytest.mark.needs("plain_files")
def test_mysql_with_row_events_of_version_1(line: Line, image: str) -> None:
    """What MySQL 5.1 to 5.5 write, and later ones on demand."""
    create = "CREATE TABLE d.t (id INT PRIMARY KEY, note VARCHAR(20))"
    with line.server("--log-bin-use-v1-row-events=ON", f"--binlog-row-image={image}") as server:
        server.query("CREATE DATABASE d")
        with Watch(server, r"d\.t") as watch:
            watch.run(
                create,
                "INSERT INTO d.t VALUES (1, 'é'), (2, NULL)",
                "UPDATE d.t SET note = 'z' WHERE id = 2",
                "DELETE FROM d.t WHERE id = 1",
            )
            found = rows_of(watch.read())
        kinds = {event[4] for path in server.binlog_paths() for event in events_in(path)}
        from_log = rows_of(from_files(server.binlog_dir, create, filter=r"d\.t"))

    before, after, gone = ((2, None), (2, "z"), (1, "é"))
    if image == "MINIMAL":
        before, after, gone = ((2, canal.ABSENT), (canal.ABSENT, "z"), (1, canal.ABSENT))
    assert (
        found
        == from_log
        == [
            ("t", "CREATE", create, None),
            ("t", "INSERT", None, (1, "é")),
            ("t", "INSERT", None, (2, None)),
            ("t", "UPDATE", before, after),
            ("t", "DELETE", gone, None),
        ]
    )
    assert kinds >= {23, 24, 25}
    assert not kinds & {30, 31, 32}


def test_mysql_with_compressed_transactions(mysql_server: ThrowawayServer) -> None:
    """T37, T38: also one of which the filter takes nothing."""
    mysql_server.query("CREATE DATABASE IF NOT EXISTS d")
    with Watch(mysql_server, r"d\.t") as watch:
        watch.run(
            "CREATE TABLE d.t (id INT)",
            "CREATE TABLE d.other (id INT)",
            "SET binlog_transaction_compression = ON",
            "INSERT INTO d.other VALUES (1), (2), (3)",
            "INSERT INTO d.t VALUES (1)",
            "BEGIN",
            "INSERT INTO d.other VALUES (4)",
            "INSERT INTO d.t VALUES (2)",
            "COMMIT",
        )
        entries = watch.read()
    mysql_server.query("DROP DATABASE d")

    assert [row for row in rows_of(entries) if row[1] == "INSERT"] == inserts("t", (1,), (2,))
    assert any(event[4] == 40 for event in events_in(mysql_server.binlog_paths()[-1]))
