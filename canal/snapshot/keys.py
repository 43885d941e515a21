"""Chunks of a table: ranges between keys that are found by looking into the index, and their SQL.

Never decides what comes before what: the server compares. Where a few looks find no middle, as between keys of text, the server
counts along the index, once. Keys are text, hexadecimal for text and bytes.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from itertools import takewhile
from typing import Any, Final, Protocol

import attrs

from canal.binlog import type_codes as codes
from canal.binlog.server_facts import ServerFacts
from canal.errors import CursorError, ServerError, UnsupportedError
from canal.parse.schema.table_state import TableVersion
from canal.rows.charsets import codec_of
from canal.schema import ColumnSchema, TableSchema

log = logging.getLogger("canal.spark")

#: Chunks of a plan at most; where the table needs more, they are larger than asked for.
MAX_CHUNKS: Final = 10_000

Key = tuple[str, ...]
Range = tuple[Key | None, Key | None, int]
"""The rows with ``lower < key <= upper``, and the estimate of their number."""


class KeySession(Protocol):
    """Asks the server; values of rows are bytes or None."""

    @property
    def server(self) -> ServerFacts: ...

    def run(self, sql: str, args: tuple[Any, ...] = (), doing: str = "") -> list[tuple[Any, ...]]: ...
    def explain(self, sql: str) -> dict[str, Any]: ...


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@attrs.frozen
class KeyColumn:
    """How the values of a key's column are read, written in SQL, and where one between two others may lie.

    ``kind`` is number, moment, text, bytes or address.
    """

    name: str
    kind: str
    #: The charset of a text, the type of an address.
    charset: str = ""
    is_bits: bool = False
    is_float: bool = False

    @property
    def select(self) -> str:
        name = quoted(self.name)
        return f"{name}+0" if self.is_bits else f"{name}*1e0" if self.is_float else name

    def value(self, cell: bytes) -> str:
        return cell.hex() if self.kind in ("text", "bytes") else cell.decode("ascii")

    def literal(self, value: str) -> str:
        """SQL of a value; nothing but a value gets through."""
        good = _LITERALS[self.kind].fullmatch(value)
        if good is None:
            raise CursorError(f"the plan of a snapshot has a bound of {self.name} that is no {self.kind}")
        if self.kind == "number":
            return value
        return f"_{self.charset or 'binary'} X'{value}'" if self.kind in ("text", "bytes") else f"'{value}'"


_LITERALS: Final = {
    "number": re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?"),
    "moment": re.compile(r"-?\d[\d:. -]*"),
    "text": re.compile("([0-9a-f]{2})*"),
    "bytes": re.compile("([0-9a-f]{2})*"),
    "address": re.compile("[0-9a-fA-F:.-]+"),
}
NUMBERS: Final = codes.NUMERIC | {codes.YEAR, codes.BIT}
STRINGS: Final = codes.TEXTS - {codes.BLOB_COMPRESSED, codes.VARCHAR_COMPRESSED}
ADDRESSES: Final = ("uuid", "inet6", "inet4")


def maybe_key_column(column: ColumnSchema) -> KeyColumn | None:
    """None for a column whose order in the index is not that of its comparison with a literal: ENUM and SET."""
    code = column.type_code
    if code in NUMBERS:
        return KeyColumn(column.name, "number", is_bits=code == codes.BIT, is_float=code in (codes.FLOAT, codes.DOUBLE))
    if code in codes.MOMENTS:
        return KeyColumn(column.name, "moment")
    if column.base_type in ADDRESSES:
        return KeyColumn(column.name, "address", column.base_type)
    if code in STRINGS:
        if column.charset in (None, "binary"):
            return KeyColumn(column.name, "bytes")
        return KeyColumn(column.name, "text", str(column.charset))
    return None


def key_column(column: ColumnSchema) -> KeyColumn:
    found = maybe_key_column(column)
    if found is None:
        raise CursorError(f"the plan of a snapshot has chunks of {column.name}, which cannot be")
    return found


def chunk_key(state: TableVersion) -> tuple[str, tuple[str, ...]]:
    """The index and the columns that chunks are made of: the primary key or the first unique one without NULL, as far as
    whole columns of it can be compared."""
    by_name = {column.name.lower(): column for column in state.schema.columns}
    keys = sorted((key for key in state.keys or () if key.unique and not key.hash), key=lambda key: not key.is_primary)
    for key in keys:
        columns = [by_name.get(name.lower()) for name, _ in key.columns]
        if any(column is None or column.nullable and not key.is_primary for column in columns):
            continue
        names: list[str] = []
        for column, (_, length) in zip(columns, key.columns):
            if column is None or length is not None or maybe_key_column(column) is None:
                break
            names.append(column.name)
        if names:
            return key.name, tuple(names)
    return "", ()


def condition(key: Sequence[KeyColumn], lower: Key | None, upper: Key | None) -> str:
    """SQL of a range: WHERE and what follows, or nothing.

    Raises:
        CursorError: a bound is no value of its column.
    """
    parts = [beyond(key, bound, how) for bound, how in ((lower, ">"), (upper, "<=")) if bound is not None]
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def beyond(key: Sequence[KeyColumn], bound: Key, how: str) -> str:
    """SQL: the key compared with a bound, column by column. ``>`` and ``<=`` of the same bound are opposites."""
    if len(bound) != len(key):
        raise CursorError("the plan of a snapshot has a bound that is no key")
    strict, last = how[0], how
    parts = []
    for number, (column, value) in enumerate(zip(key, bound)):
        equal = [f"{quoted(one.name)} = {one.literal(it)}" for one, it in zip(key[:number], bound)]
        sign = last if number == len(key) - 1 else strict
        parts.append(" AND ".join([*equal, f"{quoted(column.name)} {sign} {column.literal(value)}"]))
    return f"({' OR '.join(parts)})" if len(parts) > 1 else parts[0]


# -- the chunks --------------------------------------------------------------------------------------------------------


def find_ranges(
    session: KeySession,
    table: TableSchema,
    index: str,
    key: tuple[str, ...],
    total: int,
    chunk_rows: int,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> list[Range]:
    """Split the table by keys that it has until no range has many more rows than wanted, by the index' own estimate.

    ``total`` is what is known of the number of rows. The first range has no lower bound, the last no upper one. ``tell``
    is called again and again with the rows whose ranges are found, and all rows, about.
    """
    finder = _Finder(session, table, index, key)
    first, last = finder.first(""), finder.first("", "DESC")
    if first is None or last is None:
        return [(None, None, 0)]
    done: list[tuple[Key, int]] = []  # ends of ranges
    total, found = max(total, finder.all_rows(), 1), 0
    open_ranges = [(first, last, total)]
    while open_ranges:
        lower, upper, rows = open_ranges.pop()
        tell(found, total)
        room = MAX_CHUNKS - len(done) - len(open_ranges)
        enough = rows <= chunk_rows * 3 // 2 or room <= 1
        middle = None if enough else finder.between(lower, upper, rows)
        if enough:
            done.append((upper, rows))
            found += rows
        elif middle is None:
            for one in finder.counted(lower, upper, rows, max(chunk_rows, rows // room)):
                done.append(one)
                found += one[1]
                tell(found, total)
        else:
            open_ranges.append((middle, upper, finder.estimate(middle, upper, rows)))
            open_ranges.append((lower, middle, finder.estimate(lower, middle, rows)))
    done = _merged(done, chunk_rows)
    bounds = [upper for upper, _ in done[:-1]]
    return [(lower, upper, rows) for lower, upper, (_, rows) in zip([None, *bounds], [*bounds, None], done)]


def find_key(
    session: KeySession, table: TableSchema, index: str, key: tuple[str, ...], lower: Key | None, count: int
) -> Key | None:
    """Return the key of the row that is ``count`` rows behind ``lower`` in the order of the index; None if there are fewer."""
    finder = _Finder(session, table, index, key)
    return finder.first("" if lower is None else f" WHERE {beyond(finder.key, lower, '>')}", behind=count - 1)


def _merged(ranges: list[tuple[Key, int]], chunk_rows: int) -> list[tuple[Key, int]]:
    """Neighbours that are small together, as where keys lie far from each other, are one range."""
    merged: list[tuple[Key, int]] = []
    for upper, rows in ranges:
        if merged and merged[-1][1] + rows <= chunk_rows:
            rows += merged.pop()[1]
        merged.append((upper, rows))
    return merged


class _Finder:
    """Looks into an index for keys: each question is a few dives, however large the table is."""

    def __init__(self, session: KeySession, table: TableSchema, index: str, key: tuple[str, ...]) -> None:
        by_name = {column.name: column for column in table.columns}
        self._session = session
        self.key = [key_column(by_name[name]) for name in key]
        names = ", ".join(column.select for column in self.key)
        table_name = f"{quoted(table.schema)}.{quoted(table.table)}"
        self._select = f"SELECT {names} FROM {table_name} FORCE INDEX ({quoted(index)})"
        # Without FORCE INDEX: MySQL does not look into an index that it is made to use.
        explain = "EXPLAIN FORMAT=TRADITIONAL" if session.server.has("explain_format") else "EXPLAIN"
        self._explain = f"{explain} SELECT {', '.join(quoted(name) for name in key)} FROM {table_name}"

    def all_rows(self) -> int:
        """The rows of the table, as the optimizer sees them."""
        return int(self._session.explain(self._explain)["rows"] or 0)

    def first(self, where: str, way: str = "ASC", *, behind: int = 0) -> Key | None:
        """The first key, or that so many rows behind it."""
        order = ", ".join(f"{quoted(column.name)} {way}" for column in self.key)
        rows = self._session.run(f"{self._select}{where} ORDER BY {order} LIMIT {behind}, 1", doing="find the chunks of a table")
        return tuple(column.value(cell) for column, cell in zip(self.key, rows[0])) if rows else None

    def within(self, lower: Key, upper: Key) -> str:
        return f" WHERE {beyond(self.key, lower, '>')} AND {beyond(self.key, upper, '<')}"

    def estimate(self, lower: Key, upper: Key, parent: int) -> int:
        """The rows between two keys, as the optimizer sees them by two dives into the index; fewer than ``parent``."""
        answer = self._session.explain(self._explain + self.within(lower, upper))
        rows = int(answer["rows"] or 0) if answer.get("type") == b"range" else parent // 2
        return max(0, min(rows, parent * 15 // 16))

    def counted(self, lower: Key, upper: Key, rows: int, most: int) -> Iterator[tuple[Key, int]]:
        """The ends of ranges of ``most`` rows each, the last of the rest, with their rows; ``rows`` is the estimate of all."""
        while (end := self.first(self.within(lower, upper), behind=most - 1)) is not None:
            yield end, most
            lower, rows = end, rows - most
        yield upper, min(max(rows, 1), most)

    def between(self, lower: Key, upper: Key, rows: int) -> Key | None:
        """A key of the table after ``lower`` and before ``upper``, about in the middle; None where a few looks find none."""
        number = next((i for i, (a, b) in enumerate(zip(lower, upper)) if a != b), None)
        if number is None:
            return None
        search = _Search(self, lower, upper, number, rows)
        if search.bisect():
            return search.best
        return self._between_groups(lower, upper, number, rows)

    def _between_groups(self, lower: Key, upper: Key, number: int, rows: int) -> Key | None:
        """Where nothing lies between two values of a column: among the keys that share the one of them, or the other."""
        if number == len(self.key) - 1:
            return None
        within = self.within(lower, upper)
        last = self.first(f"{within} AND {self.same(lower, number + 1)}", "DESC")
        if last is not None:
            return self.between(lower, last, rows) or last
        first = self.first(f"{within} AND {self.same(upper, number + 1)}")
        return first and (self.between(first, upper, rows) or first)

    def same(self, bound: Key, count: int) -> str:
        return " AND ".join(f"{quoted(one.name)} = {one.literal(it)}" for one, it in zip(self.key[:count], bound))


_EXACT: Final = Context(prec=100)
#: "Invalid utf8mb4 character string": a candidate, or a key, that is no text in its charset.
_INVALID_TEXT: Final = 1300
#: Looks into the index at most for one key: a range of 64 bits is halved to nothing.
_LOOKS: Final = 64
#: And for one of text, of whose order it only guesses.
_TEXT_LOOKS: Final = 4


@attrs.define
class _Search:
    """The search for a key between two others, by values of one column; ``best`` halves the rows best of what was found."""

    finder: _Finder
    lower: Key
    upper: Key
    #: Of the column in the key.
    number: int
    rows: int
    best: Key | None = None
    _error: float = 1.0

    def bisect(self) -> bool:
        """Halve the range of values, towards the side with the more rows; right where the order of values is known."""
        kind = self._column.kind
        if kind == "address":
            return False
        low, high = self.lower[self.number], self.upper[self.number]
        for _ in range(_TEXT_LOOKS if kind == "text" else _LOOKS):
            value = _BETWEEN[kind](self._column, low, high)
            if value is None or value in (low, high):
                return False
            found = self._look(value, ">=", "ASC")
            share = self._share(found)
            if self._is_good(share):
                return True
            if share < 0.5 and found is not None:
                low = found[self.number]
                continue
            found = self._look(value, "<", "DESC")
            if found is None:
                return False
            if self._is_good(self._share(found)):
                return True
            high = found[self.number]
        return False

    @property
    def _column(self) -> KeyColumn:
        return self.finder.key[self.number]

    def _look(self, value: str, sign: str, way: str) -> Key | None:
        column = self._column
        same = self.finder.same(self.lower, self.number) + " AND " if self.number else ""
        where = f"{self.finder.within(self.lower, self.upper)} AND {same}{quoted(column.name)} {sign} {column.literal(value)}"
        try:
            return self.finder.first(where, way)
        except ServerError as error:
            if error.errno != _INVALID_TEXT:
                raise
            return None

    def _share(self, found: Key | None) -> float:
        """The part of the rows up to a key."""
        if found is None:
            return 1.0
        share = self.finder.estimate(self.lower, found, self.rows) / max(self.rows, 1)
        if self.best is None or abs(share - 0.5) < self._error:
            self.best, self._error = found, abs(share - 0.5)
        return share

    @staticmethod
    def _is_good(share: float) -> bool:
        return 0.125 <= share <= 0.875


def _number_between(column: KeyColumn, lower: str, upper: str) -> str | None:
    a, b = Decimal(lower), Decimal(upper)
    if column.is_float:
        return repr(float(a + (b - a) / 2))
    value = _EXACT.divide(_EXACT.add(a, b), 2)
    if a == a.to_integral() and b == b.to_integral() and b - a > 1:
        value = value.to_integral()
    return format(value, "f")


def _moment_between(column: KeyColumn, lower: str, upper: str) -> str | None:
    """Of the texts of dates and times: whatever the calendar, a day is 24 hours and a month 31 days here."""
    sizes = (10000, 13, 32, 24, 60, 60, 1000000)
    a, b = moment_number(lower, sizes), moment_number(upper, sizes)
    number = (a + b) // 2
    if _is_time(lower):
        sign, number = ("-" if number < 0 else ""), abs(number)
        seconds, micros = divmod(number, 1000000)
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    parts = []
    for size in reversed(sizes):
        number, part = divmod(number, size)
        parts.append(part)
    year, month, day, hour, minute, second, micros = reversed(parts)
    text = f"{year:04}-{max(month, 1):02}-{min(max(day, 1), 28):02}"
    return text if ":" not in lower else f"{text} {hour:02}:{minute:02}:{second:02}.{micros:06}"


def _is_time(text: str) -> bool:
    return ":" in text and " " not in text


def moment_number(text: str, sizes: Sequence[int] = ()) -> int:
    """A TIME's microseconds, or a number that grows as dates do, of parts of so many values."""
    whole, _, fraction = text.partition(".")
    micros = int(fraction.ljust(6, "0") or 0)
    if _is_time(text):
        hours, minutes, seconds = map(int, whole.lstrip("-").split(":"))
        number = ((hours * 60 + minutes) * 60 + seconds) * 1000000 + micros
        return -number if text.startswith("-") else number
    parts = [int(part) for part in re.split("[-: ]", whole)]
    number = 0
    for size, part in zip(sizes, [*parts, *[0] * (6 - len(parts)), micros]):
        number = number * size + part
    return number


def _bytes_between(column: KeyColumn, lower: str, upper: str) -> str | None:
    """As numbers: eight bytes from where they begin to differ."""
    a, b = bytes.fromhex(lower), bytes.fromhex(upper)
    common = len(os.path.commonprefix([a, b]))
    low, high = (int.from_bytes(one[common : common + 8].ljust(8, b"\0"), "big") for one in (a, b))
    value = (low + high) // 2
    return (a[:common] + value.to_bytes(8, "big")).hex() if high > low else None


#: The order of most collations, as far as it goes: digits, then letters whatever their case.
_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def _text_between(column: KeyColumn, lower: str, upper: str) -> str | None:
    """By the characters from where they begin to differ; only a guess at what the collation says."""
    codec = codec_of(column.charset) or "latin-1"
    raw = bytes.fromhex(lower)
    try:
        a, b = (one.decode(codec) for one in (raw, bytes.fromhex(upper)))
    except UnicodeDecodeError:
        return None
    common = len(os.path.commonprefix([a, b]))
    tails = [_digits(one[common : common + 8].lower()) for one in (a, b)]
    if tails[1] and (tails[0] or len(a) == common):
        low, high = (_digits_number(tail, 36) for tail in tails)
        number = (low + high) // 2
        text = "".join(_ALPHABET[number // 36**digit % 36] for digit in range(7, -1, -1))
    else:
        low, high = (ord(one[common]) if len(one) > common else 32 for one in (a, b))
        code = (low + high) // 2
        text = "\ue000" if 0xD800 <= code < 0xE000 else chr(code)
    try:
        tail = text.encode(codec)
    except (UnicodeEncodeError, UnsupportedError):  # no such character, or a set of the server's own
        tail = text.encode("ascii", "ignore") or b"O"
    head = next((raw[:size] for size in range(len(raw) + 1) if raw[:size].decode(codec, "replace") == a[:common]), None)
    return None if head is None else (head + tail).hex()


def _digits(text: str) -> list[int]:
    """Those that it begins with."""
    return [_ALPHABET.index(one) for one in takewhile(_ALPHABET.__contains__, text)]


def _digits_number(digits: Sequence[int], base: int) -> int:
    number = 0
    for digit in [*digits, *[0] * (8 - len(digits))]:
        number = number * base + digit
    return number


_BETWEEN: Final[dict[str, Callable[[KeyColumn, str, str], str | None]]] = {
    "number": _number_between,
    "moment": _moment_between,
    "text": _text_between,
    "bytes": _bytes_between,
}
