"""The position in a source at which to resume."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import attrs

from canal.errors import ConfigError, CursorError
from canal.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet, parse_gtid_set

FORMAT_VERSION: Final = 5
"""Latest format of ``to_text``; a reader rejects later formats. Format 1 had no ``xa``, 2 no ``incarnation`` and ``at_event``, 3
no ``members``, 4 no ``next_gtid``. The writer uses the oldest sufficient format."""

#: Maximum size of ``Position.tail``: 16 transactions.
TAIL_BYTES: Final = 128

#: The maximum of a signed 64-bit integer, and the last millisecond of year 9999, the limit of Python's dates.
_MOST: Final = (1 << 63) - 1
_LAST_TIME: Final = 253_402_300_799_999

_REMEDY: Final = "Restore the stored position from a backup, or subscribe again with a start position"


@lru_cache(maxsize=64)
def _canonical_text(text: str) -> str:
    return str(parse_gtid_set(text))


def _canonical_gtid(value: str | GtidSet) -> str:
    return _canonical_text(value) if isinstance(value, str) else str(value)


def _not_negative(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    most = _LAST_TIME if attribute.name == "timestamp" else _MOST
    if type(value) is not int or not 0 <= value <= most:
        raise ConfigError(f"{attribute.name} of a position must be a whole number from 0 to {most}, not {value!r}")


def _is_text(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{attribute.name} of a position must be a str, not {value!r}")


def _is_tail(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or len(value) % 16 or value.strip("0123456789abcdef"):
        raise ConfigError("tail of a position must be hexadecimal, 16 digits for each transaction")


def _is_incarnation(instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or value and not re.fullmatch("[0-9]{1,10}-[0-9]{1,10}", value):
        raise ConfigError(f"incarnation of a position is like 1732297541-1, not {value!r}")


@attrs.frozen
class PreparedXa:
    """A prepared XA transaction without commit or rollback so far, and the position of its rows."""

    xid: str
    """As servers write it, such as ``X'7831',X'62',7``."""

    journal: str
    offset: int
    """Start of the events up to its XA PREPARE, in the source that the position names."""


def _prepared_tuple(value: Iterable[PreparedXa]) -> tuple[PreparedXa, ...]:
    return tuple(value)


def _member_pairs(value: Mapping[str, Position] | Iterable[tuple[str, Position]]) -> tuple[tuple[str, Position], ...]:
    return tuple(sorted(dict(value).items()))


def _has_no_other(instance: Position, attribute: object, value: tuple[tuple[str, Position], ...]) -> None:
    if value and (instance.is_concrete or instance.timestamp or instance.row):
        raise ConfigError("a position of several members has no journal, GTID set, row or time of its own")
    for name, one in value:
        _check_member(name, one)


def _check_member(name: object, one: object) -> None:
    if type(name) is not str or not isinstance(one, Position) or one.members:
        raise ConfigError("members of a position are names, each with the position of one source")


@attrs.frozen
class Position:
    """A resume position: all changes before it are done.

    It has up to three forms, and the most exact is used: GTID set, journal (binlog file) with offset, or time only, which
    ``resolve`` of a connection converts. A :class:`canal.parse.GroupParser` position has only ``members``, a position per
    source.
    """

    journal: str = attrs.field(default="", validator=_is_text)
    """File name of the journal."""

    offset: int = attrs.field(default=0, validator=_not_negative)
    """End of the last completed transaction, in 64 bits. From a canal cursor: start of the last completed event."""

    gtid: str = attrs.field(default="", converter=_canonical_gtid)
    """Canonical text of the completed GTID set. The constructor also accepts a GTID set object."""

    row: int = attrs.field(default=0, validator=_not_negative)
    """Completed row changes of the *next* transaction, counted before filters."""

    timestamp: int = attrs.field(default=0, validator=_not_negative)
    """Time of the last completed event, in milliseconds since 1970."""

    server_id: int = attrs.field(default=0, validator=_not_negative)
    """Id of the server that wrote the last completed event: the origin, which may differ from the source."""

    source: str = attrs.field(default="", validator=_is_text)
    """Server UUID of the source, to which journal and offset belong; "" if unknown."""

    xa: tuple[PreparedXa, ...] = attrs.field(default=(), converter=_prepared_tuple)
    """XA transactions prepared before this position and decided after it, in log order."""

    tail: str = attrs.field(default="", validator=_is_tail)
    """Digests of the last completed transactions, latest last: hexadecimal, 8 bytes each. They locate the position in another
    server's log without common GTIDs."""

    incarnation: str = attrs.field(default="", validator=_is_incarnation)
    """Start time of the journal in seconds since 1970 and server id, as in ``1732297541-1``; "" if unknown. It distinguishes
    journals with equal names before and after a reset."""

    at_event: bool = False
    """True if ``offset`` is the start of the last completed event, as in canal's cursors, not the end of a transaction."""

    members: tuple[tuple[str, Position], ...] = attrs.field(default=(), converter=_member_pairs, validator=_has_no_other)
    """Names and positions of group members, sorted by name. The constructor also accepts a mapping."""

    next_gtid: str = attrs.field(default="", validator=_is_text)
    """GTID of the transaction with the ``row`` changes; "" without GTIDs or if ``row`` is 0."""

    def __attrs_post_init__(self) -> None:
        if self.next_gtid and not self.row:
            object.__setattr__(self, "next_gtid", "")

    def member(self, name: str) -> Position | None:
        """Return the position of a member; None if it has none."""
        return next((one for known, one in self.members if known == name), None)

    @property
    def is_concrete(self) -> bool:
        """Return whether a dump can start here without a search by time."""
        return bool(self.journal or self.gtid)

    @property
    def gtid_set(self) -> GtidSet:
        """Return the GTID set as a value."""
        return parse_gtid_set(self.gtid)

    def precedes(self, other: Position) -> bool | None:
        """Return whether this position is before the other; None if they cannot be compared.

        Positions in the same source are compared by journal, offset and row. A log before a reset precedes the log after it. All
        other positions are compared by inclusion of GTID sets. Event times are not compared, because server clocks
        differ. A group
        position is before another if a member is before the other's member and no member is after.
        """
        if self.members or other.members:
            return self._members_precede(other)
        if self._shares_journals(other):
            lives = self._lives(other)
            return lives < 0 if lives else None if lives is None else self._journal_order() < other._journal_order()
        ours, theirs = self.gtid_set, other.gtid_set
        if self == other:
            return False
        if not (ours or theirs) or (ours and theirs and type(ours) is not type(theirs)):
            return None
        if ours == theirs:
            if self.tail and other.tail and _digests(self.tail) != _digests(other.tail):
                return None  # transactions without GTIDs may follow those in the set
            if self.row and other.row and self.next_gtid != other.next_gtid:
                return None  # two servers committed different transactions after the set
            return self.row < other.row
        if not ours or not theirs:
            return None  # without a GTID set the progress is unknown, not empty
        return True if _includes(theirs, ours) else False if _includes(ours, theirs) else None

    def _members_precede(self, other: Position) -> bool | None:
        if [name for name, _ in self.members] != [name for name, _ in other.members]:
            return None
        pairs = [(one, its) for (_, one), (_, its) in zip(self.members, other.members) if one != its]
        before = [one.precedes(its) for one, its in pairs]
        behind = [its.precedes(one) for one, its in pairs]
        if None in before or None in behind or (True in before and True in behind):
            return None
        return True in before

    def _shares_journals(self, other: Position) -> bool:
        one_source = not (self.source and other.source) or self.source == other.source
        if not (one_source and self.journal and other.journal):
            return False
        return journal_key(self.journal)[0] == journal_key(other.journal)[0]

    def _lives(self, other: Position) -> int | None:
        """Compare the log incarnations: 0 for the same log, -1 if this log is from before a reset, 1 if after, None if unknown.

        A reset log starts over with the first names at a later time. A clock that was set back looks the same, unless the name is
        equal.
        """
        if not (self.incarnation and other.incarnation) or self.incarnation == other.incarnation:
            return 0
        by_number = journal_key(self.journal)[1] - journal_key(other.journal)[1]
        by_time = self.begun - other.begun
        if not by_number:
            return (by_time > 0) - (by_time < 0) or None
        return 0 if by_number * by_time >= 0 else None

    @property
    def begun(self) -> int:
        """Start time of the journal in seconds since 1970; 0 if unknown."""
        return int(self.incarnation.partition("-")[0] or 0)

    def _journal_order(self) -> tuple[int, int, int]:
        return journal_key(self.journal)[1], self.offset, self.row

    def __str__(self) -> str:
        if self.members:
            return ", ".join(f"{name}: {one}" for name, one in self.members)
        parts = [f"{self.journal}:{self.offset}"] if self.journal else []
        if self.row:
            parts.append(f"+{self.row} rows")
        if self.gtid:
            parts.append(f"gtid {self.gtid if len(self.gtid) <= 80 else self.gtid[:77] + '…'}")
        if not parts:
            parts.append(f"time {self.timestamp}" if self.timestamp else "nowhere")
        return " ".join(parts)

    def to_text(self) -> str:
        """Return canonical text: one line of JSON without default fields, equal for equal positions."""
        return _encode(self.to_document())

    def to_document(self) -> dict[str, Any]:
        """Return the content of ``to_text`` as a JSON object, to embed in a document."""
        fields = {name: value for name in _FIELDS if (value := getattr(self, name))}
        if self.xa:
            fields["xa"] = [[one.xid, one.journal, one.offset] for one in self.xa]
        if self.members:
            fields["members"] = {name: one.to_document() for name, one in self.members}
        version = 5 if self.next_gtid else 4 if self.members else 3 if self.incarnation or self.at_event else 2
        return {"v": version, **fields}

    @classmethod
    def from_text(cls, text: str) -> Position:
        """Parse the output of ``to_text``. Raise ``CursorError`` for any other text."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CursorError("the text of a position is not JSON", remedy=_REMEDY) from error
        return cls.from_document(fields)

    @classmethod
    def from_document(cls, document: Any) -> Position:
        """Parse the output of ``to_document``. Raise ``CursorError`` for any other value."""
        if not isinstance(document, dict):
            raise CursorError("the text of a position is not a JSON object", remedy=_REMEDY)
        fields = dict(document)
        version = fields.pop("v", None)
        if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
            raise CursorError(
                f"the text of a position has format {version!r}, not 1 to {FORMAT_VERSION}",
                remedy="Upgrade this library to the version that wrote it, or later",
            )
        xa, members = fields.pop("xa", []), fields.pop("members", {})
        if not isinstance(members, dict):
            raise CursorError("members of a stored position are not an object", remedy=_REMEDY)
        if any(isinstance(one, dict) and "members" in one for one in members.values()):  # at any depth
            raise CursorError("a member of a stored position has members of its own", remedy=_REMEDY)
        unknown = fields.keys() - _FIELD_TYPES.keys()
        if unknown:
            raise CursorError(f"the text of a position has unknown fields {sorted(unknown)}", remedy=_REMEDY)
        values = {name: _typed(fields, name, kind) for name, kind in _FIELD_TYPES.items() if name in fields}
        of_members = {name: cls.from_document(one) for name, one in members.items()}
        return _built({**values, "xa": _prepared(xa), "members": of_members})

    def to_canal(self, address: str = "", port: int = 0) -> dict[str, Any]:
        """Return canal's LogPosition as a JSON object (``postion`` is canal's spelling).

        It cannot hold row, next_gtid, source, xa, tail and incarnation. For a group it has only the earliest time, at which canal
        re-reads all members. canal resumes exactly if ``address`` and ``port`` equal its source; otherwise it searches
        by time. Before
        the first event, the server is the one that created the journal.
        """
        return {
            "identity": {"slaveId": -1, "sourceAddress": {"address": address, "port": port}},
            "postion": {
                "gtid": self.gtid,
                "included": False,
                "journalName": self.journal,
                "position": self.offset,
                "serverId": self.server_id or int(self.incarnation.partition("-")[2] or 0),
                "timestamp": min((one.timestamp or one.begun * 1000 for _, one in self.members), default=self.timestamp),
            },
        }

    @classmethod
    def from_canal(cls, value: Mapping[str, Any]) -> Position:
        """Parse canal's LogPosition. "@type", unknown fields and nulls are ignored.

        canal's offset is the *start* of the last processed event, so ``at_event`` is set. The event is a BEGIN, whose
        transaction is
        then repeated, or an END or DDL, which is repeated alone. A parser that resumes here without GTIDs may receive
        an END or DDL
        first.
        """
        given = value.get("postion")
        if not isinstance(given, Mapping):
            raise CursorError('a canal cursor has no "postion"', remedy=_REMEDY)
        fields = {name: _typed(given, key, _FIELD_TYPES[name]) for name, key in _CANAL_KEYS.items()}
        fields["server_id"] = max(fields["server_id"], 0)  # canal writes -1 if unknown
        return _built({**fields, "at_event": bool(fields["journal"])})


_FIELDS: Final = tuple(field.name for field in attrs.fields(Position))
_SETTERS: Final = tuple(getattr(Position, name).__set__ for name in _FIELDS)


def position_of(
    journal: str,
    offset: int,
    gtid: str,
    row: int,
    timestamp: int,
    server_id: int,
    source: str,
    xa: tuple[PreparedXa, ...],
    tail: str,
    incarnation: str,
    next_gtid: str = "",
) -> Position:
    """Create a ``Position`` from values that a decoder has verified, without validating again: each batch needs one."""
    made = Position.__new__(Position)
    values = (journal, offset, gtid, row, timestamp, server_id, source, xa, tail, incarnation, False, (), next_gtid)
    for put, value in zip(_SETTERS, values):
        put(made, value)
    return made


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode

_FIELD_TYPES: Final[dict[str, type]] = {
    "journal": str,
    "offset": int,
    "gtid": str,
    "row": int,
    "timestamp": int,
    "server_id": int,
    "source": str,
    "tail": str,
    "incarnation": str,
    "at_event": bool,
    "next_gtid": str,
}

_KINDS: Final[dict[type, str]] = {str: "text", int: "a number", bool: "true or false"}

_CANAL_KEYS: Final = {
    "journal": "journalName",
    "offset": "position",
    "gtid": "gtid",
    "timestamp": "timestamp",
    "server_id": "serverId",
}


def journal_key(name: str) -> tuple[str, int]:
    """Return base name and number, so that ``mysql-bin.1000000`` sorts after ``mysql-bin.999999``.

    A name without a number has number -1.
    """
    base, dot, suffix = name.rpartition(".")
    numbered = dot and suffix.isascii() and suffix.isdecimal() and len(suffix) <= 18
    return (base, int(suffix)) if numbered else (name, -1)


def earliest(positions: Iterable[Position]) -> Position:
    """Return the position that precedes all others; for groups, the earliest per member.

    Raises:
        CursorError: the positions cannot be compared.
    """
    every = list(positions)
    if any(position.members for position in every):
        return _memberwise(every, earliest)
    first = every[0]
    for position in every:
        before = position.precedes(first)
        if before is None:
            raise _incomparable(first, position)
        if before or _may_be_before(position, first):
            first = position
    for position in every:  # a position without the start time of its journal may belong to either log
        if position.precedes(first) is not False:
            raise _incomparable(first, position)
    return first


def _memberwise(positions: Sequence[Position], choose: Callable[[Collection[Position]], Position]) -> Position:
    """Return a group position by applying ``choose`` to each member."""
    known = [dict(position.members) for position in positions]
    for position, members in zip(positions, known):
        if members.keys() != known[0].keys():
            raise _incomparable(positions[0], position)
    return Position(members={name: choose([members[name] for members in known]) for name in known[0]})


def _incomparable(one: Position, other: Position) -> CursorError:
    return CursorError(
        f"the cursors {one} and {other} cannot be compared",
        remedy="They come from different sources, or between their logs the log was reset or the server's clock set "
        "back. Forget one of the clients: meta.start(destination), meta.unsubscribe(client_id), meta.stop().",
    )


def _may_be_before(one: Position, other: Position) -> bool:
    """Return whether two cursors have equal GTIDs but may differ by transactions without GTIDs."""
    return one.timestamp < other.timestamp and not one.precedes(other) and not other.precedes(one)


def resume_at(cursors: Collection[Position]) -> Position:
    """Return the position after which all changes follow that any cursor lacks. Raise CursorError like ``earliest``."""
    if any(cursor.members for cursor in cursors):
        return _memberwise(list(cursors), resume_at)
    first = earliest(cursors)
    # Others may be at the BEGIN of the same transaction, or after fewer of its rows in another server's log.
    if first.row and any(cursor.at_event or not cursor._shares_journals(first) for cursor in cursors):
        return attrs.evolve(first, row=0)
    return first


def _includes(outer: GtidSet, inner: GtidSet) -> bool:
    if isinstance(outer, MysqlGtidSet) and isinstance(inner, MysqlGtidSet):
        return inner <= outer
    return isinstance(outer, MariadbGtidSet) and isinstance(inner, MariadbGtidSet) and inner <= outer


def _typed(fields: Mapping[str, Any], key: str, kind: type) -> Any:
    value = fields.get(key)
    if value is None:
        return kind()
    if type(value) is not kind:
        raise CursorError(f"{key} of a stored position is not {_KINDS[kind]}", remedy=_REMEDY)
    return value


def _prepared(value: Any) -> list[PreparedXa]:
    if not isinstance(value, list):
        raise CursorError("xa of a stored position is not a list", remedy=_REMEDY)
    for one in value:
        if not isinstance(one, list) or [type(field) for field in one] != [str, str, int]:
            raise CursorError("xa of a stored position is not a list of XID, journal and offset", remedy=_REMEDY)
    return [PreparedXa(*one) for one in value]


def _built(fields: dict[str, Any]) -> Position:
    try:
        return Position(**fields)
    except ConfigError as error:
        raise CursorError(f"a stored position is not valid: {error.message}", remedy=_REMEDY) from error


def _digests(tail: str) -> set[str]:
    return {tail[at : at + 16] for at in range(0, len(tail), 16)}
