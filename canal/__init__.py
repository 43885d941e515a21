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

from canal import errors  # noqa: E402
from canal._build import compiled  # noqa: E402
from canal.config import InstanceConfig  # noqa: E402
from canal.errors import *  # noqa: E402, F403
from canal.filter import TableFilter  # noqa: E402
from canal.instance import Instance  # noqa: E402
from canal.meta import FileMeta, MemoryMeta, MetaManager  # noqa: E402
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
from canal.parse.files import LocalBinlogSource  # noqa: E402
from canal.parse.parser import BinlogParser, EventParser  # noqa: E402
from canal.parse.source import Connection, MySQLSource, Source  # noqa: E402
from canal.parse.values import ABSENT, InvalidText, ZeroDate  # noqa: E402
from canal.position import Position  # noqa: E402
from canal.schema import ColumnSchema, TableSchema  # noqa: E402
from canal.server import Server  # noqa: E402
from canal.sink import EntrySink, Hook, Sink  # noqa: E402
from canal.store import EntryStore, MemoryStore  # noqa: E402

__version__ = "0.1.0"
__all__ = sorted(
    [
        "ABSENT", "BinlogParser", "ChangedRow", "ColumnSchema", "Connection", "Entry", "EntrySink", "EntryStore",
        "EntryType", "EventParser", "EventType", "FileMeta", "Header", "Hook", "InstanceConfig", "Instance",
        "InvalidText", "LocalBinlogSource", "MemoryMeta", "MemoryStore", "Message", "MetaManager", "MySQLSource",
        "Position", "Row", "RowChange", "RowData", "Server", "Sink", "Source", "TableFilter", "TableSchema",
        "Transaction", "ZeroDate", "compiled", *errors.__all__,
    ]
)  # fmt: skip
