"""Applies the changes of a one-table stream to a target: the latest change per key, exactly once.

Never uses Spark's batch id: the target stores `_txn` and `_ord` of the last applied change with its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from canal.changes.alters import types_from_text, unfollowed
from canal.errors import (
    ConfigError,
    StreamMismatchError,
    TargetLostError,
    TargetSchemaError,
    UnfitChangeError,
    UnloggedChangeError,
    UsageError,
    visible,
)
from canal.formats import gtid_text as gtids
from canal.formats.change_table import pack_txn
from canal.gtid import GtidSet, parse_gtid_set
from canal.position import Position
from canal.targets.protocol import UNKNOWN, Progress, TableProgress, Target
from canal.targets.tables import TableTarget, TableWork
from canal.targets.tables.outcome import common, extended, fit, outcome, where, wider
from canal.targets.tables.upkeep import CommitCounter, Maintained, Upkeep

log = logging.getLogger("canal.pipe")

#: Columns of a one-table stream that are not columns of the table. (``_extra`` is kept like a column of the table.)
META: Final = ("_op", "_txn", "_ord", "_ts", "_gtid", "_before", "_absent", "_exact")
_OPS: Final = ["I", "U", "D", "r", "T"]
_EPOCH_SHIFT, _EPOCHS = 58, 32
#: ``_ord`` of rows of a snapshot in chunks. Numbered rows of a snapshot have lower numbers, streamed rows higher ones.
_UNNUMBERED: Final = -1
#: ``_ord`` for the T of a snapshot in chunks, so that it sorts before their rows.
_BEFORE_ALL: Final = 1 - (1 << 63)
_NO_TIME: Final = (1 << 63) - 1
_READ_THE_SAME: Final = (
    "Read the same server, or empty the target together with its progress (drop the table) and take a snapshot."
)


@runtime_checkable
class TableTargets(Protocol):
    """A target with many tables: Delta, Iceberg, MySQL and Parquet."""

    def table_target(self, name: str) -> TableTarget:
        """Return the target of one table."""


@runtime_checkable
class BatchInfo(Protocol):
    """Information of a loop about a batch of changes. A streaming query passes only a number."""

    @property
    def table(self) -> str: ...
    @property
    def start(self) -> Position | None: ...
    @property
    def end(self) -> Position | None: ...
    @property
    def source(self) -> str: ...
    @property
    def types(self) -> str: ...
    @property
    def is_copy(self) -> bool: ...
    @property
    def loss(self) -> Any: ...


@attrs.frozen
class PlainBatch:
    """The batch information of a loop with no other function."""

    table: str = ""
    start: Position | None = None
    end: Position | None = None
    types: str = ""
    is_copy: bool = False
    loss: Any = None

    @property
    def source(self) -> str:
        return "" if self.end is None else self.end.source


_UNKNOWN: Final = PlainBatch()


def _key_names(keys: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(keys, str) or keys is not None and not keys:
        raise ConfigError(f"keys must be a sequence of column names, or None to append the changes themselves, not {keys!r}")
    return None if keys is None else tuple(keys)


@attrs.define
class ApplyChanges:
    """A function that applies Arrow tables of changes to one table of a target. Call it from one thread at a time.

    ``canal.spark.apply_changes`` documents the options. ``parts`` converts a batch to Arrow tables.
    """

    target: TableTarget | TableTargets
    keys: tuple[str, ...] | None = attrs.field(converter=_key_names)
    stream: str
    schema: str
    exact: str
    absent: str
    snapshot: str
    parts: Callable[[Any, Sequence[str]], Iterator[pa.Table]]
    table: str = ""
    _table: str = attrs.field(default="", init=False)
    _commits: CommitCounter = attrs.field(factory=CommitCounter, init=False)
    _resolved: TableTarget | None = attrs.field(default=None, init=False)
    _applied: tuple[int, int] | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        for name, value, known in (
            ("schema", self.schema, ("refuse", "add")),
            ("exact", self.exact, ("refuse", "null", "keep")),
            ("absent", self.absent, ("refuse", "null")),
            ("snapshot", self.snapshot, ("refuse", "replace", "keep")),
        ):
            if value not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, not {value!r}")
        if not isinstance(self.target, TableTargets):
            given: object = self.target
            if isinstance(given, Target):
                raise ConfigError(
                    f"{self.target} takes changes from canal.pipe alone",
                    remedy="Use canal.targets.DeltaTarget, IcebergTarget, MySQLTarget or ParquetTarget.",
                )
            self._resolve(self.target)
        elif self.table:
            self._resolve(self.target.table_target(self.table))

    def _resolve(self, target: TableTarget) -> TableTarget:
        """Set the target of the one table."""
        if target.abilities.only_appends and self.keys is not None:
            raise ConfigError(f"{self.target!r} only appends", remedy="Use keys=None to append the changes themselves.")
        self._resolved = target
        return target

    @property
    def _of_table(self) -> TableTarget:
        if self._resolved is not None:
            return self._resolved
        if not self._table or not isinstance(self.target, TableTargets):
            raise UsageError(
                f"{self.target} has many tables, and the table of these changes is unknown",
                remedy='Name it by apply_changes(…, table="schema.table").',
            )
        return self._resolve(self.target.table_target(self._table))

    def __call__(self, df: Any, batch: Any = None) -> None:
        """Apply the changes that the target lacks. ``batch``: Spark's batch id, or a ``canal.spark.Batch``."""
        if batch is None or isinstance(batch, int):
            batch = _UNKNOWN
        elif not isinstance(batch, BatchInfo):
            raise UsageError(f"batch must be a batch number or a canal.spark.Batch, not {batch!r}")
        self.follow(batch.table)
        if batch.loss is not None:
            self._lose(batch.loss, batch)
            return
        told: list[pa.Array] = []
        for rows in self.parts(df, self.keys or ()):
            if rows.num_rows:
                _check_form(rows)
                told += rows["_gtid"].chunks
                self._apply(_with_begin_first(rows), batch, pa.chunked_array(told))

    def follow(self, table: str) -> None:
        """Set the table of the source. "": unknown.

        Raises:
            UsageError: changes of another table were applied before.
        """
        if self._table and table and table != self._table:
            raise UsageError(f"changes of {table} after changes of {self._table}", remedy="Use one sink per table.")
        self._table = table or self._table

    def _apply(self, rows: pa.Table, batch: BatchInfo, told: pa.ChunkedArray) -> None:
        with self._of_table.begin(self.stream, self.keys or ()) as work:
            self._check_applied(work, rows)
            given = _in_numbers(rows, work.progress, batch)
            rows, replace = self._new(given, work)
            if rows.num_rows:
                progress = _progress(given, work.progress, batch, told)
                assert progress.table is not None
                self._check_types(work, progress.table)
                if self.keys is None:
                    _check_numbered(rows)
                    self._append(work, rows, progress, replace)
                else:
                    self._merge(work, rows, self.keys, progress, replace)
                self._applied = progress.table.last_change
        if rows.num_rows:
            self._commits.committed(self._of_table, self.stream, self._table)

    def _check_applied(self, work: TableWork, rows: pa.Table) -> None:
        """Check that the target still has the last change that this function has applied.

        Raises:
            TargetLostError: the table was dropped, or it is an earlier version, and no snapshot begins.
        """
        done = None if work.progress is None else work.progress.table
        if self._applied is None or done is not None and done.last_change >= self._applied or pc.any(_is_read(rows)).as_py():
            return
        now = "has no progress" if done is None else f"is at {_where(*done.last_change)}"
        raise TargetLostError(
            f"the table of {self.target} was dropped, replaced or restored: the stream {self.stream!r} was applied up to "
            f"{_where(*self._applied)}, and the table {now}",
            remedy="Restore the version that has those changes. Or drop the table, and take a snapshot.",
        )

    def maintain(self, upkeep: Upkeep | None = None) -> None:
        """Compact small files, and remove files that no version of the last ``upkeep.keep`` seconds needs.

        Call it between batches, from the thread that applies them. ``upkeep``: default is the target's upkeep.

        Raises:
            ConfigError: the target has no upkeep.
            TargetConflictError: another writer was quicker. Call it again: nothing is lost.
        """
        target = self._of_table
        if not isinstance(target, Maintained):
            raise ConfigError(f"{self.target!r} has no upkeep", remedy="Use the tools of its storage.")
        target.maintain(self.stream, upkeep or target.upkeep or Upkeep())

    def acknowledge(self) -> None:
        """Mark the unlogged change as handled: the target equals the table after the position of the UnloggedChangeError."""
        with self._of_table.begin(self.stream, self.keys or ()) as work:
            old = _done(work)
            if old is not None and old.fault:
                self._store(work, attrs.evolve(old, fault=""))

    def progress(self) -> Progress | None:
        """Return the progress of the target, or None if nothing was applied."""
        with self._of_table.begin(self.stream, self.keys or ()) as work:
            return work.progress

    def _end_copy(self) -> None:
        """Mark the copy as complete."""
        with self._of_table.begin(self.stream, self.keys or ()) as work:
            old = _done(work)
            if old is not None and old.is_copy:
                self._store(work, attrs.evolve(old, is_copy=False))

    # -- unlogged changes -----------------------------------------------------------------------------------------------

    def _lose(self, loss: Any, batch: BatchInfo) -> None:
        """Settle a loss if the target is after it, or has no rows. Otherwise store and raise it."""
        with self._of_table.begin(self.stream, self.keys or ()) as work:
            old = _done(work)
            is_void = old is None and (self.keys is None or work.schema is None or work.is_empty())
            row = loss.row if is_void else _in_numbers(loss.row, work.progress, batch)
            if old is not None and row.num_rows:
                row, _ = self._new(row, work)
            is_behind = not row.num_rows or old is not None and _last(row) <= old.lost
            what = "" if is_void or is_behind else loss.told("" if old is None else old.types)
            if not what:
                loss.settle()
                return
            progress = attrs.evolve(old or TableProgress(0, 0), types="", lost=_last(row))
            self._refuse(work, progress, f"{what} (at {loss.error.position})")

    def _check_types(self, work: TableWork, progress: TableProgress) -> None:
        """Compare the declared types with those of earlier rows: narrowing a column changes values of existing rows."""
        old = _done(work)
        if old is None or progress.snapshot != old.snapshot:
            return
        if what := unfollowed(self._table, types_from_text(old.types), types_from_text(progress.types)):
            where = _where(*progress.last_change)
            self._refuse(work, attrs.evolve(old, types=progress.types), f"{what} (in the batch up to {where})")

    def _refuse(self, work: TableWork, progress: TableProgress, fault: str) -> None:
        self._store(work, attrs.evolve(progress, fault=fault))
        raise _fault(fault)

    def _store(self, work: TableWork, table: TableProgress) -> None:
        """Write only the progress."""
        progress = attrs.evolve(work.progress or Progress(), table=table)
        schema = pa.schema([]) if work.schema is None else work.schema
        nothing = schema.empty_table()
        work.write(nothing, nothing.select(self.keys or ()), progress, added=[], replace=False)

    # -- changes to apply ----------------------------------------------------------------------------------------------

    def _new(self, rows: pa.Table, work: TableWork) -> tuple[pa.Table, bool]:
        """Return the rows after the progress, and whether a snapshot begins that replaces the existing rows."""
        old, is_read, replace = _done(work), _is_read(rows), False
        begun = set(pc.unique(rows["_txn"].filter(is_read)).to_pylist()) - {old and old.snapshot}
        if old is None:
            return self._first(rows, work) if begun and self.keys is not None else (rows, False)
        if old.fault and not begun:
            raise _fault(old.fault)
        if begun:
            if self.snapshot != "replace" and not old.is_copy or min(begun) < old.txn:
                raise StreamMismatchError(
                    f"a snapshot begins, but the target has followed the stream {self.stream!r} to "
                    f"{_where(*old.last_change)} already, and would keep rows that were deleted since",
                    remedy="Start the query from its earlier position (without a snapshot), or empty the target together with "
                    "its progress (drop the table). snapshot='replace' empties it when a later snapshot begins.",
                )
            old = TableProgress(min(begun), _BEFORE_ALL - 1, ts=_NO_TIME)
            replace = True
        elif old.is_copy and not pc.any(is_read).as_py():
            raise StreamMismatchError(
                f"changes come, but the copy of {self._table or 'the table'} is not complete: the target lacks rows",
                remedy="Call copy_table again before the loop: it restarts the copy.",
            )
        self._check_place(rows, old)
        behind = _behind(rows, old)
        if old.ord == _UNNUMBERED:
            # All rows of chunks have the same `_txn` and `_ord`. Put all of them: that is idempotent.
            behind = pc.or_(behind, pc.and_(pc.equal(rows["_op"], "r"), pc.equal(rows["_txn"], old.txn)))
        if old.gtids and max(old.txn, pc.max(rows["_txn"]).as_py()) >> _EPOCH_SHIFT:
            known = _is_known(rows, old)
            self._check_skipped(rows.filter(known), old, old.ts)
            # Unknown transactions as old as the last change may be new: of a third server in the epoch of the second server,
            # or of the second server without its epoch, in a query with a new checkpoint.
            self._check_skipped(rows.filter(pc.invert(pc.or_(pc.or_(behind, is_read), known))), old, old.ts - 1)
            behind = pc.and_not(behind, known)
        else:
            self._check_skipped(rows.filter(pc.invert(pc.or_(behind, is_read))), old, old.ts)
        return rows if pc.all(behind).as_py() else rows.filter(behind), replace

    def _first(self, rows: pa.Table, work: TableWork) -> tuple[pa.Table, bool]:
        """Return the same as ``_new``, if a stream begins with a snapshot."""
        if self.snapshot == "keep":
            return rows.filter(pc.not_equal(rows["_ord"], _BEFORE_ALL)), False
        if work.schema is None or work.is_empty():
            return rows, False
        if self.snapshot == "refuse":
            raise StreamMismatchError(
                f"a snapshot begins, but the target has rows and no progress of the stream {self.stream!r}",
                remedy="Empty the target, or use snapshot='replace'. snapshot='keep' keeps the rows of other streams.",
            )
        return rows, True

    def _check_place(self, rows: pa.Table, old: TableProgress) -> None:
        """Check that the transaction at the position of the last change is the same."""
        is_done = pc.and_(pc.equal(rows["_txn"], old.txn), pc.less_equal(rows["_ord"], old.ord))
        others = rows["_gtid"].filter(pc.and_(is_done, pc.not_equal(rows["_gtid"], old.gtid)))
        if old.gtid and len(others):
            raise StreamMismatchError(
                f"transaction {others[0]} is at the position ({_where(*old.last_change)}) of {old.gtid} in the target: "
                "the source is another server, or has reset its log",
                remedy=_READ_THE_SAME,
            )

    def _check_skipped(self, rows: pa.Table, old: TableProgress, ts: int) -> None:
        """Check that skipped rows are not younger than ``ts``, the time of the youngest applied change."""
        if rows.num_rows and (pc.max(_micros(rows["_ts"])).as_py() or 0) > ts:
            raise StreamMismatchError(
                f"changes have numbers of applied changes ({_where(*_last(rows))}; the target is at "
                f"{_where(*old.last_change)}) but are younger than all applied changes: the source has reset its log, or it "
                "is another server",
                remedy="Empty the target together with its progress (drop the table) and take a snapshot.",
            )

    def _append(self, work: TableWork, rows: pa.Table, progress: Progress, replace: bool) -> None:
        rows = self._stored(rows)
        rows = _with_ord(rows, pc.equal(rows["_ord"], _BEFORE_ALL), _UNNUMBERED)  # its original number
        schema, added = self._columns(work, rows, replace)
        work.write(fit(rows, schema), pa.table({}), progress, added=added, replace=replace)

    def _merge(self, work: TableWork, rows: pa.Table, keys: tuple[str, ...], progress: Progress, replace: bool) -> None:
        if missing := [key for key in keys if key not in rows.column_names]:
            raise ConfigError(
                f"the changes have no columns {', '.join(missing)}", remedy="Use the names of the table's columns as keys."
            )
        rows, is_emptied = _since_truncate(self._stored(_with_keys_before(rows, keys)))
        self._check_exact(rows)
        payload = self._payload(rows)
        replace = replace or is_emptied
        schema, added = self._columns(work, payload, replace)
        old = work.schema
        read = None if replace or old is None else lambda wanted: work.read(_narrowed(wanted, old))
        upserts, deletes = outcome(rows, payload, keys, schema, read, self.absent == "null")
        work.write(upserts, deletes, progress, added=added, replace=replace)

    # -- columns --------------------------------------------------------------------------------------------------------

    def _stored(self, rows: pa.Table) -> pa.Table:
        """Return the rows in order, with times in UTC, and intervals in microseconds if the target has no such type."""
        durations = self._of_table.abilities.stores_durations
        fields = [field.with_type(_stored_type(field.type, durations)) for field in rows.schema]
        columns = [
            pa.chunked_array([_as_stored(chunk, field.type) for chunk in column.chunks], field.type)
            for column, field in zip(rows.columns, fields)
        ]
        return _sorted(pa.table(columns, schema=pa.schema(fields)))

    def _payload(self, rows: pa.Table) -> pa.Table:
        keep = self.exact == "keep"
        return rows.select([name for name in rows.column_names if name not in META or keep and name == "_exact"])

    def _columns(self, work: TableWork, payload: pa.Table, replace: bool) -> tuple[pa.Schema, list[pa.Field]]:
        """Return the target's columns after the commit, and its new or changed columns."""
        if work.schema is None:
            schema = pa.schema([pa.field(field.name, field.type) for field in payload.schema])
            return schema, list(schema)
        ours, theirs = set(payload.column_names), set(work.schema.names)
        if ours != theirs and self.schema != "add":
            parts = [f"the target lacks {', '.join(sorted(ours - theirs))}"] if ours - theirs else []
            parts += [f"the changes lack {', '.join(sorted(theirs - ours))}"] if theirs - ours else []
            raise TargetSchemaError(
                f"the columns differ: {'; '.join(parts)}",
                remedy="Alter the target, use schema='add', or select columns of the DataFrame.",
            )
        return extended(work.schema, payload.schema, self._widened(work.schema, payload, replace))

    def _widened(self, schema: pa.Schema, payload: pa.Table, replace: bool) -> dict[str, pa.DataType]:
        """Return wider types for the target's columns that do not hold a value, if the target can widen columns.

        If no earlier row stays, compare only the types: the values of later chunks are unknown.
        """
        abilities, found = self._of_table.abilities, {}
        is_anew = replace and abilities.retypes
        for field in schema:
            column = payload[field.name] if field.name in payload.column_names else None
            if column is None or column.type == field.type:
                continue
            kind = common(column.type, field.type) or column.type if is_anew else wider(column, field.type)
            if kind is not None and kind != field.type and (is_anew or abilities.widens):
                log.warning("the target's column %s becomes %s, it is %s", visible(field.name), kind, field.type)
                found[field.name] = kind
        return found

    def _check_exact(self, rows: pa.Table) -> None:
        held = rows.filter(pc.and_(pc.is_valid(rows["_exact"]), pc.not_equal(rows["_op"], "D")))
        pairs = [(name, text) for pairs in held["_exact"].to_pylist() for name, text in pairs]
        if not pairs:
            return
        if documents := {name for name, text in pairs if text.startswith("JSON_")}:
            raise UnfitChangeError(
                f"of the JSON in {', '.join(sorted(documents))} only the change is known, not the value (first at {where(held)})",
                remedy="Unset binlog_row_value_options=PARTIAL_JSON at the source and take a snapshot.",
            )
        names = ", ".join(sorted({name for name, _ in pairs}))
        if self.exact == "refuse":
            raise UnfitChangeError(
                f"the column types of {names} do not hold {len(pairs)} values (first at {where(held)})",
                remedy="Use exact='null' to write NULL, or exact='keep' to keep their text in a column _exact.",
            )
        if self.exact == "null":
            text = "NULL is written where a column's type cannot hold the value; count %d, columns %s"
            log.warning(text, len(pairs), visible(names))


def _done(work: TableWork) -> TableProgress | None:
    return None if work.progress is None else work.progress.table


def _narrowed(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the keys that the columns of ``schema`` can hold, in their types. The target has no other keys."""
    fields = [schema.field(name) for name in keys.column_names]
    cast = pa.table([keys[field.name].cast(field.type, safe=False) for field in fields], schema=pa.schema(fields))
    for field in keys.schema:
        if field.type != cast.schema.field(field.name).type:
            is_same = pc.equal(cast[field.name].cast(field.type), keys[field.name])
            keys, cast = keys.filter(is_same), cast.filter(is_same)
    return cast


# -- the order of the stream ---------------------------------------------------------------------------------------------


def _check_form(rows: pa.Table) -> None:
    if missing := [name for name in META if name not in rows.column_names]:
        raise ConfigError(
            f"these are not the changes of one table: {', '.join(missing)} is missing",
            remedy="Read with the source's option table, and keep all columns that begin with an underscore.",
        )
    if rows["_txn"].null_count or rows["_ord"].null_count or not pc.all(pc.is_in(rows["_op"], pa.array(_OPS))).as_py():
        raise UnfitChangeError(f"a row has no _txn or _ord, or its _op is not one of {', '.join(_OPS)}")


def _check_numbered(rows: pa.Table) -> None:
    if pc.any(pc.equal(rows["_ord"], _UNNUMBERED)).as_py():
        raise UnfitChangeError(
            "chunks of this snapshot were read at different times and have no numbers: appended, they would be no state of the "
            "table, and repeated chunks could not be found",
            remedy="Begin the stream with snapshot=consistent, or without one.",
        )


def _with_begin_first(rows: pa.Table) -> pa.Table:
    """Move the T of a snapshot with an empty first chunk before the rows of other chunks: it marks the begin."""
    begins = pc.and_(pc.equal(rows["_op"], "T"), pc.equal(rows["_ord"], _UNNUMBERED))
    return _with_ord(rows, begins, _BEFORE_ALL)


def _with_ord(rows: pa.Table, mask: pa.ChunkedArray, ord: int) -> pa.Table:
    ords = pc.if_else(mask, pa.scalar(ord, rows["_ord"].type), rows["_ord"])
    return rows.set_column(rows.column_names.index("_ord"), "_ord", ords)


def _is_read(rows: pa.Table) -> pa.ChunkedArray:
    """Return whether each row is from a snapshot."""
    return pc.or_(pc.equal(rows["_op"], "r"), pc.equal(rows["_ord"], _BEFORE_ALL))


def _with_keys_before(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Keep only the keys of the row before each change."""
    kind = rows["_before"].type
    columns = [pc.struct_field(rows["_before"], [kind.get_field_index(key)]).combine_chunks() for key in keys]
    struct = pa.StructArray.from_arrays(columns, fields=[kind.field(key) for key in keys])
    return rows.set_column(rows.column_names.index("_before"), "_before", struct)


def _sorted(rows: pa.Table) -> pa.Table:
    """Sort the rows in the order of the stream, unless they are sorted."""
    txn, ord = rows["_txn"].combine_chunks(), rows["_ord"].combine_chunks()
    one, next = (txn[:-1], ord[:-1]), (txn[1:], ord[1:])
    later = pc.or_(pc.less(one[0], next[0]), pc.and_(pc.equal(one[0], next[0]), pc.less_equal(one[1], next[1])))
    if pc.all(later).as_py():
        return rows
    return rows.combine_chunks().sort_by([("_txn", "ascending"), ("_ord", "ascending")])


def _since_truncate(rows: pa.Table) -> tuple[pa.Table, bool]:
    """Return the rows after the last TRUNCATE, and whether there is one."""
    found = pc.indices_nonzero(pc.equal(rows["_op"], "T"))
    return (rows.slice(found[-1].as_py() + 1), True) if len(found) else (rows, False)


def _behind(rows: pa.Table, old: TableProgress) -> pa.ChunkedArray:
    """Return whether each row is after the progress."""
    same = pc.and_(pc.equal(rows["_txn"], old.txn), pc.greater(rows["_ord"], old.ord))
    return pc.or_(pc.greater(rows["_txn"], old.txn), same)


def _is_known(rows: pa.Table, old: TableProgress) -> pa.ChunkedArray:
    """Return whether each row is from the last batch, by its GTID. After a failover Spark repeats it with other numbers."""
    done = pc.is_in(rows["_gtid"], pa.array(gtids.from_text(old.gtids), pa.string()))
    is_last = pc.is_in(rows["_gtid"], pa.array([old.gtid]))
    rest = pc.and_(is_last, pc.greater(rows["_ord"], old.ord))  # the rest of a split transaction
    return pc.and_not(done, rest)


def _last(rows: pa.Table) -> tuple[int, int]:
    txn = pc.max(rows["_txn"]).as_py()
    return txn, pc.max(rows["_ord"].filter(pc.equal(rows["_txn"], txn))).as_py()


def _is_at(rows: pa.Table, txn: int, ord: int) -> pa.ChunkedArray:
    return pc.and_(pc.equal(rows["_txn"], txn), pc.equal(rows["_ord"], ord))


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _progress(rows: pa.Table, before: Progress | None, batch: BatchInfo, told: pa.ChunkedArray) -> Progress:
    """Return the progress after ``rows``. ``told``: GTIDs of the batch up to the last row."""
    is_read = _is_read(rows)
    young = pc.max(_micros(rows["_ts"])).as_py()
    begun = pc.max(rows["_txn"].filter(is_read)).as_py()
    old = (before or Progress()).table or TableProgress(0, 0)
    txn, ord = _last(rows)
    table = TableProgress(
        txn,
        ord,
        ts=max(young or 0, old.ts),
        snapshot=old.snapshot if begun is None else begun,
        server=batch.source,
        gtid=rows["_gtid"].filter(_is_at(rows, txn, ord))[0].as_py() or "",
        gtids="" if batch.source else gtids.to_text(told),
        types=batch.types or (old.types if begun is None else ""),
        lost=old.lost,
        is_copy=batch.is_copy,
    )
    return attrs.evolve(before or Progress(), position=batch.end or UNKNOWN, table=table)


def _fault(text: str) -> UnloggedChangeError:
    return UnloggedChangeError(
        text,
        remedy="Take a snapshot with snapshot='replace'. Or bring the target to the state of the table after this change, then "
        "call acknowledge() once on the result of apply_changes for this target and stream.",
    )


def _in_numbers(rows: pa.Table, before: Progress | None, batch: BatchInfo) -> pa.Table:
    """Return the rows numbered with the epoch in the target. Increment the epoch if the source is another server."""
    source, old = batch.source, None if before is None else before.table
    if before is None or old is None:
        return rows
    if bool(source) != bool(old.server) and not pc.any(_is_read(rows)).as_py():
        _check_log(rows, old, before.position, batch)
    if not source:
        return rows
    epoch = old.txn >> _EPOCH_SHIFT
    if old.server and source != old.server:
        rows = _not_done(rows, before.position, batch.start)
        epoch += 1
    if epoch >= _EPOCHS:
        raise StreamMismatchError(
            f"the source has changed {epoch} times, more than can be numbered",
            remedy="Empty the target together with its progress (drop the table) and take a snapshot.",
        )
    txn = pc.bit_wise_or(pc.bit_wise_and(rows["_txn"], (1 << _EPOCH_SHIFT) - 1), epoch << _EPOCH_SHIFT)
    return rows.set_column(rows.column_names.index("_txn"), "_txn", txn)


def _check_log(rows: pa.Table, old: TableProgress, position: Position, batch: BatchInfo) -> None:
    """If a loop continues a query, or a query a loop, check by GTIDs that their numbers are from the same log."""
    last, is_one = old.txn, True
    if position != UNKNOWN:
        done = position.gtid_set
        if done:
            held = [gtid for gtid in pc.unique(rows["_gtid"]).to_pylist() if _holds(done, gtid)]
            is_new = pc.invert(pc.is_in(rows["_gtid"], pa.array(held, pa.string())))
            differs = pc.and_(pc.not_equal(is_new, _behind(rows, old)), pc.not_equal(rows["_txn"], last))
            is_one = not pc.any(differs).as_py()
    elif batch.source and old.gtid in gtids.from_text(old.gtids):
        last &= (1 << _EPOCH_SHIFT) - 1
        for end in (batch.start, batch.end):
            if end is not None and end.journal and end.gtid:
                is_behind = pack_txn(0, end.journal, end.offset) > last
                is_one = is_one and is_behind == _holds(end.gtid_set, old.gtid)
    same = rows["_txn"].filter(pc.is_in(rows["_gtid"], pa.array([old.gtid])))
    if not is_one or pc.any(pc.not_equal(same, last)).as_py():
        raise StreamMismatchError(
            "the query and the loop have not read the same server, so the numbers of changes do not show which were applied",
            remedy=_READ_THE_SAME,
        )


def _not_done(rows: pa.Table, done: Position, start: Position | None) -> pa.Table:
    """Return the changes of another server that the target lacks: all if the batch begins after ``done``, else by GTID."""
    if done != UNKNOWN and start is not None:
        if start == done or done.precedes(start):
            return rows
        if done.gtid and not done.row:
            held = done.gtid_set
            mine = [gtid for gtid in pc.unique(rows["_gtid"]).to_pylist() if not _holds(held, gtid)]
            return rows.filter(pc.is_in(rows["_gtid"], pa.array(mine, pa.string())))
    raise StreamMismatchError(
        "the source is another server now, and it is unknown which of its changes were applied",
        remedy="Use servers with GTIDs; empty the target together with its progress (drop the table) and take a snapshot.",
    )


def _holds(done: GtidSet, gtid: str) -> bool:
    try:
        return bool(parse_gtid_set(gtid) <= done)
    except (ConfigError, TypeError) as error:
        raise StreamMismatchError(
            "a transaction of the new source has no GTID like those of the old source",
            remedy="Empty the target together with its progress (drop the table) and take a snapshot.",
        ) from error


def _where(txn: int, ord: int) -> str:
    epoch, number, offset = txn >> _EPOCH_SHIFT, txn >> 36 & (1 << 22) - 1, txn & (1 << 36) - 1
    return f"log {number}, offset {offset}, row {ord}" + (f", epoch {epoch}" if epoch else "")


# -- types ---------------------------------------------------------------------------------------------------------------


def _stored_type(kind: pa.DataType, durations: bool) -> pa.DataType:
    if pa.types.is_duration(kind):
        return pa.duration("us") if durations else pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored_type(field.type, durations)) for field in kind])
    return kind


def _as_stored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_duration(array.type):
        return array.cast(pa.duration("us")).cast(kind)
    if not pa.types.is_struct(kind):
        return array.cast(kind)
    fields = [_as_stored(array.field(number), kind.field(number).type) for number in range(kind.num_fields)]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
