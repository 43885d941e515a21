"""A Delta table, written by the ``deltalake`` package: no JVM, no jars.

Never commits rows without their progress.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from canal.errors import StreamMismatchError, TargetConflictError, TargetSchemaError
from canal.targets.protocol import Progress, TableProgress
from canal.targets.tables import matching, need, understood
from canal.targets.tables.outcome import fit
from canal.targets.tables.upkeep import Upkeep

_RETENTION: Final = "delta.logRetentionDuration"
#: For how long a checkpoint names a removed file, and seconds of it in which VACUUM may come to remove it. What it misses is
#: named nowhere, as what a killed writer leaves: that goes after so many hours, in which no writer may have it in hand.
_TOMBSTONES: Final = "delta.deletedFileRetentionDuration"
_MARGIN: Final = 600
_ORPHANS: Final = 168
_DELETE: Final = "__canal_delete"
#: The parts of a progress that are numbers, each the version of a transaction of its own: Delta keeps one number of each.
_NUMBERS: Final = ("txn", "ord", "ts", "snapshot")


@attrs.frozen
class DeltaTableTarget:
    """One Delta table at ``path``, which the first batch creates if there is none.

    The progress is kept as Delta's own application transactions ``canal/<stream>/…``, in the commit of the rows. Two writers
    of a stream conflict: the second one's commit is refused. Optimizing and vacuuming beside it do no harm; a RESTORE,
    which leaves the progress where it was, is refused. ``deltalake`` alters no types: the table is read whole and written
    anew in the commit of the first value that needs a wider one. TIME columns are stored as microseconds (long): Delta has
    no intervals.

    Args:
        path: directory or URL.
        storage_options: of the object store, as ``deltalake`` takes them.
        partition_by: columns, where it makes the table.
        upkeep: have ``apply_changes`` compact and vacuum the table by itself, and its log cut to what is kept; None: it stays
            as it is.
    """

    path: str
    storage_options: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    partition_by: Sequence[str] = ()
    upkeep: Upkeep | None = None

    retypes = True

    def widens(self, old: pa.DataType, new: pa.DataType) -> bool:
        return True

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
        """OPTIMIZE, and VACUUM of what no version of the time to keep needs, and of files of a week ago that no commit names.

        Sets ``delta.logRetentionDuration`` to that time, and ``delta.deletedFileRetentionDuration`` to a little more: else
        each checkpoint would name the files that were removed in the last seven days.
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
            # The last commit has the whole progress, whatever of the log goes.
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
        for limit in (1, 100, None):  # what is no number is in the commit itself, mostly the last
            for commit in self._table.history(limit):
                if self._app in commit:
                    whole = Progress.from_text(commit[self._app])
                    return whole if whole.table and whole.table.last_change == table.last_change else Progress(table=table)
                if commit.get("operation") == "RESTORE":
                    raise StreamMismatchError(
                        f"{self._target.path} was restored to an earlier version, with its rows but not with its progress",
                        remedy="Apply under another stream name, with a snapshot (snapshot='replace').",
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
                else:
                    self._merge(lake, upserts, deletes, commit)
            except lake.exceptions.SchemaMismatchError as error:
                raise TargetSchemaError(f"Delta refuses the columns: {error}", remedy="Alter the target.") from error

    def commit(self, progress: Progress) -> Any:
        """What a commit tells of the progress."""
        lake = need("deltalake", "lake")
        return lake.CommitProperties(
            custom_metadata={self._app: progress.to_text()},
            app_transactions=[lake.Transaction(f"{self._app}/{name}", getattr(progress.table, name)) for name in _NUMBERS],
        )

    def _prepare(self, lake: Any, schema: pa.Schema, added: list[pa.Field]) -> None:
        """Make the table, or its new columns: a commit of its own that changes no row."""
        if self._table is None:
            target = self._target
            self._table = self._made(lake, target, schema)
        elif added:
            self._table.alter.add_columns(lake.Schema.from_arrow(pa.schema(added)).fields)

    @staticmethod
    def _made(lake: Any, target: DeltaTableTarget, schema: pa.Schema) -> Any:
        partition_by, options = list(target.partition_by) or None, target._options
        try:
            return lake.DeltaTable.create(target.path, schema, partition_by=partition_by, storage_options=options)
        except lake.exceptions.DeltaError as error:
            if lake.DeltaTable.is_deltatable(target.path, options):
                raise TargetConflictError(f"another writer has made {target.path} meanwhile") from error
            raise TargetSchemaError(f"Delta cannot make {target.path}: {error}", remedy="Rename the columns.") from error

    def _rewritten(self, upserts: pa.Table, deletes: pa.Table) -> pa.Table:
        """The whole table as it is to be, in the columns of ``upserts``."""
        rows = fit(self._table.to_pyarrow_table(), upserts.schema)
        if deletes.num_columns:
            rows = matching(rows, pa.concat_tables([upserts.select(deletes.column_names), deletes]), others=True)
        return pa.concat_tables([rows, upserts])

    def _merge(self, lake: Any, upserts: pa.Table, deletes: pa.Table, commit: Any) -> None:
        flag = pa.field(_DELETE, pa.bool_())
        puts = upserts.append_column(flag, pa.repeat(False, upserts.num_rows))
        takes = deletes.append_column(flag, pa.repeat(True, deletes.num_rows))
        source = pa.concat_tables([puts, takes], promote_options="default")
        on = " AND ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in self._keys)
        columns = {_quoted(name): f"s.{_quoted(name)}" for name in upserts.column_names}
        version = self._table.version()
        # A streamed source rules out no file by the statistics of its keys.
        is_streamed = any(pa.types.is_decimal(source.schema.field(key).type) for key in self._keys)
        merge = self._table.merge(
            source, on, source_alias="s", target_alias="t", streamed_exec=is_streamed, commit_properties=commit
        )
        merge = merge.when_matched_delete(f"s.{_DELETE}").when_matched_update(columns)
        merge.when_not_matched_insert(columns, f"NOT s.{_DELETE}").execute()
        if self._table.version() == version:  # nothing to do is no commit
            self._table.create_write_transaction([], "append", self._table.schema(), commit_properties=commit)


def _versions_since(table: Any, moment: float) -> list[int]:
    """Those that were the newest at ``moment`` or later."""
    found = []
    for commit in table.history():
        found.append(int(commit["version"]))
        if commit["timestamp"] / 1000 < moment:
            break
    return found


def _near(keys: pa.Table) -> pc.Expression | None:
    """Return a filter that every row with one of the keys passes, or None if there is no exact one.

    The log keeps the statistics of a file as JSON numbers, which round decimals. Arrow cannot compare text with the views of
    text that a merge writes.
    """
    values = {name: pc.unique(keys[name]) for name in keys.column_names if _is_exact(keys.schema.field(name).type)}
    if not values:
        return None
    name = max(values, key=lambda name: len(values[name]))  # the most selective
    field, found = pc.field(name), values[name]
    return (field >= pc.min(found)) & (field <= pc.max(found)) & field.isin(found)


def _is_exact(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp))


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
