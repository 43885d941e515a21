"""Resolves a start ("latest", "earliest", a position or a time) to a position where a dump can begin."""

from __future__ import annotations

import attrs

from canal.binlog import event_layout as layout
from canal.errors import ConfigError, PositionLostError, ServerError
from canal.gtid import MysqlGtidSet
from canal.parse.log.scan import TransactionScan, first_to_scan
from canal.parse.source.login import Login
from canal.parse.source.logs import ServerLogs
from canal.parse.source.protocol import Start
from canal.parse.source.server import ServerOptions
from canal.parse.source.side_reader import SideReader
from canal.position import Position


class StartFinder:
    """Finds a start position in the logs of a server. Reads logs only to search for a time."""

    def __init__(self, source: ServerOptions, login: Login, logs: ServerLogs, side_reader: SideReader) -> None:
        self._source = source
        self._login = login
        self._logs = logs
        self._side_reader = side_reader

    def resolve(self, start: Start) -> Position:
        if isinstance(start, Position):
            return self._resolve_position(start)
        if start == "latest":
            return self._logs.latest()
        if start == "earliest":
            return self._logs.earliest()
        raise ConfigError(f"start must be 'latest', 'earliest' or a Position, not {start!r}")

    def _resolve_position(self, start: Position) -> Position:
        if start.gtid and self._login.server.has_gtids:
            self._logs.check_purged(start)
            is_own = start.source in ("", self._login.server.identity)
            is_here = is_own and start.incarnation and start.journal in self._logs.names()
            return start if is_here else attrs.evolve(start, incarnation="")
        if start.gtid and not start.journal and not start.timestamp:
            raise ServerError(
                f"{self._source.address} has no GTIDs, and the position has only a GTID set",
                remedy=self._logs.with_gtid_advice("Give a journal and an offset"),
            )
        if start.journal and (start.offset or not start.timestamp):
            return self._logs.check_journal(start)
        if start.timestamp:
            return self._search(start)
        raise ConfigError("the start position is empty", remedy='Give a journal, a GTID set, a time, "latest" or "earliest".')

    def _search(self, start: Position) -> Position:
        target = -(-start.timestamp // 1000)  # events have whole seconds
        if start.journal:
            journal = self._logs.check_journal(attrs.evolve(start, offset=layout.FIRST, gtid="")).journal
            return self._scan(journal, target, one_journal=True)
        names = [name for name, _ in self._logs.listed()]
        first = first_to_scan(names, self._log_time, target, self._source.address, start)
        return self._scan(names[first], target, one_journal=False)

    def _log_time(self, journal: str) -> int:
        """Return when a log was begun: the time of the FORMAT_DESCRIPTION."""
        scan = TransactionScan()
        for event in self._side_reader.events(journal):
            scan.feed(event)
            if scan.format_time is not None:
                return scan.format_time
        raise PositionLostError(
            f"{journal} of {self._source.address} is empty", position=Position(journal=journal, offset=layout.FIRST)
        )

    def _scan(self, journal: str, target: int, *, one_journal: bool) -> Position:
        scan = TransactionScan(target)
        for event in self._side_reader.events(journal):
            scan.feed(event)
            if scan.found is not None or (one_journal and scan.journals > 1):
                break
        found = scan.found or scan.boundary
        gtid = found.gtid if self._login.server.has_gtids else ""
        if gtid and self._logs.purged:
            gtid = str(MysqlGtidSet.parse(gtid) | MysqlGtidSet.parse(self._logs.purged))
        return attrs.evolve(found, source=self._login.server.identity, gtid=gtid)
