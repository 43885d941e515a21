"""canal: MySQL and MariaDB change data capture, embedded in your process.

import canal

with canal.connect("mysql://canal:secret@127.0.0.1:3306/shop", meta="/var/lib/app/canal") as instance:
    for change in instance.changes():
        print(change.table, change.op, change.before, change.after)
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from canal._util import build

build.select()

from canal._util.build import compiled  # noqa: E402
from canal._util.lazy import lazy_names  # noqa: E402

if TYPE_CHECKING:  # __getattr__ imports these modules too
    from canal import aio as aio
    from canal import errors as errors
    from canal import filter as filter
    from canal import formats as formats
    from canal import meta as meta
    from canal import metrics as metrics
    from canal import model as model
    from canal import parse as parse
    from canal import server as server
    from canal import sink as sink
    from canal import spark as spark
    from canal import status as status
    from canal import store as store
    from canal import targets as targets
    from canal import testing as testing
    from canal.alarm import AlarmKind, AlarmMessage
    from canal.changes.change import Change
    from canal.config import Group, InstanceConfig, Member
    from canal.errors import (
        AuthenticationError,
        BatchError,
        CanalError,
        ConfigError,
        ConnectionLostError,
        CoordinationError,
        CursorError,
        DecodeError,
        NotActiveError,
        PositionLostError,
        SourceError,
        StateError,
        UnloggedChangeError,
        UsageError,
    )
    from canal.formats.message import Message
    from canal.ha import Heartbeat, Role
    from canal.instance.connect import connect
    from canal.instance.instance import Instance
    from canal.meta import FileMeta, MemoryMeta, ZooKeeperMeta
    from canal.model import ChangedRow, Entry, EntryType, EventType, Header, Row, Transaction
    from canal.parse.schema.history import FileHistory
    from canal.parse.source.files import LocalBinlogSource
    from canal.parse.source.mysql import MySQLSource
    from canal.pipes import Pipe, PipeStatus, Retry, pipe
    from canal.pipes.rules import Rule
    from canal.pipes.templates import Template
    from canal.position import Position
    from canal.rows.mask import Mask
    from canal.rows.values import ABSENT, AmbiguousLabel, InvalidJson, InvalidText, NoLabel, PartialJson, ZeroDate
    from canal.schema import ColumnSchema, TableSchema
    from canal.server.server import Server, load
    from canal.sink import Hook
    from canal.status import InstanceStatus, State
    from canal.zookeeper.session import ZooKeeper

__version__ = "0.1.0"
__all__ = [
    "ABSENT",
    "AlarmKind",
    "AlarmMessage",
    "AmbiguousLabel",
    "AuthenticationError",
    "BatchError",
    "CanalError",
    "Change",
    "ChangedRow",
    "ColumnSchema",
    "ConfigError",
    "ConnectionLostError",
    "CoordinationError",
    "CursorError",
    "DecodeError",
    "Entry",
    "EntryType",
    "EventType",
    "FileHistory",
    "FileMeta",
    "Group",
    "Header",
    "Heartbeat",
    "Hook",
    "Instance",
    "InstanceConfig",
    "InstanceStatus",
    "InvalidJson",
    "InvalidText",
    "LocalBinlogSource",
    "Mask",
    "Member",
    "MemoryMeta",
    "Message",
    "MySQLSource",
    "NoLabel",
    "NotActiveError",
    "PartialJson",
    "Pipe",
    "PipeStatus",
    "Position",
    "PositionLostError",
    "Retry",
    "Role",
    "Row",
    "Rule",
    "Server",
    "SourceError",
    "State",
    "StateError",
    "TableSchema",
    "Template",
    "Transaction",
    "UnloggedChangeError",
    "UsageError",
    "ZeroDate",
    "ZooKeeper",
    "ZooKeeperMeta",
    "compiled",
    "connect",
    "load",
    "pipe",
]

#: The module of each name here: those that most programs use. The other public names are in their modules.
_HOMES: Final[dict[str, str]] = {
    name: module
    for module, names in {
        "alarm": "AlarmKind AlarmMessage",
        "changes.change": "Change",
        "config": "Group InstanceConfig Member",
        "errors": (
            "AuthenticationError BatchError CanalError ConfigError ConnectionLostError CoordinationError CursorError "
            "DecodeError NotActiveError PositionLostError SourceError StateError UnloggedChangeError UsageError"
        ),
        "formats.message": "Message",
        "ha": "Heartbeat Role",
        "instance.connect": "connect",
        "instance.instance": "Instance",
        "meta": "FileMeta MemoryMeta ZooKeeperMeta",
        "model": "ChangedRow Entry EntryType EventType Header Row Transaction",
        "parse.schema.history": "FileHistory",
        "parse.source.files": "LocalBinlogSource",
        "parse.source.mysql": "MySQLSource",
        "pipes": "Pipe PipeStatus Retry pipe",
        "pipes.rules": "Rule",
        "pipes.templates": "Template",
        "position": "Position",
        "rows.mask": "Mask",
        "rows.values": "ABSENT AmbiguousLabel InvalidJson InvalidText NoLabel PartialJson ZeroDate",
        "schema": "ColumnSchema TableSchema",
        "server.server": "Server load",
        "sink": "Hook",
        "status": "InstanceStatus State",
        "zookeeper.session": "ZooKeeper",
    }.items()
    for name in names.split()
}


if not TYPE_CHECKING:  # a name that does not exist stays an error to type checkers
    _public = lazy_names(__name__, _HOMES)

    def __getattr__(name: str) -> Any:
        """Return a public name, or import a module of the library."""
        if name not in _HOMES and name.isidentifier() and not name.startswith("_") and find_spec(f"canal.{name}") is not None:
            return importlib.import_module(f"canal.{name}")
        return _public(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
