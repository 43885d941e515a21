"""Subscriptions and cursors in a folder per destination: ``<directory>/<destination>/meta.dat``.

A file that cannot be verified is an error.

A valid meta.dat exists at any time: the next version is written and synced under another name, the present version is linked
to meta.dat.bak, and a rename replaces it. This costs two commits of the file system's journal. So cursors that move within a
second go to meta.cursors, which is valid only with that meta.dat.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import attrs

from canal._util.disk import make_folder, private, sync_folder
from canal._util.threads import OwnThread
from canal.errors import ConfigError, CursorError
from canal.meta import document
from canal.meta.cursor_file import CursorFile
from canal.meta.stored import Client, Clients, StoredMeta, nowhere
from canal.position import Position

log = logging.getLogger("canal.meta")

_NAME: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,128}")
#: Longest time in seconds between writes of meta.dat, for readers such as canal that see only this file.
_WHOLE_SECONDS: Final = 1.0
_WRITE_REMEDY: Final = "Make room on the disk or correct the rights of the folder; the file is as it was"


@attrs.define(eq=False)
class _Group:
    """Cursors of several clients that are written together."""

    lock: threading.Lock = attrs.field(factory=threading.Lock)
    wanted: dict[int, Position] = attrs.field(factory=dict)
    written: Mapping[int, Position] = attrs.field(factory=dict)
    is_closed: bool = False


class MetaFolder:
    """The folder of a destination: meta.dat, its backup, recently moved cursors, and a lock.

    Attributes:
        directory: parent of the folder.
        interval: seconds between the caller's writes; 0.0: each ``commit`` writes.
        address_of: see ``Storage``.
    """

    def __init__(self, directory: Path, interval: float) -> None:
        self.directory = directory
        self.interval = interval
        self.address_of: Callable[[Position], tuple[str, int]] = nowhere
        self._destination = ""
        self._folder = directory
        self._claim: int | None = None  # descriptor of the lock file
        self._current = b""  # content of meta.dat, b"" if it must not become the backup
        self._whole: Clients | None = None  # state in meta.dat, None if unknown after a failure
        self._whole_at = -1e9  # time of the last write, monotonic seconds
        self._name = ""  # name of that state
        self._has_moved = False  # True if meta.cursors may have newer cursors
        self._cursor_file = CursorFile(self._folder)
        self._failed = False  # True after a failed write

    def open(self, destination: str) -> Clients:
        if not _NAME.fullmatch(destination):
            raise ConfigError(
                f"destination {destination!r} cannot be the name of a folder",
                remedy="Use letters, digits, '_', '-' and '.' only, 128 at most",
            )
        self._destination = destination
        self._folder = self.directory / destination
        self._make_folder()
        self._claim = self._lock_folder()
        try:
            clients = self._load()
        except BaseException:
            self._release()
            raise
        self._failed = False
        return clients

    def close(self, clients: Clients) -> None:
        try:
            self.write(clients)
            self._cursor_file.remove()
        except CursorError as error:
            if self.interval:
                raise
            log.warning("%s: the cursors are on the disk beside it, and the next start writes it", error)
        finally:
            self._cursor_file.close()
            self._release()

    def commit(self, clients: Clients, urgent: bool) -> None:
        if self.interval:
            if urgent or self._failed:
                self.write(clients)
        elif not self._write_cursors(clients):
            self.write(clients)

    # Reading.

    def _load(self) -> Clients:
        """Return the state in meta.dat, or in a verified meta.dat.bak."""
        path, spare = self._folder / "meta.dat", self._folder / "meta.dat.bak"
        self._current, self._whole, self._whole_at, self._has_moved = b"", None, -1e9, False
        self._cursor_file = CursorFile(self._folder / "meta.cursors")
        data = self._read(path)
        if data is None and self._read(spare) is None:
            self._whole = {}
            return self._whole
        try:
            if data is None:
                raise CursorError("it is missing although there is a .bak", remedy="Delete both to start anew")
            self._whole, name = document.load(data, self._destination), document.name_of(data)
        except CursorError as error:
            reason = error
        else:
            self._current = data
            return self._moved(self._whole, name)
        try:
            clients = document.load(self._read(spare) or b"", self._destination, must_verify=True)
        except CursorError as error:
            raise CursorError(
                f"{path} cannot be used ({reason.message}), nor {spare.name} ({error.message})",
                destination=self._destination,
                remedy=reason.remedy,
            ) from reason
        self._set_aside(path)
        log.error(
            "[%s] %s cannot be used (%s): going on from %s, which is the state before the last write; "
            "changes may be delivered again",
            self._destination,
            path,
            reason.message,
            spare,
        )
        self._whole = clients
        return clients

    def _moved(self, clients: Clients, name: str) -> Clients:
        """Return the state updated by meta.cursors."""
        try:
            cursors = self._cursor_file.read(name) if name else {}
        except OSError as error:
            raise self._unreadable(self._folder / "meta.cursors", error) from error
        self._has_moved = bool(cursors)
        known = {client_id: clients[client_id] for client_id in cursors if client_id in clients}
        return {**clients, **{one: attrs.evolve(client, cursor=cursors[one]) for one, client in known.items()}}

    def _read(self, path: Path) -> bytes | None:
        try:
            with open(path, "rb", opener=private) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: Path, error: OSError) -> CursorError:
        return CursorError(
            f"cannot read {path}: {error.strerror}", destination=self._destination, remedy="Correct the rights of the folder"
        )

    def _set_aside(self, path: Path) -> None:
        """Keep a damaged file for inspection. The backup stays until the next valid meta.dat."""
        with contextlib.suppress(OSError):
            os.replace(path, path.with_name("meta.dat.corrupt"))

    # Writing.

    def _write_cursors(self, clients: Clients) -> bool:
        """Write only the cursors. Return False if meta.dat is due or other fields changed."""
        whole = self._whole
        if self._failed or whole is None or time.monotonic() - self._whole_at > _WHOLE_SECONDS or not self._has_claim():
            return False
        if whole.keys() != clients.keys() or any(_differs(client, clients[one]) for one, client in whole.items()):
            return False
        cursors = {one: client.cursor for one, client in clients.items() if client.cursor is not None}
        self._has_moved = True
        try:
            self._cursor_file.write(self._name, cursors)
        except OSError:
            return False
        return True

    def write(self, clients: Clients) -> None:
        """Write and sync this state to meta.dat."""
        if clients == self._whole and not self._has_moved:
            return
        name = secrets.token_hex(16)
        data = document.dump(self._destination, clients, name, self.address_of)
        path, fresh = self._folder / "meta.dat", self._folder / "meta.dat.tmp"
        self._claim_again(path)
        try:
            _write_synced(fresh, data)
            if self._current:
                self._keep_previous(path)
            self._whole = None
            os.replace(fresh, path)
            sync_folder(self._folder)
        except OSError as error:
            self._failed = True
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise CursorError(
                f"cannot write {path}: {error.strerror}", destination=self._destination, remedy=_WRITE_REMEDY
            ) from error
        self._current, self._name = data, name
        self._whole, self._whole_at = clients, time.monotonic()
        self._failed = self._has_moved = False
        self._cursor_file.clear()

    def _keep_previous(self, path: Path) -> None:
        spare, second = self._folder / "meta.dat.bak", self._folder / "meta.dat.bak.tmp"
        with contextlib.suppress(FileNotFoundError):
            second.unlink()
        try:
            os.link(path, second)
        except OSError:  # a file system without hard links
            _write_synced(second, self._current)
        os.replace(second, spare)

    # The folder and its lock.

    def _make_folder(self) -> None:
        try:
            if self._folder.is_symlink():
                raise OSError(errno.ELOOP, "it is a symbolic link")
            make_folder(self._folder)
        except OSError as error:
            raise CursorError(
                f"cannot make the folder {self._folder}: {error.strerror}",
                destination=self._destination,
                remedy="Correct the rights of its parent, or choose another directory",
            ) from error

    def _lock_folder(self) -> int:
        """Lock the folder. We use flock, not lockf, to exclude other managers in this process too."""
        path = self._folder / "lock"
        try:
            claim = private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise CursorError(
                f"cannot open {path}: {error.strerror}", destination=self._destination, remedy="Correct the rights of the folder"
            ) from error
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(claim, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(claim)
            raise CursorError(
                f"{self._folder} is in use by another meta manager, in the process with pid {owner}",
                destination=self._destination,
                remedy="Stop that process, or give this one a directory of its own.",
            ) from None
        except OSError as error:
            os.close(claim)
            raise CursorError(
                f"cannot lock {path}: {error.strerror}",
                destination=self._destination,
                remedy="Choose a directory on a file system that has locks",
            ) from error
        with contextlib.suppress(OSError):  # a full disk must not prevent reading
            os.ftruncate(claim, 0)
            os.pwrite(claim, f"{os.getpid()}\n".encode("ascii"), 0)
        return claim

    def _has_claim(self) -> bool:
        try:
            return self._claim is not None and os.path.samestat(os.stat(f"{self._folder}/lock"), os.fstat(self._claim))
        except OSError:
            return False

    def _claim_again(self, path: Path) -> None:
        """Recreate the folder and lock if they were removed. Otherwise another process could lock the same name."""
        if self._has_claim():
            return
        present = self._read(path)
        if present is not None and present != self._current:
            raise CursorError(
                f"{self._folder} was replaced while it was in use, by one with other cursors",
                destination=self._destination,
                remedy="Stop this instance, find out who did it, and start again from the right cursors",
            )
        log.error("[%s] %s was removed while it was in use: it is made anew", self._destination, self._folder)
        self._release()
        self._make_folder()
        self._claim = self._lock_folder()
        if present is None:
            self._current = b""

    def _release(self) -> None:
        if self._claim is not None:
            os.close(self._claim)  # keep the file: after a removal, two processes could lock two files with the same name
            self._claim = None

    def leave(self) -> None:
        """Close the parent's descriptors in a forked child."""
        self._cursor_file.close()
        self._release()


class FileMeta(StoredMeta):
    """Stores subscriptions and cursors in ``<directory>/<destination>/meta.dat``. See ``MetaManager``.

    It reads canal's meta.dat, and canal can read ours. Cursors of the last second may be in ``meta.cursors`` until ``flush`` or
    ``stop``. A lock file excludes a second process.

    Args:
        directory: parent folder of the destination folders; created if missing.
        durability: ``"ack"`` writes and syncs each cursor before ``update_cursor`` returns, so acknowledged changes are not
            repeated after a crash of process or machine. Concurrent acks share a write. ``"interval"`` writes every
            ``interval`` seconds on a thread: changes since the last write are repeated after a crash, none is lost. After a
            failed write cursors are written immediately, so that ``update_cursor`` reports the failure.
        interval: seconds between writes.
    """

    def __init__(
        self, directory: str | os.PathLike[str], durability: Literal["ack", "interval"] = "ack", interval: float = 1.0
    ) -> None:
        if not isinstance(directory, (str, os.PathLike)):
            raise ConfigError(
                f"directory of FileMeta must be a path, not {type(directory).__name__}",
                remedy='Give the folder in which to keep cursors, as FileMeta("cursors").',
            )
        if durability not in ("ack", "interval"):
            raise ConfigError(f'durability is "ack" or "interval", not {durability!r}')
        if not 0.0 < interval < threading.TIMEOUT_MAX:
            raise ConfigError(f"interval is a number of seconds > 0, not {interval!r}")
        self._folder = MetaFolder(Path(directory), interval if durability == "interval" else 0.0)
        super().__init__(self._folder)
        self._interval = self._folder.interval
        self._group = _Group()  # cursors for the next write
        self._flusher: threading.Thread | None = None
        self._stopping = threading.Event()
        _managers.add(self)

    @property
    def directory(self) -> Path:
        """Parent folder of the destination folders."""
        return self._folder.directory

    def start(self, destination: str) -> None:
        super().start(destination)
        if self._interval > 0:
            self._start_flusher()

    def stop(self) -> None:
        self._stopping.set()
        try:
            super().stop()
        finally:
            flusher = self._flusher
            if flusher is not None and flusher is not threading.current_thread():
                flusher.join()  # without the lock, which its last round may need

    def flush(self) -> None:
        with self._lock:
            self._folder.write(self._started())

    def update_cursor(self, client_id: int, position: Position) -> None:
        if self._interval:
            return super().update_cursor(client_id, position)
        group = self._group
        group.wanted[client_id] = position
        try:
            with group.lock:  # the first thread with the lock writes the whole group, after the previous write
                if not group.is_closed:
                    with self._lock:
                        self._write_group(group)
            if group.written.get(client_id) is not position:
                super().update_cursor(client_id, position)
        except BaseException:
            group.wanted.pop(client_id, None)  # withdraw it: a later write of the group must not overwrite a newer cursor
            raise

    def _write_group(self, group: _Group) -> None:
        """Write the cursors of all waiting clients. If that fails, each client retries alone."""
        group.is_closed = True
        self._group = _Group()
        clients, wanted = self._started(), group.wanted.copy()
        if len(wanted) == 1:  # not worth sharing
            return
        moved = {
            client_id: attrs.evolve(clients[client_id], cursor=position)
            for client_id, position in wanted.items()
            if client_id in clients
        }
        if len(moved) > 1:
            with contextlib.suppress(CursorError):
                self._apply({**clients, **moved}, urgent=True)
                group.written = wanted

    def _start_flusher(self) -> None:
        stopping = self._stopping = threading.Event()
        self._flusher = OwnThread(target=self._flush_regularly, args=(stopping,), name=f"canal-{self._destination}-meta")
        self._flusher.start()

    def _flush_regularly(self, stopping: threading.Event) -> None:
        while not stopping.wait(self._interval):
            with self._lock:
                if self._clients is None or stopping.is_set():
                    return
                try:
                    self._folder.write(self._clients)
                except CursorError as error:
                    log.error("%s", error)

    def leave_to_parent(self) -> None:
        """Reset a forked child to the stopped state. A lock that it kept would outlive the parent."""
        self._lock = threading.RLock()  # another thread of the parent process may have held the old lock
        self._group = _Group()
        self._clients = None
        self._flusher = None
        self._folder.leave()


_managers: weakref.WeakSet[FileMeta] = weakref.WeakSet()


def _after_fork() -> None:
    for manager in list(_managers):
        manager.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def _differs(one: Client, other: Client) -> bool:
    """Return whether more than an existing cursor changed."""
    return one.filter != other.filter or (one.cursor is None) != (other.cursor is None)


def _write_synced(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
