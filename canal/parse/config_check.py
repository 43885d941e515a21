"""Checks a configuration against the server at the start: filters and masks that match nothing, incomplete row images.

Only logs warnings, because a missing table may be created later.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from canal.alarm import AlarmDesk, AlarmKind
from canal.errors import SourceError
from canal.filter import FieldFilter, TableFilter, split_patterns
from canal.parse.source.protocol import FullConnection
from canal.rows.mask import Masks

log = logging.getLogger("canal.parse")

#: Schemas that a filter may name for another server, as canal's default black filter does.
_OF_SERVER: Final = ("mysql", "information_schema", "performance_schema", "sys")
#: Maximum names to compare with a misspelt pattern; each takes about 10 µs.
_COMPARED: Final = 20_000

#: Maximum tables per option to query for columns, one query each.
_ASKED: Final = 50

Name = tuple[str, str]


def warn(
    connection: FullConnection, tables: TableFilter, fields: FieldFilter, masks: Masks, destination: str, address: str
) -> None:
    """Log warnings about the filters, the masks and the server's row images, once per start."""
    if not connection.full_images:
        log.warning(
            "[%s] %s does not write binlog_row_image=FULL: columns missing from a row image are canal.ABSENT, and a target "
            "may need to read them. SET GLOBAL binlog_row_image = 'FULL', also in the server's configuration.",
            destination,
            address,
        )
    wanted = [*_patterns(tables, fields), *_mask_patterns(masks)]
    if not wanted:
        return
    try:
        names = [name for name in connection.table_names() or () if name[0].lower() not in _OF_SERVER]
        found = [*unmatched(wanted, names), *_lacking(connection, _named(fields, masks), names)]
    except SourceError as error:  # streaming works without this check
        log.info("[%s] cannot compare the filters with the tables of %s: %s", destination, address, error)
        return
    for text in found:
        log.warning("[%s] %s: %s", destination, address, text)


def warn_unlogged(connection: FullConnection, address: str, tables: TableFilter, alarms: AlarmDesk) -> None:
    """Raise an alarm for changes that pass the filter but that the server's settings keep out of the log."""
    for one in connection.unlogged:
        of_databases = one.only or one.ignored
        names = (connection.table_names() or ()) if of_databases else ()
        missing = [".".join(name) for name in names if one.lacks(name[0]) and tables.accepts(*name)]
        about = f"{address} does not log all changes: {one.text}"
        if missing:
            about += f"; the filter accepts {len(missing)} such tables, for example {missing[0]}"
        if missing or not of_databases:
            alarms.tell(AlarmKind.MISSING, f"{about}. {one.remedy}", f"unlogged at {address}: {one.setting}")
        else:
            log.warning("[%s] %s. %s", alarms.destination, about, one.remedy)


def unmatched(wanted: Sequence[tuple[str, str, TableFilter]], names: Sequence[Name]) -> Iterator[str]:
    """Yield a warning for each part of a filter that matches no table; nothing if no table is known."""
    for option, text, tables in wanted:
        plain = re.sub(r"\\(.)|`", r"\1", text).lower()
        if names and plain.partition(".")[0] not in _OF_SERVER and not any(tables.accepts(*name) for name in names):
            if plain.endswith(".") and _takes_of(plain[:-1], option, wanted, names):
                continue  # meant for statements about the database
            near = _nearest(plain, names)
            hint = "Patterns are compared with schema.table."
            if near:
                hint = f"Did you mean {' or '.join(near)}?"
            elif "%" in plain:
                hint += " They are regular expressions: write .* instead of SQL's %."
            yield f"{option} '{text}' matches no table that our user may see now. {hint}"


def _takes_of(schema: str, option: str, wanted: Sequence[tuple[str, str, TableFilter]], names: Sequence[Name]) -> bool:
    """Return whether another part of the same filter accepts a table of this database."""
    own = [name for name in names if name[0].lower() == schema]
    return any(tables.accepts(*name) for other, _, tables in wanted if other == option for name in own)


def _patterns(tables: TableFilter, fields: FieldFilter) -> Iterator[tuple[str, str, TableFilter]]:
    """Yield each part of the filters as a separate filter."""
    for option, text in (("filter", tables.include), ("black_filter", tables.exclude)):
        for _, pattern in split_patterns(text):
            yield option, pattern, TableFilter(pattern)
    for option, text in (("field_filter", fields.include), ("black_field_filter", fields.exclude)):
        for item in filter(None, map(str.strip, text.split(","))):
            name = item.rpartition(":")[0].strip()
            yield option, name, TableFilter(re.escape(name))


def _mask_patterns(masks: Masks) -> Iterator[tuple[str, str, TableFilter]]:
    for text in masks.masks:
        for _, pattern in split_patterns(text):
            yield "mask", pattern, TableFilter(pattern)


def _named(fields: FieldFilter, masks: Masks) -> Iterator[tuple[str, str, TableFilter, dict[str, bool]]]:
    """Yield option, table pattern, filter, and for each named column whether a table may lack it."""
    for option, table, columns in fields.columns():
        yield option, table, TableFilter(re.escape(table)), dict.fromkeys(columns, False)
    for text, by_column in masks.masks.items():
        yield "mask", text, TableFilter(text), {column: mask.is_optional for column, mask in by_column.items()}


def _lacking(
    connection: FullConnection, wanted: Iterable[tuple[str, str, TableFilter, dict[str, bool]]], names: Sequence[Name]
) -> Iterator[str]:
    """Yield a warning for each named column that a table lacks; for an optional column, only if all tables lack it."""
    for option, text, accepted, columns in wanted:
        schemas = [connection.table_columns(*name) for name in [name for name in names if accepted.accepts(*name)][:_ASKED]]
        tables = {schema.name: [column.name for column in schema.columns] for schema in schemas if schema is not None}
        for column, is_optional in columns.items():
            lacking = [name for name, known in tables.items() if column.lower() not in map(str.lower, known)]
            if lacking and (not is_optional or len(lacking) == len(tables)):
                near = _close(column.lower(), {one.lower(): one for one in tables[lacking[0]]})
                hint = f" Did you mean {' or '.join(near)}?" if near else ""
                ends = "" if is_optional else ", and that table's first row will stop the instance"
                yield f"{option} '{text}' names the column '{column}', which {lacking[0]} does not have{ends}.{hint}"


def _nearest(plain: str, names: Sequence[Name]) -> list[str]:
    """Return suggestions for a misspelt pattern: all tables of a schema, or tables."""
    schemas = {schema.lower(): re.escape(schema) + r"\..*" for schema, _ in names}
    schema, _, table = plain.partition(".")
    if table in ("", "*", ".*") and (near := _close(schema, schemas)):
        return near
    of_name = [f"{schema}.{table}" for schema, table in names if table.lower() == plain]
    return of_name[:3] or _close(plain, {f"{one[0]}.{one[1]}".lower(): f"{one[0]}.{one[1]}" for one in names[:_COMPARED]})


def _close(wanted: str, known: dict[str, str]) -> list[str]:
    return [known[wanted]] if wanted in known else [known[one] for one in get_close_matches(wanted, known, 3, 0.8)]
