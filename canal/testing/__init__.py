"""Public helpers for tests: a fake binlog, throwaway servers, a fault proxy, the suite of targets.

Imports nothing before it is asked for: ``canal.testing.FakeBinlog`` loads its module at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal._util.lazy import lazy_names

if TYPE_CHECKING:
    from canal.testing import target_suite
    from canal.testing.fake import FakeBinlog
    from canal.testing.proxy import FaultProxy
    from canal.testing.rules import check_rule
    from canal.testing.servers import MariaDBServer, MySQLServer
    from canal.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

_HOMES = {
    "FakeBinlog": "fake",
    "FaultProxy": "proxy",
    "MariaDBServer": "servers",
    "MySQLServer": "servers",
    "ZooKeeperEnsemble": "zookeeper",
    "ZooKeeperServer": "zookeeper",
    "check_rule": "rules",
    "target_suite": "target_suite",
}

__all__ = [
    "FakeBinlog",
    "FaultProxy",
    "MariaDBServer",
    "MySQLServer",
    "ZooKeeperEnsemble",
    "ZooKeeperServer",
    "check_rule",
    "target_suite",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
