"""What a row event's columns are, on every line: their signs, charsets, labels, nullability, and those that are not for anybody.

The servers say what is right: values are compared with what SELECT gives.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import canal
from canal.binlog.server_facts import Release
from canal.parse.schema.map_schema import schema_from_map
from canal.parse.schema.raw_map import parse_table_map
from canal.schema import GEOMETRY_KINDS
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.live import Watch, end_of_log, rows_of, source

SIZES = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
#: Types with two literals each: the first is one that another sign or charset would change.
TYPES: dict[str, tuple[str, str]] = {
    **{name: (f"-{1 << bits - 1}", "7") for name, bits in zip(SIZES, (8, 16, 24, 32, 64))},
    **{f"{name} UNSIGNED": (f"{(1 << bits) - 1}", "7") for name, bits in zip(SIZES, (8, 16, 24, 32, 64))},
    "DECIMAL(9,2) UNSIGNED": ("9999999.99", "0.01"),
    "DECIMAL(30,10)": ("-1.5", "1e19"),
    "FLOAT": ("-1.5", "0.25"),
    "FLOAT UNSIGNED": ("1.5", "0"),
    "DOUBLE": ("-1e300", "0"),
    "DOUBLE UNSIGNED": ("1e300", "0"),
    "YEAR": ("2020", "1901"),
    "BIT(9)": ("b'101010101'", "b'1'"),
    "DATE": ("'2026-02-03'", "'1000-01-01'"),
    "TIME": ("'-01:02:03'", "'00:00:00'"),
    "DATETIME": ("'2026-02-03 04:05:06'", "'1000-01-01 00:00:00'"),
    "TIMESTAMP NULL": ("'2026-02-03 04:05:06'", "'1971-01-01 00:00:01'"),
    "CHAR(5) CHARACTER SET latin1": ("'é'", "''"),
    "VARCHAR(300) CHARACTER SET cp1251": ("'ж'", "'a'"),
    "TEXT CHARACTER SET utf8mb4": ("'😀'", "'a'"),
    "VARCHAR(9) CHARACTER SET utf16": ("'ü'", "'a'"),
    "VARCHAR(20) CHARACTER SET sjis": ("'ソ'", "'a'"),
    "BINARY(4)": ("'ab'", "'abcd'"),
    "VARBINARY(9)": ("x'ff00'", "'a'"),
    "BLOB": ("x'ff00'", "'a'"),
    "POINT": ("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(-1 0)')"),
    "ENUM('a','ü') CHARACTER SET latin1": ("'ü'", "'a'"),
    "SET('ж','ы') CHARACTER SET cp1251": ("'ж,ы'", "''"),
    "ENUM('a{','ö') CHARACTER SET utf16": ("'ö'", "'a{'"),
    "ENUM('É','x') CHARACTER SET swe7": ("'É'", "'x'"),
    "SET('あ','b') CHARACTER SET ujis": ("'あ,b'", "'b'"),
    "ENUM('ß','é') CHARACTER SET utf8": ("'ß'", "'é'"),
}


def types_of(line: Line) -> dict[str, tuple[str, str]]:
    found = dict(TYPES)
    if line.kind == "mysql" and line.can("json"):
        found["JSON"] = ("""'{"a": [1]}'""", "'null'")
    if line.can("vector"):
        function = "STRING_TO_VECTOR" if line.kind == "mysql" else "VEC_FromText"
        found["VECTOR(2)"] = f"{function}('[1,2]')", f"{function}('[0,0]')"
    if line.can("inet6"):
        found["INET6"] = ("'::1'", "'::'")
    if not line.can("initialize") and line.kind == "mysql":  # before 5.7: no such functions
        found["POINT"] = ("GeomFromText('POINT(1 2)')", "GeomFromText('POINT(-1 0)')")
    return found


def random_tables(line: Line, seed: int, count: int) -> Iterator[list[str]]:
    chance = random.Random(seed)
    types = list(types_of(line))
    for _ in range(count):
        chosen = chance.choices(types, k=chance.randint(1, 40))
        chosen.insert(chance.randrange(len(chosen)), "YEAR")
        # Old servers spoil the labels of two columns that have the same.
        yield [one for i, one in enumerate(chosen) if "('" not in one or one not in chosen[:i]]


def selected(columns: Sequence[str], types: Sequence[str]) -> str:
    """The columns as SELECT gives what a row gives: bits as numbers, vectors as bytes."""
    forms = {"BIT(9)": "{}+0", "VECTOR(2)": "UNHEX(HEX({}))"}
    return ", ".join(forms.get(kind, "{}").format(name) for name, kind in zip(columns, types))


def run(server: ThrowawayServer, *statements: str) -> None:
    """Statements of one session."""
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)
        connection.commit()


def comparable(value: Any) -> Any:
    if getattr(value, "tzinfo", None) is not None:
        return value.replace(tzinfo=None)
    return bytes(value) if isinstance(value, (bytes, bytearray)) else value


@pytest.mark.every_line
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_tables_of_random_types_have_the_values_signs_and_charsets_that_the_server_has(
    own_server: ThrowawayServer, line: Line, metadata: str
) -> None:
    if line.can("full_metadata"):
        own_server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    own_server.query("CREATE DATABASE d CHARACTER SET utf8mb4")
    statements, tables = ["SET NAMES utf8mb4", "SET time_zone = '+00:00'"], {}
    for number, types in enumerate(random_tables(line, 13, 40)):
        literals = types_of(line)
        columns = tables[f"t{number}"] = {f"c{i}": kind for i, kind in enumerate(types)}
        body = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        statements.append(f"CREATE TABLE d.t{number} ({body}) ENGINE=MyISAM")
        statements += [f"INSERT INTO d.t{number} VALUES ({', '.join(literals[kind][n] for kind in types)})" for n in (0, 1)]

    with Watch(own_server, "d\\..*") as watch:
        watch.run(*statements)
        entries = [entry for entry in watch.read() if entry.table is not None]

    found: dict[str, list[Any]] = {}
    for entry in entries:
        assert entry.table is not None
        found.setdefault(entry.header.table, []).extend(tuple(map(comparable, after)) for _, after in entry.rows)
        for column, kind in zip(entry.table.columns, tables[entry.header.table].values()):
            assert column.unsigned == ("UNSIGNED" in kind), f"{column} of {kind}"
            if charset := kind.partition("CHARACTER SET ")[2]:
                assert (column.charset or "").replace("utf8mb3", "utf8") == charset
    with own_server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for name, columns in tables.items():
            cursor.execute(f"SELECT {selected(list(columns), list(columns.values()))} FROM d.{name}")
            assert found[name] == [tuple(map(comparable, row)) for row in cursor.fetchall()], columns


FUNCTIONAL = """
CREATE TABLE {d}.f (id INT PRIMARY KEY, a INT, b VARCHAR(20), KEY k1 ((a + 1)), UNIQUE k2 ((UPPER(b)), a, (ABS(a))))
INSERT INTO {d}.f VALUES (1, -7, 'x'), (2, 8, NULL)
UPDATE {d}.f SET a = 5 WHERE id = 1
ALTER TABLE {d}.f ADD c INT UNSIGNED DEFAULT 9
INSERT INTO {d}.f VALUES (3, -7, 'y', 4000000000)
ALTER TABLE {d}.f RENAME INDEX k2 TO k3
CREATE INDEX k9 ON {d}.f ((c MOD 7))
ALTER TABLE {d}.f ADD d YEAR FIRST, ADD KEY ((d MOD 7)), ADD e TINYINT UNSIGNED, ADD KEY ((e MOD 7), id)
INSERT INTO {d}.f VALUES (2001, 4, 1, 'z', 4000000001, 200)
ALTER TABLE {d}.f DROP INDEX k1
UPDATE {d}.f SET c = 4000000002 WHERE id = 4
ALTER TABLE {d}.f DROP INDEX k3, ADD INDEX k3 ((LOWER(b))), MODIFY a BIGINT FIRST
CREATE TABLE {d}.g LIKE {d}.f
INSERT INTO {d}.g SELECT * FROM {d}.f
DROP INDEX functional_index ON {d}.f
DELETE FROM {d}.f WHERE id = 2
ALTER TABLE {d}.g DROP PRIMARY KEY, DROP INDEX k3
ALTER TABLE {d}.g DROP COLUMN b
UPDATE {d}.g SET e = 201 WHERE id = 4
"""


@pytest.mark.every_line
@pytest.mark.needs("functional_keys")
@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
@pytest.mark.parametrize("late", [False, True], ids=["along", "late"])
def test_columns_of_functional_keys_are_not_among_those_of_rows(
    own_server: ThrowawayServer, metadata: str, image: str, late: bool, tmp_path: Path
) -> None:
    """The tables of a client that applies the changes are those of the server; a reader that comes late is one with a history."""
    run(own_server, "CREATE DATABASE d", f"SET GLOBAL binlog_row_metadata = {metadata}", f"SET GLOBAL binlog_row_image = {image}")
    statements = FUNCTIONAL.format(d="d").strip().splitlines()
    history = canal.FileHistory(tmp_path)
    entries = []
    for some in [statements] if not late else [statements[:4], statements[4:9], statements[9:]]:
        options: dict[str, Any] = {"schema_history": history, "meta": canal.FileMeta(tmp_path)}
        with Watch(own_server, "d\\..*", **options) as watch:
            if not late:
                watch.run(*some)
            entries += watch.read()
        if late:
            run(own_server, *some)
    if late:
        with Watch(own_server, "d\\..*", schema_history=history, meta=canal.FileMeta(tmp_path)) as watch:
            entries += watch.read()

    tables: dict[str, dict[int, dict[str, Any]]] = {"f": {}, "g": {}}
    for entry in entries:
        assert entry.table is not None or entry.sql is not None or not entry.rows
        if entry.table is None:
            continue
        names = [column.name for column in entry.table.columns]
        assert set(names) <= set("idabcde") | {"id"}
        assert entry.table.schema.columns == entry.table.columns
        for before, after in entry.rows:
            old, new = ({n: v for n, v in zip(names, row or ()) if v is not canal.ABSENT} for row in (before, after))
            row = tables[entry.header.table].pop(old["id"]) if before is not None else {}
            if after is not None:
                tables[entry.header.table][{**row, **new}["id"]] = {**row, **new}
    for table, rows in tables.items():
        with own_server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM d.{table} ORDER BY id")
            names = [one[0] for one in cursor.description]
            stored = [dict(zip(names, row)) for row in cursor.fetchall()]
        assert [{n: row.get(n, 9 if n == "c" else None) for n in names} for _, row in sorted(rows.items())] == stored


RULES: dict[str, Callable[[int], Any]] = {
    "v": lambda a: a * 2,
    "s": lambda a: a * 3,
    "w": lambda b: f"w{b}",
    "x": lambda b: b + 1,
}


@pytest.mark.every_line
@pytest.mark.needs("generated")
@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_a_virtual_column_has_its_value_or_none_at_all(own_server: ThrowawayServer, line: Line, image: str) -> None:
    stored = "PERSISTENT" if line.kind == "mariadb" else "STORED"
    if line.can("full_metadata"):
        own_server.query("SET GLOBAL binlog_row_metadata = MINIMAL")
    run(own_server, "CREATE DATABASE d CHARACTER SET utf8mb4", f"SET GLOBAL binlog_row_image = {image}")
    versioned = [" WITH SYSTEM VERSIONING"] if line.can("versioning") else []
    trusted = line.facts.fits(["mysql", "mariadb>=10.5"])

    for number, options in enumerate(["", *versioned]):
        with Watch(own_server, "d\\..*") as watch:
            watch.run(
                f"CREATE TABLE d.v{number} (id INT PRIMARY KEY, a INT, v INT AS (a * 2) VIRTUAL, s INT AS (a * 3) {stored},"
                f" b INT, w VARCHAR(9) AS (CONCAT('w', b))){options}",
                f"INSERT INTO d.v{number} (id, a, b) VALUES (1, 1, 1), (2, 2, 2)",
                f"UPDATE d.v{number} SET b = b + 5",
                f"ALTER TABLE d.v{number} ADD x INT AS (b + 1), CHANGE v v2 INT AS (a * 2) VIRTUAL" if not options else "DO 0",
                f"UPDATE d.v{number} SET a = 10 WHERE id = 2",
                f"REPLACE INTO d.v{number} (id, a) VALUES (2, 9)",
                f"DELETE FROM d.v{number}",
            )
            entries = [entry for entry in watch.read() if entry.table is not None]

        seen = 0
        for table, row in ((one.table, row) for one in entries for pair in one.rows for row in pair if row is not None):
            assert table is not None
            values = dict(zip((column.name[:1] for column in table.columns), row))
            for name, of in (("v", "a"), ("w", "b"), ("x", "b"), ("s", "a")):
                value, base = values.get(name, canal.ABSENT), values[of]
                if name != "s" and not (trusted and not options):
                    assert value is canal.ABSENT
                elif canal.ABSENT not in (value, base):
                    seen += 1
                    assert value == (None if base is None else RULES[name](base))
        assert seen


@pytest.mark.every_line
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_labels_with_characters_of_4_bytes_are_told_by_the_log_or_marked(
    own_server: ThrowawayServer, line: Line, metadata: str
) -> None:
    """information_schema has "?" for them: from a table map or the text of a statement they are known."""
    if line.can("full_metadata"):
        own_server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    is_told = line.can("full_metadata") and metadata == "FULL"
    with own_server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d CHARACTER SET utf8mb4")
        labels = "a ENUM('a😀','ö','b😁','?'), b SET('😀','?','c')"
        cursor.execute(f"CREATE TABLE d.e ({labels}, c ENUM('?','x') CHARACTER SET latin1)")
        with Watch(own_server, "d\\..*") as watch:
            cursor.execute("INSERT INTO d.e VALUES ('b😁', '?,c', '?'), ('ö', '', 'x'), ('?', 'c', 'x')")
            connection.commit()
            before = [entry for entry in watch.read() if entry.table is not None]
            cursor.execute(f"ALTER TABLE d.e MODIFY {labels.replace(', b', ', MODIFY b')}")
            cursor.execute("INSERT INTO d.e VALUES ('b😁', '?,c', '?')")
            connection.commit()
            after = [entry for entry in watch.read() if entry.table is not None]

    rows = [tuple(row) for entry in before for _, row in entry.rows]
    plain = [("b😁", "?,c", "?"), ("ö", "", "x"), ("?", "c", "x")]
    if is_told:
        assert rows == plain
    else:
        assert rows == [(b"b?", b"?,c", "?"), ("ö", "", "x"), (b"?", "c", "x")]
        assert all(isinstance(value, canal.InvalidText) for value in (*rows[0][:2], rows[2][0]))
        assert [getattr(value, "number", None) for value in rows[0]] == [3, 6, None]
    assert [tuple(row) for entry in after for _, row in entry.rows] == plain[:1]
    datas = [data.after_columns for entry in (*before, *after) for data in entry.row_change.row_datas]
    numbers = [tuple(column.value for column in data) for data in datas]
    assert numbers == [("3", "6", "1"), ("2", "0", "2"), ("4", "4", "2"), ("3", "6", "1")]


@pytest.mark.every_line
def test_the_end_of_a_temporary_table_is_not_the_end_of_one_that_is_called_so(own_server: ThrowawayServer, line: Line) -> None:
    if line.can("full_metadata"):
        own_server.query("SET GLOBAL binlog_row_metadata = MINIMAL")
    run(own_server, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a INT)", "CREATE TABLE d.u (id INT)")
    with Watch(own_server, "d\\..*") as watch:
        watch.run(
            "USE d",
            "CREATE TEMPORARY TABLE t (x TEXT)",
            "INSERT INTO t VALUES ('x')",
            "ALTER TABLE t ADD y INT",
            "TRUNCATE t",
            "ALTER TABLE t RENAME TO u",
            "DROP TABLE u",
            "CREATE TEMPORARY TABLE t LIKE u",
            "DROP TEMPORARY TABLE IF EXISTS t, none",
            "CREATE TEMPORARY TABLE t SELECT 1 AS b",
            "INSERT INTO d.u VALUES (1)",
        )
        # The session is over: what it left is dropped, at some time soon.
        with own_server.connect() as connection, connection.cursor() as cursor:
            while cursor.execute(
                "SELECT 1 FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command = 'Sleep' AND db = 'd'"
            ):
                cursor.fetchall()
        watch.run("INSERT INTO d.t VALUES (1, 2)", "INSERT INTO d.u VALUES (2)", "DROP TABLE d.u")
        entries = watch.read()

    assert {name for name, kind, *_ in rows_of(entries) if kind == "ERASE"} == {"u"}
    ends = [entry for entry in entries if entry.sql is not None and "DROP" in entry.sql]
    assert [entry.event_type.name for entry in ends] == ["QUERY"] * (len(ends) - 1) + ["ERASE"]
    assert all(entry.statement.temporary for entry in ends[:-1])
    assert [row for row in rows_of(entries) if row[1] == "INSERT"] == [
        ("u", "INSERT", None, (1,)),
        ("t", "INSERT", None, (1, 2)),
        ("u", "INSERT", None, (2,)),
    ]


@pytest.mark.every_line
@pytest.mark.parametrize("setting", ["ON", "OFF"])
def test_a_timestamp_that_does_not_say_whether_it_may_be_null_is_known_after_a_restart(
    line: Line, setting: str, tmp_path: Path
) -> None:
    """Only a setting of the server decides, which older logs do not tell; the table map does."""
    metadata = ["--binlog-row-metadata=MINIMAL"] if line.can("full_metadata") else []
    explicit = [f"--loose-explicit-defaults-for-timestamp={setting}"]
    with line.server(*metadata, *explicit) as server:
        server.query("CREATE DATABASE d")
        statements = [
            "CREATE TABLE d.t (id INT PRIMARY KEY, a TIMESTAMP)",
            "INSERT INTO d.t VALUES (1, '2026-01-01 00:00:00')",
            "ALTER TABLE d.t ADD b TIMESTAMP DEFAULT '2020-01-01 00:00:00', ADD c INT",
            "INSERT INTO d.t VALUES (2, '2026-01-01 00:00:00', '2026-01-01 00:00:00', 5)",
            "ALTER TABLE d.t DROP c, ADD e INT FIRST",
            "INSERT INTO d.t VALUES (6, 3, '2026-01-01 00:00:00', '2026-01-01 00:00:00')",
            "ALTER TABLE d.t DROP a",
        ]
        found = []
        for some in ((), statements[:2], statements[2:]):
            with Watch(server, "d\\..*", schema_history=canal.FileHistory(tmp_path), meta=canal.FileMeta(tmp_path)) as watch:
                found += watch.read()
            run(server, *some)
        with Watch(server, "d\\..*", schema_history=canal.FileHistory(tmp_path), meta=canal.FileMeta(tmp_path)) as watch:
            found += watch.read()

    assert [len(row[3]) for row in rows_of(found) if row[1] == "INSERT"] == [2, 4, 4]
    assert [row[3][0] for row in rows_of(found) if row[1] == "INSERT"] == [1, 2, 6]


@pytest.mark.every_line
@pytest.mark.needs("full_metadata", "uncompressed")
def test_a_log_says_by_itself_which_columns_are_unsigned(server: ThrowawayServer, database: str) -> None:
    """By the lengths of its bits or by its release: with nobody to ask, and no file but the log."""
    orders = list(itertools.permutations(("YEAR", "INT UNSIGNED", "TINYINT", "DECIMAL(5,1) UNSIGNED")))
    wide = [["YEAR"] + ["INT UNSIGNED"] * 8, ["INT"] * 4 + ["YEAR"] * 5 + ["INT UNSIGNED"] * 4]
    for number, types in enumerate([*orders, *wide]):
        body = ", ".join(f"c{i} {kind}" for i, kind in enumerate(types))
        run(server, f"CREATE TABLE {database}.t{number} ({body})", f"INSERT INTO {database}.t{number} (c0) VALUES (1)")

    start = canal.Position(journal=end_of_log(server).journal, offset=4)
    connection = source(server).connect()
    release = Release.parse(server.version + ("-MariaDB" if server.kind == "mariadb" else ""))
    sealed = 0 if server.query("SELECT @@global.binlog_checksum")[0][0] == "NONE" else 4
    maps = [event[25 : len(event) - sealed] for event in connection.replay(start.journal, 4) if event[4] == 19]
    connection.close()
    found = {}
    for body in maps:
        raw = parse_table_map(body, release)
        if raw.schema == database:
            found[int(raw.table[1:])] = [column.unsigned for column in schema_from_map(raw).columns]
    assert found == {n: ["UNSIGNED" in kind for kind in types] for n, types in enumerate([*orders, *wide])}


@pytest.mark.every_line
@pytest.mark.needs("full_metadata")
def test_the_kind_of_a_geometry_is_the_one_that_the_server_shows(own_server: ThrowawayServer) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(GEOMETRY_KINDS))
    run(own_server, "CREATE DATABASE d")
    with Watch(own_server, "d\\..*") as watch:
        for metadata in ("FULL", "MINIMAL"):
            own_server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
            watch.run(f"CREATE TABLE d.{metadata} ({columns})", f"INSERT INTO d.{metadata} (c0) VALUES (NULL)", "COMMIT")
        tables = [entry.table for entry in watch.read() if entry.table is not None]

    shown = own_server.query(
        "SELECT column_type FROM information_schema.columns WHERE table_schema = 'd' AND table_name = 'FULL'"
        " ORDER BY ordinal_position"
    )
    assert len(tables) == 2
    for table in tables:
        assert [column.column_type for column in table.columns] == [str(kind) for (kind,) in shown]


@pytest.mark.every_line
@pytest.mark.lines("mariadb>=10.5")  # older ones refuse such a column
@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
def test_a_virtual_column_of_the_auto_increment_one_is_absent(own_server: ThrowawayServer, metadata: str) -> None:
    """MariaDB logs what the column would be if the number of a new row were 0."""
    own_server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    run(
        own_server,
        "CREATE DATABASE d CHARACTER SET utf8mb4",
        "CREATE TABLE d.known (id INT AUTO_INCREMENT PRIMARY KEY, a INT, v VARCHAR(9) AS (CONCAT('N', id)), y INT AS (a + 1))",
    )
    with Watch(own_server, "d\\..*") as watch:
        watch.run(
            "INSERT INTO d.known (a) VALUES (1)",
            "CREATE TABLE d.made (id INT AUTO_INCREMENT UNIQUE, a INT, v VARCHAR(9) AS (CONCAT('N', id)), w INT AS (LENGTH(v)),"
            " y INT AS (a + 1))",
            "INSERT INTO d.made (a) VALUES (1)",
            "ALTER TABLE d.known ADD z INT AS (id + 1)",
            "INSERT INTO d.known (a) VALUES (2)",
            "COMMIT",
        )
        rows = [row.after.as_dict() for entry in watch.read() for row in entry.rows]

    absent = [{name for name, value in row.items() if value is canal.ABSENT} for row in rows]
    assert absent == [{"v"}, {"v", "w"}, {"v", "z"}]
