"""Parses data types, and computes the type that the server creates.

Never guesses: a text that is not understood raises NotUnderstoodError.
"""

from __future__ import annotations

import re

import attrs

from canal.parse.schema.parts import MAXDB, ORACLE, REAL_AS_FLOAT, ColumnDefinition, ColumnType, Dialect, NotUnderstoodError
from canal.parse.schema.scanner import STRING, WORD, Scanner
from canal.parse.schema.words import expect, take_number, take_string
from canal.rows.charsets import MAX_CHAR_BYTES, WIDE, encoded, label_text
from canal.schema import GEOMETRY_KINDS, TEXT_TYPES, TYPE_CODES, UNTOLD, ColumnSchema, as_binary, column_from_text, is_sure

#: MariaDB's schema qualifiers of a type, with the sql_mode in which the type is interpreted.
_TYPE_SCHEMAS = {"mariadb_schema": 0, "oracle_schema": ORACLE, "maxdb_schema": MAXDB}
_INTEGERS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
_BLOB_SIZES = (("tiny", 0xFF), ("", 0xFFFF), ("medium", 0xFFFFFF), ("long", 0xFFFFFFFF))
#: In the servers' spelling.
GEOMETRIES = frozenset((*GEOMETRY_KINDS, "geomcollection"))
_SYNONYMS = {
    "integer": "int",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "middleint": "mediumint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "numeric": "decimal",
    "dec": "decimal",
    "fixed": "decimal",
    "geomcollection": "geometrycollection",
    "character": "char",
    "varcharacter": "varchar",
}
_MARIADB_SYNONYMS = {"clob": "longtext", "raw": "varbinary", "varchar2": "varchar", "number": "decimal"}
_MARIADB_ONLY = frozenset(("uuid", "inet4", "inet6"))
_WITH_LENGTH = (
    frozenset("bit year time datetime timestamp char varchar binary varbinary text blob vector".split()) | _INTEGERS.keys()
)
_WITH_SCALE = frozenset(("float", "double", "decimal"))
#: Types that accept UNSIGNED. It has no effect on YEAR.
SIGNED = _INTEGERS.keys() | _WITH_SCALE | {"year"}


def read_type(scan: Scanner, dialect: Dialect) -> ColumnType:
    """Parse a data type with arguments. UNSIGNED and similar words are column attributes."""
    if scan.peek()[0] != WORD:
        raise NotUnderstoodError("a type is missing")
    word = scan.take()[2].lower()
    if dialect.is_mariadb and word in _TYPE_SCHEMAS and scan.accept("."):
        if scan.peek()[2] in ("DATE", "TIMESTAMP"):  # the qualifier does not affect other types
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
    if base not in TYPE_CODES or (base in _MARIADB_ONLY and not dialect.is_mariadb):
        raise NotUnderstoodError(f"unknown type {word!r}")
    if base == "char" and scan.accept("VARYING"):
        base = "varchar"
    return base, None


def _long_text(scan: Scanner) -> str:
    """Skip the rest of LONG, LONG VARCHAR or LONG CHAR VARYING, which are the same type."""
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
    """Parse a label: a text, or bytes as x'61', 0x61, b'1100001' or 0b1100001."""
    kind, text, key = scan.peek()
    if kind != WORD:
        return take_string(scan, dialect)
    scan.take()
    digits = scan.take()[1] if key in ("X", "B") and scan.peek()[0] == STRING else text[2:] if text[:2] in ("0x", "0b") else ""
    try:
        number = int(digits, 16 if "X" in key[:2] else 2)
    except ValueError:
        raise NotUnderstoodError("a string is missing") from None
    return number.to_bytes((len(digits) * (4 if "X" in key[:2] else 1) + 7) // 8, "big")


#: A label that has the same bytes in every charset.
_SAME_LABEL = re.compile("([ -?A-Z_a-z]*[!-?A-Z_a-z])?")


def stored_label(label: str | bytes, charset: str, dialect: Dialect) -> str:
    """Return a label as a column of this charset stores it: converted from the session's charset, without trailing spaces."""
    if charset == UNTOLD:
        if isinstance(label, str) and _SAME_LABEL.fullmatch(label):
            return label
        raise NotUnderstoodError("a label, but the default charset is unknown")
    if charset == "filename" and not (isinstance(label, str) and re.fullmatch(r"\w*", label, re.ASCII)):
        raise NotUnderstoodError("a label in the charset of file names")
    if isinstance(label, str) and dialect.connection_charset == "binary":
        label = label.encode("utf-8", "surrogateescape")
    if isinstance(label, bytes):
        width = WIDE.get(charset, 1)
        if width > 1 and not dialect.has("wide_labels"):
            raise NotUnderstoodError("bytes in a wide charset")
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
    length, scale = 0 if scan.peek()[2] == "." else take_number(scan), None
    if scan.accept("."):  # servers ignore the fraction: DECIMAL(19.5) is DECIMAL(19)
        if scan.peek()[2] != ")":
            take_number(scan)
    elif base in _WITH_SCALE and scan.accept(","):
        scale = take_number(scan)
    expect(scan, ")")
    return length, scale


def type_text(found: ColumnType, dialect: Dialect, charset: str | None) -> str:
    """Return the type as information_schema spells it for this charset."""
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
    """Quote a label as servers do."""
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
                raise NotUnderstoodError("the length of a VARCHAR is unknown without the default charset")
            base, length = blob_of(length * width, "text" if base == "varchar" else "blob"), None
    elif length is not None and base in ("text", "blob"):
        if charset == UNTOLD and blob_of(length, base) != blob_of(length * width, base):
            raise NotUnderstoodError("the length of a TEXT is unknown without the default charset")
        # TEXT(0) is a TINYTEXT on MySQL, a TEXT on MariaDB.
        base, length = blob_of(length * width, base) if length or not dialect.is_mariadb else base, None
    return (f"{base}({length})" if length is not None else base) + " /*M!100301 COMPRESSED*/" * found.compressed


#: Maximum bytes per character in any charset.
_ANY_BYTES = max(MAX_CHAR_BYTES.values())


def char_bytes(charset: str | None) -> int:
    """Return the maximum bytes per character."""
    if charset == UNTOLD:
        raise NotUnderstoodError("the default charset is unknown")
    return MAX_CHAR_BYTES.get(charset or "", 1)


def longest_varchar(dialect: Dialect) -> int:
    """Return the bytes of the longest VARCHAR or VARBINARY. Longer ones become TEXT or BLOB outside strict mode."""
    return 0xFFFC if dialect.has("short_varchars") else 0xFFFF


def text_size(base: str) -> int:
    """Return the capacity of a TEXT or BLOB type in bytes."""
    return dict(_BLOB_SIZES)[base[:-4]]


def blob_of(size: int, kind: str) -> str:
    """Return the smallest TEXT or BLOB type for ``size`` bytes."""
    return next((prefix for prefix, most in _BLOB_SIZES if size <= most), "long") + kind


def converted_type(text: str, old: str | None, new: str, dialect: Dialect) -> str:
    """Return the type after CONVERT TO, which has room for the same number of characters.

    MySQL 9.7 converts every VARCHAR from a wide charset that becomes too long to TEXT, which may have less room.
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
                raise NotUnderstoodError("which TEXT type a VARCHAR becomes")
            text = ("text" if is_unsure else blob_of(size, "text")) + text[text.index(")") + 1 :]
    return as_binary(text) if new == "binary" else text


def resolve(column: ColumnDefinition, dialect: Dialect, default: str | None, *, forced: bool = False) -> ColumnSchema:
    """Return the column as the server creates it. ``default`` is the charset of columns without a charset.

    ``forced``: use ``default`` for all text columns, as CONVERT TO in the same statement does.
    """
    charset: str | None = None
    base = column.type.base
    if base in TEXT_TYPES:
        charset = column.type.charset or (column.charset.over(default) if column.charset else default)
        if forced and charset != "binary":
            charset = default
        if charset is None and not dialect.has("row_metadata"):
            raise NotUnderstoodError("a text column, but the default charset is unknown")
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
    made = column_from_text(column.name, text, charset=charset, nullable=nullable, visible=column.visible, virtual=column.virtual)
    return attrs.evolve(made, labels=labels)
