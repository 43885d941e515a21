"""canal: MySQL and MariaDB change data capture, embedded in your process.

    import canal

    with canal.connect("mysql://canal:secret@127.0.0.1:3306/shop", meta="/var/lib/app/canal") as instance:
        for change in instance.changes():
            print(change.table, change.op, change.before, change.after)
"""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from canal._util import build

build.select()

from canal._util.build import compiled  # noqa: E402

if TYPE_CHECKING:
    from canal.alarm import AlarmKind, AlarmMessage
    from canal.changes.flat import FlatChange
    from canal.config import Group, InstanceConfig, Member
    from canal.errors import (
        AuthenticationError,
        BatchError,
        CanalError,
        ChecksumError,
        ConfigError,
        ConnectionLostError,
        CoordinationError,
        CursorError,
        DecodeError,
        HistoryError,
        HookError,
        LostReason,
        MissingTableMapError,
        NotActiveError,
        NotSubscribedError,
        PositionLostError,
        SchemaError,
        ServerError,
        SourceError,
        StateError,
        StoreClosedError,
        StoreError,
        TruncatedError,
        UnknownDestinationError,
        UnloggedChangeError,
        UnsupportedError,
        UsageError,
    )
    from canal.filter import TableFilter
    from canal.ha import Heartbeat, Role
    from canal.instance.connect import connect
    from canal.instance.instance import Instance
    from canal.meta import FileMeta, MemoryMeta, MetaManager, MixedMeta, PeriodMixedMeta, ZooKeeperMeta
    from canal.model import (
        ChangedRow,
        Entry,
        EntryType,
        EventType,
        Header,
        Message,
        Row,
        RowChange,
        RowData,
        Transaction,
    )
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
    from canal.pipes import Pipe, PipeStatus, Retry, pipe
    from canal.pipes.rules import Rule
    from canal.pipes.templates import Template
    from canal.position import Position
    from canal.rows.mask import Mask
    from canal.rows.values import (
        ABSENT,
        AmbiguousLabel,
        InvalidJson,
        InvalidText,
        JsonDiff,
        NoLabel,
        PartialJson,
        ZeroDate,
    )
    from canal.schema import ColumnSchema, TableSchema
    from canal.server.configuration import ConfigSource, DirectorySource, ZooKeeperSource
    from canal.server.router import RouterSink
    from canal.server.server import Server, load
    from canal.sink import EntrySink, Hook, Sink
    from canal.status import (
        ClientStatus,
        InstanceStatus,
        Lag,
        ParserStatus,
        ReaderStatus,
        SourceEnd,
        State,
        StoreStatus,
    )
    from canal.store import EntryStore, MemoryStore, Slice
    from canal.zookeeper.session import ZooKeeper

__version__ = "0.1.0"
__all__ = [
    "ABSENT",
    "AlarmKind",
    "AlarmMessage",
    "AmbiguousLabel",
    "AuthenticationError",
    "BatchError",
    "BinlogParser",
    "CanalError",
    "ChangedRow",
    "ChecksumError",
    "ClientStatus",
    "ColumnSchema",
    "ConfigError",
    "ConfigSource",
    "Connection",
    "ConnectionLostError",
    "CoordinationError",
    "CursorError",
    "DecodeError",
    "DirectorySource",
    "Entry",
    "EntrySink",
    "EntryStore",
    "EntryType",
    "EventParser",
    "EventType",
    "FailbackLogPositionManager",
    "FileHistory",
    "FileLogPositionManager",
    "FileMeta",
    "FlatChange",
    "Group",
    "GroupParser",
    "Header",
    "Heartbeat",
    "HistoryError",
    "Hook",
    "HookError",
    "Instance",
    "InstanceConfig",
    "InstanceStatus",
    "InvalidJson",
    "InvalidText",
    "JsonDiff",
    "Lag",
    "LocalBinlogSource",
    "LogPositionManager",
    "LostReason",
    "Mask",
    "Member",
    "MemoryHistory",
    "MemoryLogPositionManager",
    "MemoryMeta",
    "MemoryStore",
    "Message",
    "MetaLogPositionManager",
    "MetaManager",
    "MissingTableMapError",
    "MixedLogPositionManager",
    "MixedMeta",
    "MySQLSource",
    "NoLabel",
    "NotActiveError",
    "NotSubscribedError",
    "ParserOptions",
    "ParserStatus",
    "PartialJson",
    "PeriodMixedLogPositionManager",
    "PeriodMixedMeta",
    "Pipe",
    "PipeStatus",
    "Position",
    "PositionLostError",
    "ReaderStatus",
    "Retry",
    "Role",
    "RouterSink",
    "Row",
    "RowChange",
    "RowData",
    "Rule",
    "SchemaError",
    "SchemaHistory",
    "Server",
    "ServerError",
    "Sink",
    "Slice",
    "Source",
    "SourceEnd",
    "SourceError",
    "State",
    "StateError",
    "StoreClosedError",
    "StoreError",
    "StoreStatus",
    "TableFilter",
    "TableSchema",
    "Template",
    "Transaction",
    "TruncatedError",
    "UnknownDestinationError",
    "UnloggedChangeError",
    "UnsupportedError",
    "UsageError",
    "ZeroDate",
    "ZooKeeper",
    "ZooKeeperHistory",
    "ZooKeeperLogPositionManager",
    "ZooKeeperMeta",
    "ZooKeeperSource",
    "compiled",
    "connect",
    "load",
    "pipe",
]

#: The module of each public name: it is loaded when the name is first asked for, so that ``import canal`` costs little.
_MODULES: Final[dict[str, str]] = {
    name: f"canal.{module}"
    for module, names in {
        "alarm": "AlarmKind AlarmMessage",
        "config": "Group InstanceConfig Member",
        "server.configuration": "ConfigSource DirectorySource ZooKeeperSource",
        "instance.connect": "connect",
        "errors": (
            "AuthenticationError BatchError CanalError ChecksumError ConfigError ConnectionLostError "
            "CoordinationError CursorError DecodeError HistoryError HookError LostReason MissingTableMapError "
            "NotActiveError NotSubscribedError PositionLostError SchemaError ServerError SourceError StateError "
            "StoreClosedError StoreError TruncatedError UnknownDestinationError UnloggedChangeError "
            "UnsupportedError UsageError"
        ),
        "filter": "TableFilter",
        "changes.flat": "FlatChange",
        "ha": "Heartbeat Role",
        "instance.instance": "Instance",
        "meta": "FileMeta MemoryMeta MetaManager MixedMeta PeriodMixedMeta ZooKeeperMeta",
        "model": "ChangedRow Entry EntryType EventType Header Message Row RowChange RowData Transaction",
        "parse.group": "GroupParser",
        "parse.log_positions": (
            "FailbackLogPositionManager FileLogPositionManager LogPositionManager MemoryLogPositionManager "
            "MetaLogPositionManager"
        ),
        "parse.options": "ParserOptions",
        "parse.parser": "BinlogParser EventParser",
        "parse.schema.history": "FileHistory MemoryHistory SchemaHistory",
        "parse.schema.zookeeper_history": "ZooKeeperHistory",
        "parse.source.files": "LocalBinlogSource",
        "parse.source.mysql": "MySQLSource",
        "parse.source.protocol": "Connection Source",
        "parse.zookeeper_log_positions": "MixedLogPositionManager PeriodMixedLogPositionManager ZooKeeperLogPositionManager",
        "pipes": "Pipe PipeStatus Retry pipe",
        "position": "Position",
        "server.router": "RouterSink",
        "rows.mask": "Mask",
        "rows.values": "ABSENT AmbiguousLabel InvalidJson InvalidText JsonDiff NoLabel PartialJson ZeroDate",
        "pipes.rules": "Rule",
        "schema": "ColumnSchema TableSchema",
        "server.server": "Server load",
        "sink": "EntrySink Hook Sink",
        "status": "ClientStatus InstanceStatus Lag ParserStatus ReaderStatus SourceEnd State StoreStatus",
        "store": "EntryStore MemoryStore Slice",
        "pipes.templates": "Template",
        "zookeeper.session": "ZooKeeper",
    }.items()
    for name in names.split()
}


#: Names that were public under another word, and what they are called now.
_FORMER: Final = {"PlaceStatus": "ReaderStatus"}

if not TYPE_CHECKING:  # a name that does not exist stays an error to type checkers

    def __getattr__(name: str) -> Any:
        """A public name, or a module of the library that nobody has imported yet."""
        if name in _MODULES:
            found = getattr(importlib.import_module(_MODULES[name]), name)
        elif name in _FORMER:
            warnings.warn(f"canal.{name} is called canal.{_FORMER[name]} now", DeprecationWarning, stacklevel=2)
            return getattr(sys.modules[__name__], _FORMER[name])
        elif name.isidentifier() and not name.startswith("_") and find_spec(f"canal.{name}") is not None:
            return importlib.import_module(f"canal.{name}")
        else:
            raise AttributeError(f"module 'canal' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
