"""Decides where a stream begins: a pure function of the facts known once a connection is open.

Never queries anything: the parser gathers the facts and carries out the decision. ``RULES`` are tried in order;
docs/start-positions.md shows them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, Literal, get_args

import attrs

from canal.binlog import event_layout as layout
from canal.errors import ConfigError
from canal.gtid import MariadbGtidSet
from canal.parse.source.packets import MAX_DUMP_OFFSET
from canal.position import Position, journal_key

#: What to do when the source no longer has the log that the position names.
OnLost = Literal["fail", "earliest", "latest", "time"]
ON_LOST: Final = get_args(OnLost)


class How(enum.Enum):
    """How the parser uses a decision's ``start``."""

    GTID = "dump by GTID set"
    OFFSET = "dump by journal and offset"
    OLDEST = "dump from the oldest log"
    RESOLVE = "resolve by the source"
    MATCH = "search by time, then by the last transactions"
    FAIL = "stop with an error"


@attrs.frozen(kw_only=True)
class Facts:
    """The facts for a decision.

    Args:
        position: the position after the last delivery, else the stored cursor; None if there is neither.
        configured: the configured start for this source.
        identity: the connected server's identity.
        flavor, has_gtids: the connected server's.
        journals: the server's logs, oldest first; None if they cannot be listed or are not needed.
        lost: how many times in a row the source reported the position as lost.
        behind: where the log continues after the lost part; None: at the oldest available log.
        threshold: number of such reports before ``on_lost`` applies.
        on_lost: one of ``ON_LOST``.
        fallback: seconds to go back in a search by time.
    """

    position: Position | None
    configured: str | Position
    identity: str = ""
    flavor: str = "mysql"
    has_gtids: bool = False
    journals: Sequence[str] | None = None
    lost: int = 0
    behind: Position | None = None
    threshold: int = 2
    on_lost: str = "fail"
    fallback: float = 60.0

    @property
    def is_lost(self) -> bool:
        """Whether ``on_lost`` applies. "fail" applies at once."""
        return self.position is not None and self.lost > (0 if self.on_lost == "fail" else self.threshold)

    @property
    def is_other_server(self) -> bool:
        """Whether the position's journal and offset belong to another server."""
        return self.position is not None and bool(self.position.source) and self.position.source != self.identity

    @property
    def proves_log(self) -> bool:
        """Whether the position's journal can be read on and checked to be unchanged.

        This is safer than GTIDs: a log that was reset reuses them, and transactions without GTIDs are not missed.
        """
        position = self.position
        if position is None or not position.incarnation or self.is_other_server:
            return False
        if self.journals is not None and position.journal not in self.journals:
            return False
        return position.offset <= MAX_DUMP_OFFSET or not self.takes(position)

    @property
    def is_purged(self) -> bool:
        """Whether the position's log is older than all that the server has.

        With a GTID set, MySQL would skip transactions without GTIDs and those of a log that was reset. The schema history also
        needs a position in an available log.
        """
        position = self.position
        if position is None or position.source != self.identity or not self.journals:
            return False
        (base, number), (other, oldest) = journal_key(position.journal), journal_key(self.journals[0])
        return base == other and number < oldest and self.takes(position)

    def takes(self, position: object) -> bool:
        """Return whether the server can dump by the position's GTID set."""
        if not isinstance(position, Position) or not position.gtid or not self.has_gtids:
            return False
        return isinstance(position.gtid_set, MariadbGtidSet) == (self.flavor == "mariadb")


@attrs.frozen
class Decision:
    """The name of the matching rule, and the action ``how`` with the argument ``start``."""

    rule: str
    how: How
    start: str | Position


@attrs.frozen
class StartRule:
    name: str
    holds: Callable[[Facts], bool]
    how: How
    start: Callable[[Facts], str | Position]
    #: For the docs: condition and result.
    when: str
    then: str


def _position(facts: Facts) -> Position:
    assert facts.position is not None
    return facts.position


def _configured(facts: Facts) -> str | Position:
    return facts.configured


def _oldest(facts: Facts) -> str | Position:
    return facts.behind or "earliest"


def _from_oldest(facts: Facts) -> Position:
    assert facts.journals
    return attrs.evolve(_position(facts), journal=facts.journals[0], offset=layout.FIRST, incarnation="", at_event=False)


def _before(facts: Facts) -> Position:
    """Return where the log continues, if known; else the position's time minus the fallback."""
    return facts.behind or Position(timestamp=max(_position(facts).timestamp - int(facts.fallback * 1000), 1))


def _policy(name: str) -> Callable[[Facts], bool]:
    return lambda facts: facts.is_lost and facts.on_lost == name


RULES: tuple[StartRule, ...] = (
    StartRule(
        "lost, fail",
        _policy("fail"),
        How.FAIL,
        _position,
        'the source has lost the position; `on_lost="fail"`',
        "the instance stops with that error, which contains the remedy",
    ),
    StartRule(
        "lost, earliest",
        _policy("earliest"),
        How.RESOLVE,
        _oldest,
        'the source has lost the position more than `dump_error_threshold` times in a row; `on_lost="earliest"`',
        "alarm; start from the oldest available log, or after the gap if logs between two others are missing",
    ),
    StartRule(
        "lost, latest",
        _policy("latest"),
        How.RESOLVE,
        lambda facts: "latest",
        'the same; `on_lost="latest"`',
        "alarm; start from the present end",
    ),
    StartRule(
        "lost, time",
        lambda facts: _policy("time")(facts) and _position(facts).timestamp > 0,
        How.RESOLVE,
        _before,
        'the same; `on_lost="time"`',
        "alarm; start `fallback_interval` before the position's time, or after the gap if a log is missing",
    ),
    StartRule(
        "lost, no time",
        _policy("time"),
        How.RESOLVE,
        _oldest,
        "the same; the position has no time",
        "alarm; start from the oldest available log",
    ),
    StartRule(
        "same log",
        lambda facts: facts.proves_log,
        How.OFFSET,
        _position,
        "a position with journal, offset and incarnation, of the connected server, which still has the journal",
        "resume exactly after it, once the incarnation proves that the log is the same",
    ),
    StartRule(
        "purged log",
        lambda facts: facts.is_purged,
        How.OLDEST,
        _from_oldest,
        "a position with journal, offset and GTID set, of the connected server, which has purged the journal",
        "start from the oldest available log, once the server confirms that all purged transactions are done",
    ),
    StartRule(
        "GTID set",
        lambda facts: facts.takes(facts.position),
        How.GTID,
        _position,
        "a position with a GTID set, and the source has GTIDs of that kind",
        "resume exactly after it, on any server of the replication",
    ),
    StartRule(
        "same server",
        lambda facts: bool(facts.position and facts.position.journal and not facts.is_other_server),
        How.OFFSET,
        _position,
        "a position with journal and offset, of the connected server or (canal's cursors) of an unknown server",
        "resume exactly after it",
    ),
    StartRule(
        "other server",
        lambda facts: facts.is_other_server and _position(facts).timestamp > 0,
        How.MATCH,
        _position,
        "a position of another server, with a time: a standby, or another server at the same address",
        "start `fallback_interval` before that time, or after the position's last transactions if they are found in the log",
    ),
    StartRule(
        "other server, no time",
        lambda facts: facts.is_other_server,
        How.FAIL,
        _position,
        "a position of another server without a time",
        "the instance stops",
    ),
    StartRule(
        "time only",
        lambda facts: facts.position is not None,
        How.RESOLVE,
        _position,
        "a position with only a time",
        "start at the first transaction at or after it",
    ),
    StartRule(
        "first start by GTID set",
        lambda facts: facts.takes(facts.configured),
        How.RESOLVE,
        _configured,
        "no position; a GTID set is configured",
        "start exactly after it, once the source confirms that it still has what follows",
    ),
    StartRule(
        "first start",
        lambda facts: True,
        How.RESOLVE,
        _configured,
        "no position; anything else is configured",
        "start at journal and offset (or the begin of that transaction), journal and time, time, the start of a journal, "
        '"latest" or "earliest"',
    ),
)


def decide(facts: Facts) -> Decision:
    """Return the decision of the first rule that holds."""
    if facts.on_lost not in ON_LOST:
        raise ConfigError(f"on_lost must be one of {', '.join(ON_LOST)}, not {facts.on_lost!r}")
    rule = next(rule for rule in RULES if rule.holds(facts))
    return Decision(rule.name, rule.how, rule.start(facts))
