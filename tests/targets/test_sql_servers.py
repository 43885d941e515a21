"""SQL targets on their servers: rows change in place, keys stay apart, names are not cut, errors tell where."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import canal
from canal.errors import TargetSchemaError
from canal.targets import JSONLinesTarget, MySQLTarget, PostgreSQLTarget
from canal.testing import FakeBinlog
from canal.testing.proxy import FaultProxy
from canal.testing.servers import ThrowawayServer
from tests.support.pipes import life
from tests.support.target_servers import PostgreSQLServer
from tests.support.waiting import until


def piped(fake: FakeBinlog, target: Any, folder: Path, **options: Any) -> canal.Pipe:
    """A pipe to the present end of the log; it goes on where the last one ended."""
    fake.end()
    with life(fake, folder, filter=r".*\..*") as instance:
        pipe = canal.pipe(instance, target, on_error="stop", **options)
        try:
            pipe.run()
        finally:
            fake.log.ended = False
    return pipe


@pytest.fixture
def name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def postgresql(postgresql_server: PostgreSQLServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgresql_server.conninfo, autocommit=True) as connection:
        yield connection


@pytest.fixture
def into(postgresql_server: PostgreSQLServer, name: str) -> PostgreSQLTarget:
    return PostgreSQLTarget(postgresql_server.conninfo, progress_table=f"p_{name}")


# -- PostgreSQL ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("reference", ["ON DELETE CASCADE", "ON DELETE SET NULL", ""])
def test_postgresql_updates_rows_in_place(
    count: int, reference: str, fake_binlog: FakeBinlog, folder: Path, name: str, into: Any, postgresql: Any
) -> None:
    postgresql.execute(
        f"CREATE SCHEMA {name}; CREATE TABLE {name}.customers (id int PRIMARY KEY, name text, mine text DEFAULT 'new');"
        f"CREATE TABLE {name}.orders (id int PRIMARY KEY, customer int REFERENCES {name}.customers {reference}, n int)"
    )
    customers = fake_binlog.table(name, "customers", "id INT PRIMARY KEY, name VARCHAR(20)")
    orders = fake_binlog.table(name, "orders", "id INT PRIMARY KEY, customer INT, n INT")
    customers.insert(*({"id": number, "name": "a"} for number in range(count)))
    orders.insert(*({"id": number, "customer": number, "n": 5} for number in range(count)))
    piped(fake_binlog, into, folder)
    postgresql.execute(f"UPDATE {name}.customers SET mine = 'kept'")

    for number in range(count):
        customers.update({"id": number, "name": "a"}, {"name": "b"})
    piped(fake_binlog, into, folder)

    assert postgresql.execute(f"SELECT * FROM {name}.orders ORDER BY 1").fetchall() == [(n, n, 5) for n in range(count)]
    rows = postgresql.execute(f"SELECT * FROM {name}.customers ORDER BY 1").fetchall()
    assert rows == [(number, "b", "kept") for number in range(count)]


def test_postgresql_puts_unique_values_and_references_in_the_order_of_the_log(
    fake_binlog: FakeBinlog, folder: Path, name: str, into: Any, postgresql: Any
) -> None:
    postgresql.execute(
        f"CREATE SCHEMA {name}; CREATE TABLE {name}.a (id int PRIMARY KEY, u int UNIQUE);"
        f"CREATE TABLE {name}.b (id int PRIMARY KEY, a int REFERENCES {name}.a)"
    )
    a = fake_binlog.table(name, "a", "id INT PRIMARY KEY, u INT")
    b = fake_binlog.table(name, "b", "id INT PRIMARY KEY, a INT")
    b.insert({"id": 0, "a": None})
    a.insert({"id": 1, "u": 1}, {"id": 2, "u": 2})
    b.insert({"id": 1, "a": 1})
    a.update({"id": 1, "u": 1}, {"u": 3})
    a.update({"id": 2, "u": 2}, {"u": 1})
    a.update({"id": 1, "u": 3}, {"u": 2})
    b.delete({"id": 1, "a": 1})
    b.insert({"id": 2, "a": 2})
    a.delete({"id": 1, "u": 2})

    piped(fake_binlog, into, folder)

    assert postgresql.execute(f"SELECT * FROM {name}.a ORDER BY 1").fetchall() == [(2, 1)]
    assert postgresql.execute(f"SELECT * FROM {name}.b ORDER BY 1").fetchall() == [(0, None), (2, 2)]


def test_postgresql_refuses_names_that_it_would_cut(
    fake_binlog: FakeBinlog, folder: Path, name: str, into: Any, postgresql: Any
) -> None:
    fake_binlog.table(name, "a" * 63 + "1", "id INT PRIMARY KEY").insert({"id": 1})
    with pytest.raises(canal.ConfigError, match=r"64 bytes.*takes 63.*canal\.Rule\(to="):
        piped(fake_binlog, into, folder)

    long = FakeBinlog()
    long.table(name, "t", f"id INT PRIMARY KEY, `{'列' * 25}` INT").insert({"id": 1, "列" * 25: 1})
    with pytest.raises(canal.ConfigError, match=r"75 bytes.*canal\.Rule\(rename="):
        piped(long, into, folder / "long")
    assert postgresql.execute("SELECT FROM pg_tables WHERE schemaname = %s", (name,)).fetchall() == []


@pytest.mark.parametrize("kind", ["citext", "text COLLATE {}.ci"])
def test_postgresql_refuses_a_key_that_does_not_tell_all_keys_apart(
    kind: str, fake_binlog: FakeBinlog, folder: Path, name: str, into: Any, postgresql: Any
) -> None:
    postgresql.execute(f"CREATE SCHEMA {name}")
    try:
        postgresql.execute("CREATE EXTENSION IF NOT EXISTS citext")
        postgresql.execute(f"CREATE COLLATION {name}.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    except psycopg.Error as error:
        pytest.skip(f"the server has no extension or collation for it: {error.sqlstate}")
    postgresql.execute(f"CREATE TABLE {name}.t (k {kind.format(name)} PRIMARY KEY, n int)")
    fake_binlog.table(name, "t", "k VARCHAR(10) PRIMARY KEY, n INT").insert({"k": "a", "n": 1}, {"k": "A", "n": 2})

    with pytest.raises(TargetSchemaError, match="does not tell all keys of .* apart: k (is citext|has the collation ci)"):
        piped(fake_binlog, into, folder)
    assert postgresql.execute(f"SELECT * FROM {name}.t").fetchall() == []


# -- both, and MySQL ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["postgresql_server", "mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def target_of(server: Any, name: str) -> Any:
    if isinstance(server, PostgreSQLServer):
        return PostgreSQLTarget(server.conninfo, progress_table=f"p_{name}")
    account = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    return MySQLTarget(account, database=f"p_{name}")


def rows_of(server: Any, sql: str) -> list[tuple[Any, ...]]:
    if isinstance(server, PostgreSQLServer):
        with psycopg.connect(server.conninfo) as connection:
            return connection.execute(sql.encode()).fetchall()
    return [tuple(row) for row in server.query(sql)]


@pytest.mark.parametrize("batch_size", [1, 100])
def test_rows_with_a_float_in_their_key_are_found_again(batch_size: int, server: Any, folder: Path, name: str) -> None:
    fake, numbers = FakeBinlog(), [0.1, 0.5, 1.1, 2.7, 16777216.0]
    table = fake.table(name, "f", "sensor INT, level FLOAT, note VARCHAR(10), other INT, PRIMARY KEY (sensor, level)")
    for number in numbers:
        table.insert({"sensor": 1, "level": number, "note": "n", "other": 1})
    table.delete({"sensor": 1, "level": 0.1, "note": "n", "other": 1})
    piped(fake, target_of(server, name), folder, batch_size=batch_size)

    fake.row_image = "MINIMAL"
    for number in numbers[1:]:
        table.update({"sensor": 1, "level": number, "note": "n", "other": 1}, {"note": "m"})
    table.delete({"sensor": 1, "level": 0.5, "note": "m", "other": 1})
    piped(fake, target_of(server, name), folder, batch_size=batch_size)

    found = rows_of(server, f"SELECT level + 0e0, note, other FROM {name}.f ORDER BY level")
    assert [(round(level, 5), *rest) for level, *rest in found] == [(1.1, "m", 1), (2.7, "m", 1), (16777216.0, "m", 1)]


def test_keys_that_differ_in_spaces_at_their_end_stay_apart(server: Any, folder: Path, name: str) -> None:
    """As with utf8mb4_0900_ai_ci and the _nopad_ collations, which tell them apart."""
    fake = FakeBinlog()
    table = fake.table(name, "t", "k VARCHAR(10) PRIMARY KEY, n INT")
    for number, key in enumerate(("a ", "a", "A", "é", "e")):
        table.insert({"k": key, "n": number})
        piped(fake, target_of(server, name), folder)
    table.delete({"k": "a", "n": 1})
    piped(fake, target_of(server, name), folder)

    assert rows_of(server, f"SELECT n FROM {name}.t ORDER BY n") == [(0,), (2,), (3,), (4,)]


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def mysql(request: pytest.FixtureRequest) -> ThrowawayServer:
    found: ThrowawayServer = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("k VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY", "k has the collation utf8mb4_general_ci"),
        ("k VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, UNIQUE KEY (k(3))", "has the beginning of k alone"),
    ],
)
def test_mysql_refuses_a_key_that_does_not_tell_all_keys_apart(
    columns: str, says: str, mysql: ThrowawayServer, fake_binlog: FakeBinlog, folder: Path, name: str
) -> None:
    mysql.query(f"CREATE DATABASE {name}")
    mysql.query(f"CREATE TABLE {name}.t (n INT, {columns})")
    fake_binlog.table(name, "t", "k VARCHAR(10) PRIMARY KEY, n INT").insert({"k": "a", "n": 1})

    with pytest.raises(TargetSchemaError, match=says):
        piped(fake_binlog, target_of(mysql, name), folder)
    assert rows_of(mysql, f"SELECT * FROM {name}.t") == []


def test_mysql_refuses_a_key_with_spaces_at_its_end_where_its_collation_pads(
    mysql: ThrowawayServer, fake_binlog: FakeBinlog, folder: Path, name: str
) -> None:
    mysql.query(f"CREATE DATABASE {name}")
    mysql.query(f"CREATE TABLE {name}.t (k VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, n INT)")
    fake_binlog.table(name, "t", "k VARCHAR(10) PRIMARY KEY, n INT").insert({"k": "a ", "n": 1})

    with pytest.raises(canal.errors.UnfitChangeError, match="a key ends with spaces"):
        piped(fake_binlog, target_of(mysql, name), folder)


@pytest.mark.parametrize("unique", ["", ", UNIQUE KEY (u)"])
def test_mysql_updates_rows_in_place(
    unique: str, mysql: ThrowawayServer, fake_binlog: FakeBinlog, folder: Path, name: str
) -> None:
    mysql.query(f"CREATE DATABASE {name}")
    mysql.query(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, u INT, mine VARCHAR(9) DEFAULT 'new'{unique})")
    table = fake_binlog.table(name, "t", "id INT PRIMARY KEY, u INT")
    table.insert({"id": 1, "u": 1}, {"id": 2, "u": 2})
    piped(fake_binlog, target_of(mysql, name), folder)
    mysql.query(f"UPDATE {name}.t SET mine = 'kept'")

    table.update({"id": 1, "u": 1}, {"u": 3})
    table.update({"id": 2, "u": 2}, {"u": 1})
    table.update({"id": 1, "u": 3}, {"u": 2})
    piped(fake_binlog, target_of(mysql, name), folder)

    assert rows_of(mysql, f"SELECT * FROM {name}.t ORDER BY id") == [(1, 2, "kept"), (2, 1, "kept")]


def test_mysql_does_not_overwrite_a_row_that_has_the_unique_value_of_another(
    mysql: ThrowawayServer, fake_binlog: FakeBinlog, folder: Path, name: str
) -> None:
    mysql.query(f"CREATE DATABASE {name}")
    mysql.query(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, u INT, UNIQUE KEY (u))")
    mysql.query(f"INSERT INTO {name}.t VALUES (9, 1)")
    fake_binlog.table(name, "t", "id INT PRIMARY KEY, u INT").insert({"id": 1, "u": 1})

    with pytest.raises(canal.errors.UnfitChangeError, match="1062"):
        piped(fake_binlog, target_of(mysql, name), folder)
    assert rows_of(mysql, f"SELECT * FROM {name}.t") == [(9, 1)]


def test_mysql_makes_labels_with_any_character(mysql: ThrowawayServer, fake_binlog: FakeBinlog, folder: Path, name: str) -> None:
    fake_binlog.table(name, "t", r"id INT PRIMARY KEY, e ENUM('100%','it''s','a\\b')").insert(
        {"id": 1, "e": "100%"}, {"id": 2, "e": "it's"}, {"id": 3, "e": "a\\b"}
    )

    piped(fake_binlog, target_of(mysql, name), folder)

    assert rows_of(mysql, f"SELECT e FROM {name}.t ORDER BY id") == [("100%",), ("it's",), ("a\\b",)]


def test_a_table_that_cannot_be_made_is_named(mysql: ThrowawayServer, fake_binlog: FakeBinlog, folder: Path, name: str) -> None:
    fake_binlog.table(name, "url", "u TEXT, v INT, PRIMARY KEY (u(20))").insert({"u": "http://a", "v": 1})

    says = rf"the table {name}\.url, of .*key \(u text\), cannot be made: .*'u'.*Rule\(keys="
    with pytest.raises(TargetSchemaError, match=says):
        piped(fake_binlog, target_of(mysql, name), folder)


def test_the_progress_of_a_pipe_is_never_written_by_another(
    mysql: ThrowawayServer, fake_binlog: FakeBinlog, folder: Path, name: str
) -> None:
    """Of a chain A, B, C the second pipe sees the progress that the first one writes into B."""
    database = f"p_{name}"
    fake_binlog.table(database, "canal_progress", "stream VARCHAR(128) PRIMARY KEY, progress TEXT").insert({"stream": "test"})

    with pytest.raises(canal.ConfigError, match="keeps the progress of pipes.*exclude"):
        piped(fake_binlog, target_of(mysql, name), folder)


# -- errors ------------------------------------------------------------------------------------------------------------------

AGAIN = canal.Retry(times=50, first=0.001, longest=0.002)


def failed(instance: canal.Instance, target: Any) -> tuple[canal.CanalError, int]:
    """What ended a pipe that may try again often, and how often it has failed."""
    pipe = canal.pipe(instance, target, on_error=AGAIN)
    with pytest.raises(canal.CanalError) as error:
        pipe.run()
    return error.value, pipe.status().failures


def test_a_user_whom_mysql_refuses_is_named_and_not_tried_again(mysql: ThrowawayServer, fake_binlog: FakeBinlog) -> None:
    target = MySQLTarget({"host": mysql.host, "port": mysql.port, "user": "nobody", "password": "wrong"})
    with life(fake_binlog) as instance:
        error, failures = failed(instance, target)

    assert failures == 1
    assert "refuses the user 'nobody': error 1045" in str(error)
    assert "Check the user, the password" in error.remedy
    assert "wrong" not in str(error)


def test_a_user_whom_postgresql_refuses_is_named_and_not_tried_again(
    postgresql_server: PostgreSQLServer, fake_binlog: FakeBinlog
) -> None:
    target = PostgreSQLTarget(postgresql_server.conninfo, options={"user": "nobody_at_all"})
    with life(fake_binlog) as instance:
        error, failures = failed(instance, target)

    assert failures == 1
    assert "refuses the user 'nobody_at_all': " in str(error)
    assert "Check the user, the password" in error.remedy


def test_a_right_that_postgresql_does_not_give_is_not_tried_again(
    postgresql_server: PostgreSQLServer, postgresql: Any, fake_binlog: FakeBinlog, name: str
) -> None:
    postgresql.execute(f"CREATE USER {name}; CREATE SCHEMA {name}; CREATE TABLE {name}.t (id int PRIMARY KEY)")
    postgresql.execute(f"CREATE SCHEMA s{name} AUTHORIZATION {name}; GRANT USAGE ON SCHEMA {name} TO {name}")
    postgresql.execute(f"ALTER USER {name} SET search_path = s{name}")
    fake_binlog.table(name, "t", "id INT PRIMARY KEY").insert({"id": 1})
    fake_binlog.end()
    with life(fake_binlog, filter=r".*\..*") as instance:
        error, failures = failed(instance, PostgreSQLTarget(postgresql_server.conninfo, options={"user": name}))

    assert failures == 1
    assert f"refuses the user '{name}' a statement: 42501" in str(error)
    assert "Grant the rights" in error.remedy


def test_a_row_that_is_larger_than_a_statement_may_be_is_parked(
    mysql: ThrowawayServer, fake_binlog: FakeBinlog, folder: Path, name: str
) -> None:
    ((before,),) = mysql.query("SELECT @@GLOBAL.max_allowed_packet")
    mysql.query(f"SET GLOBAL max_allowed_packet = {1 << 20}")
    try:
        fake_binlog.table(name, "t", "id INT PRIMARY KEY, n LONGTEXT").insert(
            {"id": 1, "n": "a"}, {"id": 2, "n": "x" * (2 << 20)}, {"id": 3, "n": "b"}, {"id": 4, "n": "y" * 900_000}
        )
        pipe = piped(fake_binlog, target_of(mysql, name), folder, on_unfit=JSONLinesTarget(folder / "parked"))
    finally:
        mysql.query(f"SET GLOBAL max_allowed_packet = {before}")

    assert pipe.status().parked == 1
    assert [row[0] for row in rows_of(mysql, f"SELECT id FROM {name}.t ORDER BY id")] == [1, 3, 4]


def test_a_server_that_is_silent_is_noticed_and_stop_returns(server: Any, fake_binlog: FakeBinlog, name: str) -> None:
    with FaultProxy(server.host, server.port) as proxy:
        if isinstance(server, PostgreSQLServer):
            options = {"host": proxy.host, "port": proxy.port}
            target: Any = PostgreSQLTarget(server.conninfo, progress_table=f"p_{name}", options=options, timeout=0.5)
        else:
            account = {"host": proxy.host, "port": proxy.port, "user": server.user, "password": server.password}
            target = MySQLTarget(account, database=f"p_{name}", timeout=0.5)
        table = fake_binlog.table(name, "t", "id INT PRIMARY KEY")
        table.insert({"id": 1})
        with life(fake_binlog, filter=r".*\..*") as instance:
            pipe = canal.pipe(instance, target, on_error=canal.Retry(times=None)).start()
            until(lambda: pipe.status().commits > 0)
            proxy.blackhole()
            table.insert({"id": 2})
            until(lambda: pipe.status().failures > 0)
            assert "has not answered for 0.5 s" in str(pipe.status().error)

            pipe.stop()

            assert not pipe.status().is_running
