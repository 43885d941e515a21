"""Without FULL metadata the same rows come with the same names as with it: traps T75 to T85 and T94.

The same statements run on a server with binlog_row_metadata=FULL, whose table maps carry the names, and on one without.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pymysql
import pytest
from pymysql.constants import ER

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.ddl_load import Change, Load, changes_of, is_older
from tests.support.fix_servers import Line
from tests.support.live import end_of_log, source

_names = itertools.count(1)
Servers = tuple[ThrowawayServer, ...]

#: Half of a load: in each, tables are changed between the rows; "other" is the schema that the filter leaves out.
FIRST = """
CREATE TABLE {d}.t (id INT PRIMARY KEY, a VARCHAR(20), b VARCHAR(20))
INSERT INTO {d}.t VALUES (1, 'a', 'b')
CREATE TABLE {d}.old (id INT PRIMARY KEY, x INT UNSIGNED, note TEXT CHARACTER SET latin1)
INSERT INTO {d}.old VALUES (1, 4000000001, 'caf\u00e9')
CREATE TABLE IF NOT EXISTS {d}.t (z INT)
ALTER TABLE {d}.t MODIFY b VARCHAR(20) AFTER id
INSERT INTO {d}.t VALUES (2, 'b', 'a')
ALTER TABLE {d}.t DROP COLUMN a, ADD COLUMN c VARCHAR(20)
INSERT INTO {d}.t VALUES (3, 'b', 'c')
ALTER TABLE {d}.t ADD COLUMN first_one SMALLINT UNSIGNED NOT NULL DEFAULT 40001 FIRST, ADD (e ENUM('x','y'), f INT)
INSERT INTO {d}.t (id, b, c, e, f) VALUES (4, 'b', 'c', 'y', 7)
CREATE TABLE {d}.s LIKE {d}.t
CREATE TABLE {d}.`_t_gho` LIKE {d}.t
ALTER TABLE {d}.`_t_gho` CHANGE c d VARCHAR(30), CHANGE b c VARCHAR(20)
INSERT INTO {d}.`_t_gho` SELECT first_one, id, b, c, e, f FROM {d}.t
RENAME TABLE {d}.t TO {d}.`_t_del`, {d}.`_t_gho` TO {d}.t
INSERT INTO {d}.t (id, c, d, e) VALUES (5, 'c', 'd', 'x')
DROP TABLE {d}.`_t_del`
SET GLOBAL explicit_defaults_for_timestamp = 0
CREATE TABLE {d}.stamps (id INT PRIMARY KEY, at TIMESTAMP, a INT)
SET GLOBAL explicit_defaults_for_timestamp = 1
INSERT INTO {d}.stamps VALUES (1, '2024-01-01 12:00:00', 1)
ALTER TABLE {d}.stamps CHANGE a b INT, ADD also TIMESTAMP NULL FIRST
INSERT INTO {d}.stamps (id, at, b) VALUES (2, '2024-01-01 12:00:00', 2)
DROP TABLE {d}.stamps
""".strip().splitlines()

SECOND = """
UPDATE {d}.t SET d = 'dd' WHERE id = 5
ALTER TABLE {d}.t CHANGE c d VARCHAR(20), CHANGE d c VARCHAR(30)
INSERT INTO {d}.t (id, c, d) VALUES (6, 'c', 'd')
CREATE TABLE {d}_other.hidden (id INT PRIMARY KEY, p CHAR(3), q CHAR(3))
INSERT INTO {d}_other.hidden VALUES (1, 'p', 'q')
ALTER TABLE {d}_other.hidden CHANGE p r CHAR(3) AFTER q
RENAME TABLE {d}_other.hidden TO {d}.shown
INSERT INTO {d}.shown VALUES (2, 'q', 'r')
ALTER TABLE {d}.shown ADD UNIQUE KEY (id, q), ENGINE=InnoDB, COMMENT='add column'
DELETE FROM {d}.shown WHERE id = 1
DROP TABLE {d}.shown
CREATE TABLE {d}.shown (id INT PRIMARY KEY, r CHAR(3), q CHAR(3))
INSERT INTO {d}.shown VALUES (3, 'r', 'q')
INSERT INTO {d}.s (id, b, c) VALUES (1, 'b', 'c')
/* a; comment */ ALTER TABLE {d}.s /*!50000 DROP COLUMN b, */ ADD g VARCHAR(20) AFTER id
INSERT INTO {d}.s (id, g, c) VALUES (2, 'g', 'c')
ALTER TABLE {d}.t RENAME TO {d}.u
ALTER TABLE {d}.s RENAME TO {d}.t
INSERT INTO {d}.t (id, g, c) VALUES (3, 'g', 'c')
INSERT INTO {d}.u (id, c, d) VALUES (7, 'c', 'd')
DROP TABLE {d}.u, {d}.shown
UPDATE {d}.old SET x = 1
""".strip().splitlines()


@pytest.fixture(scope="module")
def pair(module_line: Line, module_server: ThrowawayServer, request: pytest.FixtureRequest) -> Servers:
    """A server with its default metadata, and one with FULL: of the main line where the line itself cannot."""
    if module_line.can("full_metadata"):
        module_server.query(f"SET GLOBAL binlog_row_metadata = {'NO_LOG' if module_line.kind == 'mariadb' else 'MINIMAL'}")
    return module_server, request.getfixturevalue(f"{module_line.kind}_server")


def run(servers: Servers, database: str, statements: list[str]) -> None:
    for server, sql in itertools.product(servers, statements):
        try:
            server.query(sql.format(d=database))
        except pymysql.MySQLError as error:
            if error.args[0] not in (ER.UNKNOWN_SYSTEM_VARIABLE, ER.INCORRECT_GLOBAL_LOCAL_VAR):
                raise  # servers that cannot be told otherwise are as the statement says


@contextlib.contextmanager
def made_database(pair: Servers) -> Iterator[str]:
    name = f"h{next(_names)}"
    for server in pair:
        server.query(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        server.query(f"CREATE DATABASE {name}_other CHARACTER SET utf8mb4")
        server.query(f"CREATE TABLE {name}.mark (number INT)")
    yield name
    for server in pair:
        server.query(f"DROP DATABASE {name}")
        server.query(f"DROP DATABASE {name}_other")


@pytest.fixture
def database(pair: Servers) -> Iterator[str]:
    with made_database((pair[0],)) as name:
        yield name


def config(server: ThrowawayServer, database: str, **options: Any) -> canal.InstanceConfig:
    options.setdefault("alarm", fail)
    return canal.InstanceConfig(destination="h", source=source(server), filter=rf"{database}\..*", **options)


def fail(destination: str, text: str) -> None:
    if "stopped" not in text:
        pytest.fail(f"alarm: {text}")


def read(config: canal.InstanceConfig, server: ThrowawayServer) -> list[tuple[Any, ...]]:
    """All rows up to now."""
    with canal.Instance(config) as instance:
        instance.subscribe()
        return read_on(instance, server)


def read_on(instance: canal.Instance, server: ThrowawayServer) -> list[tuple[Any, ...]]:
    """All rows up to now that were not read yet: a row of its own marks the end."""
    database = instance.config.filter.partition("\\")[0]
    number = next(_names)
    server.query(f"INSERT INTO {database}.mark VALUES ({number})")
    found: list[tuple[Any, ...]] = []
    while ("INSERT", "mark", None, {"number": number}) not in found:
        message = instance.get(100, timeout=60)
        assert message
        found += rows_of(message)
    instance.get(1, timeout=0)  # acks
    return [row for row in found if row[1] != "mark"]


def rows_of(message: canal.Message) -> list[tuple[Any, ...]]:
    return [
        (entry.event_type.name, entry.header.table, row.before and row.before.as_dict(), row.after and row.after.as_dict())
        for entry in message.entries
        for row in entry.rows
    ]


@attrs.frozen
class Loaded:
    """The rows of the load, read in several ways without FULL metadata, and what they are with it."""

    full: list[tuple[Any, ...]]
    along: list[tuple[Any, ...]]
    late: list[tuple[Any, ...]]
    pieces: list[tuple[Any, ...]]
    past: list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def loaded(pair: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    with made_database(pair) as database:
        start, full_start = (end_of_log(server) for server in pair)
        along: list[tuple[Any, ...]] = []
        plain, folder = pair[0], tmp_path_factory.mktemp("history")
        stored: dict[str, Any] = {"meta": canal.FileMeta(folder), "start": start}
        with canal.Instance(config(plain, database)) as instance:
            instance.subscribe()
            for sql in FIRST[:4]:  # these tables are there before the stored history begins
                run(pair, database, [sql])
                along += rows_of(instance.get(100, timeout=0.05))
            pieces = along[:]
            stored["start"] = end_of_log(plain)
            pieces += read(config(plain, database, **stored), plain)
            for sql in FIRST[4:]:
                run(pair, database, [sql])
                along += rows_of(instance.get(100, timeout=0.05))
            middle, done = end_of_log(plain), len(pieces)
            pieces += read(config(plain, database, **stored), plain)
            past_from = len(pieces)
            for sql in SECOND:
                run(pair, database, [sql])
                along += rows_of(instance.get(100, timeout=0.05))
            pieces += read(config(plain, database, **stored), plain)
            along += read_on(instance, plain)
        assert done < past_from < len(pieces)
        past = config(plain, database, start=middle, schema_history=canal.FileHistory(folder))
        yield Loaded(
            full=read(config(pair[1], database, start=full_start), pair[1]),
            along=[row for row in along if row[1] != "mark"],
            late=read(config(plain, database, start=start), plain),
            pieces=pieces,
            past=pieces[:past_from] + read(past, plain),
        )


def test_reading_late_gives_the_names_of_then(loaded: Loaded) -> None:
    """T75, T76, T80, T81: every change has happened before the first row is read."""
    assert loaded.late == loaded.full


def test_reading_along_gives_the_names_of_then(loaded: Loaded) -> None:
    """T77, T78, T82, T84."""
    assert loaded.along == loaded.full
    assert len(loaded.full) > 15


def test_restarts_give_the_names_of_then(loaded: Loaded) -> None:
    """Of a reader that was away while tables were changed."""
    assert loaded.pieces == loaded.full


def test_a_start_in_the_past_gives_the_names_of_then(loaded: Loaded) -> None:
    """T85: schemas are picked by position."""
    assert loaded.past == loaded.full


def test_a_start_in_the_past_without_a_history_is_an_error_that_names_both_places(pair: Servers, database: str) -> None:
    run(pair[:1], database, FIRST[:4])
    start = end_of_log(pair[0])
    run(pair[:1], database, ["UPDATE {d}.old SET x = 5", "INSERT INTO {d}.t VALUES (9, 'a', 'b')", FIRST[5]])
    instance = canal.Instance(config(pair[0], database, start=start))
    with instance:
        instance.subscribe()
        found = []
        with pytest.raises(canal.errors.SchemaError, match=rf"{database}\.t .*after .*as of a later change at .*schema_history"):
            while True:
                found += rows_of(instance.get(100, timeout=5))

    assert [(row[1], row[3]["x"]) for row in found] == [("old", 5)]


def test_a_filter_that_takes_in_more_tables_knows_them(pair: Servers, database: str, tmp_path: Path) -> None:
    """T94: the tables that were left out before have been followed all the same."""
    run(pair[:1], database, FIRST[:3])
    options: dict[str, Any] = {"meta": canal.FileMeta(tmp_path), "start": end_of_log(pair[0]), "alarm": fail}
    narrow = canal.InstanceConfig(destination="h", source=source(pair[0]), filter=rf"{database}\.(old|mark)", **options)
    read(narrow, pair[0])
    run(pair[:1], database, ["ALTER TABLE {d}.t CHANGE a n VARCHAR(20)"])
    read(narrow, pair[0])
    run(pair[:1], database, ["INSERT INTO {d}.t VALUES (2, 'n', 'b')", "ALTER TABLE {d}.t CHANGE n m VARCHAR(20)"])

    assert read(config(pair[0], database, **options), pair[0])[0][3] == {"id": 2, "n": "n", "b": "b"}


BESIDE = ("CREATE TABLE {d}_other.t (id INT PRIMARY KEY, a CHAR(1), b CHAR(1))", "INSERT INTO {d}_other.t VALUES (1, 'a', 'b')")
COMES = ("RENAME TABLE {d}_other.t TO {d}.t", "INSERT INTO {d}.t VALUES (2, 'c', 'd')")
CHANGED = ("ALTER TABLE {d}.t CHANGE a z CHAR(1) AFTER b", "INSERT INTO {d}.t VALUES (3, 'e', 'f')")


def test_a_table_of_a_database_that_was_not_read_is_looked_up_when_it_comes_into_the_filter(
    pair: Servers, database: str, tmp_path: Path
) -> None:
    """Before it has any rows, and followed from there on: nothing of its database was read, as the filter takes none of it."""
    run(pair[:1], database, list(BESIDE))
    options: dict[str, Any] = {"meta": canal.FileMeta(tmp_path), "start": end_of_log(pair[0])}
    with canal.Instance(config(pair[0], database, **options)) as instance:
        instance.subscribe()
        run(pair[:1], database, list(COMES[:1]))
        assert read_on(instance, pair[0]) == []
    run(pair[:1], database, list(CHANGED))

    assert [row[3] for row in read(config(pair[0], database, **options), pair[0])] == [{"id": 3, "b": "e", "z": "f"}]


def test_a_table_that_came_into_the_filter_and_was_changed_before_anybody_looked_is_an_error(
    pair: Servers, database: str, tmp_path: Path
) -> None:
    run(pair[:1], database, list(BESIDE))
    options: dict[str, Any] = {"meta": canal.FileMeta(tmp_path), "start": end_of_log(pair[0])}
    read(config(pair[0], database, **options), pair[0])
    run(pair[:1], database, [*COMES, *CHANGED])

    with pytest.raises(canal.errors.SchemaError, match=rf"{database}\.t are unknown .*as of a later change at .*schema_history"):
        read(config(pair[0], database, **options), pair[0])


def test_a_statement_that_cannot_be_parsed_stops_nothing_and_shifts_nothing(
    pair: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T83: the table is read again where that is proved to be right."""
    from canal.parse.schema import statement_run

    def not_understood(*args: Any) -> None:
        raise statement_run.NotUnderstoodError("a word of a later version")

    run(pair[:1], database, FIRST[:4])
    with canal.Instance(config(pair[0], database)) as instance:
        instance.subscribe()
        monkeypatch.setattr(statement_run, "read_alteration", not_understood)
        run(pair[:1], database, ["ALTER TABLE {d}.t CHANGE a n VARCHAR(20), CHANGE b a VARCHAR(20)"])
        run(pair[:1], database, ["INSERT INTO {d}.t VALUES (2, 'n', 'a')", "UPDATE {d}.old SET x = 5"])
        found = read_on(instance, pair[0])

    assert [row[3] for row in found][0] == {"id": 2, "n": "n", "a": "a"}
    assert found[1][1] == "old"


def test_what_was_read_of_a_table_is_known_to_a_reader_that_resumes_before(
    pair: Servers, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reader, which is not acked, reads a table; later the source tells another one."""
    from canal.parse.schema import statement_run

    reader = statement_run.read_alteration

    def not_understood(scan: Any, *args: Any) -> Any:
        found = reader(scan, *args)
        if any(one.name == "n" for one in found.placed):
            raise statement_run.NotUnderstoodError("a word of a later version")
        return found

    monkeypatch.setattr(statement_run, "read_alteration", not_understood)
    run(pair[:1], database, FIRST[:3])
    options: dict[str, Any] = {"meta": canal.FileMeta(tmp_path), "start": end_of_log(pair[0])}
    read(config(pair[0], database, **options), pair[0])
    run(pair[:1], database, ["ALTER TABLE {d}.t CHANGE a n VARCHAR(20), CHANGE b a VARCHAR(20)"])
    run(pair[:1], database, ["INSERT INTO {d}.t VALUES (2, 'n', 'a')"])
    for _ in range(2):
        with canal.Instance(config(pair[0], database, **options)) as instance:
            instance.subscribe()
            rows: list[Any] = []
            while not rows or rows[-1][1] == "mark":  # nothing is acked
                rows += rows_of(instance.get_without_ack(1, timeout=60))
            row = rows[-1]
            assert row[3] == {"id": 2, "n": "n", "a": "a"}
        run(pair[:1], database, ["ALTER TABLE {d}.t CHANGE a z VARCHAR(20)", "ALTER TABLE {d}.t CHANGE z a VARCHAR(20)"])

    run(pair[:1], database, ["INSERT INTO {d}.t VALUES (3, 'n', 'a')"])
    found = [row[3] for row in read(config(pair[0], database, **options), pair[0])]
    assert found == [{"id": 2, "n": "n", "a": "a"}, {"id": 3, "n": "n", "a": "a"}]


@pytest.mark.lines("mariadb")
def test_a_statement_that_failed_half_way_is_not_taken_for_done(pair: Servers, database: str) -> None:
    """MariaDB logs a CREATE OR REPLACE that fails behind its DROP, with its error: the table is gone."""
    with canal.Instance(config(pair[0], database)) as instance:
        instance.subscribe()
        run(pair[:1], database, ["CREATE TABLE {d}.t (id INT)"])
        with pytest.raises(pymysql.MySQLError):
            pair[0].query(f"CREATE OR REPLACE TABLE {database}.t (a INT, b BLOB, c INT) PARTITION BY KEY (b)")
        run(pair[:1], database, ["CREATE TABLE IF NOT EXISTS {d}.t (c INT, b BLOB, a INT)"])
        run(pair[:1], database, ["INSERT INTO {d}.t VALUES (1, 'b', 2)"])
        found = read_on(instance, pair[0])

    assert [row[3] for row in found] == [{"c": 1, "b": b"b", "a": 2}]


# -- random statements -------------------------------------------------------------------------------------------------


def of(load: Load) -> str:
    return "|".join(re.escape(database) + r"\..*" for database in load.databases)


@contextlib.contextmanager
def made_load(server: ThrowawayServer, seed: int) -> Iterator[Load]:
    name = f"r{next(_names)}"
    load = Load(server, (name, f"{name}_x" if is_older(server) else f"{name}`.x"), seed)
    try:
        yield load
    finally:
        load.close()
        for database in load.databases:
            quoted = database.replace("`", "``")
            server.query(f"DROP DATABASE IF EXISTS `{quoted}`")


@pytest.mark.slow
@pytest.mark.any_setup
@pytest.mark.needs("full_image")
@pytest.mark.every_line
def test_random_statements_give_the_rows_that_the_server_had(pair: Servers, full_size: bool, thorough: bool) -> None:
    """T75 to T85: read when all is over, so that a look-up sees the last columns only.

    CANAL_DDL_SEED begins at another seed; a soak run makes many more.
    """
    seed = int(os.environ.get("CANAL_DDL_SEED", "0"))
    for number in range(seed, seed + (300 if full_size else 2 if thorough else 1)):
        print(f"CANAL_DDL_SEED={number}")
        start = end_of_log(pair[0])
        with made_load(pair[0], number) as load:
            while len(load.statements) < 100:
                load.step()
            config = canal.InstanceConfig(destination="r", source=source(pair[0]), filter=of(load), start=start, alarm=fail)
            found: list[Change] = []
            with canal.Instance(config) as instance:
                instance.subscribe()
                while len(found) < len(load.expected):
                    message = instance.get(500, timeout=60)
                    assert message, load.expected[len(found)]
                    found += (change for _, change in changes_of(message))
            assert found == load.expected


@pytest.mark.slow
def test_a_reader_that_is_killed_again_and_again_gives_the_rows_that_the_server_had(
    pair: Servers, tmp_path: Path, full_size: bool, thorough: bool
) -> None:
    """SIGKILL of the whole process while tables change; what is delivered again is the same."""
    seed, kills = int(os.environ.get("CANAL_DDL_SEED", "0")), 200 if full_size else 10 if thorough else 3
    print(f"CANAL_DDL_SEED={seed}")
    start = end_of_log(pair[0])
    server, chance = pair[0], random.Random(seed)
    options = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with made_load(server, seed) as load:
        forker = subprocess.Popen(
            [sys.executable, "-m", "tests.programs.ddl_child", str(tmp_path), of(load), start.to_text(), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert forker.stdin is not None
        assert forker.stdout is not None
        done = threading.Event()

        def change() -> None:
            while not done.is_set():
                load.step()

        changer = threading.Thread(target=change)
        changer.start()
        try:
            for number in range(kills + 1):
                forker.stdin.write("\n")
                forker.stdin.flush()
                child = int(forker.stdout.readline())
                if number == kills:
                    break
                time.sleep(chance.uniform(0.05, 1.0))
                kill(child)
            while len(load.expected) <= 5 * kills and changer.is_alive():
                time.sleep(0.05)
        finally:
            done.set()
            changer.join()
        rows: dict[tuple[Any, ...], Change] = {}
        deadline = time.monotonic() + 60
        while len(rows) < len(load.expected) and time.monotonic() < deadline:
            time.sleep(0.2)
            rows = read_rows(tmp_path / "rows")
        kill(child)
        forker.stdin.close()
        forker.wait()
        forker.stdout.close()
    assert [rows[position] for position in sorted(rows)] == load.expected
    assert len(rows) > 5 * kills


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        while True:  # until its locks are gone too
            os.kill(process, signal.SIGKILL)
            time.sleep(0.01)


def read_rows(path: Path) -> dict[tuple[Any, ...], Change]:
    """What the readers wrote, by position; a line that a kill cut off comes again."""
    rows: dict[tuple[Any, ...], Change] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            position, change = json.loads(line)
            assert rows.setdefault(tuple(position), tuple(change)) == tuple(change)
    return rows
