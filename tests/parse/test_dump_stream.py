"""The stream of a dump over a socket pair: packets in pieces, errors, silence, TLS."""

from __future__ import annotations

import fcntl
import shutil
import socket
import ssl
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from canal.binlog.event_types import FORMAT_DESCRIPTION, ROTATE
from canal.errors import ConnectionLostError, DecodeError, PositionLostError
from canal.parse.source.mysql import MySQLSource
from canal.parse.source.stream import DumpStream
from canal.position import Position
from tests.support.packets import packet

NOWHERE = Position(journal="binlog.000001", offset=4)


def event(kind: int, body: bytes = b"") -> bytes:
    return bytes(4) + bytes((kind,)) + bytes(4) + (19 + len(body)).to_bytes(4, "little") + bytes(6) + body


# -- the stream, over a socket pair ------------------------------------------------------------------------------------


@contextmanager
def stream_of(ahead: bytes = b"", **options: Any) -> Iterator[tuple[socket.socket, DumpStream]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    source = MySQLSource(**options)
    with theirs, closing(DumpStream(ours, ahead, source, 77, NOWHERE)) as stream:
        yield theirs, stream


def test_dump_stream_returns_bytes_read_ahead_first() -> None:
    data = packet(1, b"\0" + event(4)) + packet(2, b"\0" + event(15))
    with stream_of(data[:40]) as (server, stream):
        server.sendall(data[40:])

        assert [*stream.read(1.0), *stream.read(1.0)] == [event(4), event(15)]


def test_read_without_events_returns_empty_list() -> None:
    with stream_of() as (_, stream):
        before = time.monotonic()

        assert stream.read(0.05) == []
        assert time.monotonic() - before >= 0.05


def test_read_waits_for_whole_event() -> None:
    data = packet(1, b"\0" + event(4, bytes(1000)))
    with stream_of() as (server, stream):
        server.sendall(data[:500])
        assert stream.read(0.01) == []

        server.sendall(data[500:])

        assert list(stream.read(1.0)) == [event(4, bytes(1000))]


def test_read_returns_events_before_error() -> None:
    with stream_of() as (server, stream):
        server.sendall(packet(1, b"\0" + event(4)) + packet(2, b"\xff\xd4\x04#HY000Could not find first log file"))

        assert list(stream.read(1.0)) == [event(4)]
        with pytest.raises(PositionLostError) as caught:
            stream.read(1.0)
    assert caught.value.errno == 1236


def test_read_closed_socket_raises_connection_lost() -> None:
    with stream_of() as (server, stream):
        server.sendall(packet(1, b"\0" + event(4))[:10])
        server.close()

        with pytest.raises(ConnectionLostError, match="closed without a message"):
            stream.read(1.0)


def test_read_eof_packet_ends_log() -> None:
    """T22"""
    with stream_of() as (server, stream):
        server.sendall(packet(1, b"\0" + event(4)) + packet(2, b"\xfe\0\0\2\0"))

        assert list(stream.read(1.0)) == [event(4)]
        assert stream.read(1.0) == []
        assert stream.ended


def test_read_packets_out_of_order_raises_decode_error() -> None:
    with stream_of() as (server, stream):
        server.sendall(packet(5, b"\0" + event(4)))

        with pytest.raises(DecodeError, match="packet number 5"):
            stream.read(1.0)


def test_close_from_another_thread_wakes_read() -> None:
    with stream_of() as (_, stream):
        threading.Timer(0.05, stream.close).start()

        with pytest.raises(ConnectionLostError):
            stream.read(3600.0)


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """OpenSSL's own test server, which sends on what it reads and renews keys on a line with K; and a client of it."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("the openssl program is not installed")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    names = ["-keyout", key, "-out", certificate, "-subj", "/CN=localhost"]
    subprocess.run([program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "s_server", "-accept", f"127.0.0.1:{port}", "-cert", certificate, "-key", key, "-tls1_3"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        try:
            assert server.stdout is not None
            while b"ACCEPT" not in server.stdout.readline():
                assert server.poll() is None
            client = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
            yield server, client
        finally:
            server.kill()


def say(server: subprocess.Popen[bytes], data: bytes) -> None:
    """Write and wait until it is read: the server looks for commands at the start of each piece only."""
    assert server.stdin is not None
    server.stdin.write(data)
    server.stdin.flush()
    end = time.monotonic() + 120
    while any(fcntl.ioctl(server.stdin, termios.FIONREAD, bytes(4))):
        assert time.monotonic() < end
        time.sleep(0.001)


def test_read_handles_tls_key_update_and_close(tls_server: tuple[subprocess.Popen[bytes], socket.socket]) -> None:
    """T25: a TLS 1.3 server may renew its keys between two events, and ask us to; its close_notify is no crash."""
    server, client = tls_server
    client.settimeout(0)
    with closing(DumpStream(client, b"", MySQLSource(), 77, NOWHERE)) as stream:
        for number in range(1, 11):
            say(server, packet(number, b"\0" + event(4, bytes(300))))
            assert list(stream.read(30.0)) == [event(4, bytes(300))]
            say(server, b"K\n" if number % 2 else b"k\n")  # K asks for our keys too
            assert stream.read(0.01) == []
        say(server, b"Q\n")

        with pytest.raises(ConnectionLostError, match="closed without a message"):
            stream.read(30.0)


def test_silence_after_first_events_raises_connection_lost() -> None:
    """T26"""
    with stream_of(heartbeat_interval=0.02) as (server, stream):
        server.sendall(packet(1, b"\0" + event(27)))
        assert stream.read(1.0)

        with pytest.raises(ConnectionLostError, match="half-open"):
            stream.read(10.0)


def test_suspended_process_reads_waiting_data_before_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """T26: the silence was its own."""
    with stream_of(heartbeat_interval=0.02) as (server, stream):
        server.sendall(packet(1, b"\0" + event(27)))
        assert stream.read(1.0)
        receive = stream._receive

        def held_up() -> int:
            count = receive()
            if count < 0:
                server.sendall(packet(2, b"\0" + event(27)))
                time.sleep(0.1)
            return count

        monkeypatch.setattr(stream, "_receive", held_up)
        assert list(stream.read(60.0)) == [event(27)]


def test_silence_during_position_search_is_tolerated() -> None:
    """T26"""
    with stream_of(heartbeat_interval=0.01) as (server, stream):
        server.sendall(packet(1, b"\0" + event(ROTATE)) + packet(2, b"\0" + event(FORMAT_DESCRIPTION)))
        assert stream.read(1.0)

        assert stream.read(0.2) == []
