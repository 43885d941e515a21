"""What each line of servers has and lacks: every statement that the library sends, and what it makes of the answers."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

import canal
from canal import MySQLSource, Position
from canal.formats.change_table import Shape
from canal.snapshot.chunks import plan, read_chunk, read_table
from canal.testing.servers import ThrowawayServer
from tests.support.live import Watch, end_of_log, rows_of, source

GRANTS = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT"  # README.md
_names = itertools.count(1)


@contextlib.contextmanager
def user_with(server: ThrowawayServer, grants: str, **options: Any) -> Iterator[MySQLSource]:
    """The server as a source, for a user that may do just this."""
    user = f"u{next(_names)}"
    server.query(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'pw'")
    try:
        server.query(f"GRANT {grants} ON *.* TO '{user}'@'%'")
        yield MySQLSource(host=server.host, port=server.port, user=user, password="pw", get_server_public_key=True, **options)
    finally:
        server.query(f"DROP USER '{user}'@'%'")


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The statements that a server answered with an error, and that."""
    found: list[tuple[str, str]] = []
    execute: Callable[..., int] = pymysql.cursors.Cursor.execute

    def spied(cursor: Any, sql: str, args: Any = None) -> int:
        try:
            return execute(cursor, sql, args)
        except pymysql.err.MySQLError as error:
            found.append((sql, str(error)))
            raise

    monkeypatch.setattr(pymysql.cursors.Cursor, "execute", spied)
    return found


def opened(source: MySQLSource) -> Any:
    return contextlib.closing(source.connect())


@pytest.mark.every_line(always=True)
def test_no_statement_is_refused_to_a_user_with_the_documented_grants(
    server: ThrowawayServer, database: str, refused: list[tuple[str, str]]
) -> None:
    """Save that MySQL before 5.5.25 lists its logs for users with SUPER only."""
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, note TEXT) ENGINE=InnoDB")
    server.query(f"INSERT INTO `{database}`.t VALUES (1, 'x')")
    with user_with(server, GRANTS) as source, opened(source) as connection, opened(source) as other:
        end = connection.resolve("latest")
        first = connection.resolve("earliest")
        names = connection.journal_names()
        assert first.journal == names[0]
        assert end.journal == names[-1]
        assert connection.resolve(Position(journal=end.journal, offset=end.offset)).offset == end.offset
        assert connection.resolve(Position(timestamp=int(time.time() + 2) * 1000)).journal == end.journal
        if connection.has_gtids:
            assert connection.resolve(Position(gtid=end.gtid)).gtid == end.gtid
        assert connection.check_end(end)
        assert (connection.end_of_log().journal, connection.end_of_log().offset) == (end.journal, end.offset)
        assert connection.has_logged(end.gtid)
        assert isinstance(connection.purged, str)
        assert {state.schema.table for state in connection.describe(database).tables} == {"t"}
        assert connection.describe(database, "t").tables[0].schema == connection.table_columns(database, "t")
        assert (database, "t") in {(state.schema.schema, state.schema.table) for state in connection.describe().tables}
        assert connection.tables_like(database, "t", is_prefix=True) == ["t"]
        assert connection.json_columns(database, "t") == set()
        assert isinstance(connection.foreign_keys(), list)
        assert isinstance(connection.logs_cascades, bool)
        assert next(connection.replay(end.journal, 4))
        behind = source.read_end(30.0)
        assert behind.bytes_behind(end) == 0
        connection.dump(end)
        assert connection.read(30.0)
        other.dump(first)  # with the same server id: the server ends the other dump
        assert other.read(30.0)
    assert [sql for sql, _ in refused] == (["SHOW BINARY LOGS"] * len(refused) if server.version.startswith("5.5.9") else [])


@pytest.mark.every_line
def test_no_statement_of_a_snapshot_is_refused(server: ThrowawayServer, database: str, refused: list[tuple[str, str]]) -> None:
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY, note TEXT) ENGINE=InnoDB")
    server.query(f"INSERT INTO `{database}`.t VALUES " + ", ".join(f"({number}, 'x')" for number in range(100)))
    with user_with(server, GRANTS + ", LOCK TABLES") as source:
        shape = Shape(read_table(source, database, "t"))
        made = plan(source, shape, chunk_rows=30)
        assert sum(batch.num_rows for chunk in made.chunks for batch in read_chunk(source, shape, made, chunk)) == 100
    assert refused == []


@pytest.mark.every_line
def test_the_clocks_are_compared_on_every_line(server: ThrowawayServer) -> None:
    with opened(source(server)) as connection:
        assert abs(connection.clock_offset) < 2.0  # it is this machine's


@pytest.mark.every_line
@pytest.mark.lines("mysql<8.0", "mariadb<10.5")
def test_labels_that_the_server_has_spoiled_stop_no_other_table(server: ThrowawayServer, database: str) -> None:
    """Of two columns with the same labels in UCS-2 both have others, which may be no text."""
    labels = "ENUM('日本','本日') CHARACTER SET ucs2"
    server.query(f"CREATE TABLE `{database}`.spoiled (id INT PRIMARY KEY, e {labels}, f {labels}) ENGINE=InnoDB")
    server.query(f"CREATE TABLE `{database}`.t (id INT PRIMARY KEY) ENGINE=InnoDB")
    with Watch(server, rf"{database}\.t") as watch:
        watch.run(f"INSERT INTO `{database}`.t VALUES (1)")
        assert rows_of(watch.read()) == [("t", "INSERT", None, (1,))]
    with Watch(server, rf"{database}\..*") as watch:
        watch.run(f"INSERT INTO `{database}`.spoiled VALUES (2, 1, 2)", f"INSERT INTO `{database}`.t VALUES (2)")
        (spoiled, plain) = rows_of(watch.read())
    assert plain == ("t", "INSERT", None, (2,))
    with server.connect(use_unicode=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT e, f FROM `{database}`.spoiled")
        selected = cursor.fetchone()
    assert tuple(map(raw, spoiled[3][1:])) == selected


def raw(value: Any) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


@pytest.mark.every_line
@pytest.mark.lines("mysql<8.0", "mariadb<10.5")
def test_a_remedy_names_no_setting_that_the_server_lacks(server: ThrowawayServer, database: str) -> None:
    server.query(f"CREATE TABLE `{database}`.t (a INT, b INT)")
    start = end_of_log(server)
    server.query(f"INSERT INTO `{database}`.t VALUES (1, 2)")
    server.query(f"ALTER TABLE `{database}`.t DROP b")
    config = canal.InstanceConfig(destination="r", source=source(server), start=start, filter=rf"{database}\..*")
    with canal.Instance(config) as instance, pytest.raises(canal.errors.SchemaError, match="Keep a schema history") as caught:
        instance.subscribe()
        instance.get(10, timeout=30)
    assert "row_metadata" not in str(caught.value)


@pytest.mark.every_line
@pytest.mark.lines("mysql<5.6")
def test_who_has_no_gtids_is_not_to_turn_them_on(server: ThrowawayServer) -> None:
    only_gtids = Position(gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
    with opened(source(server)) as connection, pytest.raises(canal.errors.ServerError, match="Give a journal") as caught:
        connection.resolve(only_gtids)
    assert "gtid_mode" not in str(caught.value)
