"""Folders and names that outlive a crash of the machine, and files that are their user's alone.

Never writes to a file.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from canal.errors import ConfigError


def make_folder(path: Path) -> None:
    """Make a folder and those above it, for this user alone; each name is synced before the next one is made."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def private(path: str | os.PathLike[str], flags: int) -> int:
    """As ``opener`` of ``open``: a file that is written is this user's alone, and one behind a symbolic link is an OSError."""
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if flags & (os.O_WRONLY | os.O_RDWR):
        with contextlib.suppress(PermissionError):  # another user's, who lets us write
            os.fchmod(file, 0o600)
    return file


def own_folder(root: str | None, name: str) -> Path:
    """Return an existing directory: ``root``, or one of this user alone in the system's temporary directory.

    Raises:
        OSError: the directory cannot be made.
        ConfigError: other users could write to the directory.
    """
    parent = Path(root).absolute() if root else Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    make_folder(parent)
    if not root:
        _check_own(parent)
    return parent


def _check_own(parent: Path) -> None:
    """Raise ConfigError if other users could write there: the name can be guessed."""
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ConfigError(
            f"the spool's directory {parent} is not this user's alone",
            remedy="Find out who made it and remove it, or set spoolDir.",
        )
