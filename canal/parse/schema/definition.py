"""What the text of a CREATE TABLE or ALTER TABLE says about columns and keys, read from the tokens of a Scanner.

Never knows a table and never guesses: what is not understood to the last word raises NotUnderstoodError.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from canal.binlog.server_facts import Release
from canal.parse.schema.scanner import END, NAME, STRING, WORD, Scanner
from canal.rows.charsets import MAX_CHAR_BYTES, WIDE, encoded, is_charset, label_text
from canal.schema import UNTOLD, ColumnSchema, as_binary, charset_name, column_from_text, is_sure

#: Bits of sql_mode that change what a type means.
REAL_AS_FLOAT, ORACLE, MAXDB, NO_BACKSLASH_ESCAPES = 1, 1 << 9, 1 << 12, 1 << 20
#: Schemas that stand before a type in MariaDB, and the sql_mode by which the type is read then.
_TYPE_SCHEMAS = {"mariadb_schema": 0, "oracle_schema": ORACLE, "maxdb_schema": MAXDB}

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
class Options:
    """What follows the brackets of a CREATE TABLE."""

    charset: CharsetChoice | None = None
    versioned: bool = False
    #: A query gives further columns.
    queried: bool = False
    #: In lower case, "" where none is named.
    engine: str = ""
    partitioned: bool = False


# -- words -------------------------------------------------------------------------------------------------------------


def expect(scan: Scanner, *keys: str) -> str:
    found = scan.accept(*keys)
    if not found:
        raise NotUnderstoodError(f"{scan.peek()[1]!r} where {' or '.join(keys)} should stand")
    return found


def name(scan: Scanner) -> str:
    if not scan.at_name():
        raise NotUnderstoodError("no name where one should stand")
    return scan.take()[1]


def column_name(scan: Scanner) -> str:
    """A column's name; servers but MySQL 8.0 and later take table.column and schema.table.column too."""
    found = name(scan)
    while scan.accept("."):
        found = name(scan)
    return found


def number(scan: Scanner) -> int:
    text = scan.take()[1]
    digits = text.lstrip("0") or "0"
    if not text.isascii() or not text.isdigit() or len(digits) > 20:  # int() has a limit of its own
        raise NotUnderstoodError(f"{text[:20]!r} is no number, or a very large one")
    return int(digits)


def group(scan: Scanner) -> frozenset[str]:
    """Pass over a group in brackets, which begins here and has an end. Return its words and names in lower case."""
    if scan.peek()[2] != "(":
        raise NotUnderstoodError("no bracket where one should stand")
    depth, words = 0, set()
    while True:
        kind, text, key = scan.take()
        if kind == END:
            raise NotUnderstoodError("a bracket that does not close")
        if kind in (WORD, NAME):
            words.add(text.lower())
        depth += (key == "(") - (key == ")")
        if not depth:
            return frozenset(words)


_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}


def string(scan: Scanner, dialect: Dialect) -> str:
    """A quoted string's value."""
    kind, text, key = scan.take()
    if kind != STRING:
        raise NotUnderstoodError("no string where one should stand")
    if key != '"':
        text = text.replace("''", "'") if dialect.sql_mode & NO_BACKSLASH_ESCAPES else _SINGLE.sub(_unescape, text)
    elif not dialect.sql_mode & NO_BACKSLASH_ESCAPES:
        text = _BACKSLASH.sub(_unescape, text)
    return text


_BACKSLASH = re.compile(r"\\(.)", re.DOTALL)
_SINGLE = re.compile(r"''|\\(.)", re.DOTALL)


def _unescape(found: re.Match[str]) -> str:
    return "'" if found[1] is None else _ESCAPES.get(found[1], found[1])


def maybe_charset(scan: Scanner) -> CharsetChoice | None:
    """CHARACTER SET x, CHARSET x or COLLATE x, with or without DEFAULT and =, if one comes next."""
    ahead = 1 if scan.peek()[2] == "DEFAULT" else 0
    key = scan.peek(ahead)[2]
    if key in ("CHARACTER", "CHAR") and scan.peek(ahead + 1)[2] == "SET":
        words = ahead + 2
    elif key in ("CHARSET", "COLLATE"):
        words = ahead + 1
    else:
        return None
    for _ in range(words):
        scan.take()
    scan.accept("=")
    if scan.accept("DEFAULT"):
        return CharsetChoice(is_default=True)
    kind, text, _ = scan.take()
    if kind not in (WORD, NAME, STRING):
        raise NotUnderstoodError("no charset where one should stand")
    return of_collation(text) if key == "COLLATE" else CharsetChoice(known_charset(text))


def known_charset(text: str) -> str:
    charset = charset_name(text.lower())
    if not is_charset(charset):
        raise NotUnderstoodError(f"unknown charset {text!r}")
    return charset


def of_collation(text: str) -> CharsetChoice:
    """MariaDB's uca1400_… collations go with any charset, so they do not name one."""
    collation = text.lower()
    charset = None if collation.startswith("uca1400") else known_charset(collation.partition("_")[0])
    return CharsetChoice(charset, collation=collation)


def join_choices(first: CharsetChoice | None, second: CharsetChoice | None) -> CharsetChoice | None:
    """A charset and a collation, in any order: what names one wins over what leaves the default."""
    if first is None or second is None:
        return first or second
    return second if second.charset else first


# -- types -------------------------------------------------------------------------------------------------------------

_INTEGERS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
_BLOB_SIZES = (("tiny", 0xFF), ("", 0xFFFF), ("medium", 0xFFFFFF), ("long", 0xFFFFFFFF))
_PLAIN = frozenset(
    "tinyint smallint mediumint int bigint float double decimal bit year date time datetime timestamp char varchar "
    "binary varbinary tinytext text mediumtext longtext tinyblob blob mediumblob longblob enum set json geometry point "
    "linestring polygon multipoint multilinestring multipolygon geometrycollection vector uuid inet4 inet6".split()
)
#: As the servers spell them.
GEOMETRIES = frozenset(
    "geometry point linestring polygon multipoint multilinestring multipolygon geometrycollection geomcollection".split()
)
_SYNONYMS = {
    "integer": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint",
    "int4": "int", "int8": "bigint", "float4": "float", "float8": "double", "numeric": "decimal", "dec": "decimal",
    "fixed": "decimal", "geomcollection": "geometrycollection", "character": "char", "varcharacter": "varchar",
}  # fmt: skip
_MARIADB_SYNONYMS = {"clob": "longtext", "raw": "varbinary", "varchar2": "varchar", "number": "decimal"}
_MARIADB_ONLY = frozenset(("uuid", "inet4", "inet6"))
_WITH_LENGTH = frozenset(
    "bit year time datetime timestamp char varchar binary varbinary text blob vector".split()
) | _INTEGERS.keys()
_WITH_SCALE = frozenset(("float", "double", "decimal"))
#: Types that take UNSIGNED, which says nothing of a YEAR.
_SIGNED = _INTEGERS.keys() | _WITH_SCALE | {"year"}


def read_type(scan: Scanner, dialect: Dialect) -> ColumnType:
    """A data type with its arguments; UNSIGNED and the like come with the attributes."""
    if scan.peek()[0] != WORD:
        raise NotUnderstoodError("no type where one should stand")
    word = scan.take()[2].lower()
    if dialect.is_mariadb and word in _TYPE_SCHEMAS and scan.accept("."):
        if scan.peek()[2] in ("DATE", "TIMESTAMP"):  # other types are read as without it
            dialect = attrs.evolve(dialect, sql_mode=dialect.sql_mode & ~(ORACLE | MAXDB) | _TYPE_SCHEMAS[word])
        return read_type(scan, dialect)
    if word in ("enum", "set"):
        return ColumnType(word, labels=_labels(scan, dialect))
    if word in ("bool", "boolean"):
        return ColumnType("tinyint", 1)
    if word == "serial":
        return ColumnType("bigint", unsigned=True)
    if word == "json":
        return ColumnType("longtext", charset="utf8mb4") if dialect.is_mariadb else ColumnType("json")
    if word == "long":
        return ColumnType("mediumblob" if scan.accept("VARBINARY") else _long_text(scan))
    base, charset = _base(scan, word, dialect)
    length = scale = None
    if scan.peek()[2] == "(":
        length, scale = _arguments(scan, base)
    return ColumnType(base, length, scale, charset=charset)


def _base(scan: Scanner, word: str, dialect: Dialect) -> tuple[str, str | None]:
    if word in ("nchar", "national"):
        wide = word == "nchar" and bool(scan.accept("VARCHAR", "VARCHARACTER"))
        if word == "national":
            wide = expect(scan, "CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER").startswith("VAR")
        return "varchar" if wide or scan.accept("VARYING") else "char", "utf8mb3"
    if word == "nvarchar":
        return "varchar", "utf8mb3"
    if word == "double":
        scan.accept("PRECISION")
        return word, None
    if word == "real":
        return "float" if dialect.sql_mode & REAL_AS_FLOAT else "double", None
    if dialect.is_mariadb and dialect.sql_mode & ORACLE and word in ("date", "blob", "number"):
        if word == "number":
            return "decimal" if scan.peek()[2] == "(" else "double", None
        return "datetime" if word == "date" else "longblob", None
    if word == "timestamp" and dialect.sql_mode & MAXDB:
        return "datetime", None
    base = _SYNONYMS.get(word, word)
    if dialect.is_mariadb:
        base = _MARIADB_SYNONYMS.get(base, base)
    if base not in _PLAIN or (base in _MARIADB_ONLY and not dialect.is_mariadb):
        raise NotUnderstoodError(f"unknown type {word!r}")
    if base == "char" and scan.accept("VARYING"):
        base = "varchar"
    return base, None


def _long_text(scan: Scanner) -> str:
    """LONG, LONG VARCHAR and LONG CHAR VARYING are all the same type."""
    if scan.peek()[2] in ("CHAR", "CHARACTER") and scan.peek(1)[2] == "VARYING":
        scan.take()
        scan.take()
    else:
        scan.accept("VARCHAR", "VARCHARACTER")
    return "mediumtext"


def _labels(scan: Scanner, dialect: Dialect) -> tuple[str | bytes, ...]:
    expect(scan, "(")
    labels = [_label(scan, dialect)]
    while expect(scan, ",", ")") == ",":
        labels.append(_label(scan, dialect))
    return tuple(labels)


def _label(scan: Scanner, dialect: Dialect) -> str | bytes:
    """A member: a text, or the bytes of x'61', 0x61, b'1100001' or 0b1100001."""
    kind, text, key = scan.peek()
    if kind != WORD:
        return string(scan, dialect)
    scan.take()
    digits = scan.take()[1] if key in ("X", "B") and scan.peek()[0] == STRING else text[2:] if text[:2] in ("0x", "0b") else ""
    try:
        number = int(digits, 16 if "X" in key[:2] else 2)
    except ValueError:
        raise NotUnderstoodError("no string where one should stand") from None
    return number.to_bytes((len(digits) * (4 if "X" in key[:2] else 1) + 7) // 8, "big")


#: A label that is the same text in every charset.
_SAME_LABEL = re.compile("([ -?A-Z_a-z]*[!-?A-Z_a-z])?")


def stored_label(label: str | bytes, charset: str, dialect: Dialect) -> str:
    """A member as a column of this charset keeps it: text comes by the charset of the session, and loses trailing blanks."""
    if charset == UNTOLD:
        if isinstance(label, str) and _SAME_LABEL.fullmatch(label):
            return label
        raise NotUnderstoodError("a member, and the default charset is not known")
    if charset == "filename" and not (isinstance(label, str) and re.fullmatch(r"\w*", label, re.ASCII)):
        raise NotUnderstoodError("a member in the charset of file names")
    if isinstance(label, str) and dialect.connection_charset == "binary":
        label = label.encode("utf-8", "surrogateescape")
    if isinstance(label, bytes):
        width = WIDE.get(charset, 1)
        if width > 1 and not dialect.has("wide_labels"):
            raise NotUnderstoodError("bytes of a wide charset")
        found = label_text(label.rjust(-(-len(label) // width) * width, b"\0"), charset)
    elif not is_sure(label):
        return label
    else:
        raw = encoded(label, dialect.connection_charset)
        if charset != "binary":
            raw = encoded(label_text(raw, dialect.connection_charset), charset)
        found = label_text(raw, charset)
    return found if charset == "binary" else found.rstrip(" ")


def _arguments(scan: Scanner, base: str) -> tuple[int, int | None]:
    if base not in _WITH_LENGTH and base not in _WITH_SCALE:
        raise NotUnderstoodError(f"{base} takes no arguments")
    scan.take()
    length, scale = 0 if scan.peek()[2] == "." else number(scan), None
    if scan.accept("."):  # the servers cut it off: DECIMAL(19.5) is DECIMAL(19)
        if scan.peek()[2] != ")":
            number(scan)
    elif base in _WITH_SCALE and scan.accept(","):
        scale = number(scan)
    expect(scan, ")")
    return length, scale


def type_text(found: ColumnType, dialect: Dialect, charset: str | None) -> str:
    """The type as information_schema spells it, in a column of this charset."""
    base, length = found.base, found.length
    if base in _INTEGERS:
        return _integer_text(found, dialect)
    if base in _WITH_SCALE:
        return _fraction_text(found)
    if found.labels is not None:
        return base + "(" + ",".join(_quoted(str(label)) for label in found.labels) + ")"
    if base == "year":
        return ("year(2)" if length == 2 and dialect.is_mariadb else "year(4)") if dialect.has_widths else "year"
    if base in ("time", "datetime", "timestamp"):
        return f"{base}({length})" if length else base
    if base == "geometrycollection":
        return "geomcollection" if dialect.has("geomcollection") else base
    if base == "vector":
        return f"vector({2048 if length is None else length})"
    if base == "bit":
        return f"bit({length or 1})"
    return _character_text(found, dialect, charset)


def _integer_text(found: ColumnType, dialect: Dialect) -> str:
    unsigned = found.unsigned or found.zerofill
    text = found.base
    if dialect.has_widths or found.zerofill or (text == "tinyint" and found.length == 1 and not unsigned):
        text += f"({found.length or _INTEGERS[text][unsigned]})"
    return text + " unsigned" * unsigned + " zerofill" * found.zerofill


def _fraction_text(found: ColumnType) -> str:
    base, length, scale = found.base, found.length, found.scale
    if base == "decimal":
        text = f"decimal({length or 10},{scale or 0})"
    elif length is not None and scale is not None:
        text = f"{base}({length},{scale})"
    elif base == "float":
        text = "double" if (length or 0) > 24 else "float"
    elif length is not None:
        raise NotUnderstoodError("a DOUBLE with a length and no scale")
    else:
        text = base
    return text + " unsigned" * (found.unsigned or found.zerofill) + " zerofill" * found.zerofill


def _quoted(label: str) -> str:
    """A member as the servers print it."""
    for char, escape in (("\\", "\\\\"), ("\0", "\\0"), ("\n", "\\n"), ("\r", "\\r"), ("'", "''")):
        label = label.replace(char, escape)
    return f"'{label}'"


def _character_text(found: ColumnType, dialect: Dialect, charset: str | None) -> str:
    base, length = found.base, found.length
    if charset == "binary":
        base = {"char": "binary", "varchar": "varbinary"}.get(base, re.sub("text$", "blob", base))
    width = _ANY_BYTES if charset == UNTOLD else char_bytes(charset)
    if base in ("char", "binary"):
        length = 1 if length is None else length
        if length > 255:
            raise NotUnderstoodError(f"a {base} of {length}")
    elif base in ("varchar", "varbinary"):
        if length is None:
            raise NotUnderstoodError(f"a {base} without a length")
        if length * width > longest_varchar(dialect):  # outside of strict mode
            if charset == UNTOLD:
                raise NotUnderstoodError("how long a VARCHAR is, and the default charset is not known")
            base, length = blob_of(length * width, "text" if base == "varchar" else "blob"), None
    elif length is not None and base in ("text", "blob"):
        if charset == UNTOLD and blob_of(length, base) != blob_of(length * width, base):
            raise NotUnderstoodError("how long a TEXT is, and the default charset is not known")
        # TEXT(0) is a TINYTEXT on MySQL, a TEXT on MariaDB.
        base, length = blob_of(length * width, base) if length or not dialect.is_mariadb else base, None
    return (f"{base}({length})" if length is not None else base) + " /*M!100301 COMPRESSED*/" * found.compressed


#: The most bytes that a character takes in any charset.
_ANY_BYTES = max(MAX_CHAR_BYTES.values())


def char_bytes(charset: str | None) -> int:
    """The most bytes that a character takes."""
    if charset == UNTOLD:
        raise NotUnderstoodError("the default charset is not known")
    return MAX_CHAR_BYTES.get(charset or "", 1)


def longest_varchar(dialect: Dialect) -> int:
    """Bytes of the longest VARCHAR or VARBINARY; a longer one becomes a TEXT or BLOB outside of strict mode."""
    return 0xFFFC if dialect.has("short_varchars") else 0xFFFF


def text_size(base: str) -> int:
    """Bytes that a TEXT or BLOB type holds."""
    return dict(_BLOB_SIZES)[base[:-4]]


def blob_of(size: int, kind: str) -> str:
    """The smallest TEXT or BLOB type for so many bytes."""
    return next((prefix for prefix, most in _BLOB_SIZES if size <= most), "long") + kind


def converted_type(text: str, old: str | None, new: str, dialect: Dialect) -> str:
    """The type that CONVERT TO makes of a text column's, so that it still has room for as many characters.

    MySQL 9.7 makes a TEXT, which may have less room, of every VARCHAR that gets too long and whose charset was a wide one.
    """
    base = re.match("[a-z]*", text)[0]  # type: ignore[index]
    width = char_bytes(new)
    if base.endswith("text"):
        made = blob_of(text_size(base) // char_bytes(old) * width, "text")
        text = made + text[len(base) :]
    elif base == "varchar":
        size = int(text[len("varchar(") : text.index(")")]) * width
        if size > longest_varchar(dialect):
            is_unsure = char_bytes(old) > 1 and dialect.has("wide_varchar_may_become_text")
            if is_unsure and not dialect.has("wide_varchar_becomes_text"):
                raise NotUnderstoodError("which TEXT a VARCHAR becomes")
            text = ("text" if is_unsure else blob_of(size, "text")) + text[text.index(")") + 1 :]
    return as_binary(text) if new == "binary" else text


_CHARACTER = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"))


def resolve(column: ColumnDefinition, dialect: Dialect, default: str | None, *, forced: bool = False) -> ColumnSchema:
    """The column as the server makes it where ``default`` is the charset of columns that name none.

    ``forced``: of all text columns, as CONVERT TO in the same statement has it.
    """
    charset: str | None = None
    base = column.type.base
    if base in _CHARACTER:
        charset = column.type.charset or (column.charset.over(default) if column.charset else default)
        if forced and charset != "binary":
            charset = default
        if charset is None and not dialect.has("row_metadata"):
            raise NotUnderstoodError("a text column, and the default charset is not known")
        charset = charset or UNTOLD
    labels = None
    if column.type.labels is not None:
        assert charset is not None
        labels = tuple(stored_label(label, charset, dialect) for label in column.type.labels)
    text = type_text(attrs.evolve(column.type, labels=labels), dialect, charset)
    if charset == "binary" and (base not in ("enum", "set") or not dialect.is_mariadb):
        charset = None
    nullable = column.nullable
    if nullable is None:
        nullable = not column.row_bound
        if base == "timestamp" and nullable:
            nullable = dialect.explicit_defaults
    made = column_from_text(
        column.name, text, charset=charset, nullable=nullable, visible=column.visible, virtual=column.virtual
    )
    return attrs.evolve(made, labels=labels)


# -- column definitions ------------------------------------------------------------------------------------------------


def read_column(scan: Scanner, dialect: Dialect, body: Body) -> ColumnDefinition:
    """A name, a type and attributes, up to what ends the definition; its keys go to ``body``."""
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
    """The attributes of one column, in any order; every word of them is accounted for."""

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
    #: Names of the keys that the attributes ask for, each once.
    keys: dict[str, None] = attrs.field(factory=dict)
    counts: bool = False
    has_value: bool = False
    made_of: frozenset[str] = frozenset()

    def column(self) -> ColumnDefinition:
        return ColumnDefinition(
            self.name, self.type, self.charset, self.nullable, self.visible, self.row_bound, self.virtual, self.counts,
            self.has_value, self.made_of,
        )  # fmt: skip

    def key(self, unique: bool) -> None:
        self.keys["" if unique else PRIMARY] = None
        if not unique:
            self.nullable = False

    def own_keys(self) -> list[Key]:
        """Beside a primary key of the column MariaDB makes no unique one."""
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
            elif kind in (WORD, NAME) and self.scan.peek(1)[2] == "=":  # an engine's own attribute
                self.scan.take()
                self.scan.take()
                self.scan.take()
            else:
                raise NotUnderstoodError(f"unknown column attribute {key or kind}")

    def _at_partitioning(self) -> bool:
        key = self.scan.peek()[2]
        return (key == "PARTITION" and self.scan.peek(1)[2] == "BY") or key == "REMOVE"

    def unsigned(self) -> None:
        if self.type.base not in _SIGNED:
            raise NotUnderstoodError(f"an unsigned {self.type.base}")
        self.type = attrs.evolve(self.type, unsigned=True)

    def zerofill(self) -> None:
        if self.type.base not in _SIGNED:
            raise NotUnderstoodError(f"a zerofill {self.type.base}")
        self.type = attrs.evolve(self.type, zerofill=True)

    def compressed(self) -> None:
        self.type = attrs.evolve(self.type, compressed=True)
        if self.scan.accept("="):
            self.scan.take()

    def names(self, charset: str) -> None:
        self.charset = CharsetChoice(charset)

    def binary(self) -> None:
        """The charset's binary collation: CHAR(5) BINARY is no BINARY(5)."""

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
        """SERIAL DEFAULT VALUE, which stands for NOT NULL AUTO_INCREMENT UNIQUE."""
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
        group(self.scan)

    def constraint(self) -> None:
        if self.scan.peek()[2] != "CHECK":
            name(self.scan)

    def generated(self) -> None:
        expect(self.scan, "ALWAYS")
        expect(self.scan, "AS")
        self.expression()

    def expression(self) -> None:
        if self.scan.accept("ROW"):
            self.row_bound = expect(self.scan, "START", "END")
        else:
            self.made_of = group(self.scan)
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


_AFTER_POINT = re.compile("[0-9]+(E[0-9]*)?|E[0-9]*")


def pass_value(scan: Scanner) -> None:
    """A default or an option's value: a literal, a function's call, NEXT VALUE FOR a sequence, or an expression in brackets."""
    scan.accept("+", "-")
    if scan.peek()[2] == "(":
        group(scan)
        return
    if scan.accept("{"):  # {d '2026-01-01'}
        while scan.peek()[0] != END and not scan.accept("}"):
            scan.take()
        return
    kind, _, key = scan.take()
    if kind == END or key in (",", ")", ";"):
        raise NotUnderstoodError("no value where one should stand")
    if key == "CASE":
        _pass_case(scan)
        return
    if key == "@":
        scan.accept("@")
        key = name(scan)
    if kind == WORD and key[:1] == "_" and (scan.peek()[1][:2] in ("0x", "0b") or scan.peek()[2] in ("X", "B")):
        scan.take()  # of _latin1 0x61 or _latin1 x'61'
    if key in ("NEXT", "PREVIOUS") and scan.accept("VALUE"):
        expect(scan, "FOR")
        key = name(scan)
    if key == "." or key[:1].isdigit():
        _pass_number(scan, key)
        return
    while scan.accept("."):
        name(scan)
    if scan.peek()[2] == "(":
        group(scan)
    while scan.peek()[0] == STRING:  # _utf8mb4'x', x'00' and adjacent strings
        scan.take()


def _pass_case(scan: Scanner) -> None:
    """The rest of CASE … END, whose first word is taken."""
    while not scan.accept("END"):
        kind, _, key = scan.peek()
        if kind == END or key in (";", ")"):
            raise NotUnderstoodError("a CASE that does not end")
        if key == "(":
            group(scan)
        elif scan.take()[2] == "CASE":
            _pass_case(scan)


def _pass_number(scan: Scanner, key: str) -> None:
    """The rest of 1.5e-3, .5 or 1., whose first token is taken."""
    if (key == "." or scan.accept(".")) and _AFTER_POINT.fullmatch(scan.peek()[2]):
        key = scan.take()[2]
    if key[-1:] == "E" and scan.accept("+", "-"):
        number(scan)


def pass_references(scan: Scanner) -> None:
    """The rest of REFERENCES t (c) MATCH … ON DELETE … ON UPDATE …."""
    if scan.table("") is None:
        raise NotUnderstoodError("no table where one should stand")
    if scan.peek()[2] == "(":
        group(scan)
    if scan.accept("MATCH"):
        expect(scan, "FULL", "PARTIAL", "SIMPLE")
    while scan.peek()[2] == "ON" and scan.peek(1)[2] in ("DELETE", "UPDATE"):
        scan.take()
        scan.take()
        action = expect(scan, "RESTRICT", "CASCADE", "SET", "NO")
        if action in ("SET", "NO"):
            expect(scan, "NULL", "DEFAULT", "ACTION")


# -- keys --------------------------------------------------------------------------------------------------------------

_KEY_WORDS = ("KEY", "INDEX")
_KEY_STARTS = frozenset(
    ("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK", "PERIOD", "VECTOR")
)


def at_key(scan: Scanner) -> bool:
    """Whether a key, a constraint or a period begins here, not a column."""
    key, after = scan.peek()[2], scan.peek(1)[2]
    if key == "PERIOD":
        return after == "FOR"
    if key == "VECTOR":
        return after in (*_KEY_WORDS, "(")
    return key in _KEY_STARTS


def read_key(scan: Scanner, dialect: Dialect, body: Body) -> None:
    """A key, a constraint or a period, whole."""
    named = ""
    if scan.accept("CONSTRAINT"):
        _if_not_exists(scan)
        if scan.peek()[2] not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            named = name(scan)
    word = scan.take()[2]
    if word == "PERIOD":
        return _period(scan, body)
    if word == "CHECK":
        group(scan)
        scan.accept("NOT")
        scan.accept("ENFORCED")
        return None
    if word == "FOREIGN":
        return _foreign_key(scan)
    if word not in ("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "VECTOR"):
        raise NotUnderstoodError(f"unknown constraint {word}")
    if word == "PRIMARY":
        expect(scan, "KEY")
        named = PRIMARY
    elif word not in _KEY_WORDS:
        scan.accept(*_KEY_WORDS)
    conditional = _if_not_exists(scan)
    own = "" if _at_key_columns(scan) else name(scan)
    unique = word in ("PRIMARY", "UNIQUE")
    body.keys.append(read_key_rest(scan, named if word == "PRIMARY" else own or named, unique, conditional))
    return None


def read_key_rest(scan: Scanner, named: str, unique: bool, conditional: bool) -> Key:
    """A key from its USING or its columns on."""
    is_hash = _using(scan)
    columns, period = _key_columns(scan)
    is_hash = key_options(scan) or is_hash
    return Key(named, unique, columns, is_hash and named != PRIMARY, conditional, period)


def _using(scan: Scanner) -> bool:
    return bool(scan.accept("USING", "TYPE")) and scan.take()[2] == "HASH"


def _if_not_exists(scan: Scanner) -> bool:
    if scan.peek()[2] == "IF" and scan.peek(1)[2] == "NOT" and scan.peek(2)[2] == "EXISTS":
        for _ in range(3):
            scan.take()
        return True
    return False


def _at_key_columns(scan: Scanner) -> bool:
    return scan.peek()[2] == "(" or (scan.peek()[2] in ("USING", "TYPE") and scan.peek(1)[2] != "(")


def _key_columns(scan: Scanner) -> tuple[tuple[tuple[str, int | None], ...], str]:
    """The columns of a key with their prefix lengths ("" stands for an expression), and the period WITHOUT OVERLAPS or ""."""
    expect(scan, "(")
    columns: list[tuple[str, int | None]] = []
    while True:
        part = _key_part(scan)
        if scan.accept_all("WITHOUT", "OVERLAPS"):
            expect(scan, ")")
            return tuple(columns), part[0]
        columns.append(part)
        if expect(scan, ",", ")") == ")":
            return tuple(columns), ""


def _key_part(scan: Scanner) -> tuple[str, int | None]:
    if scan.peek()[2] == "(":
        group(scan)
        part: tuple[str, int | None] = ("", None)
    else:
        named, length = name(scan), None
        if scan.accept("("):
            length = number(scan)
            expect(scan, ")")
        part = (named, length)
    scan.accept("ASC", "DESC")
    return part


_KEY_OPTIONS = ("KEY_BLOCK_SIZE", "WAIT", "NOWAIT", "WITH", "COMMENT", "VISIBLE", "INVISIBLE", "IGNORED", "NOT",
                "CLUSTERING", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE")  # fmt: skip


def key_options(scan: Scanner) -> bool:
    """Pass over a key's options; whether USING HASH is among them."""
    is_hash = False
    while True:
        if scan.peek()[2] in ("USING", "TYPE"):
            is_hash = _using(scan)
            continue
        key = scan.accept(*_KEY_OPTIONS)
        if key in ("KEY_BLOCK_SIZE", "COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
            scan.accept("=")
            scan.take()
        elif key == "WAIT":
            number(scan)
        elif key == "WITH":
            expect(scan, "PARSER")
            scan.take()
        elif key == "NOT":
            expect(scan, "IGNORED")
        elif key == "CLUSTERING":
            if scan.accept("="):
                scan.take()
        elif not key:
            if scan.peek()[0] not in (WORD, NAME) or scan.peek(1)[2] != "=" or scan.peek()[2] in ("ALGORITHM", "LOCK"):
                return is_hash
            for _ in range(3):  # an engine's own option of the key, such as M=8 of a vector index
                scan.take()


def _foreign_key(scan: Scanner) -> None:
    expect(scan, "KEY")
    _if_not_exists(scan)
    if scan.peek()[2] != "(":
        name(scan)
    group(scan)
    expect(scan, "REFERENCES")
    pass_references(scan)


def _period(scan: Scanner, body: Body) -> None:
    expect(scan, "FOR")
    _if_not_exists(scan)
    period = name(scan).lower()
    expect(scan, "(")
    start = name(scan)
    expect(scan, ",")
    body.periods[period] = start, name(scan)
    expect(scan, ")")


def read_body(scan: Scanner, dialect: Dialect) -> Body:
    """The brackets of a CREATE TABLE or of an ADD, the opening one taken."""
    body = Body()
    while True:
        if at_key(scan):
            read_key(scan, dialect, body)
        else:
            body.columns.append(read_column(scan, dialect, body))
        if expect(scan, ",", ")") == ")":
            return body


# -- table options -----------------------------------------------------------------------------------------------------


def create_options(scan: Scanner) -> Options:
    """What follows the columns of a CREATE TABLE, up to its end or its query."""
    found = Options()
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
            group(scan)
        elif key == "ENGINE":
            found.engine = engine_name(scan)
        elif key == "PARTITION":
            scan.take()
            found.partitioned = True
        elif scan.take()[2] and scan.accept("="):
            if scan.peek()[2] == "(":  # UNION=(t1,t2)
                group(scan)
            else:
                scan.take()
    return found


def engine_name(scan: Scanner) -> str:
    """What ENGINE, which comes next, names, in lower case."""
    scan.take()
    scan.accept("=")
    found = scan.take()[1].lower()
    return "memory" if found == "heap" else found


_QUERY_STARTS = frozenset(("AS", "SELECT", "VALUES", "TABLE", "WITH", "IGNORE", "REPLACE"))


def database_charset(scan: Scanner) -> CharsetChoice | None:
    """The charset among the options of a CREATE or ALTER DATABASE."""
    found = None
    while not scan.at_end():
        choice = maybe_charset(scan)
        if choice is None:
            scan.take()
        else:
            found = join_choices(found, choice)
    return found
