"""Converts a canal cursor to our position: the begin or end of the transaction, and the GTIDs done there.

Never decides where to start: returns a cursor unchanged if the conversion cannot be proved.

canal's offset is the start of the last event that is done, and a canal cursor names no server. Without GTID mode it has no GTID
set, so a failover would have to search by time. If canal rewrote our meta.dat, the file has our offsets, which are ends, in
canal's form. The event before the offset distinguishes the two.
"""

from __future__ import annotations

import contextlib
import logging

import attrs

from canal.binlog import event_layout as layout
from canal.binlog.event_types import FORMAT_DESCRIPTION, HEARTBEATS, MARIADB_GTID_LIST, PREVIOUS_GTIDS, ROTATE
from canal.errors import AuthenticationError, ConnectionLostError, SourceError
from canal.gtid import MysqlGtidSet
from canal.parse.log.continuity import incarnation_of, is_at
from canal.parse.log.scan import TransactionScan
from canal.parse.source.protocol import FullConnection
from canal.position import Position

log = logging.getLogger("canal.parse")


def convert_cursor(connection: FullConnection, cursor: Position) -> Position:
    """Return the position that a canal cursor means in a server's log, or the cursor itself if unknown."""
    if not (cursor.at_event and cursor.timestamp and connection.identity and connection.can_replay) or cursor.gtid:
        return cursor
    try:
        found = _found(connection, cursor)
    except (AuthenticationError, ConnectionLostError):
        raise
    except SourceError as error:  # the stream raises it again with more detail
        log.info("cannot look up %s: %s", cursor, error)
        return cursor
    return cursor if found is None else found


def _found(connection: FullConnection, cursor: Position) -> Position | None:
    """Read the journal up to the cursor and return the position.

    None if neither the event there nor the event before it matches the cursor, or if the source has GTIDs but the journal
    does not list the earlier ones.
    """
    scan, last, incarnation, tells_gtids = TransactionScan(), b"", "", not connection.has_gtids
    with contextlib.closing(connection.replay(cursor.journal, layout.FIRST)) as events:
        for event in events:
            if event[layout.TYPE] == ROTATE or event[layout.TYPE] in HEARTBEATS:
                continue
            if scan.offset >= cursor.offset:
                break
            if event[layout.TYPE] == FORMAT_DESCRIPTION:
                incarnation = incarnation or incarnation_of(event)
            tells_gtids |= event[layout.TYPE] in (PREVIOUS_GTIDS, MARIADB_GTID_LIST)
            scan.feed(event)
            last = event
        else:
            event = b""
    if scan.offset != cursor.offset or not tells_gtids:
        return None
    if event and is_at(cursor, event):
        begin = scan.boundary
        scan.feed(event)
        # A single statement may be canal's last, which is done, or the next after our offset in the same second.
        is_alone = begin.offset == cursor.offset
        position = scan.boundary if scan.whole == scan.offset and not is_alone else begin
    elif last and is_at(cursor, last) and scan.whole == scan.offset:
        position = scan.boundary
    else:
        return None
    gtid = position.gtid if connection.has_gtids else ""
    if gtid and connection.purged:
        gtid = str(MysqlGtidSet.parse(gtid) | MysqlGtidSet.parse(connection.purged))
    return attrs.evolve(
        cursor, offset=position.offset, gtid=gtid, source=connection.identity, incarnation=incarnation, at_event=False
    )
