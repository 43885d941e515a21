"""A Delta table, written by Spark itself with MERGE: where Delta's jars are on Spark's class path.

Never lets Spark's batch id decide anything: the version of Delta's application transaction counts what was applied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
import pyarrow as pa

from canal.errors import ConfigError, TargetConflictError
from canal.targets.protocol import Progress
from canal.targets.tables import Abilities, need, understood

_DELETE: Final = "__canal_delete"
_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


@attrs.frozen
class DeltaSparkTarget:
    """A Delta table at ``path``, for where only Spark can reach the storage; it is made where there is none.

    The progress is the user metadata of the commit that holds the rows, found in the table's history: keep the history
    (``delta.logRetentionDuration``) for longer than the table may go without changes while others write it. The
    batch passes through the driver. TIME columns are stored as microseconds (long).

    Args:
        path: directory or URL.
        partition_by: columns, where it makes the table.
    """

    path: str
    partition_by: Sequence[str] = ()

    abilities = Abilities()

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[_DeltaSparkWork]:
        sql = need("pyspark.sql", "spark")
        with understood(self.path):
            spark = sql.SparkSession.active()
            work = _DeltaSparkWork(self, spark, _delta(spark), stream, keys)
        yield work


def _delta(spark: Any) -> Any:
    """Delta's own class for tables.

    Raises:
        ConfigError: it is not on the class path, or the session has no JVM here (Spark Connect).
    """
    jvm = getattr(spark, "_jvm", None)
    found = jvm.io.delta.tables.DeltaTable if jvm is not None else None
    if found is None or "isDeltaTable" not in dir(found):
        raise ConfigError(
            "Delta's jars are not on the class path of this Spark session",
            remedy="Start it with spark.jars.packages=io.delta:delta-spark_… of a release for this Spark, or use "
            "canal.targets.DeltaTarget, which needs no jars.",
        )
    return found


class _DeltaSparkWork:
    """A transaction, as the number of those before it."""

    def __init__(self, target: DeltaSparkTarget, spark: Any, delta: Any, stream: str, keys: tuple[str, ...]) -> None:
        self._target, self._spark, self._stream, self._keys = target, spark, stream, keys
        self._table = f"delta.{_quoted(target.path)}"
        self._count = 0
        self.schema: pa.Schema | None = None
        self.progress: Progress | None = None
        if delta.isDeltaTable(spark._jsparkSession, target.path):
            self.schema = spark.table(self._table).limit(0).toArrow().schema
            self._count, self.progress = self._stored()

    def _stored(self) -> tuple[int, Progress | None]:
        history = self._spark.sql(f"DESCRIBE HISTORY {self._table}").select("version", "userMetadata")
        mine = history.where(history.userMetadata.startswith(self._prefix)).orderBy("version", ascending=False).limit(1)
        for row in mine.collect():
            count, text = json.loads(row.userMetadata[len(self._prefix) :])
            return count, Progress.from_text(text)
        return 0, None

    @property
    def _prefix(self) -> str:
        return f"canal/{self._stream}:"

    def read(self, keys: pa.Table) -> pa.Table:
        with understood(self._target.path):
            found = self._spark.table(self._table).join(self._spark.createDataFrame(keys), list(self._keys), "left_semi")
            return found.toArrow().select(self.schema.names)  # type: ignore[union-attr]

    def is_empty(self) -> bool:
        with understood(self._target.path):
            return bool(self._spark.table(self._table).isEmpty())

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        with understood(self._target.path):
            try:
                self._write(upserts, deletes, progress, added, replace)
            except Exception as error:
                if "delta.exceptions." in f"{type(error).__module__}.{error}":  # all that is in this package of Delta's
                    raise self._conflict() from error
                raise

    def _conflict(self) -> TargetConflictError:
        what = f"another writer changed {self._target.path} meanwhile"
        return TargetConflictError(what, remedy="Run one query for each table and stream.")

    def _write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, added: list[pa.Field], replace: bool) -> None:
        spark, count = self._spark, self._count + 1
        rows = spark.createDataFrame(upserts)
        if self.schema is None:
            empty = rows.limit(0).write.format("delta").mode("errorifexists")
            (empty.partitionBy(*self._target.partition_by) if self._target.partition_by else empty).save(self._target.path)
        elif added:
            new = [field for field in rows.schema if field.name in {one.name for one in added}]
            columns = ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in new)
            spark.sql(f"ALTER TABLE {self._table} ADD COLUMNS ({columns})")
        settings = {
            _METADATA: self._prefix + json.dumps([count, progress.to_text()]),
            _APP: f"canal/{self._stream}",
            _VERSION: str(count),
        }
        before = {name: spark.conf.get(name, None) for name in settings}
        try:
            for name, value in settings.items():
                spark.conf.set(name, value)
            if replace or not deletes.num_columns:
                rows.write.format("delta").mode("overwrite" if replace else "append").save(self._target.path)
            else:
                self._merge(rows, upserts, deletes)
        finally:
            for name, value in before.items():
                spark.conf.unset(name) if value is None else spark.conf.set(name, value)
        if self._stored() != (count, progress):  # Delta passes over a version that it has
            raise self._conflict()

    def _merge(self, rows: Any, upserts: pa.Table, deletes: pa.Table) -> None:
        flag = pa.field(_DELETE, pa.bool_())
        puts = upserts.append_column(flag, pa.repeat(False, upserts.num_rows))
        takes = deletes.append_column(flag, pa.repeat(True, deletes.num_rows))
        source = self._spark.createDataFrame(pa.concat_tables([puts, takes], promote_options="default"))
        source.createOrReplaceTempView("__canal_changes")
        try:
            self._spark.sql(merge_sql(self._table, "__canal_changes", self._keys, upserts.column_names))
        finally:
            self._spark.catalog.dropTempView("__canal_changes")


def merge_sql(table: str, changes: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """The statement that applies a view of changes with a column that says which are deletes."""
    on = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in keys)
    sets = ", ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in columns)
    names, values = ", ".join(map(_quoted, columns)), ", ".join(f"s.{_quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {table} t USING {changes} s ON {on} WHEN MATCHED AND s.{_DELETE} THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {sets}"
        f" WHEN NOT MATCHED AND NOT s.{_DELETE} THEN INSERT ({names}) VALUES ({values})"
    )


def _quoted(name: str) -> str:
    doubled = name.replace("`", "``")
    return f"`{doubled}`"
