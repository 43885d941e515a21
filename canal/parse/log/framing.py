"""Raw binlog events cut out of a stream of MySQL packets or out of a binlog file's bytes.

Never touches a socket or a file and never looks inside an event. Both framers own a buffer that the caller fills in
place (``room`` then ``advance``), or take the bytes of any chunk (``feed``); how the input is split changes nothing in
what comes out. Packets: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from canal.binlog import event_layout as layout
from canal.binlog import event_types as kinds
from canal.errors import CanalError, DecodeError, ServerError, StateError, UnsupportedError
from canal.rows import wire

#: What a framer's buffer holds when no event needs more.
BUFFER_BYTES = 1 << 20
#: A packet of this length continues in the next one.
MAX_PACKET = 0xFFFFFF
_MAX_PACKET = MAX_PACKET  # a C integer when compiled, which Python code cannot see
#: More than any server's error message.
_LONGEST_ERROR = 1 << 14
_DAMAGED = "Something between the server and this process loses, repeats or changes bytes."
#: The largest event that a server can write, with room for headers: max_allowed_packet ends at 1 GiB.
MAX_EVENT_BYTES = (1 << 30) + (1 << 20)


class Events:
    """Whole events one behind the other in a framer's buffer: a sequence of bytes, each of which is made when it is asked for.

    It is good until the framer makes room for more; whoever asks later gets a StateError.

    Attributes:
        buffer: where they are.
        start: index of the first one in it.
        count: how many there are.
        gap: bytes before each of them: what a packet has before its event, 0 in a file.
    """

    __slots__ = ("buffer", "start", "count", "gap", "_framer", "_reads", "_last")

    def __init__(self) -> None:  # a framer fills it
        self._framer: Framer = None  # type: ignore[assignment]
        self.buffer = bytearray()
        self.start = self.count = self.gap = self._reads = self._last = 0

    def size_at(self, at: int) -> int:
        """Bytes of the event at an index: in a packet they are those of the packet, whatever the event says."""
        p = self.buffer
        return wire.u24(p, at - layout.PACKET_EVENT) - 1 if self.gap else wire.u32(p, at + layout.SIZE)

    def check(self) -> None:
        if self._reads != self._framer.reads:
            raise StateError("these events were overwritten by those of a later read: take list(events) of what is to be kept")

    def copies(self) -> list[bytes]:
        """All of them, as bytes that stay."""
        return list(self)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        at = self.start
        for _ in range(self.count):
            self.check()
            size = self.size_at(at)
            yield wire.piece(self.buffer, at, at + size)
            at += size + self.gap

    def __getitem__(self, number: Any) -> Any:
        """The bytes of one event, or a list of those that a slice names."""
        if isinstance(number, slice):
            return list(self)[number]
        self.check()
        if number < 0:
            number += self.count
        if not 0 <= number < self.count:
            raise IndexError(f"event {number} of {self.count}")
        at = self._last if number == self.count - 1 else self.start
        if at == self.start:
            for _ in range(number):
                at += self.size_at(at) + self.gap
        return wire.piece(self.buffer, at, at + self.size_at(at))

    def __repr__(self) -> str:
        return f"<Events: {self.count}>"


Sequence.register(Events)


class Framer:
    """The buffer of both framers: bytes come in at its end, whole events go out at its start.

    ``reads`` counts the calls of ``room``, behind which events that were given out may be overwritten.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._buffer = bytearray(max(buffer_bytes, 64))
        self._normal = len(self._buffer)
        self._max_event = max_event_bytes
        self._start = 0
        self._end = 0
        self._need = 0
        self.reads = 0
        self.error: CanalError | None = None

    @property
    def pending(self) -> int:
        """Bytes taken that are not yet given out as events."""
        return self._end - self._start

    def room(self) -> memoryview:
        """A writable view of the free part of the buffer; fill its start, then call ``advance``.

        It is empty only behind a fault or the end of the stream. The view must not be used after ``advance``.
        """
        self.reads += 1
        self._make_room()
        return memoryview(self._buffer)[self._end :]

    def advance(self, count: int) -> Sequence[bytes]:
        """Take the first ``count`` bytes of ``room()`` as input; returns the events that are now whole, good until ``room()``.

        A fault in the input, or the server's error packet, ends the stream: it is kept in ``error`` for the caller to
        raise once the events before it are dealt with.
        """
        raise NotImplementedError

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[bytes]:
        """Take a chunk of any size; returns the events that are now whole."""
        events: list[bytes] = []
        view = memoryview(chunk)
        at = 0
        while at < len(view):
            room = self.room()
            count = min(len(room), len(view) - at)
            if count == 0:  # full of what comes behind a fault or the end, which is not looked at
                break
            room[:count] = view[at : at + count]
            at += count
            events += self.advance(count)
        return events

    def _events(self, start: int, last: int, count: int, gap: int) -> Any:
        """A sequence of ``count`` events of the buffer, those at ``start`` and ``last`` the first and the last of them."""
        made = Events.__new__(Events)
        made._framer = self
        made.buffer = self._buffer
        made._reads = self.reads
        made._last = last
        made.start = start
        made.count = count
        made.gap = gap
        return made

    def _take(self, count: int) -> None:
        if count < 0 or count > len(self._buffer) - self._end:
            raise ValueError(f"{count} bytes cannot have been put into a room of {len(self._buffer) - self._end}")
        self._end += count

    def _make_room(self) -> None:
        """Move the rest to the front, or take a larger or again a normal buffer, when that is worth its cost."""
        pending = self._end - self._start
        size = len(self._buffer)
        need = max(min(self._need, 2 * size), self._normal)  # a length is not believed before half of it has come
        is_full = size - pending < size >> 2
        if (need > size and is_full) or (size > self._normal and need == self._normal and pending < self._normal):
            fresh = bytearray(need)
            fresh[:pending] = self._buffer[self._start : self._end]
            self._buffer = fresh
        elif pending == 0:
            pass
        elif self._start and (size - self._end < size >> 2 or self._start + self._need > size):
            self._buffer[:pending] = self._buffer[self._start : self._end]
        else:
            return
        self._start = 0
        self._end = pending


class PacketFramer(Framer):
    """Frames the packets that follow a dump command: event packets, one ERR packet or one EOF packet.

    ``ended`` becomes true at an EOF packet, and ``error`` is set by an ERR packet (a plain ServerError; the caller
    knows what its number means for it) or by packets out of order. What comes later is not looked at.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, max_event_bytes: int = MAX_EVENT_BYTES, sequence: int = 1) -> None:
        Framer.__init__(self, buffer_bytes, max_event_bytes)
        self._sequence = sequence
        self._parts: list[bytes] = []
        self._joined = 0
        self._due = 0
        self.ended = False

    @property
    def pending(self) -> int:
        """Bytes taken that are not yet given out as events."""
        return self._joined + self._end - self._start

    def advance(self, count: int) -> Sequence[bytes]:
        self._take(count)
        self._need = 0
        events: list[bytes] | None = None  # as soon as one has come in several packets
        p = self._buffer
        at = self._start
        end = self._end
        first = last = at + layout.PACKET_EVENT
        whole = 0
        while end - at >= layout.PACKET and not self.ended and self.error is None:
            length = wire.u24(p, at)
            if p[at + layout.PACKET_NUMBER] != self._sequence:
                if length > 0 and end - at == layout.PACKET:
                    break
                self._out_of_order(p[at + layout.PACKET_NUMBER], length > 0 and p[at + layout.PACKET] == 0xFF)
                if self.error is not None:
                    break
            stop = at + layout.PACKET + length
            if self._joined + length > self._max_event:
                self._too_large()
                break
            if self._joined and length != min(self._due - self._joined, _MAX_PACKET):
                self._wrong_length(length)
                break
            if stop > end:
                if end - at >= layout.PACKET_EVENT + layout.END and not self._joined:
                    self._check_length(length, p[at + layout.PACKET], wire.u32(p, at + layout.PACKET_EVENT + layout.SIZE))
                self._need = layout.PACKET + length
                break
            self._sequence = (p[at + layout.PACKET_NUMBER] + 1) & 0xFF
            if self._joined or length == _MAX_PACKET:
                if events is None:
                    events = self._events(first, last, whole, layout.PACKET_EVENT).copies()
                self._continue(bytes(p[at + layout.PACKET : stop]), length, events)
            elif length > 0 and p[at + layout.PACKET] == 0:
                if events is None:
                    last = at + layout.PACKET_EVENT
                    whole += 1
                else:
                    events.append(wire.piece(p, at + layout.PACKET_EVENT, stop))
            else:
                self._not_event(bytes(p[at + layout.PACKET : stop]))
            at = stop
        self._start = at
        if events is None:
            return self._events(first, last, whole, layout.PACKET_EVENT) if whole else []
        return events

    def _continue(self, payload: bytes, length: int, events: list[bytes]) -> None:
        """Join an event of several packets; the last one is shorter than 2^24 - 1, or empty."""
        if not self._joined and payload[0] != 0:
            self.error = DecodeError(
                f"a packet of {length} bytes begins with {payload[0]:#04x}, not with an event", remedy=_DAMAGED
            )
            return
        if not self._joined:
            self._due = wire.u32(payload, layout.PACKET_EVENT - layout.PACKET + layout.SIZE) + 1
        self._parts.append(payload if self._joined else payload[1:])
        self._joined += length
        if length < _MAX_PACKET:
            events.append(b"".join(self._parts))
            self._parts = []
            self._joined = 0

    def _check_length(self, length: int, status: int, event_length: int) -> None:
        """Believe the length of a packet that is not whole yet only if its event says the same.

        Else a damaged length would let us wait for megabytes, which an idle server takes hours to send.
        """
        if status != 0:
            if length > _LONGEST_ERROR:
                self._wrong_length(length)
        elif event_length + 1 != length and (length != _MAX_PACKET or event_length + 1 < length):
            self._wrong_length(length)

    def _wrong_length(self, length: int) -> None:
        self.error = DecodeError(f"a packet of {length} bytes does not fit what it carries", remedy=_DAMAGED)

    def _not_event(self, payload: bytes) -> None:
        if not payload:
            self.error = DecodeError("the server sent an empty packet inside its dump", remedy=_DAMAGED)
        elif payload[0] == 0xFF and not any(byte < 32 and byte not in b"\t\n\r" for byte in payload[3:]):
            self.error = parse_error_packet(payload)
        elif payload[0] == 0xFE and len(payload) < 9:
            self.ended = True
        else:
            self.error = DecodeError(
                f"the server sent a packet that begins with {payload[0]:#04x} inside its dump", remedy=_DAMAGED
            )

    def _out_of_order(self, found: int, is_error: bool) -> None:
        # A MariaDB that shuts down numbers its error packet 0.
        if not is_error:
            self.error = DecodeError(f"packet number {found} came where {self._sequence} was due", remedy=_DAMAGED)

    def _too_large(self) -> None:
        self.error = DecodeError(
            f"an event is larger than {self._max_event} bytes", remedy="The stream is damaged: no server writes such an event."
        )


class FileFramer(Framer):
    """Frames the bytes of a binlog file that follow its four magic bytes.

    ``offset`` is where the next event starts; ``has_format`` whether the last events have a FORMAT_DESCRIPTION among them.
    """

    def __init__(
        self, offset: int = layout.FIRST, buffer_bytes: int = BUFFER_BYTES, max_event_bytes: int = MAX_EVENT_BYTES
    ) -> None:
        Framer.__init__(self, buffer_bytes, max_event_bytes)
        self.offset = offset
        self.has_format = False

    def advance(self, count: int) -> Sequence[bytes]:
        self._take(count)
        self._need = 0
        self.has_format = False
        p = self._buffer
        at = last = self._start
        end = self._end
        whole = 0
        while end - at >= layout.END and self.error is None:
            length = wire.u32(p, at + layout.SIZE)
            if length < layout.HEADER or length > self._max_event:
                self._bad_length(length, self.offset + at - self._start)
                break
            if at + length > end:
                self._need = length
                break
            kind = p[at + layout.TYPE]
            self.has_format |= kind == kinds.FORMAT_DESCRIPTION
            if (
                kind == kinds.ROTATE
                and p[at + layout.FLAGS] & (kinds.ARTIFICIAL_F | kinds.RELAY_LOG_F)
                or kind == kinds.FORMAT_DESCRIPTION
                and p[at + layout.FLAGS] & kinds.RELAY_LOG_F
            ):
                self._relay_log()
                break
            last = at
            whole += 1
            at += length
        first = self._start
        self.offset += at - first
        self._start = at
        return self._events(first, last, whole, 0) if whole else []

    def _bad_length(self, length: int, offset: int) -> None:
        self.error = DecodeError(
            f"an event at offset {offset} says that it has {length} bytes", remedy="The file is damaged or is no binlog."
        )

    def _relay_log(self) -> None:
        """RELAY_LOG_F, which old replicas set in ROTATE only, or the artificial ROTATE of the source's dump."""
        self.error = UnsupportedError(
            "this is the relay log of a replica, with the journal names and offsets of its source",
            remedy="Read the source's own binlog, or the one that the replica writes with log_replica_updates.",
        )


def parse_error_packet(payload: bytes) -> ServerError:
    """The ServerError that an ERR packet (first byte 0xff) tells of."""
    errno = payload[1] | payload[2] << 8 if len(payload) >= 3 else 0
    text, sqlstate = payload[3:], ""
    if text[:1] == b"#" and len(text) >= 6:
        sqlstate = text[1:6].decode("ascii", "replace")
        text = text[6:]
    return ServerError(text.decode("utf-8", "replace").strip(), errno=errno, sqlstate=sqlstate)
