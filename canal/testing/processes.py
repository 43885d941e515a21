"""What throwaway servers share: room for their data, ports, logs, and that they die with who started them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from canal.testing.installations import ServerUnavailableError

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


class ServerProcess(ABC):
    """The process of a throwaway server, its directory and its port, which both outlive a restart."""

    #: What messages call it.
    kind: ClassVar[str]

    def __init__(self, base: Path | None = None) -> None:
        self._base = base
        self._temporary = base is None
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None
        self._port: socket.socket | None = None  # while the server is down too

    @property
    def base(self) -> Path:
        """The directory of everything the server writes."""
        if self._base is None:
            raise ServerUnavailableError(f"{self.kind}: start() makes the directory")
        return self._base

    @abstractmethod
    def start(self) -> Self:
        """Start, or start again with the data that is there, and return when it answers."""

    def _run(self, command: Sequence[str], environment: Mapping[str, str] | None = None, mode: str = "wb") -> None:
        with open(self.base / "out.log", mode) as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment, cwd=self.base
            )
        self._watchdog = Watchdog(self._process.pid, self._base if self._temporary else None)

    def kill(self) -> None:
        """SIGKILL: a crash. What the server has said yes to is on the disk; :meth:`start` goes on with it."""
        self._end(signal.SIGKILL)

    def shutdown(self, timeout: float = 60.0) -> None:
        """Stop in order and keep the data; :meth:`start` continues with it."""
        self._end(signal.SIGTERM, timeout)

    def pause(self) -> None:
        """SIGSTOP: alive, but silent when this returns. Its clock goes on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)
            with contextlib.suppress(ChildProcessError):  # it has ended
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # the last thread may be late

    def resume(self) -> None:
        """Let a paused server go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _end(self, sent: signal.Signals, timeout: float = 60.0) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(sent)
        process.send_signal(signal.SIGCONT)  # a paused server sees a SIGTERM only when it goes on
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reap()

    def _reap(self) -> None:
        """Forget a process that has ended, and its watchdog."""
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        self._process = None

    def stop(self) -> None:
        """Stop for good; a temporary directory is removed (so there is no need for an orderly end)."""
        self._end(signal.SIGKILL if self._temporary else signal.SIGTERM)
        if self._port is not None:
            self._port.close()
            self._port = None
        if self._temporary and self._base is not None:
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
