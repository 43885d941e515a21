"""Many destinations in one process share a session with ZooKeeper and few threads."""

from __future__ import annotations

from canal.testing import ZooKeeperServer
from tests.programs.ha_many import measure


def test_destinations_share_one_session_and_few_threads() -> None:
    """ZooKeeper takes 60 connections of an address unless configured otherwise, of which each destination took one."""
    with ZooKeeperServer("maxClientCnxns=5") as server:
        cost = measure(server.hosts, 70, patience=300.0)
    assert cost.sessions == 1
    assert cost.shared < 300
