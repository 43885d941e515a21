"""The throwaway ZooKeeper: it starts, fails and ends as the tests that use it suppose."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canal.testing import ZooKeeperEnsemble, ZooKeeperServer
from canal.testing.servers import ServerUnavailableError
from canal.zookeeper.session import Create, Session, Set, ZooKeeper
from tests.support.waiting import until


@pytest.fixture
def session(own_zookeeper: ZooKeeperServer) -> Iterator[Session]:
    session = connected(own_zookeeper.hosts)
    yield session
    session.close()


def connected(hosts: str) -> Session:
    session = Session(ZooKeeper(hosts=hosts, session_timeout=20.0))
    session.open()
    assert session.wait_connected(60)
    return session


def mode_of(server: ZooKeeperServer) -> str:
    """Once it answers."""
    modes: list[str] = []
    until(lambda: modes.append(server.mode()) or modes[-1])  # type: ignore[func-returns-value]
    return modes[-1]


def data_of(session: Session, path: str) -> bytes | None:
    value = session.get(path)
    return None if value is None else value.data


def test_a_server_ends_with_the_process_that_started_it(zookeeper_server: ZooKeeperServer) -> None:
    script = "import time\nfrom canal.testing import ZooKeeperServer\n"
    script += "s = ZooKeeperServer().start()\nprint(s.pid, s._base, flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, base = process.stdout.readline().split()
        assert Path(base).exists()
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while (Path(f"/proc/{pid}").exists() or Path(base).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(base).exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@pytest.mark.parametrize("end", [ZooKeeperServer.kill, ZooKeeperServer.shutdown])
def test_what_was_written_is_there_after_a_start(own_zookeeper: ZooKeeperServer, session: Session, end: object) -> None:
    assert own_zookeeper.mode() == "standalone"
    session.write([Create("/a", b"1"), Set("/a", b"2")])
    pid, port = own_zookeeper.pid, own_zookeeper.port
    end(own_zookeeper)  # type: ignore[operator]
    assert own_zookeeper.pid is None
    assert own_zookeeper.mode() == ""
    until(lambda: not session.is_connected)
    own_zookeeper.start()
    assert own_zookeeper.port == port
    assert own_zookeeper.pid not in (None, pid)
    assert session.wait_connected(60)
    assert data_of(session, "/a") == b"2"


def test_a_stop_is_for_good_and_can_be_repeated(own_zookeeper: ZooKeeperServer, session: Session) -> None:
    session.write([Create("/a", b"1")])
    base = own_zookeeper._base
    assert base is not None
    own_zookeeper.stop()
    own_zookeeper.stop()
    assert not base.exists()
    own_zookeeper.start()  # a fresh one at the same address
    other = connected(own_zookeeper.hosts)
    assert data_of(other, "/a") is None
    other.close()


def test_a_port_that_is_taken_is_an_error(zookeeper_server: ZooKeeperServer) -> None:
    """Also by another ZooKeeper, which answers there."""
    with socket.socket() as taken:  # with somebody behind it
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], zookeeper_server.port):
            server = ZooKeeperServer(port=port)
            with pytest.raises(ServerUnavailableError, match=f"{port}"):
                server.start()
            assert server.pid is None
            assert server._base is None
    assert zookeeper_server.mode() == "standalone"


def test_a_paused_server_is_silent(own_zookeeper: ZooKeeperServer) -> None:
    own_zookeeper.pause()
    assert own_zookeeper.ask("ruok", timeout=0.5) == ""
    own_zookeeper.resume()
    assert own_zookeeper.ask("ruok", timeout=60.0) == "imok"
    own_zookeeper.pause()
    own_zookeeper.stop()
    assert own_zookeeper.pid is None


def test_a_bad_setting_is_reported_with_the_servers_words(zookeeper_server: ZooKeeperServer) -> None:
    with pytest.raises(ServerUnavailableError, match="NumberFormat"):
        ZooKeeperServer("tickTime=many").start()


def test_a_member_that_was_killed_catches_up(own_ensemble: ZooKeeperEnsemble) -> None:
    assert sorted(mode_of(member) for member in own_ensemble.members) == ["follower", "follower", "leader"]
    leader = own_ensemble.leader()
    rest = [member for member in own_ensemble.members if member is not leader]
    leader.kill()
    session = connected(",".join(member.hosts for member in rest))
    session.write([Create("/a", b"1")])
    assert own_ensemble.leader() in rest
    leader.start()
    assert mode_of(leader) == "follower"
    session.close()
    session = connected(leader.hosts)
    assert data_of(session, "/a") == b"1"
    session.close()


def test_a_minority_does_not_serve(own_ensemble: ZooKeeperEnsemble) -> None:
    first, second, third = own_ensemble.members
    first.kill()
    second.kill()
    until(lambda: not third.mode())
    with pytest.raises(ServerUnavailableError, match="no leader"):
        own_ensemble.leader(timeout=0.5)
    first.start()
    assert own_ensemble.leader() in (first, third)
