"""The reader of each client: a stream, a pipe or a consumer.

A client has at most one reader, because each of two readers would lack the batches that the other one acknowledges.
"""

from __future__ import annotations

import threading
import weakref
from typing import NamedTuple

from canal.errors import StateError


class _Claim(NamedTuple):
    reader: weakref.ref[object]
    what: str
    thread: str


class Readers:
    """The readers of an Instance's clients. Garbage collection of a reader ends it."""

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self._lock = threading.Lock()
        self._claims: dict[int, _Claim] = {}

    def begin(self, client_id: int, reader: object, what: str) -> None:
        """Register the reader if it is not registered yet.

        Raises:
            StateError: another reader is registered for this client.
        """
        with self._lock:
            self._check(client_id, reader, what)
            self._claims[client_id] = _Claim(weakref.ref(reader), what, threading.current_thread().name)

    def end(self, client_id: int, reader: object) -> None:
        """Forget the reader; do nothing if it is not registered."""
        with self._lock:
            claim = self._claims.get(client_id)
            if claim is not None and claim.reader() is reader:
                del self._claims[client_id]

    def check(self, client_id: int) -> None:
        """Raise StateError if a get by the user would take batches from a registered reader."""
        if client_id in self._claims:
            self._check(client_id, None, "a get")

    def _check(self, client_id: int, reader: object, what: str) -> None:
        claim = self._claims.get(client_id)
        other = None if claim is None else claim.reader()
        if claim is None or other is None or other is reader:
            return
        raise StateError(
            f"{what} cannot read client {client_id}: {claim.what} of thread {claim.thread!r} reads it, and each reader would "
            "miss the batches that the other one acknowledges",
            destination=self._destination,
            remedy="Subscribe a separate client for each reader and pass its client_id=, or end the first reader.",
        )
