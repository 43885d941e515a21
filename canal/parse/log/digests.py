"""Where a reader stands in the log of another server, found by what its last transactions did.

Never guesses: of several positions that fit it takes the first, so that something may come again but nothing is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timezone
from typing import Any

import attrs

from canal.binlog import event_layout as layout
from canal.errors import PositionLostError
from canal.filter import FieldFilter, TableFilter
from canal.gtid import parse_gtid_set
from canal.model import Entry
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.schema.classify import classify
from canal.parse.schema.table_map import TableResolver
from canal.position import Position

_DIGEST = 16
"""Hexadecimal digits of one transaction's digest."""

Done = tuple[str, Callable[[], Position] | None]
"""What a log shows: a digest, and what gives the position behind its transaction; None where the transaction goes on."""


@attrs.frozen
class TailPosition:
    """``position`` is behind the transaction that the tail's last but ``missing`` is."""

    position: Position
    missing: int


def find_tail(tail: str, log: Iterable[Done]) -> TailPosition | None:
    """The position in ``log`` behind the transactions of which ``tail`` has the digests; None when it holds none of them.

    A transaction fits when those before it do too, as far back as the tail and the part of the log go. That log may
    lack the last ones, ``missing`` of them: a replica that lags behind, or that was left behind by a crash.
    """
    wanted = digests_of(tail)
    numbers: dict[str, list[int]] = {}
    for number, digest in enumerate(wanted):
        numbers.setdefault(digest, []).append(number)
    first: dict[int, Callable[[], Position]] = {}
    seen: deque[str] = deque(maxlen=len(wanted) or 1)
    for digest, behind in log:
        seen.append(digest)
        if behind is None:
            continue
        for number in numbers.get(digest, ()):
            length = min(number + 1, len(seen))
            if number not in first and wanted[number + 1 - length : number + 1] == list(seen)[-length:]:
                first[number] = behind
    return TailPosition(first[max(first)](), len(wanted) - 1 - max(first)) if first else None


def digests_of(tail: str) -> list[str]:
    return [tail[at : at + _DIGEST] for at in range(0, len(tail), _DIGEST)]


def changes_schema(digest: str) -> bool:
    """Whether it is the digest of a statement that may change a schema."""
    return int(digest, 16) & 1 == 1


def transactions(connection: Any, start: Position) -> Iterator[Done]:
    """The transactions that the source's log holds from ``start`` on, up to its present end.

    Args:
        connection: to the source; it gives ``journal_names()`` and ``replay(journal, offset)``.
        start: journal and offset of the beginning of a transaction, and the GTIDs before it.
    """
    names = connection.journal_names()
    if start.journal not in names:
        raise PositionLostError(f"the source has no log {start.journal} any more", position=start)
    found: list[Done] = []

    def keep(entries: list[Entry]) -> None:
        for entry in entries:
            one = entry.transaction
            if entry.is_end and one.tape is not None:
                digests = digests_of(one.tape[one.tape_start : one.tape_end].hex())
                found.extend((digest, None) for digest in digests[:-1])
                found.extend((digest, one.position_after) for digest in digests[-1:])

    tables = TableResolver(_nothing, TableFilter(exclude=".*"), FieldFilter(), timezone.utc)
    decoder = BinlogDecoder(tables.resolve, classify, _nothing, _nothing, keep)
    decoder.follow_only = True
    offset, executed = start.offset, parse_gtid_set(start.gtid, connection.flavor) if connection.has_gtids else None
    purged = connection.purged
    for journal in names[names.index(start.journal) :]:
        decoder.reset(Position(journal=journal, offset=offset), connection.flavor, "", executed, digests=True)
        decoder.purged = purged
        for event in connection.replay(journal, offset):
            decoder.feed([event])
            yield from found
            found.clear()
        offset, executed = layout.FIRST, None


def _nothing(*values: Any) -> None:
    pass
