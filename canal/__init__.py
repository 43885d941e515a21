"""canal: MySQL and MariaDB change data capture, embedded in your process.

    import canal

    config = canal.InstanceConfig(destination="example", source=canal.MySQLSource(host="127.0.0.1", user="canal"))
    with canal.Instance(config) as instance:
        instance.subscribe()
        for message in instance.stream():
            for entry in message.entries:
                print(entry.header.table, entry.rows)
"""

from canal import _build

_build.select()

from canal._build import compiled  # noqa: E402
from canal.alarm import AlarmKind, AlarmMessage  # noqa: E402
from canal.config import InstanceConfig  # noqa: E402
from canal.configuration import ConfigSource, DirectorySource, ZooKeeperSource  # noqa: E402
from canal.errors import (  # noqa: E402
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
from canal.filter import TableFilter  # noqa: E402
from canal.flat import FlatChange  # noqa: E402
from canal.ha import Heartbeat, Role  # noqa: E402
from canal.instance import Instance  # noqa: E402
from canal.meta import FileMeta, MemoryMeta, MetaManager, MixedMeta, PeriodMixedMeta, ZooKeeperMeta  # noqa: E402
from canal.model import (  # noqa: E402
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
from canal.parse.log_positions import (  # noqa: E402
    FailbackLogPositionManager,
    FileLogPositionManager,
    LogPositionManager,
    MemoryLogPositionManager,
    MetaLogPositionManager,
)
from canal.parse.parser import BinlogParser, EventParser  # noqa: E402
from canal.parse.schema.history import FileHistory, MemoryHistory, SchemaHistory  # noqa: E402
from canal.parse.schema.zookeeper_history import ZooKeeperHistory  # noqa: E402
from canal.parse.source.files import LocalBinlogSource  # noqa: E402
from canal.parse.source.mysql import MySQLSource  # noqa: E402
from canal.parse.source.protocol import Connection, Source  # noqa: E402
from canal.parse.zookeeper_log_positions import (  # noqa: E402
    MixedLogPositionManager,
    PeriodMixedLogPositionManager,
    ZooKeeperLogPositionManager,
)
from canal.pipes import Pipe, PipeStatus, Retry, pipe  # noqa: E402
from canal.position import Position  # noqa: E402
from canal.rows.values import ABSENT, InvalidJson, InvalidText, JsonDiff, NoLabel, PartialJson, ZeroDate  # noqa: E402
from canal.rules import Rule  # noqa: E402
from canal.schema import ColumnSchema, TableSchema  # noqa: E402
from canal.server import Server, load  # noqa: E402
from canal.sink import EntrySink, Hook, Sink  # noqa: E402
from canal.status import (  # noqa: E402
    ClientStatus,
    InstanceStatus,
    Lag,
    ParserStatus,
    PlaceStatus,
    SourceEnd,
    State,
    StoreStatus,
)
from canal.store import EntryStore, MemoryStore, Slice  # noqa: E402
from canal.zookeeper import ZooKeeper  # noqa: E402

__version__ = "0.1.0"
__all__ = [
    "ABSENT",
    "AlarmKind",
    "AlarmMessage",
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
    "ParserStatus",
    "PartialJson",
    "PeriodMixedLogPositionManager",
    "PeriodMixedMeta",
    "Pipe",
    "PipeStatus",
    "PlaceStatus",
    "Position",
    "PositionLostError",
    "Retry",
    "Role",
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
    "load",
    "pipe",
]
