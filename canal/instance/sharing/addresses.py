"""Where the Instances that are shared on this machine are found: a file for each, in a directory that only its user reads.

Never believes a file that another user could have written, or a process that has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

from canal.errors import ConfigError, StateError, UnknownDestinationError

_LONGEST: Final = 200
_REMEDY: Final = (
    "Call canal.spark.share(instance, {name!r}) in the driver's Python before the query starts, and keep the Instance there. "
    "With Spark Connect this cannot be: the query's process is a child of the server, not of the driver; read the server "
    "directly, with the option host."
)


def directory() -> Path:
    """Not the one that TMPDIR names if that can be: the driver and its JVM may have got different ones."""
    root = Path("/tmp") if os.access("/tmp", os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return root / f"canal-share-{os.geteuid()}"


def path_of(name: str) -> Path:
    """The file of a name. Raises ConfigError for a name that cannot be one."""
    escaped = quote(name, safe="", errors="surrogatepass")
    if not name or len(escaped) > _LONGEST:
        raise ConfigError(f"{name[:40]!r} cannot name a shared Instance: it is empty, or longer than {_LONGEST} bytes")
    return directory() / f"share-{escaped}"


def publish(name: str, document: dict[str, Any]) -> BinaryIO:
    """Write a name's file; it is the process's for as long as the file that is returned is open and locked.

    Raises:
        StateError: a living process shares an Instance of that name.
        ConfigError: the directory cannot be made, or others can write there.
    """
    path = path_of(name)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _check_directory(path.parent)
        file = _written(path, document)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}", remedy="An Instance is shared through that file.") from error
    try:
        for _ in range(200):
            with contextlib.suppress(FileExistsError):
                os.link(file.name, path)
                return file
            _remove_dead(path, name)
        raise StateError(f"{path} is made again and again by other processes", remedy="Choose another name.")
    except BaseException:
        file.close()
        raise
    finally:
        Path(file.name).unlink(missing_ok=True)


def _written(path: Path, document: dict[str, Any]) -> BinaryIO:
    """A new file with the document beside ``path``, locked before anybody can see it there."""
    descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)  # of mode 0600
    file = open(name, "w+b", opener=lambda *_: descriptor)  # noqa: SIM115
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(json.dumps(document).encode())
    file.flush()
    return file


def _remove_dead(path: Path, name: str) -> None:
    """Remove what a process that has ended left. Raises StateError where it lives."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if _is_dead(file):  # somebody looks it up, and has it locked for that
                time.sleep(0.05)
                return
            raise StateError(
                f"an Instance is shared as {name!r} already, by process {_document(file.read()).get('pid')}",
                remedy="Choose another name, or call canal.spark.unshare there.",
            ) from None
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # else somebody was quicker
            path.unlink()


def withdraw(name: str, file: BinaryIO) -> None:
    """Remove a name's file, if it is still this one."""
    path = path_of(name)
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            path.unlink()
    file.close()


def look_up(name: str) -> dict[str, Any]:
    """What the file of a name says.

    Raises:
        UnknownDestinationError: no living process of this user shares an Instance of that name.
        ConfigError: others could have written the file.
    """
    path = path_of(name)
    try:
        _check_directory(path.parent)
        with open(path, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NOFOLLOW)) as file:
            _check(os.fstat(file.fileno()), stat.S_ISREG, path)
            if _is_dead(file):
                raise unknown(name, f"process {_document(file.read()).get('pid')}, which shared one, has ended")
            document = _document(file.read())
    except FileNotFoundError:
        raise unknown(name, "") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}", remedy="An Instance is shared through that file.") from error
    if not document:
        raise ConfigError(f"{path} is not what canal.spark.share writes", remedy="Remove it.")
    return document


def unknown(name: str, why: str) -> UnknownDestinationError:
    return UnknownDestinationError(
        f"no Instance is shared as {name!r} on this machine by a process of this user" + (f": {why}" if why else ""),
        remedy=_REMEDY.format(name=name),
    )


def _is_dead(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _document(data: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(data)
        if isinstance(found, dict):
            return found
    return {}


def _check_directory(path: Path) -> None:
    _check(path.lstat(), stat.S_ISDIR, path)


def _check(status: os.stat_result, is_kind: Any, path: Path) -> None:
    if not is_kind(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ConfigError(
            f"{path} is not this user's alone: an Instance that is shared there could be anybody's",
            remedy="Find out who made it, and remove it.",
        )
