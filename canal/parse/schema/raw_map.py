"""Parses a TABLE_MAP event with the optional metadata.

Never looks up a schema, and never reads rows.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from canal.binlog import type_codes as codes
from canal.binlog.event_types import TABLE_MAP
from canal.binlog.server_facts import Release
from canal.errors import DecodeError, TruncatedError, UnsupportedError
from canal.schema import GEOMETRY_KINDS

#: Used if the release that wrote a map is unknown.
NEWEST: Final = Release("mysql", (99,))
_ONE_BYTE_META = {codes.FLOAT, codes.DOUBLE, codes.VECTOR, codes.JSON, codes.GEOMETRY} | codes.TEMPORAL | codes.BLOBS
_TWO_BYTE_META = {codes.BIT, codes.NEWDECIMAL, codes.ENUM, codes.SET} | codes.TEXTS - codes.BLOBS


@attrs.frozen
class RawTableMap:
    """The fields of a TABLE_MAP event. Missing optional metadata is None.

    ``signs``: the possible values of ``unsigned`` if neither the map nor the release determines it. ``labels`` are bytes in
    the column's charset.
    """

    schema: str
    table: str
    types: bytes
    metas: tuple[int, ...]
    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None = None
    charsets: tuple[int | None, ...] | None = None
    names: tuple[str, ...] | None = None
    labels: tuple[tuple[bytes, ...] | None, ...] | None = None
    keys: frozenset[int] | None = None
    visible: tuple[bool, ...] | None = None
    signs: tuple[tuple[bool, ...], ...] = ()
    #: Type names of GEOMETRY columns.
    geometries: tuple[str | None, ...] | None = None
    #: Whether the map includes columns of functional keys.
    has_functional: bool = False

    def real_type(self, column: int) -> int:
        """Return the real type code: ENUM, SET and long CHAR are encoded as STRING."""
        code = self.types[column]
        if code == codes.STRING and self.metas[column] >= 256:
            real = self.metas[column] >> 8
            return real if real in (codes.ENUM, codes.SET) else codes.STRING
        return code


class _Reader:
    """A bounds-checked cursor over the body of a table map."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > self.end:
            raise TruncatedError("TABLE_MAP event is too short", event_type=TABLE_MAP)
        self.at += size
        return self.data[self.at - size : self.at]

    def packed(self) -> int:
        first = self.take(1)[0]
        if first < 251:
            return first
        width = {252: 2, 253: 3, 254: 8}.get(first)
        if width is None:
            raise DecodeError(f"a packed integer cannot begin with {first:#x}", event_type=TABLE_MAP)
        return int.from_bytes(self.take(width), "little")

    def text(self) -> bytes:
        return self.take(self.packed())

    @property
    def more(self) -> bool:
        return self.at < self.end


def parse_table_map(body: bytes, release: Release = NEWEST) -> RawTableMap:
    """Decode a TABLE_MAP event from the flags on (after the table id), without checksum."""
    schema, table, at = names_of(body)
    return parse_columns(schema, table, body[at:], release)


def names_of(body: bytes) -> tuple[str, str, int]:
    """Return schema, table and the index at which the columns begin."""
    r = _Reader(body)
    r.take(2)
    schema, _ = r.take(r.take(1)[0]), r.take(1)
    table, _ = r.take(r.take(1)[0]), r.take(1)
    return schema.decode("utf-8", "surrogateescape"), table.decode("utf-8", "surrogateescape"), r.at


def parse_columns(schema: str, table: str, rest: bytes, release: Release) -> RawTableMap:
    r = _Reader(rest)
    count = r.packed()
    if count > 4096:
        raise DecodeError(f"TABLE_MAP of {count} columns; the servers' limit is 4096", event_type=TABLE_MAP)
    types = r.take(count)
    metas = _parse_metas(types, r.text())
    nulls = r.take((count + 7) // 8)
    raw = RawTableMap(
        schema=schema,
        table=table,
        types=types,
        metas=metas,
        nullable=tuple(bool(nulls[i >> 3] >> (i & 7) & 1) for i in range(count)),
        has_functional=release.logs_functional_keys,
    )
    return _parse_optional(raw, r, release)


def _parse_metas(types: bytes, block: bytes) -> tuple[int, ...]:
    r = _Reader(block)
    metas = []
    for code in types:
        if code in _ONE_BYTE_META:
            metas.append(r.take(1)[0])
        elif code in (codes.STRING, codes.ENUM, codes.SET):
            metas.append(int.from_bytes(r.take(2), "big"))
        elif code in _TWO_BYTE_META:
            metas.append(int.from_bytes(r.take(2), "little"))
        elif code == codes.TYPED_ARRAY:
            raise UnsupportedError("a TYPED_ARRAY column", event_type=TABLE_MAP)
        else:
            metas.append(0)
    if r.more:
        raise DecodeError("TABLE_MAP has excess column metadata", event_type=TABLE_MAP)
    return tuple(metas)


def _parse_optional(raw: RawTableMap, r: _Reader, release: Release) -> RawTableMap:
    """Parse the optional metadata, fields of (type, length, value). Unknown types are skipped, as the format allows."""
    count = len(raw.types)
    real = [raw.real_type(i) for i in range(count)]
    in_charsets = codes.TEXTS | {codes.GEOMETRY if release.is_mariadb else codes.VECTOR}  # which this server treats as BLOB
    text_columns = [i for i in range(count) if real[i] in in_charsets]
    label_columns = [i for i in range(count) if real[i] in (codes.ENUM, codes.SET)]
    sets, enums = [i for i in label_columns if real[i] == codes.SET], [i for i in label_columns if real[i] == codes.ENUM]
    charsets: dict[int, int] = {}
    labels: dict[int, list[bytes]] = {}
    found: dict[str, Any] = {}
    while r.more:
        kind = r.take(1)[0]
        f = _Reader(r.text())
        if kind == 1:
            found["signs"] = _signs(real, f.take(f.end), release)
        elif kind in (2, 10):
            columns = text_columns if kind == 2 else label_columns
            default = f.packed()
            charsets.update(dict.fromkeys(columns, default))
            while f.more:
                number = f.packed()
                if number >= len(columns):
                    raise DecodeError("TABLE_MAP has a charset for a column that does not exist", event_type=TABLE_MAP)
                charsets[columns[number]] = f.packed()
        elif kind in (3, 11):
            for column in text_columns if kind == 3 else label_columns:
                charsets[column] = f.packed()
        elif kind == 4:
            names = []
            while f.more:
                names.append(f.text().decode("utf-8", "surrogateescape"))
            if len(names) != count:
                raise DecodeError(f"TABLE_MAP has {count} columns and {len(names)} names", event_type=TABLE_MAP)
            found["names"] = tuple(names)
        elif kind in (5, 6):
            for column in sets if kind == 5 else enums:
                labels[column] = [f.text() for _ in range(f.packed())]
        elif kind == 7:
            found["geometries"] = _geometries(real, f, release)
        elif kind == 8:
            keys = set()
            while f.more:
                keys.add(f.packed())
            found["keys"] = frozenset(keys)
        elif kind == 9:
            keys = set()
            while f.more:
                keys.add(f.packed())
                f.packed()
            found["keys"] = frozenset(keys)
        elif kind == 12:
            bits = f.take((count + 7) // 8)
            found["visible"] = tuple(bool(bits[i >> 3] << (i & 7) & 0x80) for i in range(count))
    if charsets:
        found["charsets"] = tuple(charsets.get(i) for i in range(count))
    if labels:
        found["labels"] = tuple(tuple(labels[i]) if i in labels else None for i in range(count))
    if len(found.get("signs", ())) == 1:
        (found["unsigned"],) = found.pop("signs")
    return attrs.evolve(raw, **found)


def _signs(real: list[int], bits: bytes, release: Release) -> tuple[tuple[bool, ...], ...]:
    """Return the unsigned flags: one result, or two if it is unknown whether YEARs have bits and the bits fit both."""
    flags = [bool(byte & 0x80 >> n) for byte in bits for n in range(8)]
    fitting, likely = [], []
    for counted in (codes.NUMERIC | {codes.YEAR}, codes.NUMERIC):
        columns = [i for i, code in enumerate(real) if code in counted]
        if len(bits) != (len(columns) + 7) // 8:
            continue
        unsigned = {i for i, flag in zip(columns, flags) if flag}
        fitting.append(tuple(i in unsigned and real[i] != codes.YEAR for i in range(len(real))))
        if not any(flags[len(columns) :]) and all(i in unsigned for i in columns if real[i] == codes.YEAR):
            likely.append(fitting[-1])
    if not fitting:
        raise DecodeError(f"TABLE_MAP has {len(bits)} bytes of signs, which do not match the columns", event_type=TABLE_MAP)
    if release.has("counts_years"):
        return (fitting[0],)
    if not release.has("may_count_years"):
        return (fitting[-1],)
    return tuple(dict.fromkeys(likely or fitting))


def _geometries(real: list[int], r: _Reader, release: Release) -> tuple[str | None, ...]:
    """Return the type of each GEOMETRY column in the server's spelling."""
    found: list[str | None] = []
    for code in real:
        number = r.packed() if code == codes.GEOMETRY and r.more else -1
        name = GEOMETRY_KINDS[number] if 0 <= number < len(GEOMETRY_KINDS) else None
        found.append("geomcollection" if name == "geometrycollection" and release.has("geomcollection") else name)
    return tuple(found)
