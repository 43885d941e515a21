"""Where parsing stands, kept so that a parser that begins anew goes on there: canal's log position managers, by their names.

Never decides where to begin; that is canal.parse.start's business. An Instance uses
``FailbackLogPositionManager(MemoryLogPositionManager(), MetaLogPositionManager(meta))``: within one run behind what was
given to the store, and after a restart, which loses the store, at the cursor of the client that is furthest behind.
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
"""Gives a position; called only by who needs it, because making one costs more than the event that it is about."""


@runtime_checkable
class LogPositionManager(Protocol):
    """Keeps for one destination the position behind what the sink has taken."""

    def start(self, destination: str) -> None:
        """Begin to serve a destination: the first call."""

    def stop(self) -> None:
        """Make durable what is to be. Never raises for a manager that was not started."""

    def latest(self) -> Position | None:
        """Where to go on; None when that is not known.

        Raises:
            CursorError: it is stored, and cannot be read.
        """

    def persist(self, give: GivePosition) -> None:
        """Everything before the position that it gives was taken by the sink. Called by the parser's thread, often.

        Raises:
            CursorError: it cannot be stored; the parser stops.
        """


class MemoryLogPositionManager:
    """In memory, forgotten when the parser stops."""

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
    """The earliest of the cursors of the subscribed clients, as a meta manager keeps them; it writes nothing itself."""

    def __init__(self, meta: _Cursors) -> None:
        self._meta = meta
        self._begin: Position | None = None

    def start(self, destination: str) -> None:
        self._begin = self._earliest()

    def stop(self) -> None:
        pass

    def latest(self) -> Position | None:
        # Which clients skip what was decided at the start: a client that seeks back before the parser reads must not move it.
        position, begin = self._earliest(), self._begin
        return begin if begin is not None and position is not None and position.precedes(begin) else position

    def _earliest(self) -> Position | None:
        cursors = [self._meta.cursor(client) for client in self._meta.subscriptions()]
        known = [cursor for cursor in cursors if cursor is not None]
        return resume_at(known) if known else None

    def persist(self, give: GivePosition) -> None:
        pass


class FailbackLogPositionManager:
    """What the first one knows, else what the second one knows; written to the first one, or where that fails to the
    second."""

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
    """In ``<directory>/<destination>/parse.dat``, replaced atomically every ``interval`` seconds and at the end.

    For a parser whose sink is the end of the line, such as one given to ``Instance.compose`` without a store to wait in:
    what the sink has taken does not come again after a restart, except for what came in the last ``interval`` seconds.
    Behind a store in memory it would lose what nobody has got; there the cursors count.
    """

    def __init__(self, directory: str | os.PathLike[str], interval: float = 1.0) -> None:
        self._directory = Path(directory)
        self._interval = interval
        self._path = self._directory
        self._give: GivePosition | None = None
        self._written = -math.inf  # the first position is written at once, however short the machine runs
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
            raise CursorError(f"cannot read {self._path}: {error}", remedy="Correct it, or delete it to start anew") from error

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
                f"cannot write {self._path}: {error.strerror}", remedy="Make room on the disk or correct the rights of the folder"
            ) from error
        self._written = time.monotonic()
