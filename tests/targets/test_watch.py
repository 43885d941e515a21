"""The watch over a connection whose server does not answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from canal.targets.watch import ConnectionWatch, keep_alive


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A connection whose other side says nothing."""
    own, other = socket.socketpair()
    with own, other:
        yield own


@pytest.mark.parametrize("patient", [False, True])
def test_a_call_ends_when_the_pipe_is_to_end_whatever_it_does(silent: socket.socket, patient: bool) -> None:
    """Also one that may take any time, such as an ALTER TABLE."""
    stopping = threading.Event()
    watch = ConnectionWatch(silent.fileno, 0.1, lambda: stopping)
    with watch.running(), watch.patient() if patient else contextlib.nullcontext(), watch:
        if patient:
            threading.Timer(1.0, stopping.set).start()
        assert silent.recv(1) == b""
    assert watch.is_cut
    assert stopping.is_set() is patient


def test_an_idle_connection_is_probed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as own:
        keep_alive(own)
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
