"""Reads the events of a dump from the socket.

Parses only the type of events.
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

#: Events at the start of a dump, sent before the server has found the start position.
_OPENING_EVENTS = frozenset((ROTATE, FORMAT_DESCRIPTION, PREVIOUS_GTIDS, BINLOG_CHECKPOINT, MARIADB_GTID_LIST))


class DumpStream:
    """The events of a dump, read from a socket that PyMySQL opened.

    One thread reads. ``close`` may come from another thread and wakes the reader.
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
        #: Whether the connection uses TLS.
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
        """Whether the server has reported the end of the log."""
        return bool(self._framer.ended)

    def read(self, timeout: float) -> Sequence[bytes]:
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
        """Receive into the framer's buffer. Return the byte count, or -1 if there are none yet."""
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
            # The answer to a TLS key update does not fit into the socket's buffer; the next try sends it.
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
        """Receive the data that is already decrypted or waiting: TLS returns one record of at most 16 KiB at a time."""
        while 0 < count < len(room):
            try:
                more = self._socket.recv_into(room[count:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError:
                break  # the received data is valid; the next call raises the error again
            if not more:
                break
            count += more
        return count

    def _wait(self, deadline: float) -> bool:
        """Wait for data; return False at the deadline. Raise ConnectionLostError if the server was silent for too long."""
        now = time.monotonic()
        limit = 3 * self._source.heartbeat_interval if self._settled and self._beats else self._source.seek_timeout
        silent_until = self._heard + limit
        try:
            if now >= silent_until and not self._poll.poll(0):  # with data waiting, our process was suspended
                raise self._lost(f"is half-open: {'not even a heartbeat' if self._beats else 'nothing'} came for {limit:g} s")
            if now >= deadline:
                return False
            self._poll.poll(max(1.0, 1000 * (min(deadline, silent_until) - now)))
        except (OSError, ValueError) as error:
            raise self._lost(f"broke: {error}") from error
        return True

    @property
    def is_alive(self) -> bool:
        """Whether events or heartbeats arrive on time."""
        return self._settled and self._beats and time.monotonic() - self._heard < 1.5 * self._source.heartbeat_interval

    def _lost(self, what: str, *, by_source: bool = False) -> ConnectionLostError:
        return ConnectionLostError(f"the replication connection to {self._source.address} {what}", by_source=by_source)

    def _ended(self) -> ConnectionLostError:
        error = self._lost("was closed without a message, by the server or a proxy", by_source=True)
        error.remedy = (
            f"It was closed {time.monotonic() - self._heard:.1f} s after the last byte. Check for a KILL, and for a proxy or "
            f"firewall that closes idle connections sooner than heartbeat_interval, {self._source.heartbeat_interval:g} s."
        )
        return error

    def _failure(self, error: Exception) -> Exception:
        if not isinstance(error, ServerError):
            return error
        found = stream_error(error, self._source, self._server_id, self._start, begun=self._settled)
        if self._settled:
            found.position = None  # the caller knows a later position
        return found

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        # The reader wakes at once and releases the lock. Only then may the descriptor number be reused.
        with self._reading, contextlib.suppress(OSError):
            self._socket.close()
