"""Builds a schema from a table map, and adds facts from a map to a known schema.

Never compares them: see ``misfit``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from canal.binlog import type_codes as codes
from canal.parse.schema.map_text import type_text
from canal.parse.schema.raw_map import RawTableMap
from canal.rows.charsets import charset_of, label_text
from canal.schema import UNTOLD, ColumnSchema, TableSchema, as_binary, column_from_text, unsure_label

#: Names of MySQL's columns for functional keys, in releases whose table maps contain them.
_FUNCTIONAL_NAME = re.compile("[0-9a-f]{32}")
#: Bytes that are the same characters in every charset: excludes characters that differ in swe7, and NUL.
_PLAIN = re.compile(rb"[ -?A-Z_a-z]*")


def _label_text(label: bytes, charset: str | None) -> str:
    """Decode a label of an ENUM or SET, whose charset may be unknown."""
    if charset is None:
        return label.decode("ascii") if _PLAIN.fullmatch(label) else unsure_label(label)
    return label_text(label, charset)


def needs_charset(raw: RawTableMap, column: int) -> bool:
    """Return whether labels depend on a charset that the map lacks."""
    labels = raw.labels[column] if raw.labels is not None else None
    return (
        labels is not None and (raw.charsets is None or raw.charsets[column] is None) and not all(map(_PLAIN.fullmatch, labels))
    )


def schema_from_map(raw: RawTableMap, charsets: Mapping[int, str] = {}) -> TableSchema:
    """Return the schema of a map with FULL metadata. ``charsets``: charsets of label columns that the map lacks."""
    assert raw.names is not None
    return _build(raw, raw.names, charsets)


def positional_schema(raw: RawTableMap) -> TableSchema:
    """Return columns named @1, @2 … if only the map is known. Text stays bytes unless the map has the charset."""
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
                # Without a charset, CHAR cannot be distinguished from BINARY, which is padded.
                column_type=geometry or type_text(raw.real_type(i), raw.metas[i], unsigned[i], charset, labels)
                if raw.charsets is not None or raw.real_type(i) not in codes.TEXTS
                else "",
                visible=raw.visible[i] if raw.visible is not None else True,
                hidden=raw.has_functional and _FUNCTIONAL_NAME.fullmatch(name) is not None,
            )
        )
    return TableSchema(raw.schema, raw.table, tuple(columns))


def merge_schema(raw: RawTableMap, found: TableSchema) -> TableSchema:
    """Return a schema that fits the map, with the map's types."""
    columns = (
        attrs.evolve(column, type_code=raw.real_type(i), meta=raw.metas[i], nullable=raw.nullable[i])
        for i, column in enumerate(mapped_columns(raw, found))
    )
    return TableSchema(raw.schema, raw.table, tuple(columns))


def mapped_columns(raw: RawTableMap, found: TableSchema) -> tuple[ColumnSchema, ...]:
    """Return the schema's columns that the map contains, if the map is of this table."""
    return found.columns if raw.has_functional else tuple(column for column in found.columns if not column.hidden)


def with_nullability(raw: RawTableMap, found: TableSchema) -> TableSchema:
    """Return the schema with unknown nullability taken from the map."""
    told = {column.name: raw.nullable[i] for i, column in enumerate(mapped_columns(raw, found)) if column.nullable is None}
    columns = (attrs.evolve(column, nullable=told.get(column.name, column.nullable)) for column in found.columns)
    return attrs.evolve(found, columns=tuple(columns))


def with_charsets(raw: RawTableMap, found: TableSchema) -> TableSchema | None:
    """Replace UNTOLD charsets, left to an unknown default, by those of the map; None if the map lacks them."""
    columns = list(found.columns)
    number = {column.name: i for i, column in enumerate(mapped_columns(raw, found))}
    for at, column in enumerate(columns):
        if column.charset != UNTOLD:
            continue
        if column.labels is not None:  # they are the same in any charset
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
