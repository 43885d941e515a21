"""What a look at the server shows of a configuration at the start: filters that match none of its tables, row images not whole.

Never changes what is delivered: a table may be made later, so all of it is a WARNING in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from canal.errors import SourceError
from canal.filter import FieldFilter, TableFilter, split_patterns
from canal.parse.source.protocol import FullConnection

log = logging.getLogger("canal.parse")

#: A filter may name their tables for the sake of another server, as canal's own black filter does.
_OF_SERVER: Final = ("mysql", "information_schema", "performance_schema", "sys")
#: Names that are compared with a wrong one: it takes some 10 µs each.
_COMPARED: Final = 20_000

Name = tuple[str, str]


def warn(connection: FullConnection, tables: TableFilter, fields: FieldFilter, destination: str, address: str) -> None:
    """Log what is wrong with the filters and with the server's settings, once per start."""
    if not connection.full_images:
        log.warning(
            "[%s] %s does not write binlog_row_image=FULL: columns that a row image leaves out are canal.ABSENT, and a "
            "target may need to read them. SET GLOBAL binlog_row_image = 'FULL', also in its configuration.",
            destination, address,
        )  # fmt: skip
    wanted = list(_patterns(tables, fields))
    if not wanted:
        return
    try:
        names = connection.table_names()
    except SourceError as error:  # no reason not to stream
        log.info("[%s] the filters are not compared with the tables of %s: %s", destination, address, error)
        return
    for text in unmatched(wanted, [name for name in names or () if name[0].lower() not in _OF_SERVER]):
        log.warning("[%s] %s: %s", destination, address, text)


def unmatched(wanted: Sequence[tuple[str, str, TableFilter]], names: Sequence[Name]) -> Iterator[str]:
    """A sentence for each part of a filter that matches none of these tables; none where no table is known."""
    for option, text, tables in wanted:
        plain = re.sub(r"\\(.)|`", r"\1", text).lower()
        if names and plain.partition(".")[0] not in _OF_SERVER and not any(tables.accepts(*name) for name in names):
            near = _nearest(plain, names)
            hint = f"Did you mean {' or '.join(near)}?" if near else "It is compared with schema.table."
            yield f"{option} '{text}' matches no table that our user may see now. {hint}"


def _patterns(tables: TableFilter, fields: FieldFilter) -> Iterator[tuple[str, str, TableFilter]]:
    """Each part of the filters alone."""
    for option, text in (("filter", tables.include), ("black_filter", tables.exclude)):
        for _, pattern in split_patterns(text):
            yield option, pattern, TableFilter(pattern)
    for option, text in (("field_filter", fields.include), ("black_field_filter", fields.exclude)):
        for item in filter(None, map(str.strip, text.split(","))):
            name = item.rpartition(":")[0].strip()
            yield option, name, TableFilter(re.escape(name))


def _nearest(plain: str, names: Sequence[Name]) -> list[str]:
    """What may have been meant by a pattern, without its backslashes and backticks: all of a schema, or tables."""
    schemas = {schema.lower(): re.escape(schema) + r"\..*" for schema, _ in names}
    schema, _, table = plain.partition(".")
    if table in ("", "*", ".*") and (near := _close(schema, schemas)):
        return near
    of_name = [f"{schema}.{table}" for schema, table in names if table.lower() == plain]
    return of_name[:3] or _close(plain, {f"{one[0]}.{one[1]}".lower(): f"{one[0]}.{one[1]}" for one in names[:_COMPARED]})


def _close(wanted: str, known: dict[str, str]) -> list[str]:
    return [known[wanted]] if wanted in known else [known[one] for one in get_close_matches(wanted, known, 3, 0.8)]
