"""A Delta table, written with the ``deltalake`` package, without a JVM.

Never commits rows without their progress.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import PyFileSystem

from canal.errors import StreamMismatchError, TargetConflictError, TargetSchemaError
from canal.targets.protocol import Progress, TableProgress
from canal.targets.tables import Abilities, matching, need, understood
from canal.targets.tables.outcome import fit
from canal.targets.tables.rewrite import Keys, new_files
from canal.targets.tables.upkeep import Upkeep

_RETENTION: Final = "delta.logRetentionDuration"
#: A checkpoint names a removed file for the time to keep plus this margin in seconds, in which VACUUM has to remove the file.
#: VACUUM removes files without a commit, such as from a killed writer, after ``_ORPHANS`` hours.
_TOMBSTONES: Final = "delta.deletedFileRetentionDuration"
_MARGIN: Final = 600
_ORPHANS: Final = 168
_DELETE: Final = "__canal_delete"
_STATISTICS: Final = "delta.dataSkippingStatsColumns"
#: Columns with statistics if that property is not set, and characters of a text in statistics.
_INDEXED: Final = 32
_TEXT: Final = 32
_HIGHEST: Final = "\U0010ffff"
#: Table features that this module supports.
_FEATURES: Final = frozenset(("appendOnly", "invariants", "timestampNtz"))
#: The path and size of a file, and for each of its rows whether it stays.
_Found: TypeAlias = "tuple[str, int, pa.Array]"
#: The integers of a progress. Each is the version of an application transaction: Delta keeps one integer per transaction.
_NUMBERS: Final = ("txn", "ord", "ts", "snapshot")


@attrs.frozen
class DeltaTableTarget:
    """One Delta table at ``path``. The first batch creates it.

    The commit that adds rows stores the progress as application transactions ``canal/<stream>/…``. A batch rewrites the files
    with its keys (copy on write). If two writers of a stream commit at the same time, the second commit fails. A commit during a
    compaction fails too, and a retry succeeds. A restored table is refused: RESTORE keeps the progress. ``deltalake`` cannot
    alter types, so the first value that needs a wider type rewrites the whole table. TIME columns are stored as microseconds
    (long), since Delta has no intervals.

    Args:
        path: directory or URL.
        storage_options: options of the object store for ``deltalake``.
        partition_by: partition columns of a table that this target creates.
        upkeep: when to compact and vacuum the table, and truncate its log. None: never.
    """

    path: str
    storage_options: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    partition_by: Sequence[str] = ()
    upkeep: Upkeep | None = None

    abilities = Abilities(widens=True, retypes=True)

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[_DeltaWork]:
        lake = need("deltalake", "lake")
        with understood(self.path):
            try:
                table = lake.DeltaTable(self.path, storage_options=self._options)
            except lake.exceptions.TableNotFoundError:
                table = None
            work = _DeltaWork(self, table, stream, keys)
        yield work

    def maintain(self, stream: str, upkeep: Upkeep) -> None:
        """OPTIMIZE, then VACUUM files that no version of the time to keep needs, and week-old files that no commit names.

        Set ``delta.logRetentionDuration`` to the time to keep, and ``delta.deletedFileRetentionDuration`` to a little more.
        Otherwise each checkpoint would name the files that were removed in the last seven days.
        """
        lake = need("deltalake", "lake")
        with understood(self.path, (lake.exceptions.CommitFailedError,)):
            try:
                table = lake.DeltaTable(self.path, storage_options=self._options)
            except lake.exceptions.TableNotFoundError:
                return
            seconds, found = max(round(upkeep.keep), 1), table.metadata().configuration
            wanted = {_RETENTION: f"interval {seconds} seconds", _TOMBSTONES: f"interval {seconds + _MARGIN} seconds"}
            if {name: found.get(name) for name in wanted} != wanted:
                table.alter.set_table_properties(wanted)
            table.optimize.compact(target_size=upkeep.small)
            versions = _versions_since(table, time.time() - upkeep.keep)
            table.vacuum(0, dry_run=False, enforce_retention_duration=False, keep_versions=versions)
            table.vacuum(_ORPHANS, dry_run=False, enforce_retention_duration=False, keep_versions=versions, full=True)
            # The last commit has the whole progress, so the log before it can go.
            work = _DeltaWork(self, table, stream, ())
            if work.progress is not None:
                table.create_write_transaction([], "append", table.schema(), commit_properties=work.commit(work.progress))
            table.create_checkpoint()
            table.cleanup_metadata()

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self.storage_options is None else dict(self.storage_options)


class _DeltaWork:
    """A transaction on one version of the table."""

    def __init__(self, target: DeltaTableTarget, table: Any, stream: str, keys: tuple[str, ...]) -> None:
        self._target, self._table, self._keys = target, table, keys
        self._app = f"canal/{stream}"
        self.progress = None if table is None else self._stored()
        self.schema = None if table is None else pa.schema(table.schema().to_arrow())

    def _stored(self) -> Progress | None:
        numbers = {name: self._table.transaction_version(f"{self._app}/{name}") for name in _NUMBERS}
        if numbers["txn"] is None:
            return None
        table = TableProgress(**numbers)
        for limit in (1, 100, None):  # the commit has the rest, usually the last commit
            for commit in self._table.history(limit):
                if self._app in commit:
                    whole = Progress.from_text(commit[self._app])
                    return whole if whole.table and whole.table.last_change == table.last_change else Progress(table=table)
                if commit.get("operation") == "RESTORE":
                    raise StreamMismatchError(
                        f"{self._target.path} was restored to an earlier version, which has its rows but not its progress",
                        remedy="Apply the changes under another stream name, and begin with a snapshot (snapshot='replace').",
                    )
        return Progress(table=table)

    def read(self, keys: pa.Table) -> pa.Table:
        assert self.schema is not None
        with understood(self._target.path):
            batches = self._table.to_pyarrow_dataset().to_batches(filter=_near(keys))
            found = [matching(pa.Table.from_batches([batch]).cast(self.schema), keys) for batch in batches if batch.num_rows]
        return pa.concat_tables([self.schema.empty_table(), *found])

    def is_empty(self) -> bool:
        with understood(self._target.path):
            return bool(self._table.to_pyarrow_dataset().count_rows() == 0)

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        lake = need("deltalake", "lake")
        commit = self.commit(progress)
        with understood(self._target.path, (lake.exceptions.CommitFailedError,)):
            try:
                if self.schema is not None and any(field.name in self.schema.names for field in added):
                    rows = upserts if replace else self._rewritten(upserts, deletes)
                    lake.write_deltalake(
                        self._table,
                        rows,
                        mode="overwrite",
                        schema_mode="overwrite",
                        commit_properties=commit,
                        partition_by=self._table.metadata().partition_columns or None,
                    )
                    return
                self._prepare(lake, upserts.schema, added)
                if replace or self.schema is None or not deletes.num_columns:
                    mode = "overwrite" if replace else "append"
                    lake.write_deltalake(self._table, upserts, mode=mode, commit_properties=commit)
                elif self._is_plain():
                    # ``deltalake`` would retry the commit after a compaction of the same files.
                    self._overwrite(upserts, deletes, self.commit(progress, retries=0))
                else:
                    self._merge(lake, upserts, deletes, commit)
            except lake.exceptions.SchemaMismatchError as error:
                raise TargetSchemaError(f"Delta refuses the columns: {error}", remedy="Alter the target.") from error

    def commit(self, progress: Progress, retries: int | None = None) -> Any:
        """Return the properties of a commit, with the progress."""
        lake = need("deltalake", "lake")
        return lake.CommitProperties(
            max_commit_retries=retries,
            custom_metadata={self._app: progress.to_text()},
            app_transactions=[lake.Transaction(f"{self._app}/{name}", getattr(progress.table, name)) for name in _NUMBERS],
        )

    def _prepare(self, lake: Any, schema: pa.Schema, added: list[pa.Field]) -> None:
        """Create the table, or its new columns, in a separate commit that changes no row."""
        if self._table is None:
            target = self._target
            self._table = self._made(lake, target, schema)
        elif added:
            self._table.alter.add_columns(lake.Schema.from_arrow(pa.schema(added)).fields)

    @staticmethod
    def _made(lake: Any, target: DeltaTableTarget, schema: pa.Schema) -> Any:
        partition_by, options = list(target.partition_by) or None, target._options
        try:
            return lake.DeltaTable.create(
                target.path, schema, partition_by=partition_by, configuration=_with_statistics(schema), storage_options=options
            )
        except lake.exceptions.DeltaError as error:
            if lake.DeltaTable.is_deltatable(target.path, options):
                raise TargetConflictError(f"another writer has made {target.path} meanwhile") from error
            raise TargetSchemaError(f"Delta cannot make {target.path}: {error}", remedy="Rename the columns.") from error

    def _rewritten(self, upserts: pa.Table, deletes: pa.Table) -> pa.Table:
        """Return all rows of the table after the batch, with the columns of ``upserts``."""
        rows = fit(self._table.to_pyarrow_table(), upserts.schema)
        if deletes.num_columns:
            rows = matching(rows, pa.concat_tables([upserts.select(deletes.column_names), deletes]), others=True)
        return pa.concat_tables([rows, upserts])

    def _is_plain(self) -> bool:
        """Return whether the table has no partitions, constraints or features that only ``deltalake`` supports."""
        protocol, metadata = self._table.protocol(), self._table.metadata()
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        fields = self._table.schema().fields
        return (
            (protocol.min_writer_version <= 2 or protocol.min_writer_version == 7 and features <= _FEATURES)
            and not metadata.partition_columns
            and not any(name.startswith("delta.constraints.") for name in metadata.configuration)
            and not any("delta.invariants" in field.metadata for field in fields)
        )

    def _overwrite(self, upserts: pa.Table, deletes: pa.Table, commit: Any) -> None:
        """Replace the files that have rows with these keys, in one commit: keep their other rows, and add the new rows."""
        actions, storage = need("deltalake.transaction", "lake"), self._storage()
        keys = pa.concat_tables([upserts.select(deletes.column_names), deletes])
        found = list(self._touched(Keys(keys), storage)) if keys.num_rows else []
        kept = (fit(_read(storage, path), upserts.schema).filter(others) for path, _, others in found)
        now, measured = round(time.time() * 1000), self._measured()
        done = [actions.RemoveAction(path, True, now, size, {}) for path, size, _ in found]
        for rows in new_files(kept, upserts, self._keys):
            path = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
            pq.write_table(rows, path, filesystem=storage)
            size = storage.get_file_info(path).size
            done.append(actions.AddAction(path, size, {}, now, True, _statistics(rows, measured)))
        self._table.create_write_transaction(done, "append", self._table.schema(), commit_properties=commit)

    def _storage(self) -> PyFileSystem:
        handler = need("deltalake.fs", "lake").DeltaStorageHandler
        return PyFileSystem(handler(self._table.table_uri, self._target._options))

    def _touched(self, keys: Keys, storage: PyFileSystem) -> Iterator[_Found]:
        """Yield the files with rows of these keys."""
        files = pa.table(self._table.get_add_actions(flatten=True))
        bounds = {name: _bounds(files, name) for name in keys.names if f"min.{name}" in files.column_names}
        for number, (path, size) in enumerate(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist())):
            if all(_may_have(keys, name, *one[number]) for name, one in bounds.items()):
                others = keys.others(_read(storage, path, keys.names))
                if not pc.all(others).as_py():
                    yield path, size, others

    def _measured(self) -> list[str]:
        """Return the columns with statistics in each file. Return none if some of them cannot be exact."""
        metadata, fields = self._table.metadata(), pa.schema(self._table.schema().to_arrow())
        if named := metadata.configuration.get(_STATISTICS):
            names = named.split(",")
        elif len(fields) > _INDEXED or "delta.dataSkippingNumIndexedCols" in metadata.configuration:
            return []
        else:
            names = [field.name for field in fields if not pa.types.is_binary(field.type)]
        return names if all(name in fields.names and _is_exact(fields.field(name).type) for name in names) else []

    def _merge(self, lake: Any, upserts: pa.Table, deletes: pa.Table, commit: Any) -> None:
        flag = pa.field(_DELETE, pa.bool_())
        puts = upserts.append_column(flag, pa.repeat(False, upserts.num_rows))
        takes = deletes.append_column(flag, pa.repeat(True, deletes.num_rows))
        source = pa.concat_tables([puts, takes], promote_options="default")
        on = " AND ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in self._keys)
        columns = {_quoted(name): f"s.{_quoted(name)}" for name in upserts.column_names}
        version = self._table.version()
        # A streamed source skips no file by statistics, which are rounded for decimals.
        is_streamed = any(pa.types.is_decimal(source.schema.field(key).type) for key in self._keys)
        merge = self._table.merge(
            source, on, source_alias="s", target_alias="t", streamed_exec=is_streamed, commit_properties=commit
        )
        merge = merge.when_matched_delete(f"s.{_DELETE}").when_matched_update(columns)
        merge.when_not_matched_insert(columns, f"NOT s.{_DELETE}").execute()
        if self._table.version() == version:  # a merge without effect makes no commit
            self._table.create_write_transaction([], "append", self._table.schema(), commit_properties=commit)


def _versions_since(table: Any, moment: float) -> list[int]:
    """Return the versions that were the newest at ``moment`` or later."""
    found = []
    for commit in table.history():
        found.append(int(commit["version"]))
        if commit["timestamp"] / 1000 < moment:
            break
    return found


def _near(keys: pa.Table) -> pc.Expression | None:
    """Return a filter for all rows with these keys, or None if no filter is exact.

    The log keeps the statistics of a file as JSON numbers, which round decimals. Arrow cannot compare text with the views of
    text that a merge writes.
    """
    exact = [field.name for field in keys.schema if _is_exact(field.type) and not pa.types.is_string(field.type)]
    values = {name: pc.unique(keys[name]) for name in exact}
    if not values:
        return None
    name = max(values, key=lambda name: len(values[name]))  # the most selective
    field, found = pc.field(name), values[name]
    return (field >= pc.min(found)) & (field <= pc.max(found)) & field.isin(found)


def _is_exact(kind: pa.DataType) -> bool:
    """Return whether bounds of this type in the log enclose all values."""
    tests = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp, pa.types.is_string, pa.types.is_boolean)
    return any(test(kind) for test in tests)


def _read(storage: PyFileSystem, path: str, columns: list[str] | None = None) -> pa.Table:
    with pq.ParquetFile(storage.open_input_file(path)) as file:
        return file.read(columns)


def _bounds(files: pa.Table, name: str) -> list[tuple[Any, Any]]:
    """Return the minimum and maximum of a column in each file, or None if unknown. Dates and times are integers."""
    low, high = files[f"min.{name}"], files[f"max.{name}"]
    if not _is_exact(low.type):
        return [(None, None)] * len(files)
    if pa.types.is_timestamp(low.type):
        low, high = (one.cast(pa.timestamp("us", low.type.tz)).cast(pa.int64()) for one in (low, high))
        high = pc.add(high, 999)  # the log may have whole milliseconds
    elif pa.types.is_date32(low.type):
        low, high = low.cast(pa.int32()), high.cast(pa.int32())
    elif not pa.types.is_integer(low.type):  # ``deltalake`` makes a text smaller when it truncates U+10FFFF
        high = pc.if_else(pc.match_substring(high.cast(pa.string()), _HIGHEST), None, high.cast(pa.string()))
    return list(zip(low.to_pylist(), high.to_pylist()))


def _may_have(keys: Keys, name: str, low: Any, high: Any) -> bool:
    return low is None or high is None or keys.may_be_within(name, low, high)


def _with_statistics(schema: pa.Schema) -> dict[str, str] | None:
    """Return the property that names columns with exact statistics. Readers lose rows by those of decimals and NaN."""
    names = [field.name for field in schema if _is_exact(field.type)]
    is_plain = names and all(re.fullmatch(r"\w+", name) for name in names)
    return {_STATISTICS: ",".join(names)} if is_plain else None


def _statistics(rows: pa.Table, names: Sequence[str]) -> str:
    """Return the statistics of a file: of all these columns, or only the count of rows.

    ``deltalake`` 1.6 skips a file in reads that filter by a column, if the file has statistics of other columns only.
    """
    found: dict[str, Any] = {"numRecords": rows.num_rows}
    try:
        bounds = {name: pc.min_max(rows[name]).as_py() for name in names}
        least = {name: _rounded(one["min"], up=False) for name, one in bounds.items() if one["min"] is not None}
        most = {name: _rounded(one["max"], up=True) for name, one in bounds.items() if one["max"] is not None}
    except OverflowError:  # the last millisecond of the year 9999
        names = ()
    if names:
        found |= {"minValues": least, "maxValues": most, "nullCount": {name: rows[name].null_count for name in names}}
    return json.dumps(found, ensure_ascii=False)  # ``deltalake`` reads escaped characters beyond U+FFFF as others


def _rounded(value: Any, *, up: bool) -> Any:
    if isinstance(value, str):
        cut = value[:_TEXT]
        if not up or cut == value:
            return cut
        return cut + _HIGHEST if value[_TEXT] < _HIGHEST else value
    if isinstance(value, datetime):
        value += timedelta(microseconds=(-value.microsecond if up else value.microsecond) % 1000) * (1 if up else -1)
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    return value if isinstance(value, int) else value.isoformat()


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
