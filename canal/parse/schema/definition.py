"""Parses column definitions and table options of a CREATE TABLE or ALTER TABLE.

Never guesses: a text that is not fully understood raises NotUnderstoodError.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from canal.parse.schema.column_types import SIGNED, read_type
from canal.parse.schema.key_definition import at_key, read_key
from canal.parse.schema.parts import (
    PRIMARY,
    Body,
    CharsetChoice,
    ColumnDefinition,
    ColumnType,
    Dialect,
    Key,
    NotUnderstoodError,
    TableOptions,
)
from canal.parse.schema.scanner import END, NAME, WORD, Scanner
from canal.parse.schema.words import (
    column_name,
    expect,
    join_choices,
    maybe_charset,
    pass_references,
    pass_value,
    take_group,
    take_name,
)


def read_column(scan: Scanner, dialect: Dialect, body: Body) -> ColumnDefinition:
    """Parse a name, a type and attributes. Keys are added to ``body``."""
    return read_definition(scan, dialect, body, column_name(scan))


def read_definition(scan: Scanner, dialect: Dialect, body: Body, named: str) -> ColumnDefinition:
    serial = scan.peek()[2] == "SERIAL"
    reader = _ColumnReader(scan, dialect, body, named, read_type(scan, dialect))
    if serial:
        reader.auto_increment()
        reader.key(unique=True)
    reader.read()
    body.keys += reader.own_keys()
    return reader.column()


@attrs.define
class _ColumnReader:
    """Parses the attributes of a column, in any order. Every word must be understood."""

    scan: Scanner
    dialect: Dialect
    body: Body
    name: str
    type: ColumnType
    charset: CharsetChoice | None = None
    nullable: bool | None = None
    visible: bool = True
    row_bound: str = ""
    virtual: bool = False
    #: Names of the keys that the attributes create, without duplicates.
    keys: dict[str, None] = attrs.field(factory=dict)
    counts: bool = False
    has_value: bool = False
    made_of: frozenset[str] = frozenset()

    def column(self) -> ColumnDefinition:
        return ColumnDefinition(
            self.name,
            self.type,
            self.charset,
            self.nullable,
            self.visible,
            self.row_bound,
            self.virtual,
            self.counts,
            self.has_value,
            self.made_of,
        )

    def key(self, unique: bool) -> None:
        self.keys["" if unique else PRIMARY] = None
        if not unique:
            self.nullable = False

    def own_keys(self) -> list[Key]:
        """Return the column's keys. MariaDB creates no unique key in addition to a primary key."""
        named = [PRIMARY] if self.dialect.is_mariadb and PRIMARY in self.keys else self.keys
        return [Key(one, True, ((self.name, None),)) for one in named]

    def read(self) -> None:
        while True:
            kind, _, key = self.scan.peek()
            if kind == END or key in (",", ")", ";", "FIRST", "AFTER") or self._at_partitioning():
                return
            choice = None if key == "DEFAULT" else maybe_charset(self.scan)
            if choice is not None:
                self.charset = join_choices(self.charset, choice)
                continue
            handler = _ATTRIBUTES.get(key)
            if kind == WORD and handler is not None:
                self.scan.take()
                handler(self)
            elif kind in (WORD, NAME) and self.scan.peek(1)[2] == "=":  # an engine's attribute
                self.scan.take()
                self.scan.take()
                self.scan.take()
            else:
                raise NotUnderstoodError(f"unknown column attribute {key or kind}")

    def _at_partitioning(self) -> bool:
        key = self.scan.peek()[2]
        return (key == "PARTITION" and self.scan.peek(1)[2] == "BY") or key == "REMOVE"

    def unsigned(self) -> None:
        if self.type.base not in SIGNED:
            raise NotUnderstoodError(f"an unsigned {self.type.base}")
        self.type = attrs.evolve(self.type, unsigned=True)

    def zerofill(self) -> None:
        if self.type.base not in SIGNED:
            raise NotUnderstoodError(f"a zerofill {self.type.base}")
        self.type = attrs.evolve(self.type, zerofill=True)

    def compressed(self) -> None:
        self.type = attrs.evolve(self.type, compressed=True)
        if self.scan.accept("="):
            self.scan.take()

    def names(self, charset: str) -> None:
        self.charset = CharsetChoice(charset)

    def binary(self) -> None:
        """Accept the charset's binary collation: CHAR(5) BINARY is not BINARY(5)."""

    def not_(self) -> None:
        if expect(self.scan, "NULL", "SECONDARY", "ENFORCED") == "NULL":
            self.nullable = False

    def null(self) -> None:
        self.nullable = True

    def default(self) -> None:
        self.has_value = self.scan.peek()[2] != "NULL"
        pass_value(self.scan)

    def on(self) -> None:
        expect(self.scan, "UPDATE")
        pass_value(self.scan)

    def auto_increment(self) -> None:
        self.nullable = False
        self.counts = True

    def serial(self) -> None:
        """Parse SERIAL DEFAULT VALUE, which means NOT NULL AUTO_INCREMENT UNIQUE."""
        expect(self.scan, "DEFAULT")
        expect(self.scan, "VALUE")
        self.auto_increment()
        self.key(unique=True)

    def unique(self) -> None:
        self.scan.accept("KEY")
        self.key(unique=True)

    def primary(self) -> None:
        self.scan.accept("KEY")
        self.key(unique=False)

    def only_key(self) -> None:
        self.key(unique=False)

    def value(self) -> None:
        self.scan.accept("=")
        self.scan.take()

    def enclosed(self) -> None:
        take_group(self.scan)

    def constraint(self) -> None:
        if self.scan.peek()[2] != "CHECK":
            take_name(self.scan)

    def generated(self) -> None:
        expect(self.scan, "ALWAYS")
        expect(self.scan, "AS")
        self.expression()

    def expression(self) -> None:
        if self.scan.accept("ROW"):
            self.row_bound = expect(self.scan, "START", "END")
        else:
            self.made_of = take_group(self.scan)
            self.virtual = self.has_value = True

    def stored(self) -> None:
        self.virtual = False

    def references(self) -> None:
        pass_references(self.scan)

    def hidden(self) -> None:
        self.visible = False

    def nothing(self) -> None:
        pass

    def versioned(self) -> None:
        self.not_versioned()
        self.body.versioned = True

    def not_versioned(self) -> None:
        expect(self.scan, "SYSTEM")
        expect(self.scan, "VERSIONING")


_Attribute = Callable[[_ColumnReader], None]
_ATTRIBUTES: dict[str, _Attribute] = {
    "UNSIGNED": _ColumnReader.unsigned,
    "ZEROFILL": _ColumnReader.zerofill,
    "SIGNED": _ColumnReader.nothing,
    "COMPRESSED": _ColumnReader.compressed,
    "ASCII": lambda reader: reader.names("latin1"),
    "UNICODE": lambda reader: reader.names("ucs2"),
    "BYTE": lambda reader: reader.names("binary"),
    "BINARY": _ColumnReader.binary,
    "NOT": _ColumnReader.not_,
    "NULL": _ColumnReader.null,
    "DEFAULT": _ColumnReader.default,
    "ON": _ColumnReader.on,
    "AUTO_INCREMENT": _ColumnReader.auto_increment,
    "SERIAL": _ColumnReader.serial,
    "UNIQUE": _ColumnReader.unique,
    "PRIMARY": _ColumnReader.primary,
    "KEY": _ColumnReader.only_key,
    "COMMENT": _ColumnReader.value,
    "COLUMN_FORMAT": _ColumnReader.value,
    "STORAGE": _ColumnReader.value,
    "SRID": _ColumnReader.value,
    "ENGINE_ATTRIBUTE": _ColumnReader.value,
    "SECONDARY_ENGINE_ATTRIBUTE": _ColumnReader.value,
    "CHECK": _ColumnReader.enclosed,
    "CONSTRAINT": _ColumnReader.constraint,
    "GENERATED": _ColumnReader.generated,
    "AS": _ColumnReader.expression,
    "REFERENCES": _ColumnReader.references,
    "VIRTUAL": _ColumnReader.nothing,
    "STORED": _ColumnReader.stored,
    "PERSISTENT": _ColumnReader.stored,
    "ENFORCED": _ColumnReader.nothing,
    "VISIBLE": _ColumnReader.nothing,
    "INVISIBLE": _ColumnReader.hidden,
    "WITH": _ColumnReader.versioned,
    "WITHOUT": _ColumnReader.not_versioned,
}


def read_body(scan: Scanner, dialect: Dialect) -> Body:
    """Parse the body of a CREATE TABLE or ADD, after the opening parenthesis."""
    body = Body()
    while True:
        if at_key(scan):
            read_key(scan, dialect, body)
        else:
            body.columns.append(read_column(scan, dialect, body))
        if expect(scan, ",", ")") == ")":
            return body


def create_options(scan: Scanner) -> TableOptions:
    """Parse the text after the columns of a CREATE TABLE, up to the end or the query."""
    found = TableOptions()
    while not scan.at_end():
        choice = maybe_charset(scan)
        key, after = scan.peek()[2], scan.peek(1)[2]
        if choice is not None:
            found.charset = join_choices(found.charset, choice)
        elif key == "WITH" and after == "SYSTEM":
            scan.take()
            scan.take()
            expect(scan, "VERSIONING")
            found.versioned = True
        elif key in _QUERY_STARTS or (key == "(" and after in _QUERY_STARTS):
            found.queried = True
            return found
        elif key == "(":
            take_group(scan)
        elif key == "ENGINE":
            found.engine = engine_name(scan)
        elif key == "PARTITION":
            scan.take()
            found.partitioned = True
        elif scan.take()[2] and scan.accept("="):
            if scan.peek()[2] == "(":  # UNION=(t1,t2)
                take_group(scan)
            else:
                scan.take()
    return found


def engine_name(scan: Scanner) -> str:
    """Return the engine of an ENGINE option, in lower case."""
    scan.take()
    scan.accept("=")
    found = scan.take()[1].lower()
    return "memory" if found == "heap" else found


_QUERY_STARTS = frozenset(("AS", "SELECT", "VALUES", "TABLE", "WITH", "IGNORE", "REPLACE"))


def database_charset(scan: Scanner) -> CharsetChoice | None:
    """Return the charset in the options of a CREATE or ALTER DATABASE."""
    found = None
    while not scan.at_end():
        choice = maybe_charset(scan)
        if choice is None:
            scan.take()
        else:
            found = join_choices(found, choice)
    return found
