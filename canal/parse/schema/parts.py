"""The parts of a CREATE TABLE or ALTER TABLE, as values: types, columns, keys and options as they are written.

Never reads a text.
"""

from __future__ import annotations

import attrs

from canal.binlog.server_facts import Release

#: Bits of sql_mode that change what a type means.
REAL_AS_FLOAT, ORACLE, MAXDB, NO_BACKSLASH_ESCAPES = 1, 1 << 9, 1 << 12, 1 << 20
#: Names of primary keys and system-versioning columns that the servers give themselves.
PRIMARY = "PRIMARY"
#: The engine of tables that name none.
INNODB = "innodb"


class NotUnderstoodError(Exception):
    """The text goes beyond what this module reads; never leaves the catalog."""


@attrs.frozen
class Dialect(Release):
    """What the same words mean on the server that wrote them."""

    flavor: str = "mysql"
    version: tuple[int, ...] = (9, 0, 0)
    sql_mode: int = 0
    #: explicit_defaults_for_timestamp; without it a bare TIMESTAMP is NOT NULL. None: not known.
    explicit_defaults: bool | None = True
    #: The charset of the session's literals (character_set_connection).
    connection_charset: str = "utf8mb4"

    @property
    def has_widths(self) -> bool:
        """Whether integers are shown with their display width."""
        return not self.has("bare_integers")


@attrs.frozen
class CharsetChoice:
    """A charset as a column or table asks for it: by its name, by a collation, or the default."""

    charset: str | None = None
    #: A collation that goes with any charset, or nothing at all, leaves the default.
    is_default: bool = False
    #: In lower case, where one is named.
    collation: str = ""

    def over(self, default: str | None) -> str | None:
        return self.charset or default


@attrs.frozen
class ColumnType:
    """A data type with its arguments, synonyms resolved."""

    base: str
    length: int | None = None
    scale: int | None = None
    #: Members as they are written: texts, or bytes.
    labels: tuple[str | bytes, ...] | None = None
    unsigned: bool = False
    zerofill: bool = False
    compressed: bool = False
    #: A charset that the type itself brings, such as that of NCHAR.
    charset: str | None = None

    @property
    def is_json(self) -> bool:
        """Whether it was written as JSON, which MariaDB makes a LONGTEXT."""
        return self.base == "json" or self.charset == "utf8mb4"  # which no other type brings


@attrs.frozen
class ColumnDefinition:
    """A column definition. ``nullable`` is None where the text does not say."""

    name: str
    type: ColumnType
    charset: CharsetChoice | None = None
    nullable: bool | None = None
    visible: bool = True
    #: START or END of AS ROW START and AS ROW END, in a system-versioned table.
    row_bound: str = ""
    virtual: bool = False
    auto_increment: bool = False
    #: It has a default other than NULL, or is computed.
    has_value: bool = False
    #: Lower-case words of the expression that it is computed by, columns among them.
    made_of: frozenset[str] = frozenset()

    def fills(self, dialect: Dialect) -> bool:
        """Whether it is not NULL in the rows that are there when it is added, or may be."""
        is_null = self.nullable is not False and (self.type.base != "timestamp" or self.nullable or dialect.explicit_defaults)
        return self.has_value or bool(self.row_bound) or not is_null


@attrs.frozen
class Key:
    """An index: (column, prefix length) pairs; the name is "" where the server finds one. Expressions have no name."""

    name: str
    unique: bool
    columns: tuple[tuple[str, int | None], ...]
    #: USING HASH, which on MariaDB makes a hidden column.
    hash: bool = False
    #: IF NOT EXISTS was given.
    conditional: bool = False
    #: The period WITHOUT OVERLAPS, whose columns come behind the others, until they are known.
    period: str = ""

    @property
    def is_primary(self) -> bool:
        return self.name == PRIMARY


@attrs.define
class Body:
    """Columns and keys of a CREATE TABLE, or of the brackets of an ADD."""

    columns: list[ColumnDefinition] = attrs.field(factory=list)
    keys: list[Key] = attrs.field(factory=list)
    #: The bounds of periods by the lower-case name; they are NOT NULL.
    periods: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    #: A column is WITH SYSTEM VERSIONING, which makes the table so.
    versioned: bool = False


@attrs.define
class TableOptions:
    """What follows the brackets of a CREATE TABLE."""

    charset: CharsetChoice | None = None
    versioned: bool = False
    #: A query gives further columns.
    queried: bool = False
    #: In lower case, "" where none is named.
    engine: str = ""
    partitioned: bool = False
