"""Log position managers: store the parse position so that a new parser resumes there. Named as in canal.

Never decides where to start; canal.parse.start does. An Instance uses
``FailbackLogPositionManager(MemoryLogPositionManager(), MetaLogPositionManager(meta))``: within a run, resume after the entries
that the store has; after a restart, which loses the store, at the earliest client cursor.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from canal._util.disk import make_folder, private, sync_folder
from canal.errors import CursorError
from canal.position import Position, resume_at

GivePosition = Callable[[], Position]
"""Returns a position. Called only when needed, because building a position costs more than processing an event."""


@runtime_checkable
class LogPositionManager(Protocol):
    """Stores, for one destination, the position after the entries that the sink has accepted."""

    def start(self, destination: str) -> None:
        """Start to serve a destination; the first call."""

    def stop(self) -> None:
        """Make pending writes durable. Never raises if ``start`` was not called."""

    def latest(self) -> Position | None:
        """Return the position to resume from; None if unknown.

        Raises:
            CursorError: the stored position cannot be read.
        """

    def persist(self, give: GivePosition) -> None:
        """Store the position that ``give`` returns: the sink has accepted everything before it. The parser calls this often.

        Raises:
            CursorError: the position cannot be stored; the parser stops.
        """


class MemoryLogPositionManager:
    """Keeps the position in memory and forgets it when the parser stops."""

    def __init__(self) -> None:
        self._give: GivePosition | None = None

    def start(self, destination: str) -> None:
        self._give = None

    def stop(self) -> None:
        self._give = None

    def latest(self) -> Position | None:
        return None if self._give is None else self._give()

    def persist(self, give: GivePosition) -> None:
        self._give = give


class _Cursors(Protocol):
    def subscriptions(self) -> dict[int, str]: ...
    def cursor(self, client_id: int) -> Position | None: ...


class MetaLogPositionManager:
    """Returns the earliest cursor of the subscribed clients from a meta manager; writes nothing."""

    def __init__(self, meta: _Cursors) -> None:
        self._meta = meta
        self._begin: Position | None = None

    def start(self, destination: str) -> None:
        self._begin = self._earliest()

    def stop(self) -> None:
        pass

    def latest(self) -> Position | None:
        # Clients skip entries by the position at the start. A client that seeks back before the first read must not change it.
        position, begin = self._earliest(), self._begin
        return begin if begin is not None and position is not None and position.precedes(begin) else position

    def _earliest(self) -> Position | None:
        cursors = [self._meta.cursor(client) for client in self._meta.subscriptions()]
        known = [cursor for cursor in cursors if cursor is not None]
        return resume_at(known) if known else None

    def persist(self, give: GivePosition) -> None:
        pass


class FailbackLogPositionManager:
    """Reads the first manager that knows a position. Writes to the primary, or to the secondary if the primary fails."""

    def __init__(self, primary: LogPositionManager, secondary: LogPositionManager) -> None:
        self._primary = primary
        self._secondary = secondary

    def start(self, destination: str) -> None:
        self._primary.start(destination)
        self._secondary.start(destination)

    def stop(self) -> None:
        try:
            self._primary.stop()
        finally:
            self._secondary.stop()

    def latest(self) -> Position | None:
        found = self._primary.latest()
        return self._secondary.latest() if found is None else found

    def persist(self, give: GivePosition) -> None:
        try:
            self._primary.persist(give)
        except CursorError:
            self._secondary.persist(give)


class FileLogPositionManager:
    """Writes ``<directory>/<destination>/parse.dat``, replaced atomically every ``interval`` seconds and at the end.

    For a parser whose sink stores or processes entries durably, such as in ``Instance.compose`` without a memory store. After a
    restart, only entries of the last ``interval`` seconds are delivered again. With a memory store, entries that no client
    has received would be lost: there, cursors must decide.
    """

    def __init__(self, directory: str | os.PathLike[str], interval: float = 1.0) -> None:
        self._directory = Path(directory)
        self._interval = interval
        self._path = self._directory
        self._give: GivePosition | None = None
        self._written = -math.inf  # write the first position at once, in case the process ends early
        self._lock = threading.Lock()

    def start(self, destination: str) -> None:
        self._path = self._directory / destination / "parse.dat"
        self._give = None

    def stop(self) -> None:
        with self._lock:
            self._write()

    def latest(self) -> Position | None:
        with self._lock:
            if self._give is not None:
                return self._give()
        try:
            with open(self._path, encoding="utf-8", opener=private) as file:
                return Position.from_text(file.read())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CursorError(f"cannot read {self._path}: {error}", remedy="Correct it, or delete it to start over.") from error

    def persist(self, give: GivePosition) -> None:
        with self._lock:
            self._give = give
            if time.monotonic() - self._written >= self._interval:
                self._write()

    def _write(self) -> None:
        if self._give is None:
            return
        fresh = self._path.with_name("parse.dat.tmp")
        try:
            make_folder(self._path.parent)
            with open(fresh, "w", encoding="utf-8", opener=private) as file:
                file.write(self._give().to_text())
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise CursorError(
                f"cannot write {self._path}: {error.strerror}", remedy="Free disk space or correct the directory's permissions."
            ) from error
        self._written = time.monotonic()
