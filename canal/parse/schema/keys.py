"""The keys of a table: names, order, the key that identifies rows, and hidden columns for keys.

Never parses a statement.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

import attrs

from canal.binlog.server_facts import Release
from canal.parse.schema.column_types import GEOMETRIES, char_bytes, text_size
from canal.parse.schema.parts import INNODB, Key, NotUnderstoodError
from canal.schema import ColumnSchema, column_from_text

#: MariaDB's column for the end of a row's period, if the table does not name it.
ROW_END = "row_end"
#: Maximum bytes of a unique key without a hidden hash column, by engine of MariaDB; None: never a hash.
_LONGEST_KEY: dict[str, int | None] = {INNODB: 3072, "myisam": 1000, "memory": None, "aria": None}
#: A key size that no engine hashes.
_SURE_KEY = 255
#: Bytes of a geometry in a MariaDB key without a length, of a POINT, and the length that means the whole geometry.
_GEOMETRY_BYTES, POINT_BYTES = 8, 25
GEOMETRY_NUMBER = 4
#: Bytes of the TIMESTAMP(6) that versioned tables add to each unique key.
_ROW_END_BYTES = 7


def hidden_columns(columns: tuple[ColumnSchema, ...], keys: Iterable[Key], row_end: str) -> tuple[ColumnSchema, ...]:
    """Return the columns that MariaDB adds to rows: a versioned row's period, and a hash per unique key that is too long."""
    hidden = []
    if row_end and not any(column.name.lower() == row_end.lower() for column in columns):
        for bound in ("row_start", ROW_END):
            column = column_from_text(bound, "timestamp(6)", nullable=False, visible=False)
            hidden.append(attrs.evolve(column, key=bound == ROW_END and any(c.key for c in columns)))
    for i in range(sum(key.hash for key in keys)):
        # In the order of the statements, which information_schema does not show.
        hidden.append(column_from_text(f"DB_ROW_HASH_{i + 1}", "bigint(20) unsigned", nullable=None, visible=False))
    return tuple(hidden)


def hashed(key: Key, columns: dict[str, ColumnSchema], engine: str, row_end: str) -> Key:
    """Return a key as MariaDB creates it. ``hash`` changes from "was requested" to "has a hidden column"."""
    parts = tuple(_geometry_part(part, columns) for part in key.columns)
    if not key.unique or key.is_primary:
        return attrs.evolve(key, columns=parts, hash=False)
    sizes = [_key_bytes(columns[named.lower()], length) for named, length in key.columns if named.lower() in columns]
    if row_end and row_end.lower() not in {named.lower() for named, _ in key.columns}:
        sizes.append(_ROW_END_BYTES)
    is_long = None in sizes or sum(size or 0 for size in sizes) > (_LONGEST_KEY.get(engine, _SURE_KEY) or sys.maxsize)
    if engine not in _LONGEST_KEY and (is_long or key.hash):
        raise NotUnderstoodError("the maximum length of a unique key is unknown")
    return attrs.evolve(key, columns=parts, hash=_LONGEST_KEY.get(engine) is not None and (is_long or key.hash))


def _geometry_part(part: tuple[str, int | None], columns: dict[str, ColumnSchema]) -> tuple[str, int | None]:
    base = columns[part[0].lower()].base_type if part[0].lower() in columns else ""
    return (part[0], _GEOMETRY_BYTES) if part[1] is None and base in GEOMETRIES and base != "point" else part


def _key_bytes(column: ColumnSchema, length: int | None) -> int | None:
    """Return a column's bytes in a key; None if MariaDB can index all of it only by a hash."""
    base = column.base_type
    if base.endswith(("text", "blob")) or base in GEOMETRIES and base != "point":
        return None if length is None else length * char_bytes(column.charset)
    length = length or declared_length(column)
    return length * char_bytes(column.charset) if length else value_bytes(column)


def functional_columns(key: Key) -> list[ColumnSchema]:
    """Return the columns that MySQL appends to a table for a key's expressions."""
    expressions = sum(not part for part, _ in key.columns)
    return [ColumnSchema(f"!hidden!{key.name}!{n}", nullable=None, visible=False, hidden=True) for n in range(expressions)]


def with_functional(
    columns: list[ColumnSchema], old: Iterable[Key], dropped: set[str], renamed: dict[str, str], keys: Iterable[Key]
) -> list[ColumnSchema]:
    """Update the columns of functional keys: remove those of dropped keys and append those of new keys."""
    kept = []
    for column in columns:
        owner, _, number = column.name[len("!hidden!") :].rpartition("!") if column.hidden else ("", "", "")
        if column.hidden and not owner and any(key.name.lower() in dropped and functional_columns(key) for key in old):
            raise NotUnderstoodError("which hidden column belongs to a functional key")
        if column.hidden and owner.lower() in renamed:
            column = attrs.evolve(column, name=f"!hidden!{renamed[owner.lower()]}!{number}")
        if not column.hidden or owner.lower() not in dropped:
            kept.append(column)
    there = {column.name.lower() for column in kept}
    if any(name.startswith("!hidden!!") for name in there):
        there |= {column.name.lower() for key in old for column in functional_columns(key)}
    return kept + [one for key in keys for one in functional_columns(key) if one.name.lower() not in there]


def named_keys(known: Iterable[Key], added: Iterable[Key], old: Iterable[Key] | None = None) -> list[Key]:
    """Return all keys; keys without a name get the server's default: the name of the first column, numbered.

    IF NOT EXISTS is checked against ``old`` (the keys before the statement dropped any) and the keys added so far.
    """
    keys = list(known)
    there = {key.name.lower() for key in (keys if old is None else old)}
    taken = {key.name.lower() for key in keys}
    for key in added:
        stem = key.columns[0][0] or "functional_index"
        if key.conditional and (key.name or stem).lower() in there:
            continue
        there.add((key.name or stem).lower())
        found, count = key.name or stem, 1
        while not key.name and (found.lower() in taken or found.lower() == "primary"):
            count += 1
            found = f"{stem}_{count}"
        taken.add(found.lower())
        keys.append(attrs.evolve(key, name=found, conditional=False))
    return keys


def with_keys(
    columns: list[ColumnSchema], keys: list[Key], row_end: str, release: Release, ordered: bool = False
) -> tuple[tuple[ColumnSchema, ...], tuple[Key, ...]]:
    """Return the columns with key flags, and the keys in the server's order.

    Without a primary key, servers show and log the first unique key without NULLs and prefixes as primary.
    MariaDB adds the end of the row's period to unique keys of versioned tables. It keeps the order of keys (``ordered``) if
    a statement adds no key and does not change the columns of such a key. Only the first key can be shown as primary.
    """
    primary = {column.lower() for key in keys if key.is_primary for column, _ in key.columns}
    # Servers process keys in sequence: for keys before a primary key, the primary columns may still be nullable.
    before = {column.name.lower(): column for column in columns}
    first = next((i for i, key in enumerate(keys) if key.is_primary), 0)
    columns = [attrs.evolve(c, nullable=False) if c.name.lower() in primary else c for c in columns]
    by_name = {column.name.lower(): column for column in columns}
    keys = [attrs.evolve(key, columns=tuple(_part(part, by_name) for part in key.columns)) for key in keys]
    if not primary and any(_needs_nullability(key, by_name, release) for key in keys):
        raise NotUnderstoodError("a unique key of a possibly nullable column")
    if not ordered:
        ranks = [_rank(key, before if i < first else by_name, release) for i, key in enumerate(keys)]
        keys = [key for _, key in sorted(zip(ranks, keys), key=lambda ranked: ranked[0])]
    chosen: set[str] = set()
    if keys and is_shown_as_primary(keys[0], by_name, release):
        chosen = {column.lower() for column, _ in keys[0].columns} | {row_end.lower()}
    return tuple(attrs.evolve(c, key=c.name.lower() in chosen) for c in columns), tuple(keys)


def is_shown_as_primary(first: Key, columns: dict[str, ColumnSchema], release: Release) -> bool:
    geometry = GEOMETRY_NUMBER if release.is_mariadb else 0
    return first.is_primary or _identifies(first, columns, release.has("full_prefixes"), geometry)


def _rank(key: Key, columns: dict[str, ColumnSchema], release: Release) -> int:
    """Return the sort rank: 0 primary, 1 usable as primary, then other unique keys, hash keys, and non-unique keys.

    Among nullable unique keys, those with a column prefix come last.
    """
    if key.is_primary:
        return 0
    if not key.unique:
        return 6
    if key.hash:
        return 5
    takes_full = release.has("full_prefixes_first")
    geometry = _GEOMETRY_BYTES if release.is_mariadb else 0
    if _identifies(key, columns, takes_full, geometry):
        return 1
    parts = [(columns.get(named.lower()), length) for named, length in key.columns]
    if all(column is not None and column.nullable is False for column, _ in parts):
        return 2
    return 3 if all(length is None or takes_full and _is_full(column, length, geometry) for column, length in parts) else 4


def _needs_nullability(key: Key, columns: dict[str, ColumnSchema], release: Release) -> bool:
    """Return whether the use as primary key depends on unknown nullability of a column."""
    sure = {name: attrs.evolve(one, nullable=False) if one.nullable is None else one for name, one in columns.items()}
    return _rank(key, columns, release) == 3 and _rank(key, sure, release) == 1


def _identifies(key: Key, columns: dict[str, ColumnSchema], takes_full: bool, geometry: int) -> bool:
    """Return whether a unique key identifies rows.

    ``takes_full``: also with a prefix that covers a whole TINYTEXT, or this many bytes of a geometry.
    """
    return (
        key.unique
        and not key.hash
        and all(_can_identify(columns.get(named.lower()), length, takes_full, geometry) for named, length in key.columns)
    )


def _can_identify(column: ColumnSchema | None, length: int | None, takes_full: bool, geometry: int) -> bool:
    if column is None or column.nullable is not False or column.virtual:
        return False
    if length is None:
        return not column.base_type.endswith(("text", "blob"))
    return takes_full and _is_full(column, length, geometry)


def _is_full(column: ColumnSchema | None, length: int, geometry: int) -> bool:
    """Return whether a prefix covers a whole TEXT or BLOB column, or has this length for a geometry."""
    if column is not None and column.base_type in GEOMETRIES and column.base_type != "point":
        return length == geometry
    if column is None or not column.base_type.endswith(("text", "blob")):
        return False
    return _key_bytes(column, length) == text_size(column.base_type)


def with_points(keys: Iterable[Key], columns: Iterable[ColumnSchema], is_mariadb: bool) -> list[Key]:
    """Normalise POINT columns in keys, which are always indexed whole. MariaDB treats this as a prefix that identifies no row."""
    points = {column.name.lower() for column in columns if column.base_type == "point"}
    length = POINT_BYTES if is_mariadb else None
    return [
        attrs.evolve(key, columns=tuple((name, length if name.lower() in points else size) for name, size in key.columns))
        for key in keys
    ]


def _part(part: tuple[str, int | None], columns: dict[str, ColumnSchema]) -> tuple[str, int | None]:
    """Drop a prefix length that equals the column's length."""
    column = columns.get(part[0].lower())
    if column is not None and f"({part[1]})" in column.column_type and column.labels is None:
        return part[0], None
    return part


def takes_prefix(column: ColumnSchema, length: int) -> bool:
    """Return whether a key may use such a prefix of the column. Otherwise it indexes the whole column."""
    base = column.base_type
    if base in GEOMETRIES:
        return True
    most = text_size(base) if base.endswith(("text", "blob")) else declared_length(column)
    return length <= most


_BYTES = {
    "tinyint": 1,
    "smallint": 2,
    "mediumint": 3,
    "int": 4,
    "bigint": 8,
    "float": 4,
    "double": 8,
    "date": 3,
    "year": 1,
    "timestamp": 4,
    "datetime": 5,
    "time": 3,
    "uuid": 16,
    "inet4": 4,
    "inet6": 16,
    "point": POINT_BYTES,
}


def value_bytes(column: ColumnSchema) -> int:
    """Return the bytes in a key of a value whose type is not text."""
    base, numbers = column.base_type, [int(n) for n in re.findall(r"\d+", column.column_type.partition(")")[0])]
    if base == "bit":
        return (numbers[0] + 7) // 8
    if base == "decimal":
        return sum(digits // 9 * 4 + (digits % 9 + 1) // 2 for digits in (numbers[0] - numbers[1], numbers[1]))
    if column.labels is not None:
        members = len(column.labels)
        return (1 if members < 256 else 2) if base == "enum" else _set_bytes(members)
    if base not in _BYTES:
        raise NotUnderstoodError("the size of a key is unknown")
    return _BYTES[base] + ((numbers[0] + 1) // 2 if numbers and base in ("timestamp", "datetime", "time") else 0)


def _set_bytes(members: int) -> int:
    size = (members + 7) // 8
    return 8 if size > 4 else size


def declared_length(column: ColumnSchema) -> int:
    """Return the n of CHAR(n) and similar types, 0 for other types."""
    digits = column.column_type.partition("(")[2].rstrip(")")
    return int(digits) if column.base_type.endswith(("char", "binary")) and digits.isdigit() else 0
