"""A connection to a fake binlog within the process."""

from __future__ import annotations

import struct
import time
from collections.abc import Generator

from canal.errors import ConnectionLostError, LostReason, PositionLostError, StateError
from canal.gtid import parse_gtid_set
from canal.parse.schema.table_state import TableVersion
from canal.parse.source.information_schema import Accepts, accept_all
from canal.parse.source.protocol import Description, FullConnection
from canal.position import Position, journal_key
from canal.schema import TableSchema
from canal.testing import _encode
from canal.testing._binlog import BinlogState
from canal.testing._feed import Feed


class FakeConnection(FullConnection):
    """A connection to a fake binlog within the process; meets :class:`canal.parse.Connection`."""

    #: The fake compares names as they are.
    lower_case_table_names = 0

    def __init__(self, fake: BinlogState) -> None:
        self._fake = fake
        self._feed: Feed | None = None
        self._by_gtid = False
        self._closed = False

    @property
    def identity(self) -> str:
        return self._fake.identity

    @property
    def flavor(self) -> str:
        return self._fake.flavor

    @property
    def has_gtids(self) -> bool:
        return self._fake.gtid

    @property
    def full_metadata(self) -> bool | None:
        return self._fake.metadata == "FULL"

    @property
    def clock_offset(self) -> float:
        """Seconds that the fake's clock is ahead of ours."""
        return self._fake.clock() - time.time()

    def resolve(self, start: str | Position) -> Position:
        return self._fake.resolve(start)

    def dump(self, position: Position) -> None:
        if self._feed is not None:
            raise StateError("this connection streams already")
        if self._closed:
            raise ConnectionLostError("the connection to the fake binlog was closed")
        self._by_gtid = bool(position.gtid and self.has_gtids and not position.incarnation)
        if position.gtid and self.has_gtids and not self._by_gtid:
            self._check_executed(position)
        self._feed = Feed(self._fake, position)

    def _check_executed(self, position: Position) -> None:
        """As of a server: what it has made itself it must have still."""
        wanted = parse_gtid_set(position.gtid, self.flavor)
        with self._fake.log.changed:
            lacking = self._fake.log.lacking(wanted)
        if lacking:
            raise self._lost(lacking, position)

    @staticmethod
    def _lost(lacking: str, position: Position) -> PositionLostError:
        return PositionLostError(
            f"the fake binlog has lost what was read of it: {lacking}", reason=LostReason.DIVERGED, position=position
        )

    def read(self, timeout: float) -> list[bytes] | None:
        if self._feed is None:
            raise StateError("cannot read before dump()")
        return self._feed.take(timeout)

    def table_columns(self, schema: str, table: str) -> TableSchema | None:
        return self._fake.table_columns(schema, table)

    def table_names(self) -> list[tuple[str, str]]:
        return self._fake.table_names()

    def describe(self, schema: str = "", table: str = "", *, accepts: Accepts = accept_all) -> Description | None:
        """One table, as ``table_columns`` tells it."""
        found = self.table_columns(schema, table) if schema else None
        return None if found is None else Description((TableVersion(found, None),))

    @property
    def can_replay(self) -> bool:
        return True

    def end_of_log(self) -> Position:
        """The present end, with the GTIDs."""
        return self.resolve("latest")

    def journal_names(self) -> list[str]:
        """The journals that are there, the oldest first."""
        return [name for name, _ in self._fake.journals]

    def replay(self, journal: str, offset: int) -> Generator[bytes, None, None]:
        """The events of one journal from ``offset`` on, its FORMAT_DESCRIPTION first."""
        if journal not in self.journal_names():
            raise PositionLostError(f"the fake binlog has no {journal}", position=Position(journal=journal, offset=offset))
        with self._fake.log.changed:
            self._fake.log.locate_offset(Position(journal=journal, offset=offset))
            events = list(self._fake.log.find(journal).events)
        if events and events[0].offset < offset:
            yield _encode.resent(events[0].data, checksum=self._fake.checksum)
        yield from (event.data for event in events if event.offset >= offset)

    def incarnation(self, journal: str) -> str:
        """See ``Position.incarnation``; "" where there is no such journal."""
        with self._fake.log.changed:
            found = [one for one in self._fake.log.journals if one.name == journal]
            return "{}-{}".format(*struct.unpack_from("<IxI", found[0].events[0].data)) if found else ""

    def check_end(self, position: Position) -> bool:
        """As that of a server: whether the log ends where reading stands, which by GTID set, and before a dump, is not looked at.

        Raises:
            PositionLostError: it does not have any more what was read.
        """
        end, is_streaming = self._fake.position, self._feed is not None
        is_by_gtid = self._by_gtid if is_streaming else self.has_gtids
        lacking: object = is_by_gtid and self._fake.log.lacking(parse_gtid_set(position.gtid, self.flavor))
        if not lacking and (is_streaming or not is_by_gtid):
            if (journal_key(end.journal), end.offset) < (journal_key(position.journal), position.offset):
                lacking = f"it ends at {end.journal}:{end.offset}"
            elif is_by_gtid and position.incarnation not in ("", self.incarnation(position.journal)):
                lacking = f"{position.journal} was begun anew"
        if lacking:
            raise self._lost(str(lacking), position)
        return is_by_gtid or (end.journal, end.offset) == (position.journal, position.offset)

    def close(self) -> None:
        self._closed = True
        if self._feed is not None:
            self._feed.close()
