"""Table maps: what the log says about a table, joined with what is known of its schema, once per table map.

Never reads rows. With ``binlog_row_metadata=FULL`` names, signs, charsets and labels come with the map itself; otherwise the
schema is looked up and compared with the map.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, Callable, Container, Final

import attrs

from canal._util.bounded import Told
from canal.binlog import type_codes as codes
from canal.binlog.event_types import TABLE_MAP
from canal.binlog.server_facts import Release
from canal.errors import ConfigError, DecodeError, SchemaError, TruncatedError, UnsupportedError
from canal.filter import FieldFilter, TableFilter
from canal.model import ColumnNames, TableMap, column_names
from canal.parse.schema.online_ddl import ShadowTables
from canal.rows.charsets import MAX_CHAR_BYTES, charset_of, label_text
from canal.rows.decoder import RowDecoder
from canal.rows.mask import Mask, Masks
from canal.schema import (
    GEOMETRY_KINDS,
    TYPE_CODES,
    UNTOLD,
    ColumnSchema,
    TableSchema,
    as_binary,
    column_from_text,
    unsure_label,
)
from canal.statement import Statement

log = logging.getLogger("canal.parse")

#: For a map of which nobody says who wrote it.
NEWEST: Final = Release("mysql", (99,))

_ONE_BYTE_META = {codes.FLOAT, codes.DOUBLE, codes.VECTOR, codes.JSON, codes.GEOMETRY} | codes.TEMPORAL | codes.BLOBS
#: Types of which a table map does not tell the whole text.
_PARTLY_TOLD = codes.NUMERIC | {codes.YEAR, codes.GEOMETRY, codes.VECTOR}
_TWO_BYTE_META = {codes.BIT, codes.NEWDECIMAL, codes.ENUM, codes.SET} | codes.TEXTS - codes.BLOBS

#: Type codes that a column of a data type may have in the log beside its usual one: old formats, and MariaDB's own.
_OTHER_CODES = {
    "decimal": {codes.DECIMAL}, "date": {codes.NEWDATE}, "time": {codes.TIME}, "datetime": {codes.DATETIME},
    "timestamp": {codes.TIMESTAMP}, "json": {codes.BLOB}, "vector": {codes.VARCHAR, codes.VAR_STRING},
    **dict.fromkeys(("varchar", "varbinary"), {codes.VAR_STRING, codes.VARCHAR_COMPRESSED}),
    **dict.fromkeys(
        ("tinyblob", "blob", "mediumblob", "longblob", "tinytext", "text", "mediumtext", "longtext"), {codes.BLOB_COMPRESSED}
    ),
}  # fmt: skip
_BLOB_WIDTHS = {"tiny": 1, "": 2, "medium": 3, "long": 4}

#: MariaDB's types that its log does not tell from a BINARY of so many bytes.
_ADDRESS_BYTES = {"uuid": 16, "inet6": 16, "inet4": 4}


#: Bytes of memory, measured in both builds and rounded up: of a table map, of what tables with the same columns share, of each
#: column of that, and of each label.
_TABLE_BYTES, _SHAPE_BYTES, _COLUMN_BYTES, _LABEL_BYTES = 1100, 1300, 550, 70
#: Columns of all that is kept for tables to come with the same ones.
_MOST_COLUMNS = 20_000
#: Bytes of the maps that are kept for others which differ only in their names.
_MOST_ALIKE = 1 << 20
#: Names that MySQL gave the columns of functional keys as long as table maps had them.
_FUNCTIONAL_NAME = re.compile("[0-9a-f]{32}")
#: Bytes that are the same character in every charset: not those that swe7 has otherwise, and no NUL of a wide one.
_PLAIN = re.compile(rb"[ -?A-Z_a-z]*")


@attrs.frozen
class RawTableMap:
    """The fields of a TABLE_MAP event; what optional metadata does not say is None.

    ``signs`` is what ``unsigned`` may be, where neither the map nor the release tells for sure. ``labels`` are bytes in the
    column's charset.
    """

    schema: str
    table: str
    types: bytes
    metas: tuple[int, ...]
    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None = None
    charsets: tuple[int | None, ...] | None = None
    names: tuple[str, ...] | None = None
    labels: tuple[tuple[bytes, ...] | None, ...] | None = None
    keys: frozenset[int] | None = None
    visible: tuple[bool, ...] | None = None
    signs: tuple[tuple[bool, ...], ...] = ()
    #: Of columns of GEOMETRY, the name of their type.
    geometries: tuple[str | None, ...] | None = None
    #: Whether columns of functional keys are among its columns.
    has_functional: bool = False

    def real_type(self, column: int) -> int:
        """The type code, looked up behind STRING, which ENUM, SET and long CHAR travel as."""
        code = self.types[column]
        if code == codes.STRING and self.metas[column] >= 256:
            real = self.metas[column] >> 8
            return real if real in (codes.ENUM, codes.SET) else codes.STRING
        return code


class _Reader:
    """A cursor over the body of a table map; every read is checked."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > self.end:
            raise TruncatedError("TABLE_MAP event is too short", event_type=TABLE_MAP)
        self.at += size
        return self.data[self.at - size : self.at]

    def packed(self) -> int:
        first = self.take(1)[0]
        if first < 251:
            return first
        width = {252: 2, 253: 3, 254: 8}.get(first)
        if width is None:
            raise DecodeError(f"{first:#x} does not begin a packed integer", event_type=TABLE_MAP)
        return int.from_bytes(self.take(width), "little")

    def text(self) -> bytes:
        return self.take(self.packed())

    @property
    def more(self) -> bool:
        return self.at < self.end


def parse_table_map(body: bytes, release: Release = NEWEST) -> RawTableMap:
    """Decode a TABLE_MAP event from its flags on (after the table id), without checksum."""
    schema, table, at = _names(body)
    return _parse_columns(schema, table, body[at:], release)


def _names(body: bytes) -> tuple[str, str, int]:
    """Schema and table of a map, and where what it says of the columns begins."""
    r = _Reader(body)
    r.take(2)
    schema, _ = r.take(r.take(1)[0]), r.take(1)
    table, _ = r.take(r.take(1)[0]), r.take(1)
    return schema.decode("utf-8", "surrogateescape"), table.decode("utf-8", "surrogateescape"), r.at


def _parse_columns(schema: str, table: str, rest: bytes, release: Release) -> RawTableMap:
    r = _Reader(rest)
    count = r.packed()
    if count > 4096:
        raise DecodeError(f"TABLE_MAP of {count} columns; servers have 4096 at most", event_type=TABLE_MAP)
    types = r.take(count)
    metas = _parse_metas(types, r.text())
    nulls = r.take((count + 7) // 8)
    raw = RawTableMap(
        schema=schema,
        table=table,
        types=types,
        metas=metas,
        nullable=tuple(bool(nulls[i >> 3] >> (i & 7) & 1) for i in range(count)),
        has_functional=release.logs_functional_keys,
    )
    return _parse_optional(raw, r, release)


def _parse_metas(types: bytes, block: bytes) -> tuple[int, ...]:
    r = _Reader(block)
    metas = []
    for code in types:
        if code in _ONE_BYTE_META:
            metas.append(r.take(1)[0])
        elif code in (codes.STRING, codes.ENUM, codes.SET):
            metas.append(int.from_bytes(r.take(2), "big"))
        elif code in _TWO_BYTE_META:
            metas.append(int.from_bytes(r.take(2), "little"))
        elif code == codes.TYPED_ARRAY:
            raise UnsupportedError("a TYPED_ARRAY column", event_type=TABLE_MAP)
        else:
            metas.append(0)
    if r.more:
        raise DecodeError("TABLE_MAP has more column metadata than its columns need", event_type=TABLE_MAP)
    return tuple(metas)


def _parse_optional(raw: RawTableMap, r: _Reader, release: Release) -> RawTableMap:
    """The optional metadata: fields of (type, length, value); unknown types are skipped, as the format allows."""
    count = len(raw.types)
    real = [raw.real_type(i) for i in range(count)]
    in_charsets = codes.TEXTS | {codes.GEOMETRY if release.is_mariadb else codes.VECTOR}  # to the one server it is a kind of BLOB
    text_columns = [i for i in range(count) if real[i] in in_charsets]
    label_columns = [i for i in range(count) if real[i] in (codes.ENUM, codes.SET)]
    sets, enums = [i for i in label_columns if real[i] == codes.SET], [i for i in label_columns if real[i] == codes.ENUM]
    charsets: dict[int, int] = {}
    labels: dict[int, list[bytes]] = {}
    found: dict[str, Any] = {}
    while r.more:
        kind = r.take(1)[0]
        f = _Reader(r.text())
        if kind == 1:
            found["signs"] = _signs(real, f.take(f.end), release)
        elif kind in (2, 10):
            columns = text_columns if kind == 2 else label_columns
            default = f.packed()
            charsets.update(dict.fromkeys(columns, default))
            while f.more:
                number = f.packed()
                if number >= len(columns):
                    raise DecodeError("TABLE_MAP names a charset for a column it does not have", event_type=TABLE_MAP)
                charsets[columns[number]] = f.packed()
        elif kind in (3, 11):
            for column in text_columns if kind == 3 else label_columns:
                charsets[column] = f.packed()
        elif kind == 4:
            names = []
            while f.more:
                names.append(f.text().decode("utf-8", "surrogateescape"))
            if len(names) != count:
                raise DecodeError(f"TABLE_MAP has {count} columns and {len(names)} names", event_type=TABLE_MAP)
            found["names"] = tuple(names)
        elif kind in (5, 6):
            for column in sets if kind == 5 else enums:
                labels[column] = [f.text() for _ in range(f.packed())]
        elif kind == 7:
            found["geometries"] = _geometries(real, f, release)
        elif kind == 8:
            keys = set()
            while f.more:
                keys.add(f.packed())
            found["keys"] = frozenset(keys)
        elif kind == 9:
            keys = set()
            while f.more:
                keys.add(f.packed())
                f.packed()
            found["keys"] = frozenset(keys)
        elif kind == 12:
            bits = f.take((count + 7) // 8)
            found["visible"] = tuple(bool(bits[i >> 3] << (i & 7) & 0x80) for i in range(count))
    if charsets:
        found["charsets"] = tuple(charsets.get(i) for i in range(count))
    if labels:
        found["labels"] = tuple(tuple(labels[i]) if i in labels else None for i in range(count))
    if len(found.get("signs", ())) == 1:
        (found["unsigned"],) = found.pop("signs")
    return attrs.evolve(raw, **found)


def _signs(real: list[int], bits: bytes, release: Release) -> tuple[tuple[bool, ...], ...]:
    """Which columns are unsigned: one answer, or two where it is not known whether YEARs have bits and the bits fit both."""
    flags = [bool(byte & 0x80 >> n) for byte in bits for n in range(8)]
    fitting, likely = [], []
    for counted in (codes.NUMERIC | {codes.YEAR}, codes.NUMERIC):
        columns = [i for i, code in enumerate(real) if code in counted]
        if len(bits) != (len(columns) + 7) // 8:
            continue
        unsigned = {i for i, flag in zip(columns, flags) if flag}
        fitting.append(tuple(i in unsigned and real[i] != codes.YEAR for i in range(len(real))))
        if not any(flags[len(columns) :]) and all(i in unsigned for i in columns if real[i] == codes.YEAR):
            likely.append(fitting[-1])
    if not fitting:
        raise DecodeError(f"TABLE_MAP has {len(bits)} bytes of signs, which do not fit its columns", event_type=TABLE_MAP)
    if release.has("counts_years"):
        return (fitting[0],)
    if not release.has("may_count_years"):
        return (fitting[-1],)
    return tuple(dict.fromkeys(likely or fitting))


def _geometries(real: list[int], r: _Reader, release: Release) -> tuple[str | None, ...]:
    """The type of each column of GEOMETRY, as the server spells it."""
    found: list[str | None] = []
    for code in real:
        number = r.packed() if code == codes.GEOMETRY and r.more else -1
        name = GEOMETRY_KINDS[number] if 0 <= number < len(GEOMETRY_KINDS) else None
        found.append("geomcollection" if name == "geometrycollection" and release.has("geomcollection") else name)
    return tuple(found)


def _label_text(label: bytes, charset: str | None) -> str:
    """A member of an ENUM or SET, of which nobody may tell the charset."""
    if charset is None:
        return label.decode("ascii") if _PLAIN.fullmatch(label) else unsure_label(label)
    return label_text(label, charset)


# -- schema ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Shape:
    """What tables with the same columns have in common."""

    decoder: RowDecoder
    shown: tuple[ColumnSchema, ...]
    wanted: tuple[ColumnSchema, ...]
    names: ColumnNames


@attrs.define
class _Alike:
    """What maps have in common that differ only in the name of the table: shards of one table do."""

    fields: tuple[Any, ...]
    """Of RawTableMap, without the two names."""

    columns: tuple[ColumnSchema, ...] | None = None
    """Once they are known, where the map alone tells them."""


class TableResolver:
    """Makes a :class:`~canal.model.TableMap` of each new table map body.

    Args:
        find: gives the schema of a table at the position of the stream for a map that does not tell all of it; None where
            nobody knows it.
        tables, fields: the instance's filters.
        timezone: zone of TIMESTAMP values.
        json_columns: names the columns of a table that are MariaDB's JSON, which the log does not tell from LONGTEXT; None:
            JSON is given as text, not as objects.
        shadows: which tables are those of online schema changes, and so not delivered; None: no table is.
        unknown_columns: "positions" names the columns of a table that nobody knows @1, @2 and so on, "error" is a SchemaError,
            "leave_out" drops its rows.
        alarm: called with a text when such a table comes.
        masks: of columns.
        whole_types: look up the texts of types also for maps that name their columns, which have no display widths.
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
    ) -> None:
        self._masks = masks or Masks()
        self._shadows = shadows
        self._unknown_columns = unknown_columns
        self._alarm = alarm
        self._whole_types = whole_types
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
        self._narrowed: set[tuple[str, str]] = set()  # tables of the field filter that came by

    def resolve(self, body: bytes, release: Release = NEWEST) -> TableMap:
        raw, alike = self._parse(body, release)
        name = (raw.schema, raw.table)
        if not self._tables.accepts(*name) or self._shadows is not None and self._shadows.leaves_out_rows(*name):
            return self._filtered(raw, release)
        known = None if raw.names is not None else self._find(raw)
        if raw.names is None and known is None and self._unknown_columns == "leave_out":
            if self._positional.is_first(name):
                self._alarm(f"nothing is known of the columns of {raw.schema}.{raw.table} at this place of the log: its rows are "
                            "left out")  # fmt: skip
            return self._filtered(raw, release)
        schema = self._schema(raw, known, alike)
        if release.is_mariadb:
            schema = self._completed(raw, schema, known)
        if self._whole_types and raw.names is not None:
            schema = self._with_whole_types(raw, schema)
        if not release.has("virtual_values"):
            schema = attrs.evolve(schema, columns=tuple(attrs.evolve(c, logged=not c.virtual) for c in schema.columns))
        # A filtered column that is unknown from the start is a mistake; one that was dropped since is not.
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
        schema, table, at = _names(body)
        key = body[at:], release
        alike = self._alike.get(key)
        if alike is not None:
            return RawTableMap(schema, table, *alike.fields), alike
        raw = _parse_columns(schema, table, key[0], release)
        self._alike_bytes += len(body)
        if self._alike_bytes > _MOST_ALIKE:
            self._alike.clear()
            self._alike_bytes = len(body)
        alike = self._alike[key] = _Alike(attrs.astuple(raw, recurse=False)[2:])
        return raw, alike

    def _shape(
        self, types: bytes, metas: tuple[int, ...], columns: tuple[ColumnSchema, ...], wanted: tuple[int, ...],
        masks: tuple[tuple[int, Mask], ...], shown: list[int],
    ) -> _Shape:  # fmt: skip
        chosen = None if wanted == tuple(range(len(types))) else wanted
        decoder = RowDecoder(types, metas, columns, chosen, self._timezone, self._json_columns is None, masks)
        if masks:
            masked = dict(masks)
            columns = tuple(masked[i].column(column) if i in masked else column for i, column in enumerate(columns))
        delivered = tuple(columns[i] for i in wanted)
        all_shown = tuple(columns[i] for i in shown)
        return _Shape(decoder, all_shown, delivered, column_names(delivered, all_shown))

    def delivers(self, schema: str, table: str) -> bool:
        """Whether statements about the table are delivered, and rows as far as is known before they come."""
        return self._tables.accepts(schema, table) and not (self._shadows and self._shadows.base_of(schema, table))

    def wants(self, statement: Statement) -> Statement | None:
        """What the filter lets through of a statement: by any table that it names, else by its schema."""
        if statement.doubtful:
            return statement
        if statement.tables:
            if not any(self.delivers(*name) for name in statement.tables):
                return None
            self._check_masks(statement)
            return self._shadows.without_swap(statement) if self._shadows and statement.renames else statement
        return statement if self._tables.accepts(statement.database or statement.default_schema, "") else None

    def _check_masks(self, statement: Statement) -> None:
        """A masked table that is renamed keeps its masks, or its rows would come in clear from here on.

        Raises:
            ConfigError: its new name is delivered, and lacks a mask of the old one.
        """
        came: dict[tuple[str, str], tuple[str, str]] = {}  # by the last name the first one
        for old, new in statement.renames:
            came[new] = came.pop(old, old)
        for new, old in came.items():
            lost = sorted(self._masks.columns_of(*old) - self._masks.columns_of(*new)) if self.delivers(*new) else []
            if lost:
                before, now = ".".join(old), ".".join(new)
                raise ConfigError(
                    f"{before}, of which {', '.join(lost)} is masked, is called {now} from here on, which has no such mask: "
                    "its values would come in clear",
                    remedy=f"Mask {now} too, as by one regular expression for both names, or leave it out by black_filter.",
                )

    def _filtered(self, raw: RawTableMap, release: Release) -> TableMap:
        schema = TableSchema(raw.schema, raw.table, ())
        if release.is_mariadb and any(code in codes.OLD_TEMPORAL for code in raw.types):
            return TableMap(schema, (), None, False, size=_TABLE_BYTES)
        try:
            decoder = RowDecoder(raw.types, raw.metas, None, (), self._timezone)
        except UnsupportedError:
            decoder = None  # its rows are not wanted; they are only counted inside a transaction of several pieces
        return TableMap(schema, (), decoder, False, size=_bytes_of(raw))

    def _completed(self, raw: RawTableMap, schema: TableSchema, known: TableSchema | None) -> TableSchema:
        """With what a log of MariaDB does not tell: digits of old temporal types, what is no BINARY, and no plain text."""
        columns = list(schema.columns)
        if known is None:
            old = [i for i, code in enumerate(raw.types) if code in codes.OLD_TEMPORAL]
            maybe = [i for i, one in enumerate(columns) if raw.names is not None and _may_be_address(one)]
            fitting = self._fitting(raw, columns, [*old, *maybe], strict=bool(old)) if old or maybe else {}
            for i in old:
                if i not in fitting:
                    raise UnsupportedError(
                        f"column {i + 1} of {raw.schema}.{raw.table}, {columns[i].name!r}, is of MariaDB's old format "
                        f"(type {raw.types[i]}): the log does not tell how many digits it has after the second",
                        event_type=TABLE_MAP, column=columns[i].name,
                        remedy="Give the table's columns to the source, or rebuild it with mysql56_temporal_format=ON.",
                    )  # fmt: skip
            for i in fitting:
                columns[i] = attrs.evolve(columns[i], column_type=fitting[i].column_type)
            untold = [columns[i].name for i in maybe if i not in fitting]
            if untold and self._untold.is_first((raw.schema, raw.table)):
                log.warning(
                    "[%s] nobody can tell whether %s of %s.%s, BINARY in the log, are UUID, INET6 or INET4: they are "
                    "given as bytes; give schema= to the source, or keep a schema history",
                    self.destination, ", ".join(map(repr, untold)), raw.schema, raw.table,
                )  # fmt: skip
        if self._json_columns is not None:
            texts = [i for i, one in enumerate(columns) if one.type_code == codes.BLOB and one.charset == "utf8mb4"]
            names = self._json_columns(raw.schema, raw.table) if texts else ()
            for i in texts:
                if columns[i].name in names:
                    columns[i] = attrs.evolve(columns[i], column_type="json")
        return attrs.evolve(schema, columns=tuple(columns))

    def _with_whole_types(self, raw: RawTableMap, schema: TableSchema) -> TableSchema:
        """With display widths, ZEROFILL and kinds of geometry, as far as they are known beside the log."""
        columns = list(schema.columns)
        wanted = [i for i in range(len(columns)) if raw.real_type(i) in _PARTLY_TOLD]
        found = self._fitting(raw, columns, wanted, strict=False) if wanted else {}
        for i, column in found.items():
            columns[i] = attrs.evolve(columns[i], column_type=column.column_type)
        if len(found) < len(wanted) and self._untyped.is_first((raw.schema, raw.table)):
            log.warning(
                "[%s] the whole types of %s.%s are not known at this position of the log: they are given without display widths",
                self.destination, raw.schema, raw.table,
            )  # fmt: skip
        return attrs.evolve(schema, columns=tuple(columns))

    def _fitting(
        self, raw: RawTableMap, columns: list[ColumnSchema], wanted: list[int], strict: bool
    ) -> dict[int, ColumnSchema]:
        """The columns as they are known beside the log, as far as they fit it; an error of the look-up if ``strict``."""
        try:
            known = self._find(raw) if raw.names is not None else None
        except SchemaError:
            if strict:
                raise
            known = None
        found = {column.name.lower(): column for column in known.columns} if known is not None else {}
        named = ((i, found.get(columns[i].name.lower())) for i in wanted)
        return {i: column for i, column in named if column is not None and not _difference(raw, i, column)}

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
        problem = f"nothing is known of the columns of {raw.schema}.{raw.table} at this place of the log"
        if self._unknown_columns == "error":
            raise SchemaError(
                problem,
                remedy='Give schema= to the source, leave the table out with black_filter, or set unknown_columns="positions".',
            )
        if self._positional.is_first((raw.schema, raw.table)):
            self._alarm(
                f"{problem}: they are named @1, @2 and so on, and where the log does not tell them integers count as signed, "
                "text is bytes, ENUM and SET are numbers; give schema= to the source"
            )
        return positional_schema(raw)

    def _told(self, raw: RawTableMap) -> tuple[RawTableMap, dict[int, str]]:
        """The map with the signs, and the charsets of labels, that old servers do not tell; from what is known beside the log."""
        assert raw.names is not None
        untold = [i for i, labels in enumerate(raw.labels or ()) if labels and _needs_charset(raw, i)]
        signed = [i for i in range(len(raw.types)) if len({signs[i] for signs in raw.signs}) > 1]
        if not untold and not signed:
            return raw, {}
        names = [ColumnSchema(name) for name in raw.names]
        found = self._fitting(raw, names, [*untold, *signed], strict=False)
        fitting = [signs for signs in raw.signs if all(i in found and found[i].unsigned == signs[i] for i in signed)]
        if signed and not fitting:
            raise UnsupportedError(
                f"nobody can tell whether column {signed[0] + 1} of {raw.schema}.{raw.table}, {raw.names[signed[0]]!r}, is "
                "unsigned: its log counts YEAR columns among those that have a sign, or not",
                event_type=TABLE_MAP, column=raw.names[signed[0]], remedy="Give the table's columns to the source.",
            )  # fmt: skip
        charsets = {i: found[i].charset or "binary" for i in untold if i in found}
        if len(charsets) < len(untold) and self._untold.is_first((raw.schema, raw.table)):
            log.warning(
                "[%s] nobody can tell the charset of %s of %s.%s, whose labels are bytes in the log: give schema= to the "
                "source, or keep a schema history",
                self.destination, ", ".join(repr(raw.names[i]) for i in untold if i not in charsets), raw.schema, raw.table,
            )  # fmt: skip
        return (attrs.evolve(raw, unsigned=fitting[0]) if signed else raw), charsets


def _bytes_of(raw: RawTableMap) -> int:
    """What a table map and its columns cost, when no other one has the same."""
    labels = sum(len(one) for one in raw.labels or () if one is not None)
    return _SHAPE_BYTES + _COLUMN_BYTES * len(raw.types) + _LABEL_BYTES * labels


def _needs_charset(raw: RawTableMap, column: int) -> bool:
    """Whether labels depend on a charset that the map does not tell."""
    labels = raw.labels[column] if raw.labels is not None else None
    return (
        labels is not None
        and (raw.charsets is None or raw.charsets[column] is None)
        and not all(map(_PLAIN.fullmatch, labels))
    )


def _may_be_address(column: ColumnSchema) -> bool:
    """Whether a column of MariaDB's log is a BINARY that may be none."""
    is_binary = column.type_code == codes.STRING and column.charset in (None, "binary")
    return is_binary and string_length(column.meta) in _ADDRESS_BYTES.values()


def schema_from_map(raw: RawTableMap, charsets: Mapping[int, str] = {}) -> TableSchema:
    """The schema that a map with FULL metadata carries; ``charsets`` of the labels of columns are those that it does not tell."""
    assert raw.names is not None
    return _build(raw, raw.names, charsets)


def positional_schema(raw: RawTableMap) -> TableSchema:
    """Columns named @1, @2 … where nothing is known but the map; text stays bytes unless the map tells its charset."""
    names = tuple(f"@{i + 1}" for i in range(len(raw.types)))
    return _build(raw, names, {})


def _build(raw: RawTableMap, names: tuple[str, ...], charsets: Mapping[int, str]) -> TableSchema:
    unsigned = raw.unsigned or (False,) * len(raw.types)
    columns = []
    for i, name in enumerate(names):
        collation = raw.charsets[i] if raw.charsets is not None else None
        charset = charset_of(collation) if collation else charsets.get(i)
        found = raw.labels[i] if raw.labels is not None else None
        labels = None if found is None else tuple(_label_text(label, charset) for label in found)
        geometry = raw.geometries[i] if raw.geometries is not None else None
        columns.append(
            ColumnSchema(
                name=name,
                type_code=raw.real_type(i),
                meta=raw.metas[i],
                nullable=raw.nullable[i],
                unsigned=unsigned[i],
                charset=charset,
                key=i in (raw.keys or ()),
                labels=labels,
                # Without its charset a CHAR cannot be told from a BINARY, which is padded.
                column_type=geometry or type_text(raw.real_type(i), raw.metas[i], unsigned[i], charset, labels)
                if raw.charsets is not None or raw.real_type(i) not in codes.TEXTS
                else "",
                visible=raw.visible[i] if raw.visible is not None else True,
                hidden=raw.has_functional and _FUNCTIONAL_NAME.fullmatch(name) is not None,
            )
        )
    return TableSchema(raw.schema, raw.table, tuple(columns))


def merge_schema(raw: RawTableMap, found: TableSchema) -> TableSchema:
    """A schema that fits the map, with the map's types."""
    columns = (
        attrs.evolve(column, type_code=raw.real_type(i), meta=raw.metas[i], nullable=raw.nullable[i])
        for i, column in enumerate(_mapped(raw, found))
    )
    return TableSchema(raw.schema, raw.table, tuple(columns))


def _mapped(raw: RawTableMap, found: TableSchema) -> tuple[ColumnSchema, ...]:
    """The columns of a schema that the map has, if it is the one."""
    return found.columns if raw.has_functional else tuple(column for column in found.columns if not column.hidden)


def with_nullability(raw: RawTableMap, found: TableSchema) -> TableSchema:
    """A schema that fits the map, with the nullability from the map where it was not known."""
    told = {column.name: raw.nullable[i] for i, column in enumerate(_mapped(raw, found)) if column.nullable is None}
    columns = (attrs.evolve(column, nullable=told.get(column.name, column.nullable)) for column in found.columns)
    return attrs.evolve(found, columns=tuple(columns))


def with_charsets(raw: RawTableMap, found: TableSchema) -> TableSchema | None:
    """The schema with the charsets that its statement left to a default which is not known; None if the map has them not."""
    columns = list(found.columns)
    number = {column.name: i for i, column in enumerate(_mapped(raw, found))}
    for at, column in enumerate(columns):
        if column.charset != UNTOLD:
            continue
        if column.labels is not None:  # which are the same in any charset
            columns[at] = attrs.evolve(column, charset=None)
            continue
        i = number[column.name]
        collation = raw.charsets[i] if raw.charsets is not None and i < len(raw.charsets) else None
        if not collation:
            return None
        charset = charset_of(collation)
        text = as_binary(column.column_type) if charset == "binary" else column.column_type
        made = column_from_text(column.name, text, charset=None if charset == "binary" else charset)
        columns[at] = attrs.evolve(column, charset=made.charset, column_type=made.column_type, type_code=made.type_code)
    return attrs.evolve(found, columns=tuple(columns))


def misfit(raw: RawTableMap, found: TableSchema) -> str:
    """Why a schema cannot be the one of the map, or ""."""
    columns = _mapped(raw, found)
    if len(columns) != len(raw.types):
        return f"it has {len(raw.types)} columns in the log and {len(columns)} are known"
    for i, column in enumerate(columns):
        problem = _difference(raw, i, column)
        if problem:
            return f"column {i + 1}, {column.name!r}: {problem}"
    return ""


def _difference(raw: RawTableMap, i: int, column: ColumnSchema) -> str:
    """Why a known column cannot be the one in the map, or ""."""
    if column.hidden:
        return ""
    base = column.base_type
    code, meta = raw.real_type(i), raw.metas[i]
    if base in TYPE_CODES and code != TYPE_CODES[base] and code not in _OTHER_CODES.get(base, ()):
        return f"type {code} in the log, {column.column_type} known"
    if column.nullable is not None and raw.nullable[i] != column.nullable and not column.key:
        return "nullable in the log and not known" if raw.nullable[i] else "not nullable in the log, nullable known"
    if raw.unsigned is not None and code in codes.INTEGERS and raw.unsigned[i] != column.unsigned:
        return "signed in one and unsigned in the other"
    geometry = raw.geometries[i] if raw.geometries is not None else None
    if geometry is not None and base not in ("", "geometry") and _one_spelling(base) != _one_spelling(geometry):
        return f"{geometry} in the log, {base} known"
    if base in _ADDRESS_BYTES and string_length(meta) != _ADDRESS_BYTES[base]:
        return f"{string_length(meta)} bytes in the log, {column.column_type} known"
    arguments = column.column_type[len(base) :].partition(")")[0].lstrip("(")
    if base == "decimal" and code == codes.NEWDECIMAL and arguments:
        precision, _, scale = arguments.partition(",")
        if (meta & 0xFF, meta >> 8) != (int(precision), int(scale or 0)):
            return f"decimal({meta & 0xFF},{meta >> 8}) in the log, {column.column_type} known"
    if base in ("varchar", "varbinary") and arguments.isdigit():
        width = 1 if base == "varbinary" else MAX_CHAR_BYTES.get(column.charset or "", 1)
        if meta - (code == codes.VARCHAR_COMPRESSED) != int(arguments) * width:  # one more byte says how
            return f"up to {meta} bytes in the log, {column.column_type} known"
    if base.endswith(("blob", "text")) and meta != _BLOB_WIDTHS.get(base[:-4], meta):
        return f"lengths of {meta} bytes in the log, {column.column_type} known"
    if base in ("enum", "set") and column.labels is not None:
        count = len(column.labels)
        expected = (1 if count < 256 else 2) if base == "enum" else _set_bytes(count)
        if meta & 0xFF != expected:
            return f"stored in {meta & 0xFF} bytes in the log, {count} members known"
    return ""


def _one_spelling(geometry: str) -> str:
    return geometry.replace("geomc", "geometryc")


def _set_bytes(count: int) -> int:
    size = (count + 7) // 8
    return 8 if size > 4 else max(size, 1)


_NAMES = {
    codes.TINY: "tinyint", codes.SHORT: "smallint", codes.LONG: "int", codes.FLOAT: "float", codes.DOUBLE: "double",
    codes.TIMESTAMP: "timestamp", codes.LONGLONG: "bigint", codes.INT24: "mediumint", codes.DATE: "date",
    codes.TIME: "time", codes.DATETIME: "datetime", codes.YEAR: "year", codes.NEWDATE: "date",
    codes.TIMESTAMP2: "timestamp", codes.DATETIME2: "datetime", codes.TIME2: "time", codes.VECTOR: "vector",
    codes.JSON: "json", codes.GEOMETRY: "geometry",
}  # fmt: skip


def type_text(code: int, meta: int, unsigned: bool, charset: str | None, labels: tuple[str, ...] | None) -> str:
    """The column type as the server would print it, as far as a table map tells it."""
    text = _NAMES.get(code, "")
    binary = charset in (None, "binary")
    width = MAX_CHAR_BYTES.get(charset or "", 1)
    if code in codes.TEMPORAL and meta:
        text += f"({meta})"
    elif code in codes.DECIMALS:
        text = f"decimal({meta & 0xFF},{meta >> 8})"
    elif code == codes.BIT:
        text = f"bit({(meta >> 8) * 8 + (meta & 0xFF)})"
    elif code == codes.VARCHAR_COMPRESSED:
        text = f"varbinary({meta - 1})" if binary else f"varchar({(meta - 1) // width})"
    elif code in (codes.VARCHAR, codes.VAR_STRING):
        text = f"varbinary({meta})" if binary else f"varchar({meta // width})"
    elif code == codes.STRING:
        size = string_length(meta)
        text = f"binary({size})" if binary else f"char({size // width})"
    elif code in codes.BLOBS:
        text = {1: "tiny", 3: "medium", 4: "long"}.get(meta, "") + ("blob" if binary else "text")
    elif code in (codes.ENUM, codes.SET):
        members = ",".join("'" + label.replace("'", "''") + "'" for label in labels or ())
        text = ("enum" if code == codes.ENUM else "set") + f"({members})"
    if code in (codes.BLOB_COMPRESSED, codes.VARCHAR_COMPRESSED):
        return text + " /*M!100301 COMPRESSED*/"
    return text + " unsigned" if unsigned and code in codes.NUMERIC else text


def string_length(meta: int) -> int:
    """Bytes that a CHAR or BINARY column can hold: two bits of the length hide, inverted, in the type byte."""
    if meta < 256:
        return meta
    head = meta >> 8
    return (meta & 0xFF) | ((head & 0x30) ^ 0x30) << 4
