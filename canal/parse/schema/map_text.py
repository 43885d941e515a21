"""The text of a column's type, as far as a table map contains it."""

from __future__ import annotations

from canal.binlog import type_codes as codes
from canal.rows.charsets import MAX_CHAR_BYTES


def type_text(code: int, meta: int, unsigned: bool, charset: str | None, labels: tuple[str, ...] | None) -> str:
    """Return the column type as the server prints it, as far as the map contains it."""
    text = codes.NAMES.get(code, "").lower()
    binary = charset in (None, "binary")
    width = MAX_CHAR_BYTES.get(charset or "", 1)
    if code in codes.TEMPORAL and meta:
        text += f"({meta})"
    elif code in codes.DECIMALS:
        text = f"decimal({meta & 0xFF},{meta >> 8})"
    elif code == codes.BIT:
        text = f"bit({(meta >> 8) * 8 + (meta & 0xFF)})"
    elif code == codes.VARCHAR_COMPRESSED:
        text = f"varbinary({meta - 1})" if binary else f"varchar({(meta - 1) // width})"
    elif code in (codes.VARCHAR, codes.VAR_STRING):
        text = f"varbinary({meta})" if binary else f"varchar({meta // width})"
    elif code == codes.STRING:
        size = string_length(meta)
        text = f"binary({size})" if binary else f"char({size // width})"
    elif code in codes.BLOBS:
        text = {1: "tiny", 3: "medium", 4: "long"}.get(meta, "") + ("blob" if binary else "text")
    elif code in (codes.ENUM, codes.SET):
        members = ",".join("'" + label.replace("'", "''") + "'" for label in labels or ())
        text = ("enum" if code == codes.ENUM else "set") + f"({members})"
    if code in (codes.BLOB_COMPRESSED, codes.VARCHAR_COMPRESSED):
        return text + " /*M!100301 COMPRESSED*/"
    return text + " unsigned" if unsigned and code in codes.NUMERIC else text


def string_length(meta: int) -> int:
    """Return the bytes that a CHAR or BINARY column holds: two bits of the length are stored inverted in the type byte."""
    if meta < 256:
        return meta
    head = meta >> 8
    return (meta & 0xFF) | ((head & 0x30) ^ 0x30) << 4
