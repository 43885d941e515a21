"""The events of one dump, from the socket.

Never looks inside an event further than its type.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence

from canal.binlog import event_layout as layout
from canal.binlog.event_types import BINLOG_CHECKPOINT, FORMAT_DESCRIPTION, MARIADB_GTID_LIST, PREVIOUS_GTIDS, ROTATE
from canal.errors import ConnectionLostError, ServerError
from canal.parse.log.framing import PacketFramer
from canal.parse.source.server import ServerOptions
from canal.parse.source.server_errors import stream_error
from canal.position import Position

#: Events that open a dump before the server has found the position to start from.
_OPENING_EVENTS = frozenset((ROTATE, FORMAT_DESCRIPTION, PREVIOUS_GTIDS, BINLOG_CHECKPOINT, MARIADB_GTID_LIST))


class DumpStream:
    """The events of one dump, read from a socket that was taken over from PyMySQL.

    One thread reads; ``close`` may come from any other and wakes it.
    """

    def __init__(
        self, sock: socket.socket, ahead: bytes, source: ServerOptions, server_id: int, start: Position, *, beats: bool = True
    ) -> None:
        self._socket = sock
        self._source = source
        self._server_id = server_id
        self._start = start
        self._framer = PacketFramer(source.receive_buffer)
        self._early: Sequence[bytes] = self._framer.feed(ahead) if ahead else []
        #: Whether it runs over TLS.
        self.is_encrypted = isinstance(sock, ssl.SSLSocket)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._heard = time.monotonic()
        self._settled = False
        self._beats = beats
        #: Whether the server has sent a byte of the dump.
        self.has_begun = bool(ahead)
        self._closed = False
        self._reading = threading.Lock()

    @property
    def ended(self) -> bool:
        """Whether the server has said that its log ends here."""
        return bool(self._framer.ended)

    def read(self, timeout: float) -> Sequence[bytes]:
        """As ``Connection.read``, except that ``[]`` with ``ended`` is the end of the log."""
        deadline = time.monotonic() + timeout
        with self._reading:
            events, self._early = self._early, []
            while not events:
                if self._framer.error is not None:
                    raise self._failure(self._framer.error)
                if self._framer.ended:
                    return []
                count = self._receive()
                if count < 0 and not self._wait(deadline):
                    return []
                if count >= 0:
                    events = self._framer.advance(count)
        if not self._settled:
            self._settled = any(event[layout.TYPE] not in _OPENING_EVENTS for event in events)
        return events

    def _receive(self) -> int:
        """Bytes that came into the framer's room, or -1 when there are none yet."""
        if self._closed:
            raise self._lost("was closed")
        try:
            room = self._framer.room()
            count = self._socket.recv_into(room)
            if self.is_encrypted:
                count = self._receive_rest(room, count)
        except (BlockingIOError, ssl.SSLWantReadError, InterruptedError):
            return -1
        except ssl.SSLWantWriteError:
            # An answer to a TLS key update does not fit into the socket's buffer; it goes out with the next try.
            time.sleep(0.001)
            return -1
        except (OSError, ValueError) as error:
            raise self._lost(f"broke: {error}") from error
        if self._closed:
            raise self._lost("was closed")
        if count == 0:
            raise self._ended()
        self._heard = time.monotonic()
        self.has_begun = True
        return count

    def _receive_rest(self, room: memoryview, count: int) -> int:
        """TLS gives one record of at most 16 KiB at a time; take along what is already decrypted or waiting."""
        while 0 < count < len(room):
            try:
                more = self._socket.recv_into(room[count:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                break  # what has come is good; the next call meets the error again
            if not more:
                break
            count += more
        return count

    def _wait(self, deadline: float) -> bool:
        """Sleep until there may be bytes; False at the deadline. Raises when the server was silent for too long."""
        now = time.monotonic()
        limit = 3 * self._source.heartbeat_interval if self._settled and self._beats else self._source.seek_timeout
        silent_until = self._heard + limit
        try:
            if now >= silent_until and not self._poll.poll(0):  # else it is this process that was held up
                raise self._lost(f"is half-open: {'not even a heartbeat' if self._beats else 'nothing'} came for {limit:g} s")
            if now >= deadline:
                return False
            self._poll.poll(max(1.0, 1000 * (min(deadline, silent_until) - now)))
        except (OSError, ValueError) as error:
            raise self._lost(f"broke: {error}") from error
        return True

    @property
    def is_alive(self) -> bool:
        """Whether heartbeats come as they should, or something else does."""
        return self._settled and self._beats and time.monotonic() - self._heard < 1.5 * self._source.heartbeat_interval

    def _lost(self, what: str, *, by_source: bool = False) -> ConnectionLostError:
        return ConnectionLostError(f"the replication connection to {self._source.address} {what}", by_source=by_source)

    def _ended(self) -> ConnectionLostError:
        error = self._lost("was closed without a word, by the server or on the way", by_source=True)
        error.remedy = (
            f"That was {time.monotonic() - self._heard:.1f} s after the last byte. A KILL does so, and whatever on the way "
            f"ends connections that are idle for less than heartbeat_interval, {self._source.heartbeat_interval:g} s."
        )
        return error

    def _failure(self, error: Exception) -> Exception:
        if not isinstance(error, ServerError):
            return error
        found = stream_error(error, self._source, self._server_id, self._start, begun=self._settled)
        if self._settled:
            found.position = None  # whoever has read on knows where
        return found

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        # The reader wakes at once and lets go; only then may the descriptor be given to somebody else.
        with self._reading, contextlib.suppress(OSError):
            self._socket.close()
