"""An Iceberg table, written with the ``pyiceberg`` package, without a JVM.

Never repeats a commit after another writer's commit: that could apply a batch twice.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from canal.errors import TargetSchemaError
from canal.targets.protocol import Progress
from canal.targets.tables import Abilities, matching, need, understood
from canal.targets.tables.outcome import fit
from canal.targets.tables.rewrite import Keys, new_files
from canal.targets.tables.upkeep import Upkeep

_RETRIES: Final = "commit.retry.num-retries"
#: Keeps the last hundred metadata files.
_FEW: Final = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "100"}


#: The scan task of a file, and for each of its rows whether it stays.
_Found: TypeAlias = "tuple[Any, pa.Array]"


@attrs.frozen
class IcebergTableTarget:
    """One Iceberg table. The first batch creates it.

    The progress is a property of the snapshot that has the rows, so a rollback of the table resets both. It is a property of the
    table too, for the time when old snapshots have expired. If two writers of a stream commit at the same time, the second commit
    is refused. A batch rewrites the files that have rows with its keys (copy on write). Iceberg cannot give a column some wider
    types (a decimal with a larger scale, a decimal for an int). The commit of the first value that needs such a type drops the
    column, adds it with the new type, and rewrites the whole table. TIME columns are stored as microseconds (long), since Iceberg
    has no intervals.

    Args:
        table: ``namespace.table``.
        catalog: its name in pyiceberg's configuration, or any name.
        properties: properties of a catalog that is not in the configuration (``type``, ``uri``, ``warehouse`` …).
        upkeep: when to compact files, and to expire old snapshots with their files. None: never.
    """

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    upkeep: Upkeep | None = None

    abilities = Abilities(widens=True, retypes=True)

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[_IcebergWork]:
        need("pyiceberg", "lake")
        with understood(self.table):
            catalog = _catalog(self.catalog, tuple(sorted(self.properties.items())))
            work = _IcebergWork(self, catalog, stream, keys)
        yield work

    def maintain(self, stream: str, upkeep: Upkeep) -> None:
        """Compact small files, expire snapshots older than the time to keep, and delete files that only they had.

        Keep snapshots that a tag or a branch names. Set ``write.metadata.delete-after-commit.enabled``.
        """
        errors = need("pyiceberg.exceptions", "lake")
        with understood(self.table, (errors.CommitFailedException,)):
            catalog = _catalog(self.catalog, tuple(sorted(self.properties.items())))
            work = _IcebergWork(self, catalog, stream, ())
            if work.is_there:
                work.compact(upkeep.small)
                work.expire(upkeep.keep)


_kept: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
_lock = threading.Lock()


def _catalog(name: str, properties: tuple[tuple[str, str], ...]) -> Any:
    """Return the shared catalog of this name and properties. Keep the eight catalogs that were used last."""
    key = name, properties
    with _lock:
        found = _kept.pop(key, None) or need("pyiceberg.catalog", "lake").load_catalog(name, **dict(properties))
        _kept[key] = found
        if len(_kept) > 8:
            _kept.pop(next(iter(_kept))).close()
    return found


class _IcebergWork:
    """A transaction on one snapshot of the table."""

    def __init__(self, target: IcebergTableTarget, catalog: Any, stream: str, keys: tuple[str, ...]) -> None:
        self._target, self._catalog, self._keys = target, catalog, keys
        self._name = f"canal.{stream}"
        try:
            self._table = catalog.load_table(target.table)
        except need("pyiceberg.exceptions", "lake").NoSuchTableError:
            self._table = None
        self.schema = None if self._table is None else _plain(self._table.schema().as_arrow())
        self.progress = None if self._table is None else self._stored()

    @property
    def is_there(self) -> bool:
        return self._table is not None

    def _begun(self) -> Any:
        """Return a transaction whose commit is not retried: a retry would not read the table again."""
        properties = {**self._table.metadata.properties, _RETRIES: "0"}
        self._table.metadata = self._table.metadata.model_copy(update={"properties": properties})
        return _transactions()(self._table)

    def compact(self, small: int) -> None:
        """Rewrite files with fewer bytes than ``small``, several files as one."""
        found = [task for task in self._table.scan().plan_files() if not task.delete_files]
        for group in _groups([task for task in found if task.file.file_size_in_bytes < small], small):
            self._rewrite(group)

    def _rewrite(self, tasks: list[Any]) -> None:
        io, scan = need("pyiceberg.io.pyarrow", "lake"), self._table.scan()
        reader = io.ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
        rows, transaction = reader.to_table(tasks), self._begun()
        properties = {} if self.progress is None else {self._name: _short(self.progress)}
        with transaction.update_snapshot(properties).overwrite() as update:
            for task in tasks:
                update.delete_data_file(task.file)
            for file in io._dataframe_to_data_files(self._table.metadata, rows, self._table.io):
                update.append_data_file(file)
        transaction.commit_transaction()

    def expire(self, keep: float) -> None:
        """Remove snapshots older than ``keep`` seconds, except the newest of them, and files that only they had."""
        if few := {name: value for name, value in _FEW.items() if name not in self._table.properties}:
            transaction = self._begun()
            transaction.set_properties(few)
            transaction.commit_transaction()
        oldest = (time.time() - keep) * 1000
        before = sorted(self._table.metadata.snapshots, key=lambda one: one.timestamp_ms)
        newest = [one for one in before if one.timestamp_ms < oldest][-1:]
        named = {ref.snapshot_id for ref in self._table.metadata.refs.values()}
        gone = [one for one in before if one.timestamp_ms < oldest and one not in newest and one.snapshot_id not in named]
        if not gone:
            return
        transaction = self._begun()
        update = need("pyiceberg.table.update.snapshot", "lake").ExpireSnapshots(transaction)
        update.by_ids([one.snapshot_id for one in gone]).commit()
        transaction.commit_transaction()
        stay = set().union(*(self._files(one) for one in before if one not in gone))
        for path in set().union(*(self._files(one) for one in gone)) - stay:
            with contextlib.suppress(FileNotFoundError):
                self._table.io.delete(path)

    def _files(self, snapshot: Any) -> set[str]:
        """Return the paths of all files of a snapshot."""
        found = {snapshot.manifest_list}
        for manifest in snapshot.manifests(self._table.io):
            found.add(manifest.manifest_path)
            found |= _in_manifest(manifest, self._table.io)
        return found

    def _stored(self) -> Progress | None:
        snapshot = self._table.current_snapshot()
        text = None
        while snapshot is not None and text is None:
            text = snapshot.summary.additional_properties.get(self._name) if snapshot.summary else None
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
            if parent is not None and snapshot is None and text is None:  # the parent has expired
                text = self._table.properties.get(self._name)
        if text is None:
            return None
        progress = Progress.from_text(text)
        whole = Progress.from_text(self._table.properties.get(self._name, text))
        # After a rollback the properties are of a later commit.
        is_same = whole.table and progress.table and whole.table.last_change == progress.table.last_change
        return whole if is_same else progress

    def read(self, keys: pa.Table) -> pa.Table:
        assert self.schema is not None
        with understood(self._target.table):
            found = [self._rows([task], self.schema).filter(pc.invert(others)) for task, others in self._touched(Keys(keys))]
        return pa.concat_tables([self.schema.empty_table(), *found])

    def _rows(self, tasks: Sequence[Any], schema: pa.Schema) -> pa.Table:
        """Return the rows of files."""
        scan = self._table.scan()
        reader = need("pyiceberg.io.pyarrow", "lake").ArrowScan
        return fit(reader(self._table.metadata, self._table.io, scan.projection(), scan.row_filter).to_table(tasks), schema)

    def _touched(self, keys: Keys) -> Iterator[_Found]:
        """Yield the scan tasks of files that have rows with the keys, and for each row whether it has none of the keys."""
        scan = self._table.scan().select(*keys.names)
        reader = need("pyiceberg.io.pyarrow", "lake").ArrowScan
        reader = reader(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
        fields = [self._table.schema().find_field(name) for name in keys.names]
        for task in scan.plan_files():
            if all(_may_have(task.file, field, keys) for field in fields):
                others = keys.others(reader.to_table([task]))
                if not pc.all(others).as_py():
                    yield task, others

    def is_empty(self) -> bool:
        with understood(self._target.table):
            return bool(self._table.scan(limit=1).to_arrow().num_rows == 0)

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        errors = need("pyiceberg.exceptions", "lake")
        with understood(self._target.table, (errors.CommitFailedException, errors.TableAlreadyExistsError)):
            if self._table is None:
                self._catalog.create_namespace_if_not_exists(self._target.table.rpartition(".")[0])
                self._table = self._catalog.create_table(self._target.table, upserts.schema)
                added = []
            transaction = self._begun()
            anew = self._anew(added)
            found, kept = self._remove(transaction, upserts, deletes, replace, whole=bool(anew))
            self._alter(transaction, added, anew)
            transaction.set_properties({self._name: progress.to_text()})
            properties = {self._name: _short(progress)}
            if found:
                self._overwrite(transaction, found, upserts, properties)
            else:
                transaction.append(pa.concat_tables([*kept, upserts]), snapshot_properties=properties)
            transaction.commit_transaction()

    def _overwrite(self, transaction: Any, found: list[_Found], upserts: pa.Table, properties: dict[str, str]) -> None:
        """Replace files in one snapshot: keep the rows without the batch's keys, and add the rows of the batch."""
        made, numbers = need("pyiceberg.io.pyarrow", "lake")._dataframe_to_data_files, itertools.count()
        kept = (self._rows([task], upserts.schema).filter(others) for task, others in found)
        with transaction.update_snapshot(properties).overwrite() as update:
            for task, _ in found:
                update.delete_data_file(task.file)
            for rows in new_files(kept, upserts, self._keys):
                for file in made(transaction.table_metadata, rows, self._table.io, update.commit_uuid, numbers):
                    update.append_data_file(file)

    def _anew(self, added: list[pa.Field]) -> list[str]:
        """Return the columns of the table that Iceberg cannot alter to the new type."""
        types = {} if self.schema is None else {field.name: field.type for field in self.schema}
        return [field.name for field in added if field.name in types and not _evolves(types[field.name], field.type)]

    def _alter(self, transaction: Any, added: list[pa.Field], anew: list[str]) -> None:
        """Add and widen columns. Columns in ``anew`` are dropped, and added with a new id at the same place."""
        if anew:
            self._check_free(anew)
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in anew:
                    update.delete_column((name,))
        if added:
            assert self.schema is not None
            with transaction.update_schema() as update:
                update.union_by_name(pa.schema(added))
                for name in anew:
                    number = self.schema.names.index(name)
                    update.move_after((name,), (self.schema.names[number - 1],)) if number else update.move_first((name,))

    def _check_free(self, names: list[str]) -> None:
        table = self._table
        used = {field.source_id for one in (table.spec(), table.sort_order()) for field in one.fields}
        used |= set(table.schema().identifier_field_ids)
        if bound := [name for name in names if table.schema().find_field(name).field_id in used]:
            raise TargetSchemaError(
                f"the columns {', '.join(bound)} of {self._target.table} must get other types, but they are columns of its "
                "partitions, sort order or identifier",
                remedy="Drop the table, which has its progress, and take a snapshot.",
            )

    def _remove(
        self, transaction: Any, upserts: pa.Table, deletes: pa.Table, replace: bool, *, whole: bool
    ) -> tuple[list[_Found], list[pa.Table]]:
        """Find the files that have rows with these keys. Or delete all rows, and return the rows that stay."""
        if self._table.current_snapshot() is None or not (replace or whole or deletes.num_columns):
            return [], []
        keys = pa.concat_tables([upserts.select(self._keys), deletes]) if deletes.num_columns else None
        if not (replace or whole):
            return list(self._touched(Keys(keys))), []
        everything = need("pyiceberg.expressions", "lake").AlwaysTrue()
        kept = [] if replace else [self._rows(list(self._table.scan().plan_files()), upserts.schema)]
        if not self.is_empty():
            transaction.delete(everything)
        return [], kept if keys is None else [matching(rows, keys, others=True) for rows in kept]


def _may_have(file: Any, field: Any, keys: Keys) -> bool:
    """Return whether a data file may have one of the keys, by the file's bounds of a key column."""
    types = need("pyiceberg.types", "lake")
    known = types.IntegerType, types.LongType, types.DateType, types.TimestampType, types.TimestamptzType, types.StringType
    low, high = ((bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None or not isinstance(field.field_type, known):
        return True
    value = need("pyiceberg.conversions", "lake").from_bytes
    return keys.may_be_within(field.name, value(field.field_type, low), value(field.field_type, high))


def _evolves(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether Iceberg alters the type: int to long, float to double, a decimal to a larger precision."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return all(one.type == other.type or _evolves(one.type, other.type) for one, other in zip(old, new))
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    for is_kind in (pa.types.is_integer, pa.types.is_floating):
        if is_kind(old) and is_kind(new):
            return bool(32 <= old.bit_width <= new.bit_width)
    return False


def _short(progress: Progress) -> str:
    """Return the progress without GTIDs and types: the metadata of all later snapshots repeat it."""
    table = None if progress.table is None else attrs.evolve(progress.table, gtid="", gtids="", types="")
    return attrs.evolve(progress, table=table).to_text()


def _groups(tasks: list[Any], size: int) -> Iterator[list[Any]]:
    """Yield groups of at least two files, with about ``size`` bytes each."""
    group: list[Any] = []
    total = 0
    for task in sorted(tasks, key=lambda task: task.file.file_size_in_bytes):
        group.append(task)
        total += task.file.file_size_in_bytes
        if total >= size:
            if len(group) > 1:
                yield group
            group, total = [], 0
    if len(group) > 1:
        yield group


#: The data files of each manifest by its path. Manifests never change.
_MANIFESTS: dict[str, set[str]] = {}
_MANIFESTS_KEPT: Final = 10_000


def _in_manifest(manifest: Any, io: Any) -> set[str]:
    path = manifest.manifest_path
    if path not in _MANIFESTS:
        if len(_MANIFESTS) >= _MANIFESTS_KEPT:
            _MANIFESTS.clear()
        _MANIFESTS[path] = {one.data_file.file_path for one in manifest.fetch_manifest_entry(io, discard_deleted=True)}
    return _MANIFESTS[path]


@cache
def _transactions() -> type[Any]:
    """Return a Transaction that caches its metadata. pyiceberg copies all metadata at each access."""
    transaction: type[Any] = need("pyiceberg.table", "lake").Transaction

    class Transaction(transaction):  # type: ignore[misc]
        _seen: tuple[Any, Any, Any] = (None, None, None)

        @property
        def table_metadata(self) -> Any:
            metadata, updates, found = self._seen
            if metadata is not self._table.metadata or updates is not self._updates:
                metadata, updates, found = self._seen = self._table.metadata, self._updates, super().table_metadata
            return found

    return Transaction


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])
