"""Tables of the values that live tests compare with what the server itself prints."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import attrs

from canal.testing.servers import ThrowawayServer
from tests.support.live import is_since
from tests.support.oracle_cases import Case, Releases

#: Columns of a table.
WIDTH: Final = 24
Show = Callable[[Any, int], Any]


@attrs.frozen
class Family:
    """How a kind of column is read by SELECT, and the same of a decoded value; what canal's text is, where it is another."""

    select: str
    show: Show
    canal: str = ""


def _fraction(micros: int, digits: int) -> str:
    return f".{micros:06}"[: digits + 1] if digits else ""


def _moment(value: Any, digits: int) -> str:
    if isinstance(value, str):
        return str(value)
    plain = value.replace(tzinfo=None, microsecond=0)
    return plain.isoformat(" ") + _fraction(value.microsecond, digits)


def _span(value: timedelta, digits: int) -> str:
    micros = abs(value) // timedelta(microseconds=1)
    seconds, micros = divmod(micros, 10**6)
    sign = "-" if value < timedelta(0) else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(micros, digits)}"


def _text(value: Any, digits: int) -> str:
    """Bytes in the column's charset, then in UTF-8: 3F (?) for what no character is."""
    return value.encode().hex().upper() if isinstance(value, str) else f"invalid {bytes(value).hex().upper()}"


def _number(value: Any, digits: int) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(int(value))


def single(value: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


FAMILIES: Final[Mapping[str, Family]] = {
    "number": Family("CAST({} AS CHAR)", _number),
    "float": Family("{}*1e0", lambda value, _: repr(single(value))),
    "double": Family("{}*1e0", lambda value, _: repr(value)),
    "bit": Family("CAST({}+0 AS CHAR)", _number),
    "year": Family("CAST({}+0 AS CHAR)", _number, "CAST({} AS CHAR)"),
    "date": Family("CAST({} AS CHAR)", lambda value, _: str(value)),
    "time": Family("CAST({} AS CHAR)", _span),
    "datetime": Family("CAST({} AS CHAR)", _moment),
    "timestamp": Family("CAST({} AS CHAR)", _moment),
    "text": Family("HEX(CONVERT({} USING utf8mb4))", _text, "CONVERT({} USING utf8mb4)"),
    "bytes": Family("HEX({})", lambda value, _: bytes(value).hex().upper()),
    "geometry": Family("HEX({})", lambda value, _: value.hex().upper()),
    "enum": Family("CONVERT({} USING utf8mb4)", lambda value, _: value, "CAST({}+0 AS CHAR)"),
    "set": Family("CONVERT({} USING utf8mb4)", lambda value, _: value, "CAST(CAST({}+0 AS UNSIGNED) AS CHAR)"),
    "address": Family("CAST({} AS CHAR)", lambda value, _: str(value)),
    "json": Family("CAST({} AS CHAR)", lambda value, _: value),
}


def available(since: Releases, server: ThrowawayServer) -> bool:
    return is_since(server, **since)


@attrs.frozen
class Table:
    """A table of cases, a column each: c0, c1 …"""

    name: str
    cases: Sequence[Case]

    @property
    def row_count(self) -> int:
        return max(len(case.literals) for case in self.cases) + 1

    def literal(self, column: int, row: int) -> str:
        case = self.cases[column]
        literals = case.literals if "NOT NULL" in case.type else (*case.literals, "NULL")
        return literals[row % len(literals)]

    def selects(self) -> str:
        found = []
        for number, case in enumerate(self.cases):
            family = FAMILIES[case.family]
            found += [family.select.format(f"c{number}"), (family.canal or family.select).format(f"c{number}")]
        return ", ".join(found)


def tables_of(cases: Sequence[Case], prefix: str) -> Iterator[Table]:
    for number in range(0, len(cases), WIDTH):
        yield Table(f"{prefix}_{number // WIDTH}", cases[number : number + WIDTH])
