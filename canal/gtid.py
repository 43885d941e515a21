"""GTID sets of MySQL (including tags) and MariaDB: immutable values, their text and their wire format.

A *source* is the part before the number: ``"uuid"`` or ``"uuid:tag"``, in lower case.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from canal.errors import ConfigError, DecodeError, TruncatedError, UnsupportedError

Intervals: TypeAlias = tuple[tuple[int, int], ...]
"""Sorted, disjoint and not adjacent ``(first, last)`` pairs, both ends inclusive."""

MAX_NUMBER: Final = 2**63 - 2
"""The highest transaction number that the server accepts."""

_SPACE: Final = " \t\n\r\v\f"
_TAG: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_INTERVAL: Final = re.compile(rf"([0-9]{{1,19}})(?:[{_SPACE}]*-[{_SPACE}]*([0-9]{{1,19}}))?")
_HEX: Final = "[0-9A-Fa-f]"
_UUID: Final = re.compile(f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}")
_BARE_UUID: Final = re.compile(f"{_HEX}{{32}}")
_MARIADB_GTID: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})")
_MARIADB_START: Final = re.compile(rf"[{_SPACE},]*[0-9]+-[0-9]+-[0-9]+[{_SPACE}]*(?:,|$)")
_REMEDY: Final = "Copy the whole value of SELECT @@global.gtid_executed (MySQL) or @@global.gtid_current_pos (MariaDB)"


class MysqlGtidSet:
    """An immutable set of MySQL GTIDs.

    ``a <= b`` is GTID_SUBSET, ``a - b`` is GTID_SUBTRACT, and ``a | b`` is the union. ``str()`` returns the server's canonical
    form: lower case, sorted and merged. It is on one line; the server adds a newline after each comma.
    """

    __slots__ = ("_hash", "_sources", "_text")

    def __init__(self, sources: Mapping[str, Iterable[tuple[int, int]]] | None = None) -> None:
        """Create a set from ``{source: [(first, last), …]}``. Intervals may overlap and be in any order."""
        merged: dict[str, Intervals] = {}
        for source, intervals in (sources or {}).items():
            name = _normal_source(source)
            checked = [_checked_interval(first, last) for first, last in intervals]
            total = _merge([*merged.get(name, ()), *checked])
            if total:
                merged[name] = total
        self._sources: dict[str, Intervals] = merged
        self._text: str | None = None
        self._hash: int | None = None

    @classmethod
    def _of(cls, sources: dict[str, Intervals]) -> MysqlGtidSet:
        """Wrap canonical sources."""
        new = cls.__new__(cls)
        new._sources = sources
        new._text = None
        new._hash = None
        return new

    @classmethod
    def parse(cls, text: str) -> MysqlGtidSet:
        """Parse the server's text: any case and order, with white space between tokens and extra commas.

        Unlike the server, reject a source without intervals and an interval that ends before its start. The server ignores both,
        but they indicate a truncated or mistyped text.
        """
        found: dict[str, list[tuple[int, int]]] = {}
        for item in text.split(","):
            if item.strip(_SPACE):
                _parse_uuid_set(item, found)
        return cls._of({source: _merge(intervals) for source, intervals in found.items()})

    @classmethod
    def decode(cls, data: bytes) -> MysqlGtidSet:
        """Parse the body of a PREVIOUS_GTIDS event, without header and checksum, with or without tags."""
        count, tagged, offset = _decode_header(data)
        found: dict[str, Intervals] = {}
        for _ in range(count):
            source, offset = _decode_source(data, offset, tagged)
            intervals, offset = _decode_intervals(data, offset)
            if source in found:
                raise DecodeError("the GTID set names a source twice")
            if intervals:
                found[source] = intervals
        if offset != len(data):
            raise DecodeError(f"{len(data) - offset} bytes follow the GTID set")
        return cls._of(found)

    def encode(self) -> bytes:
        """Return the form for COM_BINLOG_DUMP_GTID. The tagged format (MySQL 8.3+) is used only if there are tags."""
        tagged = any(":" in source for source in self._sources)
        count = len(self._sources)
        parts = [struct.pack("<Q", count << 8 | 1 | 1 << 56 if tagged else count)]
        for source in sorted(self._sources, key=_source_key):
            uuid, _, tag = source.partition(":")
            parts.append(bytes.fromhex(uuid.replace("-", "")))
            if tagged:
                parts.append(bytes((len(tag) << 1,)) + tag.encode("ascii"))
            intervals = self._sources[source]
            parts.append(struct.pack("<Q", len(intervals)))
            parts.extend(struct.pack("<QQ", first, last + 1) for first, last in intervals)
        return b"".join(parts)

    def add(self, source: str, first: int, last: int | None = None) -> MysqlGtidSet:
        """Return a set with ``first`` to ``last`` added to a source; ``last`` defaults to ``first``."""
        sources = self._sources
        if source not in sources:
            source = _normal_source(source)
        old = sources.get(source, ())
        new = _insert(old, *_checked_interval(first, first if last is None else last))
        return self if new is old else MysqlGtidSet._of({**sources, source: new})

    def contains(self, source: str, number: int) -> bool:
        """Return whether the set contains the transaction."""
        return _has(self.intervals(source), number, number)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources in canonical order."""
        return tuple(sorted(self._sources, key=_source_key))

    def intervals(self, source: str) -> Intervals:
        """Return the ``(first, last)`` intervals of a source; empty if unknown."""
        found = self._sources.get(source)
        return self._sources.get(_normal_source(source), ()) if found is None else found

    def count(self) -> int:
        """Return the number of transactions."""
        return sum(last - first + 1 for intervals in self._sources.values() for first, last in intervals)

    def __le__(self, other: object) -> bool:
        if not isinstance(other, MysqlGtidSet):
            return NotImplemented
        theirs = other._sources
        for source, intervals in self._sources.items():
            known = theirs.get(source, ())
            if known is not intervals and not all(_has(known, first, last) for first, last in intervals):
                return False
        return True

    def __or__(self, other: object) -> MysqlGtidSet:
        if not isinstance(other, MysqlGtidSet):
            return NotImplemented
        sources = dict(self._sources)
        for source, intervals in other._sources.items():
            old = sources.get(source)
            sources[source] = intervals if old is None else _merge([*old, *intervals])
        return MysqlGtidSet._of(sources)

    def __sub__(self, other: object) -> MysqlGtidSet:
        if not isinstance(other, MysqlGtidSet):
            return NotImplemented
        sources: dict[str, Intervals] = {}
        for source, intervals in self._sources.items():
            left = _subtract(intervals, other._sources.get(source, ()))
            if left:
                sources[source] = left
        return MysqlGtidSet._of(sources)

    def __bool__(self) -> bool:
        return bool(self._sources)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MysqlGtidSet):
            return NotImplemented
        return self._sources == other._sources

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._sources.items()))
        return self._hash

    def __str__(self) -> str:
        if self._text is None:
            self._text = _mysql_text(self._sources)
        return self._text

    def __repr__(self) -> str:
        return f"MysqlGtidSet.parse({str(self)!r})"

    def __reduce__(self) -> tuple[Callable[[str], MysqlGtidSet], tuple[str]]:
        return MysqlGtidSet.parse, (str(self),)


class MariadbGtidSet:
    """An immutable MariaDB GTID position: the last GTID per replication domain, as in ``gtid_slave_pos``.

    Each domain is a sequence, so a GTID includes all earlier GTIDs of the domain. ``str()`` is sorted by domain.
    """

    __slots__ = ("_domains",)

    def __init__(self, domains: Mapping[int, tuple[int, int]] | None = None) -> None:
        """Create a position from ``{domain: (server_id, sequence)}``."""
        self._domains: dict[int, tuple[int, int]] = {}
        for domain, (server, sequence) in (domains or {}).items():
            _check_mariadb(domain, server, sequence)
            self._domains[domain] = (server, sequence)

    @classmethod
    def _of(cls, domains: dict[int, tuple[int, int]]) -> MariadbGtidSet:
        new = cls.__new__(cls)
        new._domains = domains
        return new

    @classmethod
    def parse(cls, text: str) -> MariadbGtidSet:
        """Parse ``domain-server-sequence,…``. Like the server, reject duplicate domains."""
        domains: dict[int, tuple[int, int]] = {}
        for item in text.split(","):
            item = item.strip(_SPACE)
            if not item:
                continue
            match = _MARIADB_GTID.fullmatch(item)
            if match is None:
                raise ConfigError(f"not a MariaDB GTID: {_shown(item)}", remedy=_REMEDY)
            domain, server, sequence = (int(number) for number in match.groups())
            _check_mariadb(domain, server, sequence)
            if domain in domains:
                raise ConfigError(f"domain {domain} is given twice in a MariaDB GTID position", remedy=_REMEDY)
            domains[domain] = (server, sequence)
        return cls._of(domains)

    @classmethod
    def decode(cls, data: bytes) -> MariadbGtidSet:
        """Parse the body of a GTID_LIST event, without header and checksum.

        The list has a GTID per domain *and* server; the last GTID of a domain is the latest.
        """
        if len(data) < 4:
            raise TruncatedError("the GTID list ends within its count")
        count = struct.unpack_from("<I", data)[0] & 0x0FFFFFFF  # the upper four bits are flags
        if len(data) < 4 + 16 * count:
            raise TruncatedError(f"the GTID list should have {count} entries but ends before them")
        if count and len(data) > 4 + 16 * count:  # the server pads an empty list
            raise DecodeError(f"{len(data) - 4 - 16 * count} bytes follow the GTID list")
        return cls._of({domain: (server, seq) for domain, server, seq in struct.iter_unpack("<IIQ", data[4 : 4 + 16 * count])})

    def add(self, domain: int, server: int, sequence: int) -> MariadbGtidSet:
        """Return a position at this GTID in the domain. The sequence may decrease, as after a failover."""
        if self._domains.get(domain) == (server, sequence):
            return self
        _check_mariadb(domain, server, sequence)
        return MariadbGtidSet._of({**self._domains, domain: (server, sequence)})

    def contains(self, domain: int, server: int, sequence: int) -> bool:
        """Return whether the position is at or after the GTID. The server id is ignored."""
        known = self._domains.get(domain)
        return known is not None and sequence <= known[1]

    @property
    def domains(self) -> dict[int, tuple[int, int]]:
        """Return a copy as ``{domain: (server_id, sequence)}``."""
        return dict(self._domains)

    def __le__(self, other: object) -> bool:
        if not isinstance(other, MariadbGtidSet):
            return NotImplemented
        return all(other.contains(domain, *gtid) for domain, gtid in self._domains.items())

    def __or__(self, other: object) -> MariadbGtidSet:
        """Return the later GTID per domain."""
        if not isinstance(other, MariadbGtidSet):
            return NotImplemented
        domains = dict(self._domains)
        for domain, (server, sequence) in other._domains.items():
            if not self.contains(domain, server, sequence):
                domains[domain] = (server, sequence)
        return MariadbGtidSet._of(domains)

    def __sub__(self, other: object) -> MariadbGtidSet:
        """Return the domains with a later GTID than in the other position."""
        if not isinstance(other, MariadbGtidSet):
            return NotImplemented
        return MariadbGtidSet._of({domain: gtid for domain, gtid in self._domains.items() if not other.contains(domain, *gtid)})

    def __bool__(self) -> bool:
        return bool(self._domains)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MariadbGtidSet):
            return NotImplemented
        return self._domains == other._domains

    def __hash__(self) -> int:
        return hash(frozenset(self._domains.items()))

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{seq}" for domain, (server, seq) in sorted(self._domains.items()))

    def __repr__(self) -> str:
        return f"MariadbGtidSet.parse({str(self)!r})"

    def __reduce__(self) -> tuple[Callable[[str], MariadbGtidSet], tuple[str]]:
        return MariadbGtidSet.parse, (str(self),)


GtidSet: TypeAlias = MysqlGtidSet | MariadbGtidSet


def parse_gtid_set(text: str, flavor: str | None = None) -> GtidSet:
    """Parse a set of a flavor ("mysql" or "mariadb"). By default the text decides; "" is an empty MySQL set."""
    if flavor == "mariadb" or (flavor is None and _MARIADB_START.match(text)):
        return MariadbGtidSet.parse(text)
    if flavor not in (None, "mysql"):
        raise ConfigError(f"unknown flavor {flavor!r}", remedy='Use "mysql" or "mariadb"')
    return MysqlGtidSet.parse(text)


# Intervals.


def _merge(pairs: Iterable[tuple[int, int]]) -> Intervals:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _has(intervals: Intervals, first: int, last: int) -> bool:
    """Return whether one interval contains all of ``first`` to ``last``."""
    at = bisect_right(intervals, (first, MAX_NUMBER)) - 1
    return at >= 0 and intervals[at][0] <= first and last <= intervals[at][1]


def _insert(intervals: Intervals, first: int, last: int) -> Intervals:
    if intervals and intervals[-1][1] + 1 == first:  # common case: the next transaction of a server
        return (*intervals[:-1], (intervals[-1][0], last))
    return intervals if _has(intervals, first, last) else _merge([*intervals, (first, last)])


def _subtract(ours: Intervals, theirs: Intervals) -> Intervals:
    left: list[tuple[int, int]] = []
    at = 0
    for first, last in ours:
        while at < len(theirs) and theirs[at][1] < first:
            at += 1
        ahead = at
        while first <= last and ahead < len(theirs) and theirs[ahead][0] <= last:
            if theirs[ahead][0] > first:
                left.append((first, theirs[ahead][0] - 1))
            first = theirs[ahead][1] + 1
            ahead += 1
        if first <= last:
            left.append((first, last))
    return tuple(left)


def _checked_interval(first: int, last: int) -> tuple[int, int]:
    if not 1 <= first <= last <= MAX_NUMBER:
        raise ConfigError(f"not a GTID interval: {first}-{last}", remedy=_REMEDY)
    return first, last


# MySQL text.


def _parse_uuid_set(item: str, found: dict[str, list[tuple[int, int]]]) -> None:
    head, *parts = (part.strip(_SPACE) for part in item.split(":"))
    uuid = source = _normal_uuid(head)
    awaits_interval = True
    for part in parts:
        match = _INTERVAL.fullmatch(part)
        if match is not None:
            first = int(match[1])
            found.setdefault(source, []).append(_checked_interval(first, int(match[2] or first)))
            awaits_interval = False
        elif _TAG.fullmatch(part) and not (awaits_interval and source != uuid):
            source = f"{uuid}:{part.lower()}"
            awaits_interval = True
        else:
            raise ConfigError(f"neither an interval nor a tag in a GTID set: {_shown(part)}", remedy=_REMEDY)
    if awaits_interval:
        raise ConfigError(f"a GTID set ends without an interval: {_shown(item)}", remedy=_REMEDY)


def _normal_uuid(text: str) -> str:
    bare = text[1:-1] if text[:1] == "{" and text[-1:] == "}" else text
    if _UUID.fullmatch(bare):
        return bare.lower()
    if _BARE_UUID.fullmatch(bare):
        low = bare.lower()
        return f"{low[:8]}-{low[8:12]}-{low[12:16]}-{low[16:20]}-{low[20:]}"
    raise ConfigError(f"not a server UUID in a GTID set: {_shown(text)}", remedy=_REMEDY)


def _normal_source(source: str) -> str:
    uuid, colon, tag = source.partition(":")
    if not colon:
        return _normal_uuid(uuid)
    if not _TAG.fullmatch(tag):
        raise ConfigError(f"not a GTID tag: {_shown(tag)}", remedy=_REMEDY)
    return f"{_normal_uuid(uuid)}:{tag.lower()}"


def _source_key(source: str) -> tuple[str, str]:
    uuid, _, tag = source.partition(":")
    return uuid, tag


def _mysql_text(sources: dict[str, Intervals]) -> str:
    parts: list[str] = []
    previous = ""
    for source in sorted(sources, key=_source_key):
        uuid, tag = _source_key(source)
        numbers = ":".join(str(a) if a == b else f"{a}-{b}" for a, b in sources[source])
        if uuid != previous:
            parts.append(f",{source}:{numbers}" if previous else f"{source}:{numbers}")
        else:
            parts.append(f":{tag}:{numbers}")
        previous = uuid
    return "".join(parts)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")


# MySQL wire format: a 64-bit word with count and format, then uuid, tag and intervals per source.


def _decode_header(data: bytes) -> tuple[int, bool, int]:
    """Return the number of sources, whether they have tags, and the offset of the first source."""
    if len(data) < 8:
        raise TruncatedError("the GTID set ends within its header")
    layout = data[7]
    if layout == 0:
        return int.from_bytes(data[:7], "little"), False, 8
    if data[0] != layout:
        raise DecodeError("the two format codes of the GTID set differ")
    if layout != 1:
        raise UnsupportedError(f"GTID set format {layout} is not known", remedy="Upgrade this library")
    return int.from_bytes(data[1:7], "little"), True, 8


def _decode_source(data: bytes, offset: int, tagged: bool) -> tuple[str, int]:
    end = offset + 16
    if len(data) < end + tagged:
        raise TruncatedError("the GTID set ends within a source")
    source = _normal_uuid(data[offset:end].hex())
    if not tagged:
        return source, end
    length = data[end] >> 1  # a variable-length integer; below 64 it is one byte, shifted by its marker bit
    if data[end] & 1 or length > 32:
        raise DecodeError("the tag in the GTID set is too long")
    start, end = end + 1, end + 1 + length
    if len(data) < end:
        raise TruncatedError("the GTID set ends within a tag")
    tag = data[start:end].decode("latin-1")
    if tag and not _TAG.fullmatch(tag):
        raise DecodeError("the tag in the GTID set has characters that a tag cannot have")
    return f"{source}:{tag.lower()}" if tag else source, end


def _decode_intervals(data: bytes, offset: int) -> tuple[Intervals, int]:
    if len(data) < offset + 8:
        raise TruncatedError("the GTID set ends within a number of intervals")
    count = int.from_bytes(data[offset : offset + 8], "little")
    start = offset + 8
    if count > (len(data) - start) // 16:
        raise TruncatedError(f"the GTID set should have {count} intervals but ends before them")
    end = start + 16 * count
    pairs: list[tuple[int, int]] = []
    for first, stop in struct.iter_unpack("<QQ", data[start:end]):
        if not (pairs[-1][1] if pairs else 0) < first < stop <= MAX_NUMBER + 1:
            raise DecodeError(f"the GTID set has an impossible interval {first}-{stop - 1}")
        pairs.append((first, stop - 1))
    return _merge(pairs), end


# MariaDB.


def _check_mariadb(domain: int, server: int, sequence: int) -> None:
    if not (0 <= domain < 2**32 and 0 <= server < 2**32 and 0 <= sequence < 2**64):
        raise ConfigError(f"a number of the MariaDB GTID {domain}-{server}-{sequence} is out of range", remedy=_REMEDY)
