"""What is known of a table's columns: their names, types, charsets, labels and keys.

Never asks a server and never reads a row: values come from information_schema, table maps or SQL text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from canal.errors import ConfigError

#: The type code that a column of each data type has in a table map; UNKNOWN_TYPE where the name is none of these.
TYPE_CODES = {
    "tinyint": 1, "smallint": 2, "mediumint": 9, "int": 3, "bigint": 8, "float": 4, "double": 5, "decimal": 246,
    "bit": 16, "year": 13, "date": 10, "time": 19, "datetime": 18, "timestamp": 17, "char": 254, "binary": 254,
    "varchar": 15, "varbinary": 15, "tinytext": 252, "text": 252, "mediumtext": 252, "longtext": 252, "tinyblob": 252,
    "blob": 252, "mediumblob": 252, "longblob": 252, "enum": 247, "set": 248, "json": 245, "vector": 242,
    "geometry": 255, "point": 255, "linestring": 255, "polygon": 255, "multipoint": 255, "multilinestring": 255,
    "multipolygon": 255, "geomcollection": 255, "geometrycollection": 255, "uuid": 254, "inet6": 254, "inet4": 254,
}  # fmt: skip
UNKNOWN_TYPE = -1

_TEXT_TYPES = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"))
#: Other spellings, and the one that information_schema uses; the longest first.
_SYNONYMS = (
    ("double precision", "double"), ("national character varying", "varchar"), ("national char varying", "varchar"),
    ("character varying", "varchar"), ("char varying", "varchar"), ("national character", "char"),
    ("national varchar", "varchar"), ("national char", "char"), ("nchar varchar", "varchar"),
    ("nchar varying", "varchar"),
    ("nvarchar", "varchar"), ("nchar", "char"), ("character", "char"), ("long varbinary", "mediumblob"),
    ("long varchar", "mediumtext"), ("varcharacter", "varchar"), ("long", "mediumtext"), ("integer", "int"),
    ("middleint", "mediumint"), ("int1", "tinyint"), ("int2", "smallint"), ("int3", "mediumint"), ("int4", "int"),
    ("int8", "bigint"), ("boolean", "tinyint(1)"), ("bool", "tinyint(1)"), ("numeric", "decimal"), ("dec", "decimal"),
    ("fixed", "decimal"), ("real", "double"), ("float4", "float"), ("float8", "double"),
    ("serial", "bigint unsigned"),
)  # fmt: skip
_ALIASES = re.compile("(?:" + "|".join(re.escape(name) for name, _ in _SYNONYMS) + r")(?![\w])")
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}


@attrs.frozen
class ColumnSchema:
    """One column. ``charset`` is a MySQL charset name, or None or "binary" for bytes; ``column_type`` is the server's
    text.

    ``meta`` is the table map's; 0 where the column comes from anything else. ``key`` says that it is part of the
    primary key. Of a delivered row's column ``nullable`` is never None.
    """

    name: str
    type_code: int = UNKNOWN_TYPE
    meta: int = 0
    #: None: a setting of the server decided, which only table maps tell.
    nullable: bool | None = True
    unsigned: bool = False
    charset: str | None = None
    key: bool = False
    labels: tuple[str, ...] | None = None
    column_type: str = ""
    visible: bool = True
    #: Computed when it is read, as VIRTUAL columns are.
    virtual: bool = False
    #: False: a VIRTUAL column of which the log holds no values to rely on.
    logged: bool = True
    #: MySQL made it for a part of a functional key; before 8.0.18 table maps have it, and rows never do.
    hidden: bool = False
    #: Of a masked column the one that the server has.
    unmasked: ColumnSchema | None = attrs.field(default=None, repr=False)

    @property
    def of_source(self) -> ColumnSchema:
        """The column that the server has, where this one is masked."""
        return self.unmasked or self

    @property
    def is_key(self) -> bool:
        """Whether the column is part of the primary key."""
        return self.key

    @property
    def base_type(self) -> str:
        """The data type's bare name, such as ``int`` or ``varchar``."""
        return self.column_type.partition("(")[0].partition(" ")[0].lower()


@attrs.frozen
class TableSchema:
    """A table's columns in the order of its rows."""

    schema: str
    table: str
    columns: tuple[ColumnSchema, ...]

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self.schema}.{self.table}"

    @property
    def keys(self) -> tuple[ColumnSchema, ...]:
        """The columns of the primary key, in the order of the table."""
        return tuple(column for column in self.columns if column.key)


def column_from_text(
    name: str,
    column_type: str,
    *,
    charset: str | None = None,
    nullable: bool | None = True,
    key: bool = False,
    visible: bool = True,
    virtual: bool = False,
) -> ColumnSchema:
    """Make a column of its type's text, as information_schema or a CREATE TABLE writes it."""
    text = normal_type(column_type)
    base = text.partition("(")[0].partition(" ")[0]
    return ColumnSchema(
        name=name,
        type_code=TYPE_CODES.get(base, UNKNOWN_TYPE),
        nullable=nullable,
        unsigned=" unsigned" in text or " zerofill" in text,
        # MariaDB's JSON is a LONGTEXT in the log; MySQL's own type needs no charset and ignores it.
        charset="utf8mb4" if base == "json" else charset_name(charset) if charset and base in _TEXT_TYPES else None,
        key=key,
        labels=parse_labels(text) if base in ("enum", "set") else None,
        column_type=text,
        visible=visible,
        virtual=virtual,
    )


#: Charsets with characters that the servers' information_schema, in a UTF-8 of 3 bytes, shows as "?"; bytes are "binary" on
#: those that show them so.
_BEYOND_3_BYTES = frozenset(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030", "binary"))


def as_shown(column: ColumnSchema) -> ColumnSchema:
    """A column of information_schema: each "?" of its labels that may stand for another character is not sure."""
    if column.labels is None or column.charset not in _BEYOND_3_BYTES:
        return column
    return attrs.evolve(column, labels=tuple(label.replace("?", unsure_label(b"?")) for label in column.labels))


def unsure_label(label: bytes) -> str:
    """A label, or a part of one, of which it is not known what text it is: the bytes as surrogates from U+DC00 on."""
    return "".join(chr(0xDC00 + byte) for byte in label)


def is_sure(label: str) -> bool:
    """Whether a label is the column's own text."""
    return not any("\udc00" <= char <= "\udcff" for char in label)


def label_bytes(label: str) -> bytes:
    """What is known of a label that is not sure."""
    return b"".join(char.encode() if is_sure(char) else bytes([ord(char) - 0xDC00]) for char in label)


def charset_name(charset: str) -> str:
    """A charset's name as servers of today spell it: before MySQL 8.0.28 and MariaDB 10.6 utf8mb3 was called utf8."""
    return "utf8mb3" if charset == "utf8" else charset


def normal_type(column_type: str) -> str:
    """The type's text as information_schema spells it: lower case outside of quotes, no synonyms."""
    parts = re.split(r"('(?:[^'\\]|''|\\.)*')", column_type.strip(), flags=re.DOTALL)
    parts[::2] = [re.sub(r"\s+", " ", re.sub(r"\s*([(,)])\s*", r"\1", part.lower())) for part in parts[::2]]
    text = "".join(parts)
    text = re.sub(r" ?(/\*m?!\d+ )?\bcompressed(\*/)?$", " /*M!100301 COMPRESSED*/", text)  # MariaDB's spelling
    text = re.sub(r"\)(?=[a-z])", ") ", text)
    found = _ALIASES.match(text)
    return dict(_SYNONYMS)[found.group()] + text[found.end() :] if found else text


def parse_labels(column_type: str) -> tuple[str, ...]:
    """The members of an ``enum('a','b')`` or ``set(…)`` text, where quotes are doubled or escaped; MySQL has x'…' for bytes."""
    inside = column_type.partition("(")[2]
    found = re.findall(r"(x?)'((?:[^'\\]|''|\\.)*)'", inside, flags=re.DOTALL)
    return tuple(_label_of_hex(text) if is_hex else _unquote(text) for is_hex, text in found)


def _label_of_hex(text: str) -> str:
    try:
        return bytes.fromhex(text).decode()
    except UnicodeDecodeError:
        return unsure_label(bytes.fromhex(text))
    except ValueError:  # by no server
        return unsure_label(text.encode())


def _unquote(text: str) -> str:
    return re.sub(
        r"''|\\(.)",
        lambda m: "'" if m.group(1) is None else _ESCAPES.get(m.group(1), m.group(1)),
        text,
        flags=re.DOTALL,
    )


# -- what users write --------------------------------------------------------------------------------------------------


def tables_from_mapping(tables: Mapping[str, str], charset: str = "utf8mb4") -> dict[tuple[str, str], TableSchema]:
    """Read ``{"shop.orders": "id int unsigned not null primary key, note varchar(20)"}``: the part between the
    brackets.

    Raises:
        ConfigError: a name without its schema, or a text that does not read as columns.
    """
    found = {}
    for name, text in tables.items():
        schema, _, table = name.partition(".")
        if not schema or not table:
            raise ConfigError(f"{name!r} does not name a table", remedy='Write "schema.table".')
        if re.match(r"\s*create\s", text, re.IGNORECASE):
            columns = next(iter(tables_from_sql(text, schema, charset).values())).columns
        else:
            columns = _columns(_Tokens(f"{text})"), charset, name)
        found[schema, table] = TableSchema(schema, table, columns)
    return found


def tables_from_sql(text: str, schema: str = "", charset: str = "utf8mb4") -> dict[tuple[str, str], TableSchema]:
    """Read every CREATE TABLE statement of ``text``; USE statements and qualified names tell the schema.

    ``charset`` is that of text columns where neither the column nor the table names one. Other statements are passed
    over, so the output of mysqldump --no-data will do.

    Raises:
        ConfigError: no table is found, a table's schema is not told, or a definition does not read as columns.
    """
    found = {}
    tokens = _Tokens(text)
    while not tokens.at_end:
        if tokens.accept("use"):
            schema = tokens.name()
        elif tokens.accept("create"):
            while tokens.word in ("or", "replace", "temporary"):
                tokens.next()
            if tokens.accept("table"):
                table = _create_table(tokens, schema, charset)
                found[table.schema, table.table] = table
        tokens.skip_statement()
    if not found:
        raise ConfigError("the SQL text has no CREATE TABLE with columns", remedy="Give what SHOW CREATE TABLE prints.")
    return found


def _create_table(tokens: _Tokens, schema: str, charset: str) -> TableSchema:
    if tokens.accept("if"):
        tokens.next()
        tokens.next()
    table = tokens.name()
    if tokens.accept("."):
        schema, table = table, tokens.name()
    if not schema:
        raise ConfigError(
            f"the schema of table {table!r} is not told", remedy="Write CREATE TABLE schema.table or USE schema."
        )
    if not tokens.accept("("):
        raise ConfigError(
            f"CREATE TABLE {schema}.{table} lists no columns", remedy="Give what SHOW CREATE TABLE prints."
        )
    body = tokens.mark()
    tokens.skip_group()
    charset = _table_charset(tokens) or charset
    end = tokens.mark()
    tokens.rewind(body)
    columns = _columns(tokens, charset, f"{schema}.{table}")
    tokens.rewind(end)
    return TableSchema(schema, table, columns)


def _table_charset(tokens: _Tokens) -> str | None:
    """The default charset among the options that follow the columns."""
    found = None
    while not tokens.at_end and tokens.word != ";":
        charset = _maybe_charset(tokens)
        if charset:
            found = charset
        elif tokens.word == "(":
            tokens.next()
            tokens.skip_group()
        else:
            tokens.next()
    return found


def _maybe_charset(tokens: _Tokens) -> str | None:
    """The charset that CHARSET x, CHARACTER SET x or COLLATE x_y names, if the next words are one of these."""
    if (
        tokens.accept("charset")
        or tokens.accept("character set")
        or (tokens.word == "character" and tokens.accept_pair("set"))
    ):
        tokens.accept("=")
        return tokens.name().lower()
    if tokens.accept("collate"):
        tokens.accept("=")
        collation = tokens.name().lower()
        # MariaDB's uca1400_… collations go with any charset, so they do not name one.
        return None if collation.startswith("uca1400") else collation.partition("_")[0]
    return None


_NOT_COLUMNS = frozenset(
    ("primary", "unique", "key", "index", "fulltext", "spatial", "constraint", "foreign", "check", "period")
)
_TYPE_WORDS = frozenset(
    ("unsigned", "signed", "zerofill", "precision", "varying", "varchar", "varbinary", "character", "char")
)


def _columns(tokens: _Tokens, charset: str, table: str) -> tuple[ColumnSchema, ...]:
    columns: list[ColumnSchema] = []
    keys: set[str] = set()
    while True:
        if tokens.word.partition(" ")[0] in _NOT_COLUMNS:
            keys.update(_key_definition(tokens))
        else:
            columns.append(_column(tokens, charset, table))
        if tokens.at_end or tokens.next() == ")":
            break
    if not columns:
        raise ConfigError(f"the definition of {table} has no columns")
    unknown = keys - {column.name.lower() for column in columns}
    if unknown:
        raise ConfigError(
            f"the primary key of {table} names columns that it does not have: {', '.join(sorted(unknown))}"
        )
    return tuple(
        attrs.evolve(column, key=True, nullable=False) if column.name.lower() in keys else column for column in columns
    )


def _key_definition(tokens: _Tokens) -> Iterator[str]:
    """Pass over a key or constraint; the columns of a primary key are yielded."""
    if tokens.accept("constraint") and tokens.word not in ("primary", "unique", "foreign", "check"):
        tokens.next()
    primary = tokens.word.startswith("primary")
    while tokens.word not in (",", ")", ""):
        if not tokens.accept("("):
            tokens.next()
            continue
        if primary:
            yield tokens.name().lower()
        depth = 1
        while depth and not tokens.at_end:
            word = tokens.next()
            depth += (word == "(") - (word == ")")
            if primary and depth == 1 and word == ",":
                yield tokens.name().lower()
        primary = False


def _column(tokens: _Tokens, charset: str, table: str) -> ColumnSchema:
    name = tokens.name()
    type_start = tokens.mark()
    first = tokens.next()
    if not first or first in (",", ")", "("):
        raise ConfigError(f"column {name!r} of {table} has no type")
    while tokens.word in _TYPE_WORDS and not (tokens.word in ("character", "char") and tokens.peek_word == "set"):
        tokens.next()
    if tokens.accept("("):
        tokens.skip_group()
    while tokens.word in _TYPE_WORDS and not (tokens.word == "character" and tokens.peek_word == "set"):
        tokens.next()
    text = tokens.slice(type_start)
    if first in ("nchar", "nvarchar", "national"):
        charset = "utf8mb3"
    nullable, key, visible, virtual = True, first == "serial", True, False
    while tokens.word not in (",", ")", ""):
        named = _maybe_charset(tokens)
        if named:
            charset = named
        elif tokens.accept("not null") or (tokens.word == "not" and tokens.accept_pair("null")):
            nullable = False
        elif tokens.accept("primary key") or (tokens.word == "primary" and tokens.accept_pair("key")):
            key = True
        elif tokens.accept("invisible"):
            visible = False
        elif tokens.accept("ascii"):
            charset = "latin1"
        elif tokens.accept("("):
            tokens.skip_group()
        else:
            word = tokens.next()
            virtual = (virtual or word == "as" and tokens.word == "(") and word not in ("stored", "persistent")
    text = normal_type(text)
    base, _, arguments = text.partition(")")[0].partition("(")
    if arguments and base not in ("enum", "set") and not re.fullmatch("[0-9]{1,9}(,[0-9]{1,9})?", arguments):
        raise ConfigError(
            f"column {name!r} of {table} is {base}({arguments[:20]}), which no server has",
            remedy="Give what SHOW CREATE TABLE prints.",
        )
    if charset == "binary":
        text = re.sub(r"^(var)?char\b", r"\1binary", re.sub(r"^(tiny|medium|long|)text\b", r"\1blob", text))
    return column_from_text(
        name, text, charset=charset, nullable=nullable and not key, key=key, visible=visible, virtual=virtual
    )


class _Tokens:
    """A cursor over sqlglot's tokens that can cut the original text, so that types keep the user's own spelling."""

    def __init__(self, text: str) -> None:
        # Loaded on first use: reading a schema from text is rare, and sqlglot takes a tenth of a second.
        from sqlglot import TokenType
        from sqlglot.dialects.mysql import MySQL
        from sqlglot.errors import TokenError

        # The server runs what stands in /*!40101 … */ comments, and mysqldump puts CREATE TABLE options there.
        self._text = re.sub(r"/\*M?!\d*(.*?)\*/", r" \1 ", text, flags=re.DOTALL)
        try:
            self._tokens: list[Any] = MySQL().tokenize(self._text)
        except TokenError as error:
            raise ConfigError("the schema text does not read as SQL") from error
        self._names = (TokenType.IDENTIFIER, TokenType.STRING)
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def word(self) -> str:
        """The next token in lower case: "" at the end, a NUL for quoted ones, which are no keywords."""
        return "" if self.at_end else self._word(self._at)

    @property
    def peek_word(self) -> str:
        return self._word(self._at + 1) if self._at + 1 < len(self._tokens) else ""

    def _word(self, at: int) -> str:
        token = self._tokens[at]
        return "\0" if token.token_type in self._names else " ".join(token.text.lower().split())

    def next(self) -> str:
        word = self.word
        self._at += 1
        return word

    def accept(self, word: str) -> bool:
        if self.word != word:
            return False
        self._at += 1
        return True

    def accept_pair(self, second: str) -> bool:
        if self.peek_word != second:
            return False
        self._at += 2
        return True

    def name(self) -> str:
        if self.at_end:
            raise ConfigError("the schema text ends where a name should stand")
        token = self._tokens[self._at]
        self._at += 1
        return str(token.text)

    def mark(self) -> int:
        return self._at

    def rewind(self, mark: int) -> None:
        self._at = mark

    def slice(self, mark: int) -> str:
        return str(self._text[self._tokens[mark].start : self._tokens[self._at - 1].end + 1])

    def skip_group(self) -> None:
        """Pass the bracket that closes the one just passed."""
        depth = 1
        while depth and not self.at_end:
            word = self.next()
            depth += (word == "(") - (word == ")")

    def skip_statement(self) -> None:
        while not self.at_end and self.next() != ";":
            pass
