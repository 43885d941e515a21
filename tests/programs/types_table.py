"""The table of docs/types.md, made by the code itself: ``python -m tests.programs.types_table > docs/types.md``.

Never states what a type becomes: each line is a column and the bytes of a value as a server logs them, and the decoder,
canal's columns and Arrow say the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import attrs

from canal.formats import columns
from canal.formats.arrow import arrow_type
from canal.formats.spark_types import spark_arrow_type
from canal.rows.decoder import RowDecoder
from canal.schema import ColumnSchema, column_from_text

CODES = {value: name for name, value in vars(columns).items() if name.isupper() and isinstance(value, int) and name[0] != "_"}

HEAD = """\
# Types

What a column's value becomes. Made by `python -m tests.programs.types_table`; a test keeps it so. NULL is None in Python and null in
Arrow; a column that the row image leaves out is `canal.ABSENT`, and null in Arrow with its name in `_absent`.

| column | Python, for example | canal's text | JDBC code | with `codes_of_values` | Arrow | Spark |
|---|---|---|---|---|---|---|
"""
TAIL = """
* `ZeroDate` (a `str`), `InvalidText` (a `bytes`) and what no Arrow type holds are null in Arrow, and stand in `_exact`. A column
  of more than 2 GiB of text or bytes in one batch is a `UsageError`: take fewer entries at once.
* An ENUM that holds none of its members (index 0) is `NoLabel()`, which equals `""`; canal's text is `0`. A member `''` is plain `""`.
* A label that nobody can tell is `InvalidText`: what is known of it, with the number that the log holds, or the bits of the set,
  in `.number`; canal's text is the number. `binlog_row_metadata=FULL` tells all. Without it labels are those of the statements in
  the log, else of information_schema, which has `?` for each character of 4 bytes: in a column of utf8mb4, utf16, utf16le, utf32 or
  gb18030, or of bytes, a label with a `?` is not known for sure. A character that the charset lacks is `?` on the server too, and after
  CONVERT TO CHARACTER SET the bytes of labels are the former ones: what is no text in the new charset is `InvalidText`. MySQL 8.0.12 and older tell the labels but not their charset.
* TIMESTAMP is in the zone that `time_zone` names, UTC by default; all zero is a `ZeroDate`, and the rest of the first second of 1970 (MariaDB) a moment.
* A FLOAT is the double whose text is the shortest that reads back as its 32 bits: 0.1, not 0.10000000149011612.
* GEOMETRY is the SRID (4 bytes, little-endian), then WKB. VECTOR is 4-byte floats, little-endian.
* MariaDB's JSON is LONGTEXT, its VECTOR VARBINARY. Its UUID, INET4 and INET6 are BINARY in the log, with
  `binlog_row_metadata=FULL` too: of a table with a BINARY(16) or BINARY(4) the schema is looked up once more, in `schema=`, in the
  schema history or at the server, and the column is what it was at its position in the log. Where nobody can tell (a file
  without `schema=`, no SELECT, a table that was changed or dropped later in the log), such a column of a FULL log is bytes in
  all three forms, as BINARY is, and the log of the instance says so once per table.
* Spark: `_exact` and `_absent` are the same; a row before an update is in `_before` and has its own. Unsigned integers take the
  next wider type, BIT(n) is a bigint and BIT(64) a decimal(20,0), a DECIMAL of more than 38 digits is text. DATETIME has no zone
  (timestamp_ntz), TIMESTAMP is an instant, whatever the zones of session, driver and executors.
* MySQL's JSON has the text that 8.0 and later print. MySQL 5.7 itself prints the double 1.0 as `1`, which then reads as an integer, and
  leaves line breaks in base64 unescaped.
* MySQL's JSON with `binlog_row_value_options=PARTIAL_JSON` may be `PartialJson`, see [values.md](values.md).
* Types as old servers logged them (TIME, DATETIME and TIMESTAMP from before MySQL 5.6.4, MariaDB's with
  `mysql56_temporal_format=OFF`, COMPRESSED columns) give the same as the others.

## canal's form

`entry.row_change.row_datas` is canal's `Column` objects. `entry.row_change.columns(labels=, codes_of_values=)` gives them where
you want them otherwise:

| switch | off (the default, and `row_datas`) | on |
|---|---|---|
| `labels` | ENUM is the number of its label, SET its bits, as in canal | the text of the labels, JDBC VARCHAR |
| `codes_of_values` | one code for all values of a column | canal's: an unsigned integer has the signed type's code until the value needs the next one; NULL in a SET is BLOB, in JSON OTHER |

Always other than canal: text is decoded in its column's charset, not in that of the connection; TIMESTAMP does not depend on
the zone of the process; JSON is the text that the server prints, whose numbers and SQL values canal writes otherwise; VECTOR,
at which canal fails, is bytes.

## Where this was tested

Live, every type at its limits in all row images, with and without checksum, compression and full metadata, against what the
server holds: on every line of [servers.md](servers.md) (`tests/live/test_oracle.py`). By files also: MySQL 5.1 to 9.6, MariaDB 5.5 to
10.6.
"""


@attrs.frozen
class Example:
    """A column, its metadata in the table map, and the bytes of a value in hex."""

    type: str
    meta: int
    data: str
    code: int = 0
    charset: str | None = None

    @property
    def column(self) -> ColumnSchema:
        made = column_from_text("c", self.type, charset=self.charset)
        return attrs.evolve(made, meta=self.meta, type_code=self.code or made.type_code)

    @property
    def value(self) -> Any:
        column = self.column
        code = 254 if column.type_code in (247, 248) else column.type_code
        event = b"\1\1\0" + bytes.fromhex(self.data)
        ((_, row),) = RowDecoder(bytes([code]), (self.meta,), (column,)).decode(event, 0, len(event), 0)
        return row[0]


def _utf8(text: str, size: int = 1) -> str:
    raw = text.encode()
    return (len(raw).to_bytes(size, "little") + raw).hex()


POINT = "19000000 00000000 01 01000000 000000000000f03f 0000000000000040"
EXAMPLES = [
    Example("tinyint", 0, "ff"),
    Example("tinyint unsigned", 0, "ff"),
    Example("smallint", 0, "ffff"),
    Example("smallint unsigned", 0, "ffff"),
    Example("mediumint", 0, "ffffff"),
    Example("mediumint unsigned", 0, "ffffff"),
    Example("int", 0, "ffffffff"),
    Example("int unsigned", 0, "ffffffff"),
    Example("bigint", 0, "ff" * 8),
    Example("bigint unsigned", 0, "ff" * 8),
    Example("decimal(4,2)", 2 << 8 | 4, "8532"),
    Example("decimal(65,30)", 30 << 8 | 65, "80" + "00" * 28 + "01"),
    Example("float", 4, "cdcccc3d"),
    Example("double", 8, struct.pack("<d", 0.1).hex()),
    Example("bit(10)", 1 << 8 | 2, "0203"),
    Example("year", 0, "7e"),
    Example("date", 0, "eed40f"),
    Example("date", 0, "000000"),
    Example("time(3)", 3, "7fffff ffce"),
    Example("datetime(6)", 6, "99b9dd0443 0003e8"),
    Example("datetime", 0, "8000000000"),
    Example("timestamp(3)", 3, "65000000 04e2"),
    Example("timestamp", 0, "00000000"),
    Example("char(10)", 0xFE28, _utf8("é"), charset="utf8mb4"),
    Example("varchar(10)", 40, _utf8("é"), charset="utf8mb4"),
    Example("varchar(10)", 40, "01ff", charset="utf8mb4"),
    Example("varchar(10)", 10, "01e9", charset="latin1"),
    Example("binary(3)", 0xFE03, "0161"),
    Example("varbinary(3)", 3, "0161"),
    *(
        Example(f"{name}text", size, _utf8("é", size), charset="utf8mb4")
        for name, size in (("tiny", 1), ("", 2), ("medium", 3), ("long", 4))
    ),
    *(Example(f"{name}blob", size, _utf8("a", size)) for name, size in (("tiny", 1), ("", 2), ("medium", 3), ("long", 4))),
    Example("enum('a','b')", 0xF701, "02", charset="utf8mb4"),
    Example("enum('a','b')", 0xF701, "00", charset="utf8mb4"),
    Example("set('a','b')", 0xF801, "03", charset="utf8mb4"),
    Example("json", 4, "0d000000 00 01000c00 0b000100 050100 61"),
    Example("geometry", 4, POINT),
    Example("vector(1)", 4, "04000000 0000803f"),
    Example("uuid", 0xFE10, "10" + "123e4567e89b12d3a456426655440000"),
    Example("inet6", 0xFE10, "10" + "00" * 15 + "01"),
    Example("inet4", 0xFE04, "04 7f000001"),
]


#: Spark's names of the Arrow types that its columns come as.
SPARK = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "date32[day]": "date",
    "duration[us]": "interval day to second",
    "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
    "string": "string",
    "binary": "binary",
}


def spark_type(column: ColumnSchema) -> str:
    """The Spark type that SQL and ``simpleString`` name so."""
    name = str(spark_arrow_type(column))
    return SPARK.get(name) or name.replace("decimal128", "decimal").replace(" ", "")


def _cell(value: Any) -> str:
    return f"`{value!r}`".replace("|", "\\|").replace("datetime.", "")


def _lines() -> Iterator[str]:
    for example in EXAMPLES:
        column, value = example.column, example.value
        text = columns.column_text(value, column)
        code, null = columns.sql_type(column), columns.value_type(None, column)
        of_value = columns.value_type(text, column)
        names = [
            CODES[code],
            f"{CODES[of_value]}, NULL {CODES[null]}" if {code, null} != {code} or of_value != code else "the same",
        ]
        charset = f" {example.charset}" if example.charset else ""
        name = f"{column.column_type.replace('|', '')}{charset}"
        yield f"| {name} | {_cell(value)} | {_cell(text)} | {names[0]} ({code}) | {names[1]} | {arrow_type(column)} | {spark_type(column)} |"


def page() -> str:
    return HEAD + "\n".join(_lines()) + "\n" + TAIL


if __name__ == "__main__":
    print(page(), end="")
