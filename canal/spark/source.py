"""The Spark data source "canal": the stream of a table's changes, and bounded ranges of it.

Never opens anything when it is made: Spark makes it, and pickles it, in processes that come and go.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence

import attrs
from pyspark import __version__

from canal.errors import ConfigError

try:
    from pyspark.sql.datasource import DataSource
except ModuleNotFoundError as error:
    raise ConfigError(
        f"the canal source needs Spark 4.0 or later, this is {__version__}",
        remedy="canal.spark.foreach_batch and apply_changes run on Spark 3.5 too.",
    ) from error
from pyspark.sql.types import StructType

from canal.formats.change_table import Shape
from canal.formats.envelope import Envelope
from canal.parse.source.mysql import MySQLSource, another
from canal.parse.source.protocol import FullConnection, complete
from canal.position import Position
from canal.schema import TableSchema
from canal.snapshot.chunks import read_table
from canal.snapshot.session import NO_TABLE
from canal.spark.frames import spark_struct
from canal.spark.options import Options, parse_options
from canal.spark.readers import CanalReader, CanalStreamReader, FilteredReader
from canal.spark.stream.filters import are_handed
from canal.spark.stream.shared_instance import attach
from canal.spark.stream.stretch import open_instance


class CanalSource(DataSource):
    """``spark.readStream.format("canal")`` and ``spark.read.format("canal")``; see docs/spark/options.md for the options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = parse_options(options)
        self._shape: Shape | Envelope | None = None

    @classmethod
    def name(cls) -> str:
        return "canal"

    def schema(self) -> StructType:
        struct: StructType = spark_struct(self._columns().arrow)
        return struct

    def _columns(self) -> Shape | Envelope:
        """The columns of the stream, found out once: those that the table has now."""
        if self._shape is None:
            options = self._parsed = attach(self._parsed)
            if options.table is None:
                self._shape = Envelope()
            else:
                since = end_of_log(options)
                table = chosen(find_table(options), options.columns)
                self._shape = Shape(table, options.schema_change == "keep", since, bool(options.columns))
        return self._shape

    def _checked(self, schema: StructType) -> Shape | Envelope:
        shape = self._columns()
        if schema != spark_struct(shape.arrow):
            raise ConfigError(
                "the canal source takes no schema: its columns are those of the table", remedy="Leave .schema(…) out."
            )
        return shape

    def streamReader(self, schema: StructType) -> CanalStreamReader:
        if self._parsed.ending is not None:
            raise ConfigError("endingPosition and endingTime are for a bounded range: spark.read.format('canal')")
        if self._parsed.mode == "snapshot":
            raise ConfigError("a stream of a table and its changes is snapshot=initial; mode=snapshot is for spark.read")
        shape = self._checked(schema)
        return _stream_reader()(self._parsed, shape)

    def reader(self, schema: StructType) -> CanalReader:
        if self._parsed.snapshot != "never":
            raise ConfigError(
                f"snapshot={self._parsed.snapshot} is for a stream; spark.read takes mode=snapshot",
                remedy="For a table at one moment run the stream once, with Trigger.AvailableNow.",
            )
        shape = self._checked(schema)
        reader = FilteredReader if are_handed() else CanalReader
        return reader(attrs.evolve(self._parsed, is_bounded=True), shape)

    def __repr__(self) -> str:
        return "CanalSource()"


def chosen(table: TableSchema, names: Sequence[str]) -> TableSchema:
    """The table with these of its columns, in its order; with all of them where none is named.

    Raises:
        ConfigError: it has no such column.
    """
    wanted = {name.lower() for name in names}
    if missing := wanted - {column.name.lower() for column in table.columns}:
        raise ConfigError(
            f"{table.name} has no columns {', '.join(sorted(missing))}", remedy="Name columns that the table has now."
        )
    return attrs.evolve(table, columns=tuple(one for one in table.columns if one.name.lower() in wanted)) if wanted else table


def end_of_log(options: Options) -> Position | None:
    """The position in the log behind which all that comes is younger than the columns that a server tells from now on."""
    connection = complete(another(options.source).connect())
    try:
        return connection.resolve("latest") if connection.identity else None
    finally:
        connection.close()


def find_table(options: Options) -> TableSchema:
    """The columns of the one table: as the source's server knows them now, else as the log tells them first.

    Raises:
        ConfigError: there is no such table, or the log does not tell its columns.
    """
    assert options.table is not None
    source = another(options.source)
    if options.snapshot != "never" or options.mode == "snapshot":
        if not isinstance(source, MySQLSource):
            raise ConfigError(
                "a snapshot is of one table of a server, and the shared Instance has none that can be connected to",
                remedy="Give the Instance a MySQLSource, or leave the snapshot out.",
            )
        return read_table(source, *options.table)
    connection = complete(source.connect())
    try:
        found = _columns_now(connection, *options.table)
        has_server = bool(connection.identity)
        start: str | Position = connection.resolve(options.starting or "earliest") if not has_server else "earliest"
    finally:
        connection.close()
    if found is not None:
        return found
    name = ".".join(options.table)
    if has_server:
        raise ConfigError(f"there is no table {name}, or the user may not see it", remedy=NO_TABLE)
    with open_instance(options, another(options.source), start) as instance:
        instance.subscribe()
        for message in instance.stream():
            for entry in message.entries:
                if entry.table is not None:
                    return entry.table.schema
    raise ConfigError(f"the binlog files hold no change of {name}", remedy="Check the name, or give tableSchema.")


def _columns_now(connection: FullConnection, schema: str, table: str) -> TableSchema | None:
    """With the columns that MariaDB hides, which its log has, where the connection can tell."""
    found = connection.describe(schema, table)
    if found is None:
        return connection.table_columns(schema, table)
    return next((state.schema for state in found.tables), None)


def _stream_reader() -> type[CanalStreamReader]:
    """The class of readers that this Spark knows how to use."""
    if importlib.util.find_spec("pyspark.sql.streaming.datasource") is None:
        return CanalStreamReader
    from canal.spark.limits import LimitedStreamReader

    return LimitedStreamReader


__all__ = ["CanalReader", "CanalSource", "CanalStreamReader", "find_table"]
