"""An Iceberg table, written by the ``pyiceberg`` package: no JVM, no jars.

Never lets a commit be repeated on top of another writer's: that could apply a batch twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from canal.spark.outcome import fit
from canal.spark.targets import Progress, matching, need, understood

_RETRIES: Final = "commit.retry.num-retries"


@attrs.frozen
class IcebergTarget:
    """An Iceberg table; it is made with the first batch where there is none.

    The progress is a property of the snapshot that holds the rows, so a roll-back of the table takes both back, and one of
    the table for when old snapshots have expired. Two writers of a stream conflict: the second one's commit is refused.
    Files are rewritten (copy on write). TIME columns are stored as microseconds (long): Iceberg has no intervals.

    Args:
        table: ``namespace.table``.
        catalog: its name in pyiceberg's configuration, or of your choice.
        properties: of the catalog, where the configuration has none (``type``, ``uri``, ``warehouse`` …).
    """

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def widens(self, old: pa.DataType, new: pa.DataType) -> bool:
        """As Iceberg's own schema evolution: int to long, float to double, more digits of a decimal before the point."""
        if pa.types.is_struct(old):
            return all(one.type == other.type or self.widens(one.type, other.type) for one, other in zip(old, new))
        if pa.types.is_decimal(old):
            return bool(pa.types.is_decimal(new) and old.scale == new.scale)
        return bool(pa.types.is_integer(old) == pa.types.is_integer(new) and old.bit_width >= 32)

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[_IcebergWork]:
        need("pyiceberg", "lake")
        with understood(self.table):
            catalog = _catalog(self.catalog, tuple(sorted(self.properties.items())))
            work = _IcebergWork(self, catalog, stream, keys)
        yield work


@lru_cache(maxsize=8)
def _catalog(name: str, properties: tuple[tuple[str, str], ...]) -> Any:
    return need("pyiceberg.catalog", "lake").load_catalog(name, **dict(properties))


class _IcebergWork:
    """A transaction on one snapshot of the table."""

    def __init__(self, target: IcebergTarget, catalog: Any, stream: str, keys: tuple[str, ...]) -> None:
        self._target, self._catalog, self._keys = target, catalog, keys
        self._name = f"canal.{stream}"
        try:
            self._table = catalog.load_table(target.table)
        except need("pyiceberg.exceptions", "lake").NoSuchTableError:
            self._table = None
        self.schema = None if self._table is None else _plain(self._table.schema().as_arrow())
        self.progress = None if self._table is None else self._stored()

    def _stored(self) -> Progress | None:
        snapshot = self._table.current_snapshot()
        text = None
        while snapshot is not None and text is None:
            text = snapshot.summary.additional_properties.get(self._name) if snapshot.summary else None
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
            if parent is not None and snapshot is None and text is None:  # it has expired
                text = self._table.properties.get(self._name)
        if text is None:
            return None
        progress = Progress.from_text(text)
        whole = Progress.from_text(self._table.properties.get(self._name, text))
        return whole if whole.place == progress.place else progress  # a table that was rolled back has other properties

    def read(self, keys: pa.Table) -> pa.Table:
        with understood(self._target.table):
            return matching(self._scan(self._near(keys)), keys)

    def _scan(self, near: Any) -> pa.Table:
        schema = self.schema
        assert schema is not None
        return self._table.scan(row_filter=near).to_arrow().select(schema.names).cast(schema)

    @staticmethod
    def _near(keys: pa.Table) -> Any:
        """A filter for these keys, and maybe for others: by the key column that tells them apart best."""
        values = {name: pc.unique(keys[name]) for name in keys.column_names}
        name = max(values, key=lambda name: len(values[name]))
        return need("pyiceberg.expressions", "lake").In(name, values[name].to_pylist())

    def is_empty(self) -> bool:
        with understood(self._target.table):
            return bool(self._table.scan(limit=1).to_arrow().num_rows == 0)

    def write(
        self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool
    ) -> None:
        errors = need("pyiceberg.exceptions", "lake")
        with understood(self._target.table, (errors.CommitFailedException, errors.TableAlreadyExistsError)):
            if self._table is None:
                self._catalog.create_namespace_if_not_exists(self._target.table.rpartition(".")[0])
                self._table = self._catalog.create_table(self._target.table, upserts.schema)
                added = []
            # A commit that is repeated behind another's would not look at the progress again.
            properties = {**self._table.metadata.properties, _RETRIES: "0"}
            self._table.metadata = self._table.metadata.model_copy(update={"properties": properties})
            transaction = self._table.transaction()
            kept = self._remove(transaction, upserts, deletes, replace)
            if added:
                with transaction.update_schema() as update:
                    update.union_by_name(pa.schema(added))
            transaction.set_properties({self._name: progress.to_text()})
            rows = upserts if kept is None else pa.concat_tables([kept, upserts])
            # Every snapshot is in the metadata of all that follow: the GTIDs of its batch and the types need not be.
            short = attrs.evolve(progress, gtid="", gtids="", types="")
            transaction.append(rows, snapshot_properties={self._name: short.to_text()})
            transaction.commit_transaction()

    def _remove(self, transaction: Any, upserts: pa.Table, deletes: pa.Table, replace: bool) -> pa.Table | None:
        """Delete the rows with these keys; those that went with them are to be written again."""
        if self._table.current_snapshot() is None or not (replace or deletes.num_columns):
            return None
        if replace:
            if not self.is_empty():
                transaction.delete(need("pyiceberg.expressions", "lake").AlwaysTrue())
            return None
        keys = pa.concat_tables([upserts.select(self._keys), deletes])
        near = self._near(keys)
        rows = self._scan(near)
        if rows.num_rows == 0:
            return None
        transaction.delete(near)
        return matching(fit(rows, upserts.schema), keys, others=True)


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])
