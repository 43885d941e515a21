"""Folders and file names that survive a crash of the machine, and files with access for their user only."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from canal.errors import ConfigError


def make_folder(path: Path) -> None:
    """Create a folder and its parents, accessible by this user only. Each name is synced before the next is created."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def private(path: str | os.PathLike[str], flags: int) -> int:
    """Opener for ``open``: create files for this user only. A symbolic link raises OSError."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if flags & (os.O_WRONLY | os.O_RDWR):
        with contextlib.suppress(PermissionError):  # the file belongs to another user but is writable
            os.fchmod(file, 0o600)
    return file


def own_folder(root: str | None, name: str) -> Path:
    """Return an existing directory: ``root``, or a private directory in the system's temporary directory.

    Raises:
        OSError: the directory cannot be created.
        ConfigError: other users could write to the directory.
    """
    parent = Path(root).absolute() if root else Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    make_folder(parent)
    if not root:
        _check_own(parent)
    return parent


def _check_own(parent: Path) -> None:
    """Raise ConfigError if other users could write there: its name can be guessed."""
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ConfigError(
            f"the spool's directory {parent} is not this user's alone",
            remedy="Find out who made it and remove it, or set spoolDir.",
        )
