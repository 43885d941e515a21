"""Each type of the source in a column of each type of a target: the value is the same, or refused by an error."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import canal
from canal.schema import column_from_text
from canal.targets import JSONLinesTarget
from canal.testing.servers import ThrowawayServer
from tests.programs.equality import PLACES, Place, target_of
from tests.support.live import end_of_log, source
from tests.support.random_tables import KINDS, Column, plain, source_expression, source_value
from tests.support.target_servers import PostgreSQLServer
from tests.support.waiting import until

TYPES: Final[Mapping[str, Sequence[str]]] = {
    "postgresql": [
        *("smallint", "integer", "bigint", "numeric", "numeric(10,2)", "numeric(12,4)", "numeric(5,1)", "numeric(20,0)"),
        *("numeric(10,-2)", "real", "double precision", "money", "boolean", "text", "varchar(3)", "varchar(20)", "varchar(200)"),
        *("varchar", "char(20)", "name", '"char"', "bytea", "date", "time", "time(0)", "timetz", "timestamp", "timestamp(0)"),
        *("timestamp(3)", "timestamptz", "timestamptz(0)", "interval", "interval(0)", "interval hour", "interval day to second"),
        *("json", "jsonb", "uuid", "bit(8)", "bit varying(64)", "xml", "inet", "oid", "text[]"),
    ],
    "sqlite": [
        *("INTEGER", "INT", "BIGINT", "REAL", "DOUBLE", "FLOAT", "NUMERIC", "DECIMAL(10,2)", "TEXT", "VARCHAR(3)", "CHAR(20)"),
        *("BLOB", "", "DATE", "DATETIME", "BOOLEAN", "TIMESTAMP", "JSON", "STRING", "POINT", "CHARINT", "ANY"),
    ],
    "duckdb": [
        *("TINYINT", "UINTEGER", "BIGINT", "HUGEINT", "DECIMAL(10,2)"),  # each value that is refused costs a commit
        *("DECIMAL(12,4)", "DECIMAL(5,1)", "DECIMAL(38,0)", "DECIMAL(38,30)", "FLOAT", "DOUBLE", "BOOLEAN", "VARCHAR", "BLOB"),
        *("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ", "INTERVAL", "JSON", "UUID"),
        *("BIT", "ENUM('a','b')", "VARCHAR[]", "TIMETZ"),
    ],
    "mysql": [
        *("TINYINT", "SMALLINT", "INT", "BIGINT", "INT UNSIGNED", "BIGINT UNSIGNED", "DECIMAL(10,2)", "DECIMAL(12,4)"),
        *("DECIMAL(5,1)", "DECIMAL(65,30)", "DECIMAL(10,2) UNSIGNED", "FLOAT", "DOUBLE", "BIT(1)", "BIT(64)", "YEAR", "DATE"),
        *("DATETIME", "DATETIME(3)", "DATETIME(6)", "TIMESTAMP NULL", "TIMESTAMP(6) NULL", "TIME", "TIME(6)", "CHAR(20)"),
        *("VARCHAR(3)", "VARCHAR(200)", "VARCHAR(200) CHARACTER SET latin1", "TINYTEXT", "TEXT", "LONGTEXT", "BINARY(20)"),
        *("VARBINARY(200)", "BLOB", "LONGBLOB", "ENUM('a','b')", "ENUM('b','a','é','x y','Z')", "SET('b','a')"),
        *("SET('a','b','c','d e','f')", "JSON", "GEOMETRY"),
    ],
}
#: Text that is cut, filled up, or taken for something else.
_TEXTS: Final = (
    "'abc'",
    "'abc  '",
    "' x'",
    "'007'",
    "'1.50'",
    "'2024-01-01'",
    "'True'",
    "'Ä€'",
    "'a               '",
    "''",
    "X'5C783431'",
)
_names = itertools.count()


@attrs.frozen
class Pair:
    kind: str
    column: Column
    declared: str


def sources(flavor: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Each type of a source with the literals of its values."""
    for name, kind in KINDS.items():
        if kind.only in ("", flavor) and name != "uuid":
            is_text = kind.family == "text"
            yield name, kind.declared + (" CHARACTER SET utf8mb4" if is_text else ""), _TEXTS if is_text else kind.literals


@pytest.fixture(params=list(TYPES))
def place(
    request: pytest.FixtureRequest, mysql_server: ThrowawayServer, postgresql_server: PostgreSQLServer, folder: Path
) -> Iterator[Place]:
    servers = {"postgresql": postgresql_server, "mysql": mysql_server}
    place = PLACES[request.param](f"pairs{next(_names)}_{request.param}", folder, servers.get(request.param))
    yield place
    place.close()


def test_value_is_kept_or_refused_in_a_column_of_each_type(
    place: Place, mysql_server: ThrowawayServer, folder: Path, request: pytest.FixtureRequest
) -> None:
    kind = request.node.callspec.params["place"]
    database = f"{place.database}_source"
    mysql_server.query(f"CREATE DATABASE {database}")
    pairs: dict[str, list[Pair]] = {}
    with target_of(place.spec()).begin("probe") as work:
        declared = _declared(work, kind, place)
        for number, (name, text, literals) in enumerate(sources("mysql")):
            column = column_from_text("v", text.partition(" CHARACTER")[0].removesuffix(" NULL"), charset="utf8mb4")
            fit = [one for one, theirs in declared.items() if not work.check_column(column, theirs)]
            own = work.column_type(column)
            chosen = [own, *fit]
            literals = literals[:3] if kind == "duckdb" else literals  # each is a commit
            pairs[f"t{number}"] = [Pair(one, Column(f"v{at}", name, text, tuple(literals)), own) for at, one in enumerate(chosen)]
            columns = ", ".join(f'"v{at}" {one}' if kind != "mysql" else f"v{at} {one}" for at, one in enumerate(chosen))
            path = work.names.naming.path(canal.changes.Table(f"{place.database}.t{number}", "t", database=place.database))
            work.create_parent(path)
            work.execute(f"CREATE TABLE {work.named(path)} (id INT PRIMARY KEY, {columns})".replace("%%", "%"))
    start = end_of_log(mysql_server)
    _fill(mysql_server, database, pairs, is_apart=kind == "duckdb")

    parked = folder / "parked.jsonl"
    config = canal.InstanceConfig(
        destination="pairs", source=source(mysql_server), filter=rf"{database}\..*", start=start, meta=canal.MemoryMeta()
    )
    end = end_of_log(mysql_server)
    with canal.Instance(config) as instance:
        instance.subscribe()
        rule = canal.Rule(tables=r".*\..*", to=f"{place.database}.{{table}}")
        options = {"on_error": "stop", "on_unfit": JSONLinesTarget(parked), "linger": 0.0}
        options["batch_size"] = 1 if kind == "duckdb" else 10_000  # it finds what is refused by many transactions
        with canal.pipe(instance, target_of(place.spec()), rules=[rule], **options) as pipe:
            until(lambda: not instance.position().precedes(end) or pipe.join(0))

    faults, refused = [], set()
    with mysql_server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for table, some in pairs.items():
            cursor.execute(f"SELECT id, {', '.join(source_expression(one.column) for one in some)} FROM {database}.{table}")
            wanted = {row[0]: [source_value(one.column, value) for one, value in zip(some, row[1:])] for row in cursor.fetchall()}
            rows = place.rows(table, [Column("id", "int", "INT"), *(one.column for one in some)])
            assert rows is not None
            got = {row["id"]: [_plain(one.column, row[one.column.name]) for one in some] for row in rows}
            for number, values in wanted.items():
                at = next(at for at, value in enumerate(values) if value is not None)
                if number not in got:
                    refused.add((some[at].column.kind, some[at].kind))
                elif got[number] != values:
                    faults.append(
                        f"{some[at].column.kind} in {some[at].kind or 'no type'}: {values[at]!r} is {got[number][at]!r}"
                    )
    mysql_server.query(f"DROP DATABASE {database}")
    assert not faults, "\n".join(faults)
    own = {(one.column.kind, one.declared) for some in pairs.values() for one in some[:1]}
    assert not refused & own, "the type that the target makes does not hold the values"


def _declared(work: Any, kind: str, place: Place) -> dict[str, str]:
    """The types of the target by the texts that it has for them."""
    path = work.names.naming.path(canal.changes.Table(f"{place.database}.probe", "probe", database=place.database))
    work.create_parent(path)
    columns = ", ".join(f"{work.quoted(f'v{at}')} {one}" for at, one in enumerate(TYPES[kind]))
    work.execute(f"CREATE TABLE {work.named(path)} ({columns})")
    there = work.columns(path)
    return {one: there[f"v{at}"] for at, one in enumerate(TYPES[kind])}


def _fill(server: ThrowawayServer, database: str, pairs: Mapping[str, Sequence[Pair]], *, is_apart: bool) -> None:
    """Each value in each column, in a row of its own: one that is refused hides no other."""
    with server.connect(autocommit=True, charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        for table, some in pairs.items():
            columns = ", ".join(f"{one.column.name} {one.column.declared}" for one in some)
            cursor.execute(f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY, {columns})")
            cursor.execute("BEGIN")
            number = 0
            for at, one in enumerate(some):
                for literal in one.column.literals:
                    values = ["NULL"] * len(some)
                    values[at] = literal
                    cursor.execute(f"INSERT IGNORE INTO {database}.{table} VALUES ({number}, {', '.join(values)})")
                    number += 1
                    if is_apart:
                        cursor.execute("COMMIT")
            cursor.execute("COMMIT")


def _plain(column: Column, value: Any) -> Any:
    try:
        return plain(column, value)
    except (ValueError, ArithmeticError, AttributeError, AssertionError, TypeError):
        return "another value", value
