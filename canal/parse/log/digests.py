"""Finds a reader's position in another server's log by digests of the last transactions.

Never guesses: of several matching positions it chooses the first, so events may repeat but none is skipped.
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
"""Hexadecimal digits of a transaction's digest."""

Done = tuple[str, Callable[[], Position] | None]
"""A digest in a log, and a function that returns the position after the transaction; None if the transaction continues."""


@attrs.frozen
class TailPosition:
    """``position`` is after the last transaction of the tail that was found; ``missing`` later ones were not."""

    position: Position
    missing: int


def find_tail(tail: str, log: Iterable[Done]) -> TailPosition | None:
    """Return the position in ``log`` after the transactions in ``tail``; None if the log contains none of them.

    A transaction matches if the transactions before it match too, as far back as the tail and the log go. The log may lack
    the last ``missing`` transactions: a replica with replication lag, or after a crash.
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
    """Return whether the digest belongs to a statement that may change a schema."""
    return int(digest, 16) & 1 == 1


def transactions(connection: Any, start: Position) -> Iterator[Done]:
    """Yield the transactions in the source's log from ``start`` to the present end.

    Args:
        connection: the source; provides ``journal_names()`` and ``replay(journal, offset)``.
        start: journal and offset of a transaction's start, and the GTIDs before it.
    """
    names = connection.journal_names()
    if start.journal not in names:
        raise PositionLostError(f"the source no longer has log {start.journal}", position=start)
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
