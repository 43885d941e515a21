"""Where the rows of prepared XA transactions lie in a source's log, and reading them again.

Never decides about rows: that is the decoder's business. Rows are read again after a restart, when they were too many to
be held, and when the start lies between XA PREPARE and XA COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from canal.binlog import event_layout as layout
from canal.binlog.server_facts import Release
from canal.errors import PositionLostError
from canal.model import TableMap
from canal.parse.log.decoder import BinlogDecoder
from canal.parse.schema.classify import classify
from canal.position import Position, PreparedXa
from canal.schema import TableSchema

_FILTERED = TableMap(TableSchema("", "", ()), (), None, False)


def read_again(connection: Any, wanted: PreparedXa, committed: Position) -> Iterator[bytes]:
    """The events of the wanted transaction and those behind it, from a FORMAT_DESCRIPTION on.

    Args:
        connection: to the source; it gives ``journal_names()`` and ``replay(journal, offset)``.
        wanted: its ``journal`` is empty when its position is not known; then the log is searched, the newest part first.
        committed: where the XA COMMIT begins: the rows lie before it.

    Raises:
        PositionLostError: the log does not hold it, or not any more.
    """
    if connection is None or not connection.can_replay:
        raise _lost(wanted, committed, "this source cannot be read again")
    position: PreparedXa | None = wanted if wanted.journal else _find(connection, wanted.xid, committed)
    if position is None:
        raise _lost(wanted, committed, f"the log has it nowhere from {connection.journal_names()[0]} on")
    try:
        yield from connection.replay(position.journal, position.offset)
    except PositionLostError as error:
        raise _lost(wanted, committed, f"its rows lay at {position.journal}:{position.offset}") from error


def _lost(wanted: PreparedXa, committed: Position, why: str) -> PositionLostError:
    return PositionLostError(
        f"XA transaction {wanted.xid} was prepared before this reader's start and is committed at {committed}, but {why}",
        position=committed,
        remedy="Copy the tables that it changed anew and start behind its XA COMMIT.",
    )


def _find(connection: Any, xid: str, committed: Position) -> PreparedXa | None:
    """The last position before ``committed`` at which the transaction was prepared."""
    names = connection.journal_names()
    if committed.journal in names:
        names = names[: names.index(committed.journal) + 1]
    for journal in reversed(names):
        follower = BinlogDecoder(_nowhere, classify, _nothing, _nothing, _nothing)
        follower.follow_only = True
        follower.reset(Position(journal=journal, offset=layout.FIRST), connection.flavor, "", None)
        for event in connection.replay(journal, layout.FIRST):
            follower.feed([event])
            if journal == committed.journal and follower.offset >= committed.offset:
                break
        found = [one for one in follower.assembly.prepared if one.xid == xid]
        if found:
            return found[-1]
    return None


def _nowhere(body: bytes, release: Release) -> TableMap:
    return _FILTERED


def _nothing(*values: Any) -> None:
    pass

