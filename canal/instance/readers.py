"""The one reader of each client: a stream, a pipe or a consumer.

Two readers of one client take batches from each other, so each of them lacks what the other one has acked.
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
    """The readers of an Instance's clients. A reader that is garbage collected has ended."""

    def __init__(self, destination: str) -> None:
        self._destination = destination
        self._lock = threading.Lock()
        self._claims: dict[int, _Claim] = {}

    def begin(self, client_id: int, reader: object, what: str) -> None:
        """Register the reader, unless it is registered already.

        Raises:
            StateError: another one reads this client.
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
        """Raise StateError if a get of the user's own would take batches from a reader."""
        if client_id in self._claims:
            self._check(client_id, None, "a get")

    def _check(self, client_id: int, reader: object, what: str) -> None:
        claim = self._claims.get(client_id)
        other = None if claim is None else claim.reader()
        if claim is None or other is None or other is reader:
            return
        raise StateError(
            f"{what} cannot read client {client_id}: {claim.what}, which thread {claim.thread!r} began, reads it. Each of them "
            "would lack what the other one acks",
            destination=self._destination,
            remedy="Subscribe a client of its own for each reader and name it by client_id=, or end the first reader.",
        )
