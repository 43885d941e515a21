"""Checks that a server still has the log that was read. Detects a reset, a restored backup, or another server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from canal.errors import LostReason, PositionLostError
from canal.parse.source.login import Login
from canal.parse.source.logs import ServerLogs, shortened
from canal.parse.source.server import ServerOptions
from canal.parse.source.session import run
from canal.position import Position, journal_key


class LogCheck:
    """Compares a server with the position up to which the log was read.

    Args:
        incarnation: returns the present incarnation of a journal, as ``SideReader.incarnation``.
    """

    def __init__(self, source: ServerOptions, login: Login, logs: ServerLogs, incarnation: Callable[[str], str | None]) -> None:
        self._source = source
        self._login = login
        self._logs = logs
        self._incarnation = incarnation
        #: The end of the log when the incarnation was last checked.
        self._end = Position()

    def check_executed(self, login: Any, position: Position) -> list[str]:
        """Raise PositionLostError if the server has not executed transactions that were read.

        It is then another server, or has lost them.

        Returns:
            Warnings for the operator if the server may only lag behind.
        """
        missing = str(run(login, "SELECT GTID_SUBTRACT(%s, @@global.gtid_executed)", (position.gtid,))[0][0])
        if not missing or self._login.server.identity.lower() in missing.lower() and self._is_logged_still(position):
            return []
        text = f"{self._source.address} has not executed transactions that the position contains: {shortened(missing)}"
        shared = run(login, "SELECT GTID_SUBTRACT(%s, %s)", (position.gtid, missing))[0][0]
        if not shared or self._login.server.identity.lower() in missing.lower():
            raise PositionLostError(
                text,
                reason=LostReason.DIVERGED,
                position=position,
                remedy="Check the server: it lost the transactions, or it is neither the position's server nor a replica of it.",
            )
        return [f"{text}. If they never reach it, delivered changes are missing from the server's tables"]

    def check_end(self, position: Position, *, by_offset: bool, is_streaming: bool) -> bool:
        """Return whether the log ends at ``position``; True in a dump by GTID set. Called when no event came for a while.

        Raises:
            PositionLostError: the server no longer has the log that was read.
        """
        if by_offset or not self._login.server.has_gtids:
            end = self._logs.end()
            if _is_before(end, position):
                raise self._reset(position, f"the log ends at {end}")
            return _is_same(end, position)
        if not self._login.server.is_mariadb:
            missing = str(self._logs.rows("SELECT GTID_SUBTRACT(%s, @@global.gtid_executed)", (position.gtid,))[0][0])
            if self._login.server.identity.lower() in missing.lower() and not self._is_logged_still(position):
                raise self._reset(position, f"it has not executed {shortened(missing)}")
        else:
            self.check_state(position, str(self._logs.rows("SELECT @@global.gtid_binlog_state")[0][0] or ""))
        if is_streaming:
            self._check_log(position)
        return True

    def _check_log(self, position: Position) -> None:
        """Raise PositionLostError if the log was reset. A dump by GTID set would skip new transactions with reused GTIDs."""
        end = self._logs.end()
        if _is_before(end, position) or _is_before(end, self._end):
            raise self._reset(position, f"the log ends at {end}")
        if position.incarnation and not any(_is_same(end, one) for one in (position, self._end)):
            found = self._incarnation(position.journal)
            if found and found != position.incarnation:
                raise self._reset(position, f"{position.journal} was reset, and transactions with reused GTIDs are not sent")
            if found:
                self._end = end

    def _is_logged_still(self, position: Position) -> bool:
        """Return whether the log still has what was read.

        A commit that waits for a semi-synchronous replica is sent before it counts as executed.
        """
        if not position.incarnation or self._incarnation(position.journal) != position.incarnation:
            return False
        return not _is_before(self._logs.end(), position)

    def check_state(self, position: Position, state: str) -> None:
        """Raise PositionLostError if a MariaDB server has lost transactions that it originated."""
        _, lacking = known_start(attrs.evolve(position, source="another"), self._login.server.identity, state or "0-0-0")
        own = int(self._login.server.identity.partition("@")[0])
        if any(server == own for _, server, _ in lacking):
            raise self._reset(position, f"it has logged up to {state or 'nothing'}")

    def _reset(self, position: Position, why: str) -> PositionLostError:
        return PositionLostError(
            f"{self._source.address} no longer has the log that was read: {why}",
            reason=LostReason.DIVERGED,
            position=position,
            remedy="The server was reset, or was restored from a backup.",
        )


def _is_before(end: Position, position: Position) -> bool:
    return (journal_key(end.journal)[1], end.offset) < (journal_key(position.journal)[1], position.offset)


def _is_same(end: Position, other: Position) -> bool:
    return (end.journal, end.offset) == (other.journal, other.offset)


def known_start(position: Position, identity: str, state: str) -> tuple[str, list[tuple[int, int, int]]]:
    """Return the GTID set to start from on MariaDB.

    MariaDB refuses a GTID that it does not have, which is normal for a replica with replication lag.

    Args:
        position: all transactions of the GTID set are done.
        identity: the server's identity.
        state: the server's gtid_binlog_state: the last logged number by domain and server id.

    Returns:
        The GTID set, and a list of (domain, server id, number): skip these transactions up to that number, they are done.
    """
    if not position.source or position.source == identity:
        return position.gtid, []
    logged = {}
    for text in filter(None, (one.strip() for one in state.split(","))):
        domain, server, number = map(int, text.split("-"))
        logged[domain, server] = number
    start, done = [], []
    for text in position.gtid.split(","):
        domain, server, number = map(int, text.split("-"))
        last = logged.get((domain, server))
        if last is not None and last >= number:
            start.append(text)
            continue
        done.append((domain, server, number))
        if last is not None:
            start.append(f"{domain}-{server}-{last}")
        elif any(one == domain for one, _ in logged):
            raise PositionLostError(
                f"the log has no transaction of domain {domain} by server {server}, and those up to {number} are done",
                reason=LostReason.DIVERGED,
                position=position,
                remedy="Check that it replicates from the position's server and logs the replicated transactions.",
            )
    return ",".join(start), done
