"""Resolves table maps: combines a map with the known schema, once per distinct map.

Never reads rows. With ``binlog_row_metadata=FULL`` the map contains names, signs, charsets and labels. Otherwise the schema is
looked up and compared with the map.
"""

from __future__ import annotations

import logging
from datetime import tzinfo
from typing import Any, Callable, Container

import attrs

from canal._util.bounded import Told
from canal.binlog import type_codes as codes
from canal.binlog.event_types import TABLE_MAP
from canal.binlog.server_facts import Release
from canal.errors import ConfigError, SchemaError, UnsupportedError
from canal.filter import FieldFilter, TableFilter
from canal.model import ColumnNames, TableMap, column_names
from canal.parse.schema.map_schema import merge_schema, needs_charset, positional_schema, schema_from_map
from canal.parse.schema.map_text import string_length
from canal.parse.schema.misfit import ADDRESS_BYTES, difference
from canal.parse.schema.online_ddl import ShadowTables
from canal.parse.schema.raw_map import NEWEST, RawTableMap, names_of, parse_columns
from canal.parse.schema.sequences import is_sequence
from canal.rows.decoder import RowDecoder
from canal.rows.mask import Mask, Masks
from canal.schema import ColumnSchema, TableSchema
from canal.statement import Statement

log = logging.getLogger("canal.parse")
#: Types whose full text is not in a table map.
_PARTLY_TOLD = codes.NUMERIC | {codes.YEAR, codes.GEOMETRY, codes.VECTOR}
#: Memory in bytes, measured in both builds and rounded up: per table map, per shape shared by tables, per column of a shape, and
#: per label.
_TABLE_BYTES, _SHAPE_BYTES, _COLUMN_BYTES, _LABEL_BYTES = 1100, 1300, 550, 70
#: Maximum number of columns in cached shapes.
_MOST_COLUMNS = 20_000
#: Maximum bytes of cached maps, for tables that differ only in their names.
_MOST_ALIKE = 1 << 20


@attrs.frozen
class _Shape:
    """The data shared by tables with the same columns."""

    decoder: RowDecoder
    shown: tuple[ColumnSchema, ...]
    wanted: tuple[ColumnSchema, ...]
    names: ColumnNames


@attrs.define
class _Alike:
    """The data shared by maps that differ only in the table's name, such as shards."""

    fields: tuple[Any, ...]
    """The fields of RawTableMap without the two names."""

    columns: tuple[ColumnSchema, ...] | None = None
    """The columns, if they are known and the map alone determines them."""


class TableResolver:
    """Creates a :class:`~canal.model.TableMap` for each new table map body.

    Args:
        find: returns a table's schema at the stream's position for a map without full metadata; None if unknown.
        tables, fields: the instance's filters.
        timezone: time zone of TIMESTAMP values.
        json_columns: returns a table's MariaDB JSON columns, which look like LONGTEXT in the log; None: return JSON as text.
        shadows: identifies tables of online schema changes, which are not delivered; None: deliver all tables.
        unknown_columns: for a table with unknown columns: "positions" names them @1, @2 and so on, "error" raises
            SchemaError, "leave_out" drops its rows.
        alarm: called with a text for such a table.
        masks: masks for columns.
        whole_types: look up the full types also for maps with names, which lack display widths.
        sequences: deliver the rows of MariaDB sequences too.
        unlogged_columns: returns the columns of a MariaDB table whose logged values differ from the table's, for maps with
            names.
    """

    def __init__(
        self,
        find: Callable[[RawTableMap], TableSchema | None],
        tables: TableFilter,
        fields: FieldFilter,
        timezone: tzinfo,
        json_columns: Callable[[str, str], Container[str]] | None = None,
        shadows: ShadowTables | None = None,
        unknown_columns: str = "positions",
        alarm: Callable[[str], None] = log.warning,
        masks: Masks | None = None,
        whole_types: bool = False,
        sequences: bool = True,
        unlogged_columns: Callable[[str, str], Container[str]] = lambda schema, table: (),
    ) -> None:
        self._masks = masks or Masks()
        self._shadows = shadows
        self._unknown_columns = unknown_columns
        self._alarm = alarm
        self._whole_types = whole_types
        self._sequences = sequences
        self._unlogged_columns = unlogged_columns
        self._left_out = Told[tuple[str, str]]()
        self._find = find
        self._tables = tables
        self._fields = fields
        self._timezone = timezone
        self._json_columns = json_columns
        self.destination = ""
        self._shapes: dict[tuple[Any, ...], _Shape] = {}
        self._shape_columns = 0
        self._alike: dict[tuple[bytes, Release], _Alike] = {}
        self._alike_bytes = 0
        self._positional = Told[tuple[str, str]]()
        self._untold = Told[tuple[str, str]]()
        self._untyped = Told[tuple[str, str]]()
        self._narrowed: set[tuple[str, str]] = set()  # tables to which the field filter was already applied

    def resolve(self, body: bytes, release: Release = NEWEST) -> TableMap:
        raw, alike = self._parse(body, release)
        name = (raw.schema, raw.table)
        if not self._tables.accepts(*name) or self._shadows is not None and self._shadows.leaves_out_rows(*name):
            return self._filtered(raw, release)
        known = None if raw.names is not None else self._find(raw)
        if raw.names is None and known is None and self._unknown_columns == "leave_out":
            if self._positional.is_first(name):
                self._alarm(f"the columns of {raw.schema}.{raw.table} are unknown at this position of the log: skipping the rows")
            return self._filtered(raw, release)
        schema = self._schema(raw, known, alike)
        if release.is_mariadb:
            if not self._sequences and is_sequence(schema.columns):
                if self._left_out.is_first(name):
                    log.info("[%s] %s.%s is a sequence: skipping the rows", self.destination, *name)
                return self._filtered(raw, release)
            schema = self._completed(raw, schema, known)
        if self._whole_types and raw.names is not None:
            schema = self._with_whole_types(raw, schema)
        if not release.has("virtual_values"):
            schema = attrs.evolve(schema, columns=tuple(attrs.evolve(c, logged=not c.virtual) for c in schema.columns))
        # A filtered column that never existed is a mistake; a column that was dropped later is not.
        shown = [i for i, column in enumerate(schema.columns) if not column.hidden]
        names = [schema.columns[i].name for i in shown]
        chosen = self._fields.wanted(raw.schema, raw.table, names, strict=name not in self._narrowed)
        if chosen is not None:
            self._narrowed.add(name)
        wanted = shown if chosen is None else [shown[i] for i in chosen]
        masks = tuple((shown[i], mask) for i, mask in self._masks.of(raw.schema, raw.table, names).items()) if self._masks else ()
        dropped = {i for i, mask in masks if mask.kind == "drop"}
        key = (raw.types, raw.metas, schema.columns, tuple(i for i in wanted if i not in dropped), masks)
        size = _TABLE_BYTES + len(body)
        shape = self._shapes.get(key)
        if shape is None:
            self._shape_columns += len(raw.types)
            if self._shape_columns > _MOST_COLUMNS:
                self._shapes.clear()
                self._shape_columns = len(raw.types)
            shape = self._shapes[key] = self._shape(*key, shown)
            size += _bytes_of(raw)
        return TableMap(TableSchema(raw.schema, raw.table, shape.shown), shape.wanted, shape.decoder, True, shape.names, size)

    def _parse(self, body: bytes, release: Release) -> tuple[RawTableMap, _Alike]:
        schema, table, at = names_of(body)
        key = body[at:], release
        alike = self._alike.get(key)
        if alike is not None:
            return RawTableMap(schema, table, *alike.fields), alike
        raw = parse_columns(schema, table, key[0], release)
        self._alike_bytes += len(body)
        if self._alike_bytes > _MOST_ALIKE:
            self._alike.clear()
            self._alike_bytes = len(body)
        alike = self._alike[key] = _Alike(attrs.astuple(raw, recurse=False)[2:])
        return raw, alike

    def _shape(
        self,
        types: bytes,
        metas: tuple[int, ...],
        columns: tuple[ColumnSchema, ...],
        wanted: tuple[int, ...],
        masks: tuple[tuple[int, Mask], ...],
        shown: list[int],
    ) -> _Shape:
        chosen = None if wanted == tuple(range(len(types))) else wanted
        decoder = RowDecoder(types, metas, columns, chosen, self._timezone, self._json_columns is None, masks)
        if masks:
            masked = dict(masks)
            columns = tuple(masked[i].column(column) if i in masked else column for i, column in enumerate(columns))
        delivered = tuple(columns[i] for i in wanted)
        all_shown = tuple(columns[i] for i in shown)
        return _Shape(decoder, all_shown, delivered, column_names(delivered, all_shown))

    def delivers(self, schema: str, table: str) -> bool:
        """Return whether statements about the table are delivered, and rows as far as known in advance."""
        return self._tables.accepts(schema, table) and not (self._shadows and self._shadows.base_of(schema, table))

    def wants(self, statement: Statement) -> Statement | None:
        """Return the part of a statement that the filter accepts, by any table in it or by the schema."""
        if statement.doubtful:
            return statement
        if statement.tables:
            if not any(self.delivers(*name) for name in statement.tables):
                return None
            self._check_masks(statement)
            return self._shadows.without_swap(statement) if self._shadows and statement.renames else statement
        return statement if self._tables.accepts(statement.database or statement.default_schema, "") else None

    def _check_masks(self, statement: Statement) -> None:
        """Check that a renamed table keeps all masks, so that values do not become visible.

        Raises:
            ConfigError: the new name is delivered, and lacks a mask of the old name.
        """
        came: dict[tuple[str, str], tuple[str, str]] = {}  # maps the last name to the first
        for old, new in statement.renames:
            came[new] = came.pop(old, old)
        for new, old in came.items():
            lost = sorted(self._masks.columns_of(*old) - self._masks.columns_of(*new)) if self.delivers(*new) else []
            if lost:
                before, now = ".".join(old), ".".join(new)
                raise ConfigError(
                    f"{before}, of which {', '.join(lost)} is masked, is renamed to {now}, which has no such mask: its values "
                    "would become visible",
                    remedy=f"Mask {now} too, for example with a pattern for both names, or exclude it with black_filter.",
                )

    def _filtered(self, raw: RawTableMap, release: Release) -> TableMap:
        schema = TableSchema(raw.schema, raw.table, ())
        if release.is_mariadb and any(code in codes.OLD_TEMPORAL for code in raw.types):
            return TableMap(schema, (), None, False, size=_TABLE_BYTES)
        try:
            decoder = RowDecoder(raw.types, raw.metas, None, (), self._timezone)
        except UnsupportedError:
            decoder = None  # the rows are not delivered; they are only counted in a transaction with pieces
        return TableMap(schema, (), decoder, False, size=_bytes_of(raw))

    def _completed(self, raw: RawTableMap, schema: TableSchema, known: TableSchema | None) -> TableSchema:
        """Add facts that MariaDB's log lacks: fractional digits of old temporal types, address types and JSON."""
        columns = list(schema.columns)
        if known is None:
            old = [i for i, code in enumerate(raw.types) if code in codes.OLD_TEMPORAL]
            maybe = [i for i, one in enumerate(columns) if raw.names is not None and _may_be_address(one)]
            fitting = self._fitting(raw, columns, [*old, *maybe], strict=bool(old)) if old or maybe else {}
            for i in old:
                if i not in fitting:
                    raise UnsupportedError(
                        f"column {i + 1} of {raw.schema}.{raw.table}, {columns[i].name!r}, has MariaDB's old temporal format "
                        f"(type {raw.types[i]}): the log does not contain the number of fractional digits",
                        event_type=TABLE_MAP,
                        column=columns[i].name,
                        remedy="Describe the table with schema= of the source, or rebuild it with mysql56_temporal_format=ON.",
                    )
            for i in fitting:
                columns[i] = attrs.evolve(columns[i], column_type=fitting[i].column_type)
            untold = [columns[i].name for i in maybe if i not in fitting]
            if untold and self._untold.is_first((raw.schema, raw.table)):
                log.warning(
                    "[%s] unknown whether %s of %s.%s, BINARY in the log, are UUID, INET6 or INET4: they are returned as bytes. "
                    "Set schema= of the source, or keep a schema history",
                    self.destination,
                    ", ".join(map(repr, untold)),
                    raw.schema,
                    raw.table,
                )
        if raw.names is not None and _may_be_unlogged(raw):
            unlogged = self._unlogged_columns(raw.schema, raw.table)
            columns = [attrs.evolve(one, logged=False) if one.name in unlogged else one for one in columns]
        if self._json_columns is not None:
            texts = [i for i, one in enumerate(columns) if one.type_code == codes.BLOB and one.charset == "utf8mb4"]
            names = self._json_columns(raw.schema, raw.table) if texts else ()
            for i in texts:
                if columns[i].name in names:
                    columns[i] = attrs.evolve(columns[i], column_type="json")
        return attrs.evolve(schema, columns=tuple(columns))

    def _with_whole_types(self, raw: RawTableMap, schema: TableSchema) -> TableSchema:
        """Add display widths, ZEROFILL and kinds of geometry, if they are known."""
        columns = list(schema.columns)
        wanted = [i for i in range(len(columns)) if raw.real_type(i) in _PARTLY_TOLD]
        found = self._fitting(raw, columns, wanted, strict=False) if wanted else {}
        for i, column in found.items():
            columns[i] = attrs.evolve(columns[i], column_type=column.column_type)
        if len(found) < len(wanted) and self._untyped.is_first((raw.schema, raw.table)):
            log.warning(
                "[%s] the full types of %s.%s are unknown at this position of the log: they are returned without display widths",
                self.destination,
                raw.schema,
                raw.table,
            )
        return attrs.evolve(schema, columns=tuple(columns))

    def _fitting(self, raw: RawTableMap, columns: list[ColumnSchema], wanted: list[int], strict: bool) -> dict[int, ColumnSchema]:
        """Return the known columns that fit the map. With ``strict``, raise errors of the look-up."""
        try:
            known = self._find(raw) if raw.names is not None else None
        except SchemaError:
            if strict:
                raise
            known = None
        found = {column.name.lower(): column for column in known.columns} if known is not None else {}
        named = ((i, found.get(columns[i].name.lower())) for i in wanted)
        return {i: column for i, column in named if column is not None and not difference(raw, i, column)}

    def _schema(self, raw: RawTableMap, known: TableSchema | None, alike: _Alike) -> TableSchema:
        if raw.names is not None:
            told, charsets = self._told(raw)
            if told is not raw or charsets:
                return schema_from_map(told, charsets)
            if alike.columns is None:
                alike.columns = schema_from_map(raw).columns
            return TableSchema(raw.schema, raw.table, alike.columns)
        if known is not None:
            self._positional.pop((raw.schema, raw.table), None)
            return merge_schema(raw, known)
        problem = f"the columns of {raw.schema}.{raw.table} are unknown at this position of the log"
        if self._unknown_columns == "error":
            raise SchemaError(
                problem,
                remedy='Set schema= of the source, exclude the table with black_filter, or set unknown_columns="positions".',
            )
        if self._positional.is_first((raw.schema, raw.table)):
            self._alarm(
                f"{problem}: they are named @1, @2 and so on. Unless the log has more details, integers are treated as signed, "
                "text as bytes, and ENUM and SET as numbers. Set schema= of the source"
            )
        return positional_schema(raw)

    def _told(self, raw: RawTableMap) -> tuple[RawTableMap, dict[int, str]]:
        """Add signs, and return charsets of labels, that old servers do not log, from the known schema."""
        assert raw.names is not None
        untold = [i for i, labels in enumerate(raw.labels or ()) if labels and needs_charset(raw, i)]
        signed = [i for i in range(len(raw.types)) if len({signs[i] for signs in raw.signs}) > 1]
        if not untold and not signed:
            return raw, {}
        names = [ColumnSchema(name) for name in raw.names]
        found = self._fitting(raw, names, [*untold, *signed], strict=False)
        fitting = [signs for signs in raw.signs if all(i in found and found[i].unsigned == signs[i] for i in signed)]
        if signed and not fitting:
            raise UnsupportedError(
                f"unknown whether column {signed[0] + 1} of {raw.schema}.{raw.table}, {raw.names[signed[0]]!r}, is unsigned: the "
                "log may or may not count YEAR columns as signed",
                event_type=TABLE_MAP,
                column=raw.names[signed[0]],
                remedy="Describe the table with schema= of the source.",
            )
        charsets = {i: found[i].charset or "binary" for i in untold if i in found}
        if len(charsets) < len(untold) and self._untold.is_first((raw.schema, raw.table)):
            log.warning(
                "[%s] unknown charset of %s of %s.%s, whose labels are bytes in the log: set schema= of the source, or keep a "
                "schema history",
                self.destination,
                ", ".join(repr(raw.names[i]) for i in untold if i not in charsets),
                raw.schema,
                raw.table,
            )
        return (attrs.evolve(raw, unsigned=fitting[0]) if signed else raw), charsets


def _bytes_of(raw: RawTableMap) -> int:
    """Return the memory of a table map with columns that are not shared."""
    labels = sum(len(one) for one in raw.labels or () if one is not None)
    return _SHAPE_BYTES + _COLUMN_BYTES * len(raw.types) + _LABEL_BYTES * labels


def _may_be_address(column: ColumnSchema) -> bool:
    """Return whether a MariaDB column looks like BINARY but may be an address type."""
    is_binary = column.type_code == codes.STRING and column.charset in (None, "binary")
    return is_binary and string_length(column.meta) in ADDRESS_BYTES.values()


def _may_be_unlogged(raw: RawTableMap) -> bool:
    """Return whether the table may have an AUTO_INCREMENT column and a nullable VIRTUAL column."""
    return any(raw.nullable) and any(code in codes.NUMERIC and not nullable for code, nullable in zip(raw.types, raw.nullable))
