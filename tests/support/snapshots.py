"""Snapshots of a table, and the rows that the log has of the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

import canal
from canal.formats.change_table import Shape
from canal.formats.envelope import Envelope
from canal.snapshot.chunks import SnapshotPlan, plan, read_chunk, read_table
from canal.testing.servers import ThrowawayServer
from tests.support.live import source
from tests.support.oracle_tables import Table


def shape_of(server: ThrowawayServer, schema: str, table: str) -> Shape:
    return Shape(read_table(source(server), schema, table))


def logged(
    server: ThrowawayServer, start: canal.Position, shapes: Mapping[str, Shape | Envelope], database: str
) -> dict[str, list[Any]]:
    """The rows that the log has since ``start``, by table, up to one of a table that is made for it."""
    server.query(f"CREATE TABLE `{database}`.the_end (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO `{database}`.the_end VALUES (1)")
    config = canal.InstanceConfig(destination="s", source=source(server), start=start, filter=rf"{database}\..*")
    found: dict[str, list[Any]] = {name: [] for name in shapes}
    with canal.Instance(config) as instance:
        instance.subscribe()
        for message in instance.stream():
            for entry in message.entries:
                if entry.header.table == "the_end" and entry.table is not None:
                    return found
                if entry.table is not None and entry.header.table in shapes:
                    found[entry.header.table].append(shapes[entry.header.table].batch([entry]))
    raise AssertionError("the stream ended")


def snapshot(server: ThrowawayServer, shape: Shape, **options: Any) -> tuple[SnapshotPlan, list[pa.RecordBatch]]:
    made = plan(source(server), shape, **options)
    return made, [batch for chunk in made.chunks for batch in read_chunk(source(server), shape, made, chunk)]


def write_cases(server: ThrowawayServer, database: str, table: Table) -> None:
    columns = range(len(table.cases))
    types = ", ".join(f"c{number} {case.type}" for number, case in enumerate(table.cases))
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode='ALLOW_INVALID_DATES', time_zone='+00:00', innodb_strict_mode=OFF")
        cursor.execute(f"CREATE TABLE {table.name} (id INT PRIMARY KEY, {types}) CHARACTER SET utf8mb4")
        rows = (f"({row}, {', '.join(table.literal(i, row) for i in columns)})" for row in range(table.row_count))
        cursor.execute(f"INSERT INTO {table.name} VALUES {', '.join(rows)}")
