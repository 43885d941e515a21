"""Public helpers for tests: a fake binlog, throwaway servers, a fault proxy, the suite of targets.

Imports nothing before it is asked for: ``canal.testing.FakeBinlog`` loads its module at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canal.testing import target_suite
    from canal.testing.fake import FakeBinlog
    from canal.testing.proxy import FaultProxy
    from canal.testing.rules import check_rule
    from canal.testing.servers import MariaDBServer, MySQLServer
    from canal.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

_MODULES = {
    "FakeBinlog": "fake", "FaultProxy": "proxy", "MariaDBServer": "servers", "MySQLServer": "servers",
    "ZooKeeperEnsemble": "zookeeper", "ZooKeeperServer": "zookeeper", "check_rule": "rules",
}  # fmt: skip

__all__ = [
    "FakeBinlog", "FaultProxy", "MariaDBServer", "MySQLServer", "ZooKeeperEnsemble", "ZooKeeperServer", "check_rule",
    "target_suite",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "target_suite":
        return import_module("canal.testing.target_suite")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'canal.testing' has no attribute {name!r}")
    return getattr(import_module(f"canal.testing.{module}"), name)
