"""Splits a stream of MySQL packets, or the bytes of a binlog file, into raw binlog events.

Never accesses a socket or file, and never parses an event. Both framers have a buffer that the caller fills in place
(``room``, then ``advance``), or accept chunks of any size (``feed``). The result does not depend on how the input is split.
Packets: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_packets.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from canal.binlog import event_layout as layout
from canal.binlog import event_types as kinds
from canal.errors import CanalError, DecodeError, ServerError, StateError, UnsupportedError
from canal.rows import wire

#: Normal buffer size; a larger event grows the buffer.
BUFFER_BYTES = 1 << 20
#: A packet of this length continues in the next packet.
MAX_PACKET = 0xFFFFFF
_MAX_PACKET = MAX_PACKET  # a C integer when compiled, not visible to Python code
#: Longer than any server's error message.
_LONGEST_ERROR = 1 << 14
_DAMAGED = "A proxy or the network between the server and this process loses, repeats or changes bytes."
#: The largest event that a server can write (max_allowed_packet is at most 1 GiB), plus room for headers.
MAX_EVENT_BYTES = (1 << 30) + (1 << 20)


class Events:
    """Consecutive whole events in a framer's buffer: a sequence that creates the bytes of each event on access.

    Valid until the framer's next ``room()``; a later access raises StateError.

    Attributes:
        buffer: the framer's buffer.
        start: index of the first event.
        count: number of events.
        gap: bytes before each event: a packet's header and status, 0 in a file.
    """

    __slots__ = ("buffer", "start", "count", "gap", "_framer", "_reads", "_last")

    def __init__(self) -> None:  # the framer sets the attributes
        self._framer: Framer = None  # type: ignore[assignment]
        self.buffer = bytearray()
        self.start = self.count = self.gap = self._reads = self._last = 0

    def size_at(self, at: int) -> int:
        """Return the size of the event at an index. In a packet, the packet's length counts, not the event's."""
        p = self.buffer
        return wire.u24(p, at - layout.PACKET_EVENT) - 1 if self.gap else wire.u32(p, at + layout.SIZE)

    def check(self) -> None:
        if self._reads != self._framer.reads:
            raise StateError("these events were overwritten by a later read: copy events to keep with list(events)")

    def copies(self) -> list[bytes]:
        """Return all events as separate bytes objects."""
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
        """Return the bytes of an event, or a list for a slice."""
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
    """Base class with the buffer: bytes are added at the end, and whole events leave at the start.

    ``reads`` counts the calls of ``room``, each of which invalidates earlier events.
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
        """Bytes received that are not yet part of a whole event."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Return a writable view of the free part of the buffer. Fill the start of the view, then call ``advance``.

        It is empty only after an error or the end of the stream. Do not use the view after ``advance``.
        """
        self.reads += 1
        self._make_room()
        return memoryview(self._buffer)[self._end :]

    def advance(self, count: int) -> Sequence[bytes]:
        """Process the first ``count`` bytes of ``room()``; return the events that are now whole, valid until ``room()``.

        An error in the input, or the server's error packet, ends the stream. It is stored in ``error``; the caller raises it
        after processing the events before it.
        """
        raise NotImplementedError

    def feed(self, chunk: bytes | bytearray | memoryview) -> list[bytes]:
        """Process a chunk of any size; return the events that are now whole."""
        events: list[bytes] = []
        view = memoryview(chunk)
        at = 0
        while at < len(view):
            room = self.room()
            count = min(len(room), len(view) - at)
            if count == 0:  # the buffer is full of data after an error or the end, which is ignored
                break
            room[:count] = view[at : at + count]
            at += count
            events += self.advance(count)
        return events

    def _events(self, start: int, last: int, count: int, gap: int) -> Any:
        """Return a sequence of ``count`` events in the buffer; ``start`` and ``last`` are the indexes of the first and last."""
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
            raise ValueError(f"{count} bytes exceed the room of {len(self._buffer) - self._end}")
        self._end += count

    def _make_room(self) -> None:
        """Move the rest to the front, or change the buffer's size, if that is worth the cost."""
        pending = self._end - self._start
        size = len(self._buffer)
        need = max(min(self._need, 2 * size), self._normal)  # trust a length only after half of the bytes have arrived
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
    """Splits the packets that follow a dump command: event packets, and an ERR or EOF packet at the end.

    ``ended`` is set by an EOF packet. ``error`` is set by an ERR packet (a plain ServerError, which the caller interprets)
    or by packets out of order. Later input is ignored.
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
        """Bytes received that are not yet part of a whole event."""
        return self._joined + self._end - self._start

    def advance(self, count: int) -> Sequence[bytes]:
        self._take(count)
        self._need = 0
        events: list[bytes] | None = None  # used once an event spans several packets
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
        """Join an event of several packets; the last packet is shorter than 2^24 - 1, or empty."""
        if not self._joined and payload[0] != 0:
            self.error = DecodeError(
                f"a packet of {length} bytes begins with {payload[0]:#04x} instead of an event", remedy=_DAMAGED
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
        """Set ``error`` if an incomplete packet's length differs from that of the event.

        With a damaged length we would wait for megabytes, which an idle server takes hours to send.
        """
        if status != 0:
            if length > _LONGEST_ERROR:
                self._wrong_length(length)
        elif event_length + 1 != length and (length != _MAX_PACKET or event_length + 1 < length):
            self._wrong_length(length)

    def _wrong_length(self, length: int) -> None:
        self.error = DecodeError(f"a packet of {length} bytes does not match the event's length", remedy=_DAMAGED)

    def _not_event(self, payload: bytes) -> None:
        if not payload:
            self.error = DecodeError("the server sent an empty packet in the dump", remedy=_DAMAGED)
        elif payload[0] == 0xFF and not any(byte < 32 and byte not in b"\t\n\r" for byte in payload[3:]):
            self.error = parse_error_packet(payload)
        elif payload[0] == 0xFE and len(payload) < 9:
            self.ended = True
        else:
            self.error = DecodeError(f"the server sent a packet that begins with {payload[0]:#04x} in the dump", remedy=_DAMAGED)

    def _out_of_order(self, found: int, is_error: bool) -> None:
        # A MariaDB server that shuts down sends the error packet with number 0.
        if not is_error:
            self.error = DecodeError(f"received packet number {found} instead of {self._sequence}", remedy=_DAMAGED)

    def _too_large(self) -> None:
        self.error = DecodeError(
            f"an event is larger than {self._max_event} bytes",
            remedy="The stream is damaged: no server writes events that large.",
        )


class FileFramer(Framer):
    """Splits the bytes of a binlog file after the four magic bytes.

    ``offset``: start of the next event. ``has_format``: whether the last events include a FORMAT_DESCRIPTION.
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
            f"an event at offset {offset} has the length {length}", remedy="The file is damaged or is not a binlog."
        )

    def _relay_log(self) -> None:
        """Set ``error``: RELAY_LOG_F (in old replicas only in ROTATE) or a source's artificial ROTATE marks a relay log."""
        self.error = UnsupportedError(
            "this is a replica's relay log, with the source's journal names and offsets",
            remedy="Read the source's binlog, or the replica's binlog written with log_replica_updates.",
        )


def parse_error_packet(payload: bytes) -> ServerError:
    """Return the ServerError for an ERR packet (first byte 0xff)."""
    errno = payload[1] | payload[2] << 8 if len(payload) >= 3 else 0
    text, sqlstate = payload[3:], ""
    if text[:1] == b"#" and len(text) >= 6:
        sqlstate = text[1:6].decode("ascii", "replace")
        text = text[6:]
    return ServerError(text.decode("utf-8", "replace").strip(), errno=errno, sqlstate=sqlstate)
