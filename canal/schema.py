"""Table schemas: column names, types, charsets, labels and keys, from information_schema, table maps or SQL text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from canal.binlog import type_codes as codes

#: The type code of each data type in a table map; UNKNOWN_TYPE for an unknown name.
TYPE_CODES = {
    "tinyint": codes.TINY,
    "smallint": codes.SHORT,
    "mediumint": codes.INT24,
    "int": codes.LONG,
    "bigint": codes.LONGLONG,
    "float": codes.FLOAT,
    "double": codes.DOUBLE,
    "decimal": codes.NEWDECIMAL,
    "bit": codes.BIT,
    "year": codes.YEAR,
    "date": codes.DATE,
    "time": codes.TIME2,
    "datetime": codes.DATETIME2,
    "timestamp": codes.TIMESTAMP2,
    "char": codes.STRING,
    "binary": codes.STRING,
    "varchar": codes.VARCHAR,
    "varbinary": codes.VARCHAR,
    "tinytext": codes.BLOB,
    "text": codes.BLOB,
    "mediumtext": codes.BLOB,
    "longtext": codes.BLOB,
    "tinyblob": codes.BLOB,
    "blob": codes.BLOB,
    "mediumblob": codes.BLOB,
    "longblob": codes.BLOB,
    "enum": codes.ENUM,
    "set": codes.SET,
    "json": codes.JSON,
    "vector": codes.VECTOR,
    "geometry": codes.GEOMETRY,
    "point": codes.GEOMETRY,
    "linestring": codes.GEOMETRY,
    "polygon": codes.GEOMETRY,
    "multipoint": codes.GEOMETRY,
    "multilinestring": codes.GEOMETRY,
    "multipolygon": codes.GEOMETRY,
    "geomcollection": codes.GEOMETRY,
    "geometrycollection": codes.GEOMETRY,
    "uuid": codes.STRING,
    "inet6": codes.STRING,
    "inet4": codes.STRING,
}
UNKNOWN_TYPE = -1
#: The charset of a column without a charset in its statement, if the default is unknown. The table map has the real charset.
UNTOLD = "?"
#: Geometry data types, in the order of their numbers in table maps.
GEOMETRY_KINDS = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)

TEXT_TYPES = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"))
#: Synonyms, and the spelling in information_schema; longest first.
_SYNONYMS = (
    ("double precision", "double"),
    ("national character varying", "varchar"),
    ("national char varying", "varchar"),
    ("character varying", "varchar"),
    ("char varying", "varchar"),
    ("national character", "char"),
    ("national varchar", "varchar"),
    ("national char", "char"),
    ("nchar varchar", "varchar"),
    ("nchar varying", "varchar"),
    ("nvarchar", "varchar"),
    ("nchar", "char"),
    ("character", "char"),
    ("long varbinary", "mediumblob"),
    ("long varchar", "mediumtext"),
    ("varcharacter", "varchar"),
    ("long", "mediumtext"),
    ("integer", "int"),
    ("middleint", "mediumint"),
    ("int1", "tinyint"),
    ("int2", "smallint"),
    ("int3", "mediumint"),
    ("int4", "int"),
    ("int8", "bigint"),
    ("boolean", "tinyint(1)"),
    ("bool", "tinyint(1)"),
    ("numeric", "decimal"),
    ("dec", "decimal"),
    ("fixed", "decimal"),
    ("real", "double"),
    ("float4", "float"),
    ("float8", "double"),
    ("serial", "bigint unsigned"),
)
_ALIASES = re.compile("(?:" + "|".join(re.escape(name) for name, _ in _SYNONYMS) + r")(?![\w])")
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}


@attrs.frozen
class ColumnSchema:
    """A column. ``charset`` is a MySQL charset name, or None or "binary" for bytes. ``column_type`` is the server's text.

    ``meta`` comes from the table map and is 0 otherwise. ``key`` is true for a primary key column. In delivered rows
    ``nullable`` is never None.
    """

    name: str
    type_code: int = UNKNOWN_TYPE
    meta: int = 0
    #: None if a server setting decided; only table maps have the value.
    nullable: bool | None = True
    unsigned: bool = False
    charset: str | None = None
    key: bool = False
    labels: tuple[str, ...] | None = None
    column_type: str = ""
    visible: bool = True
    #: Computed on read (VIRTUAL).
    virtual: bool = False
    #: False for a VIRTUAL column without reliable values in the log.
    logged: bool = True
    #: Created by MySQL for a functional key part. Table maps before 8.0.18 have it, rows never do.
    hidden: bool = False
    #: For a masked column: the column on the server.
    unmasked: ColumnSchema | None = attrs.field(default=None, repr=False)

    @property
    def of_source(self) -> ColumnSchema:
        """The column on the server, if this column is masked."""
        return self.unmasked or self

    @property
    def is_key(self) -> bool:
        """True for a primary key column."""
        return self.key

    @property
    def base_type(self) -> str:
        """The bare name of the data type, such as ``int`` or ``varchar``."""
        return self.column_type.partition("(")[0].partition(" ")[0].lower()


@attrs.frozen
class TableSchema:
    """The columns of a table in row order."""

    schema: str
    table: str
    columns: tuple[ColumnSchema, ...]

    @property
    def name(self) -> str:
        """``schema.table``."""
        return f"{self.schema}.{self.table}"

    @property
    def keys(self) -> tuple[ColumnSchema, ...]:
        """The primary key columns in table order."""
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
    """Return a column for a type text from information_schema or CREATE TABLE."""
    text = normal_type(column_type)
    base = text.partition("(")[0].partition(" ")[0]
    return ColumnSchema(
        name=name,
        type_code=TYPE_CODES.get(base, UNKNOWN_TYPE),
        nullable=nullable,
        unsigned=" unsigned" in text or " zerofill" in text,
        # MariaDB's JSON is a LONGTEXT in the log. MySQL's JSON type ignores the charset.
        charset="utf8mb4" if base == "json" else charset_name(charset) if charset and base in TEXT_TYPES else None,
        key=key,
        labels=parse_labels(text) if base in ("enum", "set") else None,
        column_type=text,
        visible=visible,
        virtual=virtual,
    )


#: Charsets with characters that some servers' information_schema shows as "?" (3-byte UTF-8) or, for "binary", as bytes.
_BEYOND_3_BYTES = frozenset(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030", "binary"))


def as_shown(column: ColumnSchema) -> ColumnSchema:
    """Return a column of information_schema; mark each "?" in labels as uncertain if it may replace another character."""
    if column.labels is None or column.charset not in _BEYOND_3_BYTES:
        return column
    return attrs.evolve(column, labels=tuple(label.replace("?", unsure_label(b"?")) for label in column.labels))


def unsure_label(label: bytes) -> str:
    """Return a label of unknown text, with its bytes as surrogates from U+DC00."""
    return "".join(chr(0xDC00 + byte) for byte in label)


def is_sure(label: str) -> bool:
    """Return whether a label's text is certain."""
    return not any("\udc00" <= char <= "\udcff" for char in label)


def set_text(labels: Sequence[str], bits: int) -> str:
    """Return the text of a SET value as servers print it: no comma before the first character."""
    text = ""
    for bit, label in enumerate(labels):
        if bits >> bit & 1:
            text += f",{label}" if text else label
    return text


def label_bytes(label: str) -> bytes:
    """Return the known bytes of an uncertain label."""
    return b"".join(char.encode() if is_sure(char) else bytes([ord(char) - 0xDC00]) for char in label)


def charset_name(charset: str) -> str:
    """Return the current name of a charset: utf8mb3 was utf8 before MySQL 8.0.28 and MariaDB 10.6."""
    return "utf8mb3" if charset == "utf8" else charset


def normal_type(column_type: str) -> str:
    """Return a type in information_schema's spelling: lower case outside quotes, no synonyms."""
    parts = re.split(r"('(?:[^'\\]|''|\\.)*')", column_type.strip(), flags=re.DOTALL)
    parts[::2] = [re.sub(r"\s+", " ", re.sub(r"\s*([(,)])\s*", r"\1", part.lower())) for part in parts[::2]]
    text = "".join(parts)
    text = re.sub(r" ?(/\*m?!\d+ )?\bcompressed(\*/)?$", " /*M!100301 COMPRESSED*/", text)  # MariaDB's spelling
    text = re.sub(r"\)(?=[a-z])", ") ", text)
    found = _ALIASES.match(text)
    return dict(_SYNONYMS)[found.group()] + text[found.end() :] if found else text


def as_binary(column_type: str) -> str:
    """Return the type of a text column with the charset binary."""
    return re.sub(r"^(var)?char\b", r"\1binary", re.sub(r"^(tiny|medium|long|)text\b", r"\1blob", column_type))


def parse_labels(column_type: str) -> tuple[str, ...]:
    """Return the labels of ``enum('a','b')`` or ``set(…)``. Quotes are doubled or escaped; MySQL uses x'…' for bytes."""
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
        r"''|\\(.)", lambda m: "'" if m.group(1) is None else _ESCAPES.get(m.group(1), m.group(1)), text, flags=re.DOTALL
    )
