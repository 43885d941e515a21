"""Arrow tables into DataFrames and back, also on Spark 3.5, which does neither by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from canal.errors import ConfigError

_PIECE: Final = 4 << 20  # bytes of Arrow that one row carries to Spark 3.5, about


def spark_struct(schema: pa.Schema) -> Any:
    """Return Spark's type for the rows of an Arrow table."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def check_version(spark: Any) -> None:
    """Raise ConfigError where the session's Spark is too old for DataFrames of changes."""
    if tuple(map(int, spark.version.split(".")[:2])) < (3, 5):
        raise ConfigError(
            f"DataFrames of changes need Spark 3.5 or later, this is {spark.version}",
            remedy="Give foreach_batch None instead of the session: Arrow tables come then, which apply_changes takes too.",
        )


def to_frame(spark: Any, rows: pa.Table) -> Any:
    """A DataFrame of the rows of an Arrow table."""
    struct = spark_struct(rows.schema)
    if _knows_arrow():
        return spark.createDataFrame(rows, schema=struct)
    step = max(1, rows.num_rows * _PIECE // max(rows.nbytes, 1))
    pieces = [(_written(rows.slice(begin, step)),) for begin in range(0, rows.num_rows, step)]
    return spark.createDataFrame(pieces, "data binary").mapInArrow(_read, struct)


def to_arrow(df: Any) -> pa.Table:
    """All rows of a DataFrame, in the driver."""
    if _knows_arrow():
        return df.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = df._collect_as_arrow()
    return pa.Table.from_batches(batches, None if batches else to_arrow_schema(df.schema))


def _knows_arrow() -> bool:
    from pyspark.sql import DataFrame

    return hasattr(DataFrame, "toArrow")


def _written(rows: pa.Table) -> bytearray:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytearray(sink.getvalue())


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for piece in batch.column(0):
            yield from pa.ipc.open_stream(piece.as_buffer())
