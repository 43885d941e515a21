"""A TCP proxy on loopback that breaks connections on purpose.

Never looks into the bytes it carries: faults are counted in bytes and seconds.

    with FaultProxy(server.host, server.port) as proxy:
        source = canal.MySQLSource(host=proxy.host, port=proxy.port, ...)
        proxy.cut()
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

__all__ = ["FaultProxy"]

_CHUNK: Final = 1 << 16
_MASK: Final = 0x40
#: With linger on and no time, closing a socket sends RST.
_RESET: Final = struct.pack("ii", 1, 0)


class _Link:
    """One client's connection and its twin to the server."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter, flip: int | None) -> None:
        self.ends = (client, server)
        self.port = client.get_extra_info("peername")[1]
        self.down = 0  # bytes from the server so far
        self.flip = flip  # which of them to damage
        self.mask = _MASK
        self.open = asyncio.Event()
        self.open.set()
        self.stranded = False  # the server does not hear of the client's end

    def close(self, *, reset: bool) -> None:
        self.open.set()
        for writer in self.ends:
            _close(writer, reset=reset)


def _close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if not reset:
        writer.close()
        return
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


class FaultProxy:
    """Forwards connections to ``(host, port)`` and harms them when told to. Methods may be called from any thread.

    Attributes:
        host, port: where it listens.
        delay: seconds each chunk is held, both ways.
        rate: bytes per second from the server to the client; 0 is as fast as it goes.
        connections: how many clients have connected so far.
        bytes_down, bytes_up: bytes forwarded to clients, and to the server.
        damaged: how many bytes were changed so far.

    A connection can be named by its client's port (``sock.getsockname()[1]``).
    """

    def __init__(self, host: str, port: int, *, listen: int = 0, local: str = "") -> None:
        self.host: Final = "127.0.0.1"
        self.port = listen
        self.delay = 0.0
        self.rate = 0.0
        self.connections = 0
        self.bytes_down = 0
        self.bytes_up = 0
        self.damaged = 0
        self._target = (host, port)
        self._local = (local, 0) if local else None  # the address from which it connects to the server
        self._refusing = False
        self._cut_after: int | None = None
        self._corrupt_at: int | None = None
        self._links: set[_Link] = set()
        self._coming: set[asyncio.StreamWriter] = set()  # clients that are not linked to the server yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: asyncio.Event | None = None  # clear while black-holing
        self._ended: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    # -- faults

    def cut(self, *, fin: bool = False) -> None:
        """End every connection now: by RST, or in order by FIN."""
        self._call(lambda: self._cut(reset=not fin))

    def is_open(self, client: int) -> bool:
        """Whether there is a connection of that client."""
        return self._on_link(client, lambda link: None)

    def hold(self, client: int) -> bool:
        """Forward nothing more on one connection and never end it: half-open. False when there is no such connection."""
        return self._on_link(client, lambda link: link.open.clear())

    def strand(self, client: int) -> bool:
        """As ``hold``, and the server's end stays open when the client goes: so does what has forgotten one side of it."""

        def keep(link: _Link) -> None:
            link.stranded = True
            link.open.clear()

        return self._on_link(client, keep)

    def corrupt_after(self, size: int, client: int, mask: int = _MASK) -> bool:
        """Let ``size`` more bytes through to one client, then flip the bits of ``mask`` in the next; once."""

        def arm(link: _Link) -> None:
            link.flip, link.mask = link.down + size, mask

        return self._on_link(client, arm)

    def refuse(self, on: bool = True) -> None:
        """Reset each new connection at once; those that are open stay."""
        self._refusing = on

    def blackhole(self, on: bool = True) -> None:
        """Keep connections open and forward nothing, as a peer silently gone; switched off, what waited is sent."""

        def switch() -> None:
            assert self._open is not None
            if on:
                self._open.clear()
            else:
                self._open.set()

        self._call(switch)

    def cut_after(self, size: int) -> None:
        """Let ``size`` more bytes through from the server, on any connection, then reset that connection; once."""
        self._cut_after = size

    def corrupt_at(self, offset: int) -> None:
        """Flip one bit of the byte at ``offset`` of what the server sends on the next new connection; once."""
        self._corrupt_at = offset

    def retarget(self, host: str, port: int) -> None:
        """Send new connections elsewhere, as a failover does."""
        self._target = (host, port)

    # -- life

    def start(self) -> Self:
        """Listen; ``port`` is known when this returns."""
        self._thread = threading.Thread(target=self._run, name="canal-fault-proxy", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        """Reset what is open and stop listening."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        assert self._loop is not None
        assert self._ended is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._ended.set)
        thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _call(self, action: Callable[[], None]) -> None:
        if self._thread is None or self._loop is None:
            return
        done = threading.Event()

        def run() -> None:
            try:
                action()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(run)
        if not done.wait(60):
            raise TimeoutError("the proxy does not do as it is told")

    def _on_link(self, client: int, action: Callable[[_Link], None]) -> bool:
        found: list[_Link] = []

        def run() -> None:
            found.extend(link for link in self._links if link.port == client)
            for link in found:
                action(link)

        self._call(run)
        return bool(found)

    # -- in the loop's thread

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # told to start()'s caller
            self._failure = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ended.wait()
        server.close()
        self._cut(reset=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cut(self, *, reset: bool) -> None:
        for link in self._links:
            link.close(reset=reset)
        self._links.clear()
        for writer in self._coming:
            _close(writer, reset=reset)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._refusing:
            _close(writer, reset=True)
            return
        self._coming.add(writer)
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._open is not None
        flip, self._corrupt_at = self._corrupt_at, None
        try:
            await self._open.wait()
            if writer.is_closing():  # cut
                return
            server_reader, server_writer = await asyncio.open_connection(*self._target, local_addr=self._local)
        except (OSError, asyncio.CancelledError):
            if not writer.is_closing():
                _close(writer, reset=True)
            return
        finally:
            self._coming.discard(writer)
        if writer.is_closing():
            _close(server_writer, reset=True)
            return
        link = _Link(writer, server_writer, flip)
        self._links.add(link)
        try:
            await asyncio.gather(self._pump_up(reader, server_writer, link), self._pump_down(server_reader, writer, link))
        except (OSError, asyncio.CancelledError):
            link.close(reset=True)
        finally:
            self._links.discard(link)
            link.close(reset=False)

    async def _hold(self, link: _Link) -> None:
        assert self._open is not None
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._open.wait()
        await link.open.wait()

    async def _pump_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link) -> None:
        while data := await reader.read(_CHUNK):
            await self._hold(link)
            self.bytes_up += len(data)
            writer.write(data)
            await writer.drain()
        if link.stranded:
            await asyncio.Event().wait()
        link.open.set()  # nobody is left for whom it could be half-open
        _end_of_input(writer)

    async def _pump_down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link) -> None:
        while data := await reader.read(_CHUNK):
            await self._hold(link)
            if link.flip is not None and link.down <= link.flip < link.down + len(data):
                damaged = bytearray(data)
                damaged[link.flip - link.down] ^= link.mask
                data = bytes(damaged)
                link.flip = None
                self.damaged += 1
            link.down += len(data)
            last = self._spend(len(data))
            if last is not None:
                data = data[:last]
            self.bytes_down += len(data)
            writer.write(data)
            await writer.drain()
            if last is not None:
                await asyncio.sleep(0.02)  # an RST overtakes what the peer has not read
                link.close(reset=True)
                return
            if self.rate:
                await asyncio.sleep(len(data) / self.rate)
        _end_of_input(writer)

    def _spend(self, size: int) -> int | None:
        """Count ``size`` bytes against :meth:`cut_after`; give how many may still pass when it is used up."""
        left = self._cut_after
        if left is None:
            return None
        if size < left:
            self._cut_after = left - size
            return None
        self._cut_after = None
        return left


def _end_of_input(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        if not writer.is_closing():
            writer.write_eof()
