"""Where a reader stands in the log of another server, found by what its last transactions did.

Never guesses: of several places that fit it takes the first, so that something may come again but nothing is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from canal.errors import PositionLostError
from canal.model import Entry, TableMap
from canal.parse import ddl
from canal.parse.decoder import BinlogDecoder
from canal.parse.tables import parse_table_map
from canal.position import Position
from canal.schema import TableSchema

_DIGEST = 16
"""Hexadecimal digits of one transaction's digest."""

_FILTERED = TableMap(TableSchema("", "", ()), (), None, False)

Done = tuple[str, str, int]
"""A transaction of a log: its digest, its journal and the offset behind it."""


@attrs.frozen
class TailPlace:
    """``journal`` and ``offset`` are behind the transaction that the tail's last but ``missing`` is."""

    journal: str
    offset: int
    missing: int


def find_tail(tail: str, log: Iterable[Done]) -> TailPlace | None:
    """The place in ``log`` behind the transactions of which ``tail`` has the digests; None when it holds none of them.

    A transaction fits when those before it do too, as far back as the tail and the part of the log go. That log may
    lack the last ones, ``missing`` of them: a replica that lags behind, or that was left behind by a crash.
    """
    wanted = [tail[at : at + _DIGEST] for at in range(0, len(tail), _DIGEST)]
    numbers: dict[str, list[int]] = {}
    for number, digest in enumerate(wanted):
        numbers.setdefault(digest, []).append(number)
    first: dict[int, TailPlace] = {}
    seen: deque[str] = deque(maxlen=len(wanted) or 1)
    for digest, journal, offset in log:
        seen.append(digest)
        for number in numbers.get(digest, ()):
            length = min(number + 1, len(seen))
            if number not in first and wanted[number + 1 - length : number + 1] == list(seen)[-length:]:
                first[number] = TailPlace(journal, offset, len(wanted) - 1 - number)
    return first[max(first)] if first else None


def transactions(connection: Any, start: Position) -> Iterator[Done]:
    """The transactions that the source's log holds from ``start`` on, up to its present end.

    Args:
        connection: to the source; it gives ``journal_names()`` and ``replay(journal, offset)``.
        start: journal and offset of the beginning of a transaction.
    """
    names = connection.journal_names()
    if start.journal not in names:
        raise PositionLostError(f"the source has no log {start.journal} any more", position=start)
    found: list[Done] = []

    def keep(entries: list[Entry]) -> None:
        for entry in entries:
            one = entry.transaction
            if entry.is_end and one.tape is not None and one.tape_end > one.tape_start:
                found.append((one.tape[one.tape_end - 8 : one.tape_end].hex(), one.journal, one.end))

    decoder = BinlogDecoder(_names_only, ddl.classify, _nothing, _nothing, keep)
    decoder.follow_only = True
    offset = start.offset
    for journal in names[names.index(start.journal) :]:
        decoder.reset(Position(journal=journal, offset=offset), connection.flavor, "", None, digests=True)
        for event in connection.replay(journal, offset):
            decoder.feed([event])
            yield from found
            found.clear()
        offset = 4


def _names_only(body: bytes, flavor: str) -> TableMap:
    parse_table_map(body, flavor)
    return _FILTERED


def _nothing(*values: Any) -> None:
    pass
