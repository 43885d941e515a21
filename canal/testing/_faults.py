"""Faults that a fake binlog can be told to do to a dump."""

from __future__ import annotations

import attrs

from canal.errors import PositionLostError, ServerError


@attrs.frozen
class Cut:
    """The connection breaks, as by a reset; with ``inside`` half of the next event was sent before (served only)."""

    inside: bool = False


@attrs.frozen
class Corrupt:
    """One byte of the next event is turned over: the one at ``byte``, or in the middle of the event."""

    byte: int | None = None


@attrs.frozen
class Stall:
    """Nothing comes for so many seconds, not even a heartbeat."""

    seconds: float


@attrs.frozen
class Repeat:
    """The last events come once more."""

    events: int = 1


@attrs.frozen
class ErrorPacket:
    """The server ends the stream with an error packet."""

    errno: int = 1236
    text: str = "Could not find first log file name in binary log index file"


Fault = Cut | Corrupt | Stall | Repeat | ErrorPacket


@attrs.define
class Due:
    """A fault and how many events are delivered before it."""

    remaining: int
    fault: Fault


def server_error(fault: ErrorPacket) -> ServerError:
    """Return the error that a client raises for an error packet."""
    text = fault.text.lower()
    gone = fault.errno == 1236 and any(word in text for word in ("could not find", "purged", "not in the"))
    return (PositionLostError if gone else ServerError)(fault.text, errno=fault.errno, sqlstate="HY000")
