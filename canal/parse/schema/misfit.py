"""Compares a table map with the known schema of the table.

Never changes either.
"""

from __future__ import annotations

from canal.binlog import type_codes as codes
from canal.parse.schema.map_schema import mapped_columns
from canal.parse.schema.map_text import string_length
from canal.parse.schema.raw_map import RawTableMap
from canal.rows.charsets import MAX_CHAR_BYTES
from canal.schema import TYPE_CODES, ColumnSchema, TableSchema

#: Further type codes that a data type may have in the log: old formats, and MariaDB's types.
_OTHER_CODES = {
    "decimal": {codes.DECIMAL},
    "date": {codes.NEWDATE},
    "time": {codes.TIME},
    "datetime": {codes.DATETIME},
    "timestamp": {codes.TIMESTAMP},
    "json": {codes.BLOB},
    "vector": {codes.VARCHAR, codes.VAR_STRING},
    **dict.fromkeys(("varchar", "varbinary"), {codes.VAR_STRING, codes.VARCHAR_COMPRESSED}),
    **dict.fromkeys(
        ("tinyblob", "blob", "mediumblob", "longblob", "tinytext", "text", "mediumtext", "longtext"), {codes.BLOB_COMPRESSED}
    ),
}
_BLOB_WIDTHS = {"tiny": 1, "": 2, "medium": 3, "long": 4}
#: MariaDB's types that look like a BINARY of this many bytes in the log.
ADDRESS_BYTES = {"uuid": 16, "inet6": 16, "inet4": 4}


def misfit(raw: RawTableMap, found: TableSchema) -> str:
    """Return why a schema cannot belong to the map, or ""."""
    columns = mapped_columns(raw, found)
    if len(columns) != len(raw.types):
        return f"the log has {len(raw.types)} columns, the known schema {len(columns)}"
    for i, column in enumerate(columns):
        problem = difference(raw, i, column)
        if problem:
            return f"column {i + 1}, {column.name!r}: {problem}"
    return ""


def difference(raw: RawTableMap, i: int, column: ColumnSchema) -> str:
    """Return why a known column cannot be the map's column, or ""."""
    if column.hidden:
        return ""
    base = column.base_type
    code, meta = raw.real_type(i), raw.metas[i]
    if base in TYPE_CODES and code != TYPE_CODES[base] and code not in _OTHER_CODES.get(base, ()):
        return f"type {code} in the log, {column.column_type} known"
    if column.nullable is not None and raw.nullable[i] != column.nullable and not column.key:
        return (
            "nullable in the log, not in the known schema"
            if raw.nullable[i]
            else "not nullable in the log, but known as nullable"
        )
    if raw.unsigned is not None and code in codes.INTEGERS and raw.unsigned[i] != column.unsigned:
        return "signed in one and unsigned in the other"
    geometry = raw.geometries[i] if raw.geometries is not None else None
    if geometry is not None and base not in ("", "geometry") and _one_spelling(base) != _one_spelling(geometry):
        return f"{geometry} in the log, {base} known"
    if base in ADDRESS_BYTES and string_length(meta) != ADDRESS_BYTES[base]:
        return f"{string_length(meta)} bytes in the log, {column.column_type} known"
    arguments = column.column_type[len(base) :].partition(")")[0].lstrip("(")
    if base == "decimal" and code == codes.NEWDECIMAL and arguments:
        precision, _, scale = arguments.partition(",")
        if (meta & 0xFF, meta >> 8) != (int(precision), int(scale or 0)):
            return f"decimal({meta & 0xFF},{meta >> 8}) in the log, {column.column_type} known"
    if base in ("varchar", "varbinary") and arguments.isdigit():
        width = 1 if base == "varbinary" else MAX_CHAR_BYTES.get(column.charset or "", 1)
        if meta - (code == codes.VARCHAR_COMPRESSED) != int(arguments) * width:  # compressed: plus one header byte
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
