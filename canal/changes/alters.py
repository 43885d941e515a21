"""Detects changes of values by an ALTER, which the log does not contain. The declared types decide."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from canal.parse.schema.catalog import Catalog, filled_columns
from canal.parse.schema.parts import Dialect, NotUnderstoodError
from canal.parse.schema.table_state import TableVersion
from canal.rows.charsets import MAX_CHAR_BYTES
from canal.schema import ColumnSchema, TableSchema, column_from_text
from canal.statement import Statement

_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_BLOBS: Final = {"tiny": 1 << 8, "": 1 << 16, "medium": 1 << 24, "long": 1 << 32}
_TIMES: Final = ("time", "datetime", "timestamp")
#: The server version for the parser. The checks in this module do not depend on it.
_NEWEST: Final = (99,)
#: STRICT_TRANS_TABLES and STRICT_ALL_TABLES.
_STRICT: Final = 3 << 21
#: The log does not contain the table's charset. A column whose charset differs between these two has the table's charset.
_DEFAULTS: Final = ("utf8mb4", "utf8mb3")
_CHARS: Final = ("char", "varchar", "binary", "varbinary")


def keeps_values(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether every value except NULL is the same in both types, as delivered by the stream."""
    before, after = old.base_type, new.base_type
    first, second = _arguments(old), _arguments(new)
    if before in _INTEGERS and after in _INTEGERS:
        (low, high), (least, most) = _range(old), _range(new)
        return least <= low and high <= most
    if _size(old) and _size(new):
        return _keeps_text(old, new)
    if before != after:
        return after == "geometry" and before != ""
    if before == "decimal":
        whole, digits = first[0] - first[1], first[1]
        return second[0] - second[1] >= whole and second[1] >= digits and (old.unsigned or not new.unsigned)
    if before in ("float", "double"):
        return (not second or first == second) and (old.unsigned or not new.unsigned)
    if before in _TIMES or before == "bit":
        return (second or (0,))[0] >= (first or (0,))[0]
    if before == "enum" and old.labels is not None and new.labels is not None:
        return set(old.labels) <= set(new.labels)
    if before == "set" and old.labels is not None and new.labels is not None:  # members are delivered in this order
        return [label for label in new.labels if label in old.labels] == list(old.labels)
    return True


def _keeps_text(old: ColumnSchema, new: ColumnSchema) -> bool:
    before, after = old.base_type, new.base_type
    charset, other = old.charset or "binary", new.charset or "binary"
    if charset != other and (other != "utf8mb4" or charset == "binary"):
        return False
    if after == "binary" or (after == "char" and before != "char"):  # padded, or stripped of trailing spaces
        return before == after and _size(old) == _size(new)
    if before in _CHARS and after in _CHARS:
        return _size(new) >= _size(old)
    return _size(new) * _width(new) >= _size(old) * (1 if before not in _CHARS else MAX_CHAR_BYTES.get(other, 1))


def _size(column: ColumnSchema) -> int:
    """Return the capacity in characters, or in bytes for TEXT and BLOB. 0 for other types."""
    base = column.base_type
    if base in _CHARS:
        return (_arguments(column) or (1,))[0]
    return _BLOBS.get(base[:-4], 0) - 1 if base[-4:] in ("text", "blob") else 0


def _width(column: ColumnSchema) -> int:
    return MAX_CHAR_BYTES.get(column.charset or "", 1) if column.base_type in _CHARS else 1


def _range(column: ColumnSchema) -> tuple[int, int]:
    bits = _INTEGERS[column.base_type]
    return (0, (1 << bits) - 1) if column.unsigned else (-1 << bits - 1, (1 << bits - 1) - 1)


def _arguments(column: ColumnSchema) -> tuple[int, ...]:
    inside = column.column_type.partition("(")[2].partition(")")[0].split(",")
    numbers = tuple(int(one) for one in inside if one.isdecimal())
    if column.base_type == "decimal":
        return (*(numbers or (10,)), 0)[:2]
    return numbers


def altered(table: str, what: str) -> str:
    """Return the message for an ALTER that may have changed values."""
    return f"an ALTER of {table} may have changed values of rows, which the log does not tell: {what}"


def unfollowed(table: str, old: Sequence[ColumnSchema], new: Sequence[ColumnSchema]) -> str:
    """Describe how an ALTER from the old to the new columns may have changed rows or the key. Return "" if it did not."""
    if changed := changed_values(old, new):
        return altered(table, changed)
    before, after = ({column.name.lower(): column.name for column in one if column.key} for one in (old, new))
    if not before or after and after.keys() <= before.keys():
        return ""
    was, now = ", ".join(before.values()), ", ".join(after.values()) or "gone"
    return f"the key of {table} was {was} and is {now}: a target with the key {was} cannot hold rows which are equal in it"


def changed_values(old: Iterable[ColumnSchema], new: Iterable[ColumnSchema]) -> str:
    """Describe the columns whose values an ALTER may have changed, with both types. Return "" if there are none."""
    before = {column.name.lower(): column for column in old}
    pairs = [(before[column.name.lower()], column) for column in new if column.name.lower() in before]
    return ", ".join(_difference(one, two) for one, two in pairs if not _keeps(one, two))


def added_values(sql: str, statement: Statement, flavor: str) -> str | None:
    """Describe the columns that an ALTER adds with values in existing rows. None if the text was not understood."""
    dialect = Dialect(flavor, _NEWEST, statement.sql_mode, statement.explicit_defaults)
    try:
        names = filled_columns(sql, statement, dialect)
    except NotUnderstoodError:
        return None
    return ", ".join(f"{name} is new, with a value in each row" for name in names)


def altered_values(old: TableSchema, sql: str, statement: Statement, flavor: str) -> str | None:
    """Like ``changed_values``, with the new columns from the text of an ALTER. None if the text was not understood."""
    made, others = (_after(old, sql, statement, flavor, charset) for charset in _DEFAULTS)
    if made is None or others is None:
        return None
    before = {column.name.lower(): column for column in old.columns}
    pairs = zip(made.columns, others.columns, strict=True)
    new = [_like(before.get(one.name.lower()), one, one.charset != other.charset) for one, other in pairs]
    return changed_values(old.columns, new) or ("" if statement.sql_mode & _STRICT else _filled(before, new))


def _filled(before: Mapping[str, ColumnSchema], new: Iterable[ColumnSchema]) -> str:
    """Describe the columns whose NULLs become other values, which only a non-strict sql_mode permits."""
    is_null = {name: bool(column.of_source.nullable) for name, column in before.items()}
    filled = [one.name for one in new if is_null.get(one.name.lower()) and one.of_source.nullable is False]
    return ", ".join(f"NULLs of {name}, which is NOT NULL now" for name in filled)


def _after(old: TableSchema, sql: str, statement: Statement, flavor: str, charset: str) -> TableSchema | None:
    """Return the table after an ALTER, assuming this table charset. None if the text was not understood."""
    probe = Catalog(lower_case_table_names=1)
    columns = tuple(column.of_source for column in old.columns)
    probe.put(TableVersion(attrs.evolve(old, columns=columns), charset, keys=()))  # no value depends on a key
    probe.apply(
        sql,
        statement.default_schema,
        sql_mode=statement.sql_mode,
        flavor=flavor,
        version=_NEWEST,
        explicit_defaults=statement.explicit_defaults,
        statement=statement,
    )
    after = probe.get(old.schema, old.table)
    return None if after is None else after.schema


def _like(old: ColumnSchema | None, new: ColumnSchema, is_default: bool) -> ColumnSchema:
    """Return a column of a statement with the mask and, if the text names no charset, with the charset of the old column."""
    if old is None:
        return new
    if is_default and old.of_source.charset not in (None, "binary"):  # bytes that become text always change
        new = attrs.evolve(new, charset=old.of_source.charset)
    return new if old.unmasked is None else attrs.evolve(old, unmasked=new)


def _keeps(old: ColumnSchema, new: ColumnSchema) -> bool:
    one, two = old.of_source, new.of_source
    if new.unmasked is not None and one.base_type == two.base_type == "decimal" and _arguments(one)[1] != _arguments(two)[1]:
        return False  # a mask depends on the text, whose trailing zeros differ
    return keeps_values(one, two)


def _difference(old: ColumnSchema, new: ColumnSchema) -> str:
    if new.unmasked is not None:  # labels are values
        return f"{new.name}, which is masked, has another type"
    return f"{new.name} was {_text(old)}, is {_text(new)}"


def _text(column: ColumnSchema) -> str:
    return (column.column_type or "dropped") + (f" of {column.charset}" if column.charset else "")


def types_text(columns: Iterable[ColumnSchema]) -> str:
    """Serialize the declared types, keys and NOT NULL flags of columns for ``types_from_text``."""
    own = [column.of_source for column in columns]
    flags = ([int(one.key), 0] if one.nullable is False else [1] * one.key for one in own)
    return json.dumps([[one.name, one.column_type, one.charset, *more] for one, more in zip(own, flags)])


def types_from_text(text: str) -> list[ColumnSchema]:
    """Parse the columns from ``types_text``."""
    found = json.loads(text) if text else []
    return [
        column_from_text(name, kind, charset=charset, key=more[:1] == [1], nullable=len(more) < 2)
        for name, kind, charset, *more in found
    ]
