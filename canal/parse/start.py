"""Where a stream begins: a pure decision over what is known when a connection to the source is open.

Never asks anybody anything: the parser gathers the facts and carries the decision out. ``RULES`` is the whole of it, in
the order in which the rules are tried; docs/start-positions.md shows them.
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
    """What the parser does with a decision's ``start``."""

    GTID = "dump by GTID set"
    OFFSET = "dump by journal and offset"
    OLDEST = "dump from the oldest log"
    RESOLVE = "ask the source which position that is"
    MATCH = "search by time, then by the last transactions"
    FAIL = "stop with an error"


@attrs.frozen(kw_only=True)
class Facts:
    """What is known.

    Args:
        position: behind what was delivered last, else the stored cursor; None when there is neither.
        configured: where the config tells this source to begin.
        identity: of the server that is connected.
        flavor, has_gtids: of the same.
        journals: the logs that it has, the oldest first; None where it cannot be asked, or has no need to be.
        lost: how many times in a row the source said that it lost the position.
        behind: where its log goes on behind what is lost; None for the oldest log that is there.
        threshold: so many times it is asked again before ``on_lost`` counts.
        on_lost: one of ``ON_LOST``.
        fallback: seconds that a search by time goes back, where only a time tells the position.
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
        """Whether it is time for ``on_lost``; to fail is always time."""
        return self.position is not None and self.lost > (0 if self.on_lost == "fail" else self.threshold)

    @property
    def is_other_server(self) -> bool:
        """Whether journals and offsets of the position are those of another server than the one that is connected."""
        return self.position is not None and bool(self.position.source) and self.position.source != self.identity

    @property
    def proves_log(self) -> bool:
        """Whether it can be proved that the journal of the position is still the one that it was, and be read on.

        Then that is surer than GTIDs: a log that was reset has the same ones again, and transactions without any are seen.
        """
        position = self.position
        if position is None or not position.incarnation or self.is_other_server:
            return False
        if self.journals is not None and position.journal not in self.journals:
            return False
        return position.offset <= MAX_DUMP_OFFSET or not self.takes(position)

    @property
    def is_purged(self) -> bool:
        """Return whether the log of the position is older than all that the server has.

        By GTID set MySQL would leave out transactions without GTIDs, and those of a log that was begun anew; and the schema
        history of both needs a position in a log that is there.
        """
        position = self.position
        if position is None or position.source != self.identity or not self.journals:
            return False
        (base, number), (other, oldest) = journal_key(position.journal), journal_key(self.journals[0])
        return base == other and number < oldest and self.takes(position)

    def takes(self, position: object) -> bool:
        """Whether the server can dump by the GTID set of the position."""
        if not isinstance(position, Position) or not position.gtid or not self.has_gtids:
            return False
        return isinstance(position.gtid_set, MariadbGtidSet) == (self.flavor == "mariadb")


@attrs.frozen
class Decision:
    """``rule`` names the rule; ``start`` is what ``how`` works on."""

    rule: str
    how: How
    start: str | Position


@attrs.frozen
class StartRule:
    name: str
    holds: Callable[[Facts], bool]
    how: How
    start: Callable[[Facts], str | Position]
    #: For the docs: when it holds, and what happens.
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
    """Behind what is lost, where that is known; else the time of the position, less the fallback."""
    return facts.behind or Position(timestamp=max(_position(facts).timestamp - int(facts.fallback * 1000), 1))


def _policy(name: str) -> Callable[[Facts], bool]:
    return lambda facts: facts.is_lost and facts.on_lost == name


RULES: tuple[StartRule, ...] = (
    StartRule(
        "lost, fail",
        _policy("fail"),
        How.FAIL,
        _position,
        'the source says that it has lost the position; `on_lost="fail"`',
        "the instance stops with that error, which names the remedy",
    ),
    StartRule(
        "lost, earliest",
        _policy("earliest"),
        How.RESOLVE,
        _oldest,
        'it says so more than `dump_error_threshold` times in a row; `on_lost="earliest"`',
        "alarm; from the oldest log that is there; where something between two logs is missing, from behind it",
    ),
    StartRule(
        "lost, latest",
        _policy("latest"),
        How.RESOLVE,
        lambda facts: "latest",
        'the same; `on_lost="latest"`',
        "alarm; from the present end",
    ),
    StartRule(
        "lost, time",
        lambda facts: _policy("time")(facts) and _position(facts).timestamp > 0,
        How.RESOLVE,
        _before,
        'the same; `on_lost="time"`',
        "alarm; from the time of the position less `fallback_interval`; where something is missing, from behind it",
    ),
    StartRule(
        "lost, no time",
        _policy("time"),
        How.RESOLVE,
        _oldest,
        "the same; the position has no time",
        "alarm; from the oldest log that is there",
    ),
    StartRule(
        "same log",
        lambda facts: facts.proves_log,
        How.OFFSET,
        _position,
        "a position with journal, offset and the journal's begin, of the server that is connected, which has it",
        "exactly behind it, once the journal's begin has shown that it is still the same log",
    ),
    StartRule(
        "purged log",
        lambda facts: facts.is_purged,
        How.OLDEST,
        _from_oldest,
        "a position with journal, offset and GTID set, of the server that is connected, which has purged that journal",
        "from the oldest log that is there, once the server says that what it has purged is done",
    ),
    StartRule(
        "GTID set",
        lambda facts: facts.takes(facts.position),
        How.GTID,
        _position,
        "a position with a GTID set, and the source has GTIDs of that kind",
        "exactly behind it, on whichever server of the replication",
    ),
    StartRule(
        "same server",
        lambda facts: bool(facts.position and facts.position.journal and not facts.is_other_server),
        How.OFFSET,
        _position,
        "a position with journal and offset, of the server that is connected (or of one unknown: canal's cursors)",
        "exactly behind it",
    ),
    StartRule(
        "other server",
        lambda facts: facts.is_other_server and _position(facts).timestamp > 0,
        How.MATCH,
        _position,
        "a position of another server, with a time: a standby, or another server behind the same address",
        "from `fallback_interval` before its time, to behind its last transactions where the log shows them",
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
        "a position with nothing but a time",
        "the first transaction at or after it",
    ),
    StartRule(
        "first start by GTID set",
        lambda facts: facts.takes(facts.configured),
        How.RESOLVE,
        _configured,
        "no position; a GTID set is configured",
        "exactly behind it, once the source says that it still has what follows",
    ),
    StartRule(
        "first start",
        lambda facts: True,
        How.RESOLVE,
        _configured,
        "no position; anything else is configured",
        "journal and offset (back to the begin of the transaction there), journal and time, time, a journal's start, "
        '"latest" or "earliest"',
    ),
)


def decide(facts: Facts) -> Decision:
    """The first rule that holds."""
    if facts.on_lost not in ON_LOST:
        raise ConfigError(f"on_lost is one of {', '.join(ON_LOST)}, not {facts.on_lost!r}")
    rule = next(rule for rule in RULES if rule.holds(facts))
    return Decision(rule.name, rule.how, rule.start(facts))
