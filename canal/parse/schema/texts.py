"""Parses tables written by users: column definitions, or SQL text with CREATE TABLE statements.

Never guesses: a definition that is not fully understood raises a ConfigError that names the table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping

import attrs

from canal.binlog.server_facts import Release
from canal.errors import ConfigError
from canal.parse.schema.alter import created
from canal.parse.schema.classify import created_or_altered
from canal.parse.schema.definition import create_options, read_body
from canal.parse.schema.parts import Body, Dialect, NotUnderstoodError
from canal.parse.schema.scanner import END, Scanner
from canal.parse.schema.table_state import TableVersion
from canal.schema import TYPE_CODES, ColumnSchema, TableSchema
from canal.statement import Table

Tables = dict[Table, TableVersion]
#: Dialects to try if the writer of a text is unknown.
_NEWEST = (Dialect(), Dialect("mariadb", (11, 8)))


def tables_from_mapping(tables: Mapping[str, str], release: Release | None = None, charset: str = "utf8mb4") -> Tables:
    """Read ``{"shop.orders": "id int unsigned not null primary key, note varchar(20)"}``: columns, or a whole statement.

    Raises:
        ConfigError: a name has no schema, or a text cannot be parsed as columns.
    """
    found: Tables = {}
    for name, text in tables.items():
        schema, _, table = name.partition(".")
        if not schema or not table:
            raise ConfigError(f"{name!r} is not a table name", remedy='Write "schema.table".')
        if re.match(r"\s*create\s", text, re.IGNORECASE):
            state = next(iter(tables_from_sql(text, schema, release, charset).values()))
            found[schema, table] = attrs.evolve(state, schema=TableSchema(schema, table, state.schema.columns))
        else:
            found |= _columns_of((schema, table), text, release, charset)
    return found


def _columns_of(table: Table, text: str, release: Release | None, charset: str) -> Tables:
    def read(dialect: Dialect) -> Tables:
        scan = Scanner(f"{text})", flavor=dialect.flavor)
        # A column list may omit AUTO_INCREMENT, so assume that an apparent generated primary key is one.
        return {table: attrs.evolve(_table(scan, table, dialect, charset), counts_first=True)}

    return _as_written(read, release)


def tables_from_sql(text: str, schema: str = "", release: Release | None = None, charset: str = "utf8mb4") -> Tables:
    """Parse every CREATE TABLE statement of ``text``. USE statements and qualified names determine the schema.

    ``charset`` is the charset of text columns if neither the column nor the table has one. Other statements are skipped, so
    the output of mysqldump --no-data works.

    Args:
        release: the server that wrote the text; None if unknown.

    Raises:
        ConfigError: there is no table, a table has no schema name, or a definition cannot be parsed.
    """
    return _as_written(lambda dialect: _tables_in(text, schema, dialect, charset), release)


def _as_written(read: Callable[[Dialect], Tables], release: Release | None) -> Tables:
    """Call ``read`` with the release's dialect, or with each flavor until the text is understood."""
    if release is not None:
        return read(Dialect(release.flavor, release.version))
    try:
        return read(_NEWEST[0])
    except ConfigError as error:
        try:
            return read(_NEWEST[1])
        except ConfigError:
            raise error from None


def _tables_in(text: str, schema: str, dialect: Dialect, charset: str) -> Tables:
    found: Tables = {}
    scan = Scanner(text, flavor=dialect.flavor, most=sys.maxsize)
    while scan.peek()[0] != END:
        if scan.accept("USE"):
            schema = scan.take()[1]
        elif scan.peek()[2] == "CREATE" and (table := created_or_altered(scan, schema)) is not None:
            found[table] = _created_table(scan, table, dialect, charset)
        while scan.peek()[0] != END and not scan.accept(";"):
            scan.take()
    if scan.broken:
        raise ConfigError("cannot parse the schema text: a quote or a comment does not end")
    if not found:
        raise ConfigError("the SQL text has no CREATE TABLE with columns", remedy="Use the output of SHOW CREATE TABLE.")
    return found


def _created_table(scan: Scanner, table: Table, dialect: Dialect, charset: str) -> TableVersion:
    schema, name = table
    if not schema:
        raise ConfigError(f"table {name!r} has no schema name", remedy="Write CREATE TABLE schema.table or USE schema.")
    if not scan.accept("("):
        raise ConfigError(f"CREATE TABLE {schema}.{name} lists no columns", remedy="Use the output of SHOW CREATE TABLE.")
    return _table(scan, table, dialect, charset)


def _table(scan: Scanner, table: Table, dialect: Dialect, charset: str) -> TableVersion:
    """Parse a table from the first column on."""
    try:
        body = read_body(scan, dialect)
        options = create_options(scan)
        if options.queried:
            raise NotUnderstoodError("columns from a query")
        _check_primary(body)
        if options.charset is not None:
            charset = options.charset.over(charset) or charset
        state = created(*table, body, dialect, charset, options)
    except NotUnderstoodError as problem:
        raise ConfigError(
            f"cannot parse the definition of {'.'.join(table)}: {problem}", remedy="Use the output of SHOW CREATE TABLE."
        ) from problem
    as_json = {column.name for column in body.columns if column.type.is_json}
    columns = tuple(_as_json(one) if one.name in as_json else one for one in state.schema.columns)
    return attrs.evolve(state, schema=TableSchema(*table, columns))


def _check_primary(body: Body) -> None:
    named = {part.lower() for key in body.keys if key.is_primary for part, _ in key.columns}
    unknown = named - {column.name.lower() for column in body.columns}
    if unknown:
        raise NotUnderstoodError(f"a primary key of missing columns: {', '.join(sorted(unknown))}")


def _as_json(column: ColumnSchema) -> ColumnSchema:
    """Mark a column as JSON. MariaDB stores JSON as LONGTEXT, so only the written definition shows it."""
    return attrs.evolve(column, column_type="json", type_code=TYPE_CODES["json"])
