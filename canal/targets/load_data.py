"""Rows of Arrow as the file of MySQL's LOAD DATA, which never is one: https://dev.mysql.com/doc/refman/8.4/en/load-data.html.

Never calls Python for a value: texts are made and joined by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from canal.targets.sql_bulk import moment_texts, one_array, plain

#: Rows that are joined at once, and bytes that are sent at once: servers take no packet of more than max_allowed_packet.
_ROWS: Final = 1 << 14
_BYTES: Final = 1 << 16
_ESCAPED: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\0", "\\0"))
_HEX: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)


def text_form(values: pa.Array, declared: str) -> pa.Array | None:
    """Return values as text of the file, bytes, or integers for a BIT; None if a column of the declared type changes them."""
    kind, base = values.type, declared.partition("(")[0].partition(" ")[0]
    if kinds.is_integer(kind) and base == "year":
        return pc.utf8_lpad(values.cast(pa.string()), 4, "0")  # '0' is 2000
    if kinds.is_integer(kind) and base == "bit":
        return values.cast(pa.uint64())
    if kinds.is_timestamp(kind):
        if base != ("timestamp" if kind.tz else "datetime"):
            return None
        return moment_texts(values.view(pa.timestamp("us")))
    takes = (
        (kinds.is_integer, ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")),
        (kinds.is_decimal, ("decimal",)),
        (kinds.is_float32, ("float", "double")),
        (kinds.is_float64, ("double",)),
        (kinds.is_date, ("date",)),
        (kinds.is_duration, ("time",)),
        (kinds.is_binary, ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")),
        (
            kinds.is_string,
            ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json", "uuid", "inet4", "inet6"),
        ),
    )
    if not any(is_kind(kind) and base in bases for is_kind, bases in takes):
        return None
    if kinds.is_string(kind):
        return _escaped(values)
    return values if kinds.is_binary(kind) else plain(values).cast(pa.string())


def statement(table: str, columns: Sequence[str], rows: pa.Table) -> str:
    """Return the statement that takes ``lines`` of the rows; the columns are quoted."""
    fields, sets = [], []
    for number, (name, kind) in enumerate(zip(columns, rows.schema.types)):
        if kinds.is_string(kind):
            fields.append(name)
        else:
            fields.append(f"@canal_{number}")
            form = "UNHEX({})" if kinds.is_binary(kind) else "CAST({} AS UNSIGNED)"
            sets.append(f"{name} = {form.format(fields[-1])}")
    return (
        f"LOAD DATA LOCAL INFILE 'canal' INTO TABLE {table} CHARACTER SET utf8mb4 FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\'"
        f" LINES TERMINATED BY '\\n' ({', '.join(fields)}){' SET ' if sets else ''}{', '.join(sets)}"
    )


def lines(rows: pa.Table) -> Iterator[bytes]:
    """Yield the lines of all rows, in pieces."""
    for begin in range(0, rows.num_rows, _ROWS):
        fields = [_field(one_array(column)) for column in rows.slice(begin, _ROWS).columns]
        made = pc.binary_join_element_wise(*fields, "\t", null_handling="replace", null_replacement="\\N")
        made = pc.binary_join_element_wise(made, "", "\n")
        data = memoryview(made.buffers()[2])[: np.frombuffer(made.buffers()[1], np.int32)[len(made)]]
        for at in range(0, len(data), _BYTES):
            yield bytes(data[at : at + _BYTES])


def _field(values: pa.Array) -> pa.Array:
    return _hex(values) if kinds.is_binary(values.type) else values.cast(pa.string())


def _escaped(values: pa.Array) -> pa.Array:
    data = values.buffers()[2]
    every = b"" if data is None else data.to_pybytes()
    for found, escaped in _ESCAPED:
        if found.encode() in every:
            values = pc.replace_substring(values, found, escaped)
    return values


def _hex(values: pa.Array) -> pa.Array:
    values = pc.binary_join_element_wise(values, b"", b"")  # begins at 0
    offsets, data = values.buffers()[1:]
    digits = _HEX[np.frombuffer(data or b"", np.uint8)]
    doubled = np.frombuffer(offsets, np.int32)[: len(values) + 1] * 2
    made = pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(doubled), pa.py_buffer(digits)])
    return pc.if_else(values.is_valid(), made, None) if values.null_count else made
