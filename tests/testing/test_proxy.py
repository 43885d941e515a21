from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from canal.testing.proxy import FaultProxy


class Echo:
    """Sends back what it gets."""

    def __init__(self, prefix: bytes = b"") -> None:
        self._prefix = prefix
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                while data := client.recv(65536):
                    client.sendall(self._prefix + data)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", echo.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with connect(proxy) as client:
        yield client


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), timeout=30)


def receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return receive(client, len(data))


def test_it_forwards_and_counts(proxy: FaultProxy, client: socket.socket) -> None:
    data = bytes(range(256)) * 4000
    thread = threading.Thread(target=client.sendall, args=(data,))
    thread.start()
    assert receive(client, len(data)) == data
    thread.join()
    assert (proxy.connections, proxy.bytes_up, proxy.bytes_down) == (1, len(data), len(data))


def test_an_end_of_input_passes_through(client: socket.socket) -> None:
    assert ask(client, b"last") == b"last"
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""


def test_cut_resets(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, b"x")
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with connect(proxy) as again:
        assert ask(again, b"back") == b"back"


def test_cut_ends_those_too_that_have_not_reached_the_server(proxy: FaultProxy) -> None:
    proxy.blackhole()
    with connect(proxy) as waiting, connect(proxy) as other:
        deadline = time.monotonic() + 60
        while proxy.connections < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        proxy.cut()
        for client in (waiting, other):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
    proxy.blackhole(False)
    with connect(proxy) as again:
        assert ask(again, b"back") == b"back"


def test_cut_with_fin_ends_in_order(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, b"x")
    proxy.cut(fin=True)
    assert client.recv(1) == b""


def test_refuse_resets_new_connections_only(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, b"x")
    proxy.refuse()
    with pytest.raises(ConnectionError), connect(proxy) as other:  # noqa: PT012
        assert other.recv(1) == b"never"
    assert ask(client, b"still") == b"still"
    proxy.refuse(False)
    with connect(proxy) as other:
        assert ask(other, b"y") == b"y"


def test_blackhole_holds_everything_back(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, b"x")
    proxy.blackhole()
    client.settimeout(0.2)
    client.sendall(b"held")
    with pytest.raises(TimeoutError):
        client.recv(4)
    proxy.blackhole(False)
    client.settimeout(30)
    assert receive(client, 4) == b"held"


def test_cut_after_lets_that_much_through_once(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.cut_after(5)
    client.sendall(b"123456789")
    assert receive(client, 5) == b"12345"
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with connect(proxy) as again:
        assert ask(again, b"123456789") == b"123456789"


def test_corrupt_at_changes_one_byte_of_the_next_connection(proxy: FaultProxy) -> None:
    proxy.corrupt_at(6)
    with connect(proxy) as first, connect(proxy) as second:
        assert ask(first, b"abcd") + ask(first, b"efgh") == b"abcdef" + bytes([ord("g") ^ 0x40]) + b"h"
        assert ask(second, b"abcdefgh") == b"abcdefgh"


def test_delay_and_rate(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, b"x")
    proxy.delay = 0.1
    began = time.monotonic()
    ask(client, b"x")
    assert time.monotonic() - began >= 0.2  # up and down
    proxy.delay, proxy.rate = 0.0, 10_000.0
    began = time.monotonic()
    ask(client, bytes(1000))
    ask(client, bytes(1000))
    assert time.monotonic() - began >= 0.1


def test_retarget_moves_new_connections(proxy: FaultProxy, client: socket.socket) -> None:
    ask(client, b"x")  # the proxy has its connection to the first target now
    other = Echo(b"B")
    try:
        proxy.retarget("127.0.0.1", other.port)
        with connect(proxy) as moved:
            moved.sendall(b"x")
            assert receive(moved, 2) == b"Bx"
        assert ask(client, b"old") == b"old"
    finally:
        other.close()


def test_a_target_that_is_not_there_resets(proxy: FaultProxy) -> None:
    with socket.socket() as silent:  # held, or somebody else may listen there
        silent.bind(("127.0.0.1", 0))
        proxy.retarget(*silent.getsockname())
        with pytest.raises(ConnectionError), connect(proxy) as client:  # noqa: PT012
            assert client.recv(1) == b"never"


def test_a_taken_port_is_told_to_the_caller(echo: Echo) -> None:
    with pytest.raises(OSError, match="in use"):
        FaultProxy("127.0.0.1", echo.port, listen=echo.port).start()


def test_one_connection_is_held_and_the_others_are_not(proxy: FaultProxy, client: socket.socket) -> None:
    client.sendall(b"here")
    assert client.recv(100) == b"here"
    with connect(proxy) as other:
        assert proxy.hold(client.getsockname()[1])
        client.sendall(b"lost")
        other.sendall(b"hello")

        assert other.recv(100) == b"hello"
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
    assert not proxy.hold(1)


def test_the_server_of_a_stranded_connection_does_not_hear_that_its_client_has_gone(proxy: FaultProxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy.retarget(*listener.getsockname())
        with connect(proxy) as client:
            server, _ = listener.accept()
            client.sendall(b"a")
            assert server.recv(1) == b"a"  # the proxy knows both sides
            assert proxy.strand(client.getsockname()[1])
        with server:
            server.settimeout(0.2)
            with pytest.raises(TimeoutError):
                server.recv(100)
    assert not proxy.strand(1)


def test_a_byte_of_one_open_connection_is_damaged_once(proxy: FaultProxy, client: socket.socket) -> None:
    client.sendall(b"abc")
    assert client.recv(100) == b"abc"

    assert proxy.corrupt_after(1, client.getsockname()[1], mask=0x03)
    client.sendall(b"abc")
    assert client.recv(100) == b"aac"
    client.sendall(b"abc")
    assert client.recv(100) == b"abc"
    assert proxy.damaged == 1
