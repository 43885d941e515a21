"""The events that one dump of a fake binlog sends, in order."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from canal.binlog.event_types import (
    ANONYMOUS_GTID,
    ARTIFICIAL_F,
    BINLOG_CHECKPOINT,
    FORMAT_DESCRIPTION,
    HEARTBEAT,
    HEARTBEAT_V2,
    MARIADB_GTID_LIST,
    PREVIOUS_GTIDS,
    ROTATE,
)
from canal.errors import ConnectionLostError
from canal.gtid import MariadbGtidSet, MysqlGtidSet
from canal.position import Position
from canal.testing import _encode
from canal.testing._binlog import BinlogState
from canal.testing._faults import Corrupt, ErrorPacket, Fault, Repeat, Stall, server_error
from canal.testing._log import Event, FakeLog, Journal

#: What a journal begins with.
_OPENING: Final = frozenset((FORMAT_DESCRIPTION, PREVIOUS_GTIDS, MARIADB_GTID_LIST, BINLOG_CHECKPOINT))
#: How many events and bytes one read gives at most.
_READ_EVENTS, _READ_BYTES = 1024, 1 << 20


class Feed:
    """What one dump sends, in order: the opening events, the log, heartbeats, and the faults that are due.

    ``checksum`` is whether events that are not in the log have one; ``period`` the seconds between heartbeats.
    """

    def __init__(
        self,
        fake: BinlogState,
        position: Position,
        *,
        checksum: bool = True,
        period: float | None = None,
        newer_heartbeat: bool = False,
    ) -> None:
        self._fake = fake
        self._checksum = fake.checksum and checksum
        self._period = period
        self._newer_heartbeat = newer_heartbeat
        self._ready: deque[bytes] = deque()
        self._recent: deque[bytes] = deque(maxlen=64)
        self._stalled_until = 0.0
        self._sent_at = time.monotonic()
        self._skipped = 0
        self.cut_inside: bytes = b""
        self.closed = False
        with fake.log.changed:
            number, self._event, self._done = fake.log.locate(position)
            self._beats = fake._beats
            self._journal = fake.log.journals[number]
            # A MySQL that leaves out the first transaction of a dump leaves all times of creation out of it.
            first = next((event for event in self._journal.events if event.gtid is not None), None)
            self._leaves_out_creation = fake.flavor == "mysql" and first is not None and self._is_done(first)
            self._open(self._event)

    def take(self, timeout: float) -> list[bytes] | None:
        """The next events: [] when there were none in time, None at the end of the log."""
        fake, deadline = self._fake, time.monotonic() + timeout
        with fake.log.changed:
            while True:
                if self.closed:
                    raise ConnectionLostError("the connection to the fake binlog was closed")
                now = time.monotonic()
                if now >= self._stalled_until:
                    events = self._collect()
                    if events:
                        self._sent_at = now
                        return events
                    if self._at_end() and fake.log.ended:
                        return None
                if now >= deadline:
                    return []
                wake = self._stalled_until if now < self._stalled_until else self._heartbeat_at()
                fake.log.changed.wait(max(min(wake, deadline) - now, 0.0001))

    def close(self) -> None:
        with self._fake.log.changed:
            self.closed = True
            self._fake.log.changed.notify_all()

    def _heartbeat_at(self) -> float:
        return self._sent_at + self._period if self._period else float("inf")

    def _collect(self) -> list[bytes]:
        events: list[bytes] = []
        size = 0
        while len(events) < _READ_EVENTS and size < _READ_BYTES and time.monotonic() >= self._stalled_until:
            self._repeat()
            if self._ready:
                events.append(self._ready.popleft())
            elif self._meets_fault(events):
                break
            else:
                data = self._next_logged()
                if data is None:
                    break
                events.append(data)
            size += len(events[-1])
        if not events and self._at_end() and self._stalled_until <= time.monotonic():
            events = self._heartbeats()
        return events

    def _due(self) -> Fault | None:
        """The fault whose time has come."""
        faults = self._fake._faults
        return faults[0].fault if faults and faults[0].remaining <= 0 else None

    def _repeat(self) -> None:
        fault = self._due()
        if isinstance(fault, Repeat) and self._recent:
            self._fake._faults.popleft()
            self._ready.extend(list(self._recent)[-fault.events :])

    def _meets_fault(self, events: list[bytes]) -> bool:
        """Whether a fault ends this read."""
        fault = self._due()
        if fault is None or isinstance(fault, (Corrupt, Repeat)):  # those are done to events
            return False
        if events:
            return True  # hand over what came before it
        self._fake._faults.popleft()
        if isinstance(fault, Stall):
            self._stalled_until = time.monotonic() + fault.seconds
            return True
        if isinstance(fault, ErrorPacket):
            raise server_error(fault)
        if fault.inside:
            self.cut_inside = self._next_logged() or b""
        raise ConnectionLostError("the connection to the fake binlog was cut, as ordered")

    def _next_logged(self) -> bytes | None:
        """The next event of the log that this dump is to see."""
        while True:
            if self._event >= len(self._journal.events):
                if not self._next_journal():
                    return None
                return self._ready.popleft()
            event = self._journal.events[self._event]
            self._event += 1
            if isinstance(self._done, MysqlGtidSet) and event.data[4] == ANONYMOUS_GTID:
                text = f"Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file {self._journal.name}"
                raise server_error(ErrorPacket(1236, f"{text}, position {event.offset}."))
            if self._is_done(event):
                self._skipped = event.end
                continue
            if self._skipped and event.gtid is not None:
                # A server tells how far it has skipped before it goes on.
                self._ready.append(self._skip_mark())
                self._skipped = 0
                self._event -= 1
                return self._ready.popleft()
            if event.data[4] == FORMAT_DESCRIPTION and self._leaves_out_creation:
                return _encode.without_creation(event.data, checksum=self._fake.checksum)
            return self._delivered(event.data)

    def _delivered(self, data: bytes) -> bytes:
        if data[4] in _OPENING:
            return data
        faults = self._fake._faults
        fault = self._due()
        if isinstance(fault, Corrupt):
            faults.popleft()
            at = len(data) // 2 if fault.byte is None else fault.byte % len(data)
            data = data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]
        elif faults and fault is None:
            faults[0].remaining -= 1
        self._recent.append(data)
        return data

    def _is_done(self, event: Event) -> bool:
        if self._done is None or event.gtid is None:
            return False
        contains: Callable[..., bool] = self._done.contains
        return contains(*event.gtid)

    def _next_journal(self) -> bool:
        """Go on with the journal that the index has behind the present one's name, as a server does: after a reset that
        name may be one of the new log."""
        journals = self._fake.log.journals
        index = next((number for number, one in enumerate(journals) if one.name == self._journal.name), None)
        if index is None or self._journal.is_gone:
            raise server_error(ErrorPacket(1236, "could not find next log"))
        if index + 1 >= len(journals):
            self._check_is_written(journals[-1])
            return False
        self._journal, self._event, self._skipped = journals[index + 1], 0, 0
        self._open(0)
        return True

    def _check_is_written(self, newest: Journal) -> None:
        """After a reset the file that is read is not the one that is written: a server finds nothing where the other has
        grown beyond it."""
        if newest is self._journal or newest.end <= self._journal.end:
            return
        if self._fake.flavor == "mariadb":
            raise ConnectionLostError("the fake binlog ended the dump", by_source=True)
        raise server_error(ErrorPacket(1236, "I/O error reading log event"))

    def _open(self, event: int) -> None:
        """The artificial ROTATE, and the FORMAT_DESCRIPTION where the dump does not begin with it."""
        journal = self._journal
        offset = journal.events[event].offset if event < len(journal.events) else journal.end
        body = struct.pack("<Q", offset) + journal.name.encode("utf-8")
        self._ready.append(self._artificial(ROTATE, body, 0, ARTIFICIAL_F))
        if event > 0:
            self._ready.append(_encode.resent(journal.events[0].data, checksum=self._fake.checksum))

    def _artificial(self, kind: int, body: bytes, end: int, flags: int = 0) -> bytes:
        return _encode.event(
            kind, body, timestamp=0, server_id=self._fake.server_id, end=end, flags=flags, checksum=self._checksum
        )

    def _skip_mark(self) -> bytes:
        if self._fake.flavor == "mariadb":
            assert isinstance(self._done, MariadbGtidSet)
            done = [(domain, *last) for domain, last in sorted(self._done.domains.items())]
            return self._artificial(MARIADB_GTID_LIST, FakeLog.gtid_list(done), self._skipped, ARTIFICIAL_F)
        return self._heartbeat(self._skipped)

    def _heartbeat(self, offset: int) -> bytes:
        name = self._journal.name.encode("utf-8")
        if self._newer_heartbeat or (self._fake.flavor == "mysql" and offset >> 32):
            packed = _encode.packed(offset)
            return self._artificial(HEARTBEAT_V2, _encode.tlv(1, name) + _encode.tlv(2, packed) + b"\0", offset)
        return self._artificial(HEARTBEAT, name, offset)

    def _heartbeats(self) -> list[bytes]:
        if self._skipped:
            mark, self._skipped = self._skip_mark(), 0
            return [mark]
        beaten = self._fake._beats - self._beats
        self._beats = self._fake._beats
        if not beaten and time.monotonic() >= self._heartbeat_at():
            beaten = 1
        return [self._heartbeat(self._journal.end)] * beaten

    def _at_end(self) -> bool:
        return (
            not self._ready
            and self._event >= len(self._journal.events)
            and self._journal.name == self._fake.log.journals[-1].name
        )

    @property
    def ended(self) -> bool:
        """Whether all that is in the log now was taken."""
        with self._fake.log.changed:
            return self._at_end() and not self._skipped
