"""Reads tables with keys and hidden columns from information_schema, in the form that the catalog uses.

Never connects: the caller passes a function that runs queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import attrs

from canal.binlog.server_facts import Release
from canal.parse.schema.column_types import GEOMETRIES
from canal.parse.schema.keys import GEOMETRY_NUMBER, ROW_END, functional_columns, hidden_columns, with_keys, with_points
from canal.parse.schema.parts import INNODB, PRIMARY, Key
from canal.parse.schema.table_state import TableVersion
from canal.rows.charsets import lenient_text
from canal.schema import ColumnSchema, TableSchema, as_shown, charset_name, column_from_text

#: Runs a query with arguments and returns the rows.
Ask = Callable[[str, tuple[Any, ...]], Iterable[tuple[Any, ...]]]
#: Whether rows of a (schema, table) may be delivered.
Accepts = Callable[[str, str], bool]

#: Schema and name of every table. No server opens the tables for this query.
NAMES_QUERY: Final = "SELECT table_schema, table_name FROM information_schema.tables"
_TABLES: Final = (
    "SELECT table_schema, table_name, table_collation, table_type, engine, create_options FROM information_schema.tables"
)
# Cast to bytes: MySQL 5.5 to 5.7 and MariaDB up to 10.2 corrupt labels if two columns have the same labels in UCS-2.
_COLUMNS: Final = (
    "SELECT table_schema, table_name, column_name, CAST(column_type AS BINARY), is_nullable, character_set_name, column_key,"
    " extra{} FROM information_schema.columns"
)
#: Schema and table of each column, then the fields of ``column_of``.
COLUMNS_QUERY: Final = _COLUMNS.format("")
#: The columns of a MariaDB table, for ``unlogged_columns``.
UNLOGGED_QUERY: Final = _COLUMNS.format(", generation_expression") + " WHERE table_schema = %s AND table_name = %s"
_INDEXES: Final = (
    "SELECT table_schema, table_name, index_name, non_unique, column_name, sub_part, index_type, seq_in_index"
    " FROM information_schema.statistics"
)
_VIEWS: Final = ("VIEW", "SYSTEM VIEW")
#: Quoted names in an expression as servers write it.
_WORDS: Final = re.compile("`((?:[^`]|``)*)`")
#: Tables per query: some servers open each table, and must answer within ``read_timeout``.
PIECE: Final = 500


def accept_all(schema: str, table: str) -> bool:
    return True


def table_states(ask: Ask, schema: str = "", table: str = "", *, release: Release) -> list[TableVersion]:
    """Return the present definition of one table, of the tables of a schema, or of all tables, without views."""
    return states_of(ask, (schema,) if schema else (), (table,) if table else (), release=release)


def states_of(ask: Ask, schemas: Sequence[str] = (), tables: Sequence[str] = (), *, release: Release) -> list[TableVersion]:
    """Return the present tables with these schemas and names, without views. An empty list selects all."""
    named = [(name, values) for name, values in (("table_schema", schemas), ("table_name", tables)) if values]
    # Servers without a data dictionary use only equality conditions on the name columns, and then open only those tables.
    tests = [f"{name} = %s" if len(values) == 1 else f"{name} IN ({', '.join(['%s'] * len(values))})" for name, values in named]
    where, args = " WHERE " * bool(tests) + " AND ".join(tests), (*schemas, *tables)
    columns_query = _COLUMNS.format(", ordinal_position, " + ("generation_expression" if release.has("row_periods") else "NULL"))
    columns = _by_table(ask(f"{columns_query}{where} ORDER BY table_schema, table_name, ordinal_position", args))
    indexes = _by_table(ask(_INDEXES + where, args))
    return [
        _state(row, columns[row[:2]], indexes.get(row[:2], []), release)
        for row in map(texts, ask(_TABLES + where, args))
        if row[3] not in _VIEWS and row[:2] in columns
    ]


def pieces(names: Iterable[tuple[str, str]]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield (schemas, tables) per query. ``tables`` is empty for whole schemas."""
    small: list[str] = []
    count = 0
    for schema, group in groupby(sorted(names), key=lambda name: name[0]):
        tables = [table for _, table in group]
        if len(tables) > PIECE:
            yield from (((schema,), tables[at : at + PIECE]) for at in range(0, len(tables), PIECE))
            continue
        if small and count + len(tables) > PIECE:
            yield small, ()
            small, count = [], 0
        small.append(schema)
        count += len(tables)
    if small:
        yield small, ()


def texts(row: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(lenient_text(value, "utf-8") if isinstance(value, bytes) else value for value in row)


def _by_table(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in map(texts, rows):
        found.setdefault(row[:2], []).append(row[2:])
    return found


def _state(
    row: tuple[Any, ...], columns: list[tuple[Any, ...]], indexes: list[tuple[Any, ...]], release: Release
) -> TableVersion:
    schema, table, collation, kind, engine, options = row
    shown = [column_of(column[:6]) for column in columns]
    bounds = [str(column[0]) for column in columns if column[7] == "ROW END"]
    row_end = (bounds[0] if bounds else ROW_END) if kind == "SYSTEM VERSIONED" else ""
    keys = _keys(indexes, row_end, release.is_mariadb and str(engine).lower() != "memory")
    flagged = {column.name.lower() for column in shown if column.key} - {row_end.lower()}
    keys = with_points(keys, shown, release.is_mariadb)
    if release.is_mariadb:
        keys = _with_geometries(keys, shown)
    if not release.is_mariadb:  # MariaDB returns them in order
        keys.sort(key=lambda key: {part.lower() for part, _ in key.columns} != flagged)
    if release.logs_functional_keys:
        shown = _with_functional(shown, [int(column[6]) for column in columns], keys)
    made, ordered = with_keys(shown, keys, row_end, release, release.is_mariadb)
    # If the table has no primary key, the server says which key replaces it.
    made = tuple(attrs.evolve(new, key=old.key, nullable=old.nullable) for new, old in zip(made, shown))
    counted = _counted(columns)
    if release.is_mariadb:
        made = _with_unlogged(made, {str(column[0]).lower(): str(column[7] or "") for column in columns}, counted)
    hidden = hidden_columns(made, ordered, row_end) if release.is_mariadb else ()
    charset = None if collation is None else _charset(str(collation))
    engine, partitioned = str(engine).lower(), "partitioned" in str(options)
    counts_first = engine == INNODB and not partitioned and "auto_increment" in str(columns[0][5])
    schema = TableSchema(schema, table, made + hidden)
    return TableVersion(schema, charset, ordered, row_end, len(hidden), counts_first, engine, partitioned, counted)


def _counted(columns: Iterable[tuple[Any, ...]]) -> str:
    """Return the AUTO_INCREMENT column in lower case, or ""."""
    return next((str(column[0]).lower() for column in columns if "auto_increment" in str(column[5])), "")


def unlogged_columns(rows: Iterable[tuple[Any, ...]]) -> set[str]:
    """Return the columns with logged values that differ from the table's, from the rows of ``UNLOGGED_QUERY``."""
    columns = [texts(row)[2:] for row in rows]
    expressions = {str(column[0]).lower(): str(column[6] or "") for column in columns}
    made = _with_unlogged(tuple(column_of(column[:6]) for column in columns), expressions, _counted(columns))
    return {column.name for column in made if not column.logged}


def _with_unlogged(columns: tuple[ColumnSchema, ...], expressions: dict[str, str], counted: str) -> tuple[ColumnSchema, ...]:
    """Mark VIRTUAL columns computed from the AUTO_INCREMENT column: MariaDB logs them as if the new row's number were 0."""
    unlogged = {counted} - {""}
    words = {name: {one.replace("``", "`") for one in _WORDS.findall(text.lower())} for name, text in expressions.items()}
    for _ in columns if unlogged else ():  # a virtual column may depend on another virtual column
        unlogged |= {_lower_name(column) for column in columns if column.virtual and words[_lower_name(column)] & unlogged}
    return tuple(attrs.evolve(one, logged=False) if one.virtual and _lower_name(one) in unlogged else one for one in columns)


def _lower_name(column: ColumnSchema) -> str:
    return column.name.lower()


def _with_geometries(keys: list[Key], columns: list[ColumnSchema]) -> list[Key]:
    """Set the key prefix of geometries: MariaDB uses the length of the number before the bytes and means the whole value."""
    names = {column.name.lower() for column in columns if column.base_type in GEOMETRIES}
    whole = dict.fromkeys(names, GEOMETRY_NUMBER)
    return [
        attrs.evolve(key, columns=tuple((name, size or whole.get(name.lower())) for name, size in key.columns)) for key in keys
    ]


def _with_functional(shown: list[ColumnSchema], numbers: list[int], keys: list[Key]) -> list[ColumnSchema]:
    """Insert the hidden columns of functional keys at the gaps in the column numbers, and the rest at the end.

    If they stand in several places, their keys are unknown, and they get placeholder names.
    """
    hidden = [column for key in keys for column in functional_columns(key)]
    gaps = [number - 1 - before for before, number in zip([0, *numbers], numbers)] + [0]
    gaps[-1] = len(hidden) - sum(gaps)
    if gaps[-1] < 0:
        return shown
    if sum(gap > 0 for gap in gaps) > 1:
        hidden = [attrs.evolve(column, name=f"!hidden!!{n}") for n, column in enumerate(hidden)]
    made: list[ColumnSchema] = []
    for gap, column in zip(gaps, [*shown, None]):
        made += hidden[:gap] + ([column] if column is not None else [])
        hidden = hidden[gap:]
    return made


def _charset(collation: str) -> str:
    return charset_name(collation.partition("_")[0])


def column_of(row: tuple[Any, ...]) -> ColumnSchema:
    """Return a column from (name, type, nullability, charset, key, extra)."""
    name, column_type, nullable, charset, key, extra = row
    made = column_from_text(
        str(name),
        str(column_type),
        charset=charset,
        nullable=nullable == "YES",
        key=key == "PRI",
        visible="INVISIBLE" not in str(extra).upper(),
        virtual="VIRTUAL" in str(extra).upper(),
    )
    return as_shown(made)


def _keys(rows: list[tuple[Any, ...]], row_end: str, hashes: bool) -> list[Key]:
    keys = []
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    for name, parts in groups.items():
        parts.sort(key=lambda part: int(part[5]))  # MySQL returns them unordered
        unique = not int(parts[0][1])
        # Every unique key of a versioned table ends with the end of the row's period.
        columns = tuple(
            (part[2] or "", None if part[3] is None else int(part[3]))
            for part in parts
            if not (unique and row_end and str(part[2]).lower() == row_end.lower())
        )
        keys.append(Key(str(name), unique, columns, hashes and unique and name != PRIMARY and parts[0][4] == "HASH"))
    return keys
