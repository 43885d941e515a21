"""What throwaway servers share: room for their data, ports, logs, and that they die with who started them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Final

#: /dev/shm is used for data when it has at least this much room.
_WANTED_ROOM: Final = 1 << 30
#: Kills the server when the pipe on stdin closes, that is when the process that started it is gone.
_WATCHDOG: Final = 'read -r _; kill -9 "$0" 2>/dev/null; [ -z "$1" ] || rm -rf "$1"'


def scratch() -> Path:
    """The folder for temporary data, in memory where there is room."""
    memory = Path("/dev/shm")
    with contextlib.suppress(OSError):
        if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _WANTED_ROOM:
            return memory
    return Path(tempfile.gettempdir())


def reserve_port(port: int) -> socket.socket:
    """A port of loopback, 0 for a free one, that the system gives to nobody else while the socket is open.

    It never listens: whoever connects is refused, and a program that sets SO_REUSEADDR, as servers do, may listen there.
    """
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
    except BaseException:
        held.close()
        raise
    return held


def tail(*paths: Path, lines: int = 20) -> str:
    """The last lines of logs, one log after the other; nothing of one that is not there."""
    found: list[str] = []
    for path in paths:
        with contextlib.suppress(OSError):
            found += filter(None, path.read_text(errors="replace").splitlines())
    return "\n".join(found[-lines:])


class Watchdog:
    """Kills a server, and removes its folder where one is given, when this process is gone."""

    def __init__(self, pid: int, folder: Path | None) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, str(pid), str(folder or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """The server has ended."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
