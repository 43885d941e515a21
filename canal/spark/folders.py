"""Directories for files that processes of this user write while they run.

Never uses one into which another user could put something.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from canal._util.disk import make_folder
from canal.errors import ConfigError


def own_folder(root: str | None, name: str) -> Path:
    """A directory that is there: ``root``, or one of this user alone in the system's temporary one.

    Raises:
        OSError: it cannot be made.
        ConfigError: others could put something instead of what is written there.
    """
    parent = Path(root).absolute() if root else Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    make_folder(parent)
    if not root:
        _check_own(parent)
    return parent


def _check_own(parent: Path) -> None:
    """Raise ConfigError where others could put something instead of what is written: the name can be guessed."""
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ConfigError(
            f"the spool's directory {parent} is not this user's alone",
            remedy="Find out who made it and remove it, or set spoolDir.",
        )
