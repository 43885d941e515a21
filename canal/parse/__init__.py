"""Parsing: from a source of binlog bytes to entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal._util.lazy import lazy_names

if TYPE_CHECKING:
    from canal.parse.group import GroupParser
    from canal.parse.log_positions import (
        FailbackLogPositionManager,
        FileLogPositionManager,
        LogPositionManager,
        MemoryLogPositionManager,
        MetaLogPositionManager,
    )
    from canal.parse.options import ParserOptions
    from canal.parse.parser import BinlogParser, EventParser
    from canal.parse.schema.history import FileHistory, MemoryHistory, SchemaHistory
    from canal.parse.schema.zookeeper_history import ZooKeeperHistory
    from canal.parse.source.files import LocalBinlogSource
    from canal.parse.source.mysql import MySQLSource
    from canal.parse.source.protocol import Connection, Source
    from canal.parse.zookeeper_log_positions import (
        MixedLogPositionManager,
        PeriodMixedLogPositionManager,
        ZooKeeperLogPositionManager,
    )

__all__ = [
    "BinlogParser",
    "Connection",
    "EventParser",
    "FailbackLogPositionManager",
    "FileHistory",
    "FileLogPositionManager",
    "GroupParser",
    "LocalBinlogSource",
    "LogPositionManager",
    "MemoryHistory",
    "MemoryLogPositionManager",
    "MetaLogPositionManager",
    "MixedLogPositionManager",
    "MySQLSource",
    "ParserOptions",
    "PeriodMixedLogPositionManager",
    "SchemaHistory",
    "Source",
    "ZooKeeperHistory",
    "ZooKeeperLogPositionManager",
]

_HOMES: Final = {
    "BinlogParser": "parser",
    "Connection": "source.protocol",
    "EventParser": "parser",
    "FailbackLogPositionManager": "log_positions",
    "FileHistory": "schema.history",
    "FileLogPositionManager": "log_positions",
    "GroupParser": "group",
    "LocalBinlogSource": "source.files",
    "LogPositionManager": "log_positions",
    "MemoryHistory": "schema.history",
    "MemoryLogPositionManager": "log_positions",
    "MetaLogPositionManager": "log_positions",
    "MixedLogPositionManager": "zookeeper_log_positions",
    "MySQLSource": "source.mysql",
    "ParserOptions": "options",
    "PeriodMixedLogPositionManager": "zookeeper_log_positions",
    "SchemaHistory": "schema.history",
    "Source": "source.protocol",
    "ZooKeeperHistory": "schema.zookeeper_history",
    "ZooKeeperLogPositionManager": "zookeeper_log_positions",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
