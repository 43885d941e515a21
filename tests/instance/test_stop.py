"""stop() ends every thread at once, whatever the network does; reconnects wait longer each time until one works."""

from __future__ import annotations

import contextlib
import gc
import logging
import socket
import ssl
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import canal
from canal.alarm import log_alarm
from canal.testing import FakeBinlog, FaultProxy
from tests.support.waiting import is_in, until, waits_for_network

#: No time-out of the source helps within a test.
PATIENT: dict[str, Any] = {"user": "u", "password": "p", "connect_timeout": 300, "read_timeout": 300, "seek_timeout": 300}
#: Much less than those, and enough for any busy machine.
DEADLINE = 60.0


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("canal-s-")]


def stops(instance: canal.Instance) -> None:
    """stop() comes back, and no thread is left."""
    stopping = threading.Thread(target=instance.stop, daemon=True)
    stopping.start()
    stopping.join(DEADLINE)
    assert not stopping.is_alive(), threads()
    assert [name for name in threads() if not name.endswith("-connect")] == []
    until(lambda: threads() == [])  # that of a login is not waited for long: a look-up of a name does not end


def instance_of(server: Any, **options: Any) -> canal.Instance:
    source = canal.MySQLSource(host=server.host, port=server.port, **{"ssl_mode": "DISABLED"} | PATIENT)
    start = options.pop("start", "latest")
    return canal.Instance(
        canal.InstanceConfig(
            destination="s", source=options.pop("source", source), start=start, **{"alarm": lambda name, text: None} | options
        )
    )


class Listener:
    """Takes connections, sends each ``greeting`` and says nothing more."""

    host = "127.0.0.1"

    def __init__(self, greeting: bytes = b"") -> None:
        self._listening = socket.create_server((self.host, 0))
        self.port = self._listening.getsockname()[1]
        self._greeting = greeting
        self.taken: list[socket.socket] = []
        self.heard = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                self.taken.append(taken)
                taken.sendall(self._greeting)
                while data := taken.recv(4096):
                    self.heard += len(data)

    def close(self) -> None:
        for one in (self._listening, *self.taken):
            one.close()


@contextlib.contextmanager
def listener(greeting: bytes = b"") -> Iterator[Listener]:
    found = Listener(greeting)
    try:
        yield found
    finally:
        found.close()


def greeting(capabilities: int) -> bytes:
    low, high = struct.pack("<I", capabilities)[:2], struct.pack("<I", capabilities)[2:]
    body = b"\x0a8.0.40\0" + struct.pack("<I", 1) + b"s" * 8 + b"\0" + low + b"\xff\2\0" + high + b"\x15" + bytes(10)
    body += b"s" * 12 + b"\0mysql_native_password\0"
    return struct.pack("<I", len(body))[:3] + b"\0" + body


_PROTOCOL_41, _SSL, _SECURE, _PLUGIN = 0x200, 0x800, 0x8000, 0x80000


def test_while_nobody_takes_the_connection() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            instance = instance_of(Address(*full.getsockname())).start()
            until(lambda: is_in("_reach", "canal-s-connect"))

            stops(instance)
        finally:
            for one in waiting:
                one.close()


class Address:
    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port


def test_while_a_server_says_nothing() -> None:
    with listener() as silent:
        instance = instance_of(silent).start()
        until(lambda: silent.taken)

        stops(instance)


@pytest.mark.parametrize("mode", ["DISABLED", "REQUIRED"])
def test_during_the_login_and_the_tls_handshake(mode: str) -> None:
    hello = greeting(_PROTOCOL_41 | _SSL | _SECURE | _PLUGIN)
    with listener(hello) as silent:
        source = canal.MySQLSource(host=silent.host, port=silent.port, ssl_mode=mode, **PATIENT)
        instance = instance_of(silent, source=source).start()
        until(lambda: silent.heard > 40)

        stops(instance)


def test_connection_that_is_reset_before_the_tls_handshake_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    wrap, reset = ssl.SSLContext.wrap_socket, threading.Event()

    def wrap_when_reset(context: ssl.SSLContext, sock: socket.socket, **options: Any) -> ssl.SSLSocket:
        until(reset.is_set)
        with contextlib.suppress(OSError):
            while True:  # until the reset has come
                sock.getpeername()
        return wrap(context, sock, **options)

    def serve() -> None:
        taken, _ = listening.accept()
        taken.sendall(greeting(_PROTOCOL_41 | _SSL | _SECURE | _PLUGIN))
        assert taken.recv(4096)  # asks for TLS
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        taken.close()
        reset.set()

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap_when_reset)
    with socket.create_server(("127.0.0.1", 0)) as listening, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        threading.Thread(target=serve, daemon=True).start()
        source = canal.MySQLSource(port=listening.getsockname()[1], ssl_mode="REQUIRED", **PATIENT)
        with pytest.raises(canal.ConnectionLostError):
            source.connect()
        gc.collect()

    assert [str(one.message) for one in caught] == []


@pytest.mark.parametrize("start", ["latest", canal.Position(timestamp=1_000_000_000_000)])
@pytest.mark.parametrize("connections", [1, 2, 3])
def test_while_any_of_the_connections_hangs(start: Any, connections: int) -> None:
    """The login, the queries beside it, and the search by time over a third one: each is held from its first bytes on."""
    if connections == 3 and start == "latest":
        return
    fake = shop()
    with fake.serve(user="u", password="p") as server, HoldingProxy(server.host, server.port, connections) as proxy:
        instance = instance_of(proxy, start=start).start()
        until(lambda: proxy.connections >= connections and waits_for_network("canal-s"))

        stops(instance)


class HoldingProxy(FaultProxy):
    """Forwards nothing of the ``first``-th connection and of any later one."""

    def __init__(self, host: str, port: int, first: int) -> None:
        super().__init__(host, port)
        self._first = first

    def _accept(self, reader: Any, writer: Any) -> None:
        if self.connections + 1 >= self._first:
            assert self._open is not None
            self._open.clear()
        super()._accept(reader, writer)


def shop() -> FakeBinlog:
    fake = FakeBinlog()
    fake.table("shop", "orders", "id INT PRIMARY KEY").insert({"id": 1})
    return fake


def test_while_the_stream_is_silent() -> None:
    fake = shop()
    with fake.serve(user="u", password="p") as server, FaultProxy(server.host, server.port) as proxy:
        instance = instance_of(proxy).start()
        instance.subscribe()
        proxy.blackhole()

        stops(instance)


def test_during_the_wait_for_the_next_attempt() -> None:
    with socket.socket() as deaf:  # bound, so that nobody else takes the port
        deaf.bind(("127.0.0.1", 0))
        instance = instance_of(Address(*deaf.getsockname()), reconnect_backoff=(200.0, 300.0)).start()
        until(lambda: instance.status().state is canal.State.WAITING)

        stops(instance)


def waits(caplog: pytest.LogCaptureFixture) -> list[float]:
    texts = [record.getMessage() for record in caplog.records]
    return [float(text.partition("again in ")[2].partition(" s")[0]) for text in texts if "again in " in text]


def test_waits_between_attempts_grow_and_begin_anew_once_one_worked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "canal")

    fake = FakeBinlog()
    orders = fake.table("shop", "orders", "id INT PRIMARY KEY")
    with fake.serve(user="u", password="p") as server, FaultProxy(server.host, server.port) as proxy:
        instance = instance_of(proxy, reconnect_backoff=(0.1, 0.4), alarm=log_alarm).start()
        instance.subscribe()
        proxy.refuse()
        proxy.cut()
        until(lambda: len(waits(caplog)) >= 4)
        proxy.refuse(False)
        orders.insert({"id": 1})
        assert instance.get(10, timeout=DEADLINE)
        grown = waits(caplog)
        proxy.cut()
        until(lambda: len(waits(caplog)) > len(grown))

        assert grown[:4] == [0.1, 0.2, 0.4, 0.4]
        assert waits(caplog)[len(grown)] == 0.1
        stops(instance)


def test_waits_grow_though_each_attempt_takes_longer_than_the_longest_of_them(caplog: pytest.LogCaptureFixture) -> None:
    """Of a server that nobody answers for: no attempt worked, however long it took."""

    class Away:
        def connect(self, server_id_hint: int | None = None) -> Any:
            time.sleep(0.25)
            raise canal.ConnectionLostError("nobody answers")

    caplog.set_level(logging.INFO, "canal")
    instance = instance_of(Address("127.0.0.1", 1), source=Away(), reconnect_backoff=(0.1, 0.2), alarm=log_alarm).start()
    until(lambda: len(waits(caplog)) >= 3)

    assert waits(caplog)[:3] == [0.1, 0.2, 0.2]
    stops(instance)
