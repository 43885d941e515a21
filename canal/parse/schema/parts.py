"""Parsed parts of a CREATE TABLE or ALTER TABLE: types, columns, keys and options.

Never parses text.
"""

from __future__ import annotations

import attrs

from canal.binlog.server_facts import Release

#: Bits of sql_mode that affect types.
REAL_AS_FLOAT, ORACLE, MAXDB, NO_BACKSLASH_ESCAPES = 1, 1 << 9, 1 << 12, 1 << 20
#: Name of every primary key.
PRIMARY = "PRIMARY"
#: Default engine.
INNODB = "innodb"


class NotUnderstoodError(Exception):
    """The text is not supported by the parser. Never leaves the catalog."""


@attrs.frozen
class Dialect(Release):
    """The release and session settings of the server that executed a statement."""

    flavor: str = "mysql"
    version: tuple[int, ...] = (9, 0, 0)
    sql_mode: int = 0
    #: explicit_defaults_for_timestamp; if off, a plain TIMESTAMP is NOT NULL. None: unknown.
    explicit_defaults: bool | None = True
    #: The charset of the session's literals (character_set_connection).
    connection_charset: str = "utf8mb4"

    @property
    def has_widths(self) -> bool:
        """Whether integers are shown with a display width."""
        return not self.has("bare_integers")


@attrs.frozen
class CharsetChoice:
    """The charset of a column or table: by name, by collation, or the default."""

    charset: str | None = None
    #: Selects the default: a collation for any charset, or DEFAULT.
    is_default: bool = False
    #: In lower case, or "".
    collation: str = ""

    def over(self, default: str | None) -> str | None:
        return self.charset or default


@attrs.frozen
class ColumnType:
    """A data type with arguments, after resolving synonyms."""

    base: str
    length: int | None = None
    scale: int | None = None
    #: Labels as written: text or bytes.
    labels: tuple[str | bytes, ...] | None = None
    unsigned: bool = False
    zerofill: bool = False
    compressed: bool = False
    #: A charset implied by the type, such as NCHAR's.
    charset: str | None = None

    @property
    def is_json(self) -> bool:
        """Whether it was written as JSON, which MariaDB converts to LONGTEXT."""
        return self.base == "json" or self.charset == "utf8mb4"  # no other type implies utf8mb4


@attrs.frozen
class ColumnDefinition:
    """A column definition. ``nullable`` is None if the text does not specify it."""

    name: str
    type: ColumnType
    charset: CharsetChoice | None = None
    nullable: bool | None = None
    visible: bool = True
    #: START or END of AS ROW START and AS ROW END, in a system-versioned table.
    row_bound: str = ""
    virtual: bool = False
    auto_increment: bool = False
    #: Whether it has a default other than NULL, or is computed.
    has_value: bool = False
    #: Lower-case words in the column's expression, including column names.
    made_of: frozenset[str] = frozenset()

    def fills(self, dialect: Dialect) -> bool:
        """Return whether the column may be non-NULL in rows that exist when it is added."""
        is_null = self.nullable is not False and (self.type.base != "timestamp" or self.nullable or dialect.explicit_defaults)
        return self.has_value or bool(self.row_bound) or not is_null


@attrs.frozen
class Key:
    """An index with (column, prefix length) pairs. A name of "" lets the server choose; expressions have the column ""."""

    name: str
    unique: bool
    columns: tuple[tuple[str, int | None], ...]
    #: USING HASH, which creates a hidden column on MariaDB.
    hash: bool = False
    #: IF NOT EXISTS was given.
    conditional: bool = False
    #: The period of WITHOUT OVERLAPS, until it is resolved to columns.
    period: str = ""

    @property
    def is_primary(self) -> bool:
        return self.name == PRIMARY


@attrs.define
class Body:
    """The columns and keys in a CREATE TABLE or ADD."""

    columns: list[ColumnDefinition] = attrs.field(factory=list)
    keys: list[Key] = attrs.field(factory=list)
    #: Start and end column of each period, by lower-case name; both are NOT NULL.
    periods: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    #: Whether a column is WITH SYSTEM VERSIONING, which makes the table versioned.
    versioned: bool = False


@attrs.define
class TableOptions:
    """The options after the body of a CREATE TABLE."""

    charset: CharsetChoice | None = None
    versioned: bool = False
    #: Whether a query adds further columns.
    queried: bool = False
    #: In lower case, or "".
    engine: str = ""
    partitioned: bool = False
