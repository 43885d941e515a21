"""Whether a server still has what was read of its log: a reset, a restored backup or another server is an error."""

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


class Proofs:
    """Compares a server with the position up to which its log was read.

    Args:
        incarnation: returns what tells the log that the server has now from others of that name, as ``Beside.incarnation``.
    """

    def __init__(self, source: ServerOptions, login: Login, logs: ServerLogs, incarnation: Callable[[str], str | None]) -> None:
        self._source = source
        self._login = login
        self._logs = logs
        self._incarnation = incarnation
        #: Of the log, when it was last seen to be the one that is read.
        self._end = Position()

    def check_executed(self, login: Any, position: Position) -> list[str]:
        """A server that has not executed what was read already is another one, or has lost transactions.

        Returns:
            What an operator should know, where it is neither.
        """
        missing = str(run(login, "SELECT GTID_SUBTRACT(%s, @@global.gtid_executed)", (position.gtid,))[0][0])
        if not missing or self._login.server.identity.lower() in missing.lower() and self._is_logged_still(position):
            return []
        text = f"{self._source.address} has not executed transactions that the position says are done: {shortened(missing)}"
        shared = run(login, "SELECT GTID_SUBTRACT(%s, %s)", (position.gtid, missing))[0][0]
        if not shared or self._login.server.identity.lower() in missing.lower():
            raise PositionLostError(
                text,
                reason=LostReason.DIVERGED,
                position=position,
                remedy="It is not the server that the position is from (nor a replica of it), or it lost them.",
            )
        return [f"{text}; if they never come to it, what was delivered of them is not in its tables"]

    def check_end(self, position: Position, *, by_offset: bool, is_streaming: bool) -> bool:
        """Whether the log ends where reading stands, when nothing came for a while; in a dump by GTID set that is not known.

        Raises:
            PositionLostError: the server does not have any more what was read.
        """
        if by_offset or not self._login.server.has_gtids:
            end = self._logs.end()
            if _is_before(end, position):
                raise self._reset(position, f"its log ends at {end}")
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
        """A dump by GTID set leaves out all that is done, also in a log that was begun anew and has the same GTIDs again."""
        end = self._logs.end()
        if _is_before(end, position) or _is_before(end, self._end):
            raise self._reset(position, f"its log ends at {end}")
        if position.incarnation and not any(_is_same(end, one) for one in (position, self._end)):
            found = self._incarnation(position.journal)
            if found and found != position.incarnation:
                raise self._reset(position, f"{position.journal} was begun anew, and what it has again does not come")
            if found:
                self._end = end

    def _is_logged_still(self, position: Position) -> bool:
        """Whether the log is still the one that was read, up to there: a commit that waits for a semi-synchronous replica is
        sent before it counts as executed."""
        if not position.incarnation or self._incarnation(position.journal) != position.incarnation:
            return False
        return not _is_before(self._logs.end(), position)

    def check_state(self, position: Position, state: str) -> None:
        """A MariaDB that has not logged its own transactions that are done has lost them."""
        _, lacking = known_start(attrs.evolve(position, source="another"), self._login.server.identity, state or "0-0-0")
        own = int(self._login.server.identity.partition("@")[0])
        if any(server == own for _, server, _ in lacking):
            raise self._reset(position, f"it has logged up to {state or 'nothing'}")

    def _reset(self, position: Position, why: str) -> PositionLostError:
        return PositionLostError(
            f"{self._source.address} has lost what was read of its log: {why}",
            reason=LostReason.DIVERGED,
            position=position,
            remedy="Its log was reset, or it was restored.",
        )


def _is_before(end: Position, position: Position) -> bool:
    return (journal_key(end.journal)[1], end.offset) < (journal_key(position.journal)[1], position.offset)


def _is_same(end: Position, other: Position) -> bool:
    return (end.journal, end.offset) == (other.journal, other.offset)


def known_start(position: Position, identity: str, state: str) -> tuple[str, list[tuple[int, int, int]]]:
    """From where MariaDB can send: it refuses a GTID that it does not have, as a replica that lags behind does not.

    Args:
        position: its GTID set is done.
        identity: of the server.
        state: its gtid_binlog_state: the last number that it has logged, by domain and server id.

    Returns:
        The GTID set to connect with, and of which (domain, server id) transactions up to which number must be left out
        because they are done.
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
                f"its log has no transaction of domain {domain} by server {server}, of which those up to {number} are done",
                reason=LostReason.DIVERGED,
                position=position,
                remedy="It is not a replica of the server that the position is from, or does not log what it replicates.",
            )
    return ",".join(start), done
