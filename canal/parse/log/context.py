"""The parts of a decoder that statements and XA transactions use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from canal.binlog.server_facts import Release
from canal.model import Entry, Transaction
from canal.parse.log.assembly import Assembly
from canal.parse.log.table_maps import TableMaps
from canal.position import Position, PreparedXa


class Replayed(Protocol):
    """The XA transaction that a decoder has read again: the xid (None until XA PREPARE) and the row count."""

    replayed: str | None
    replayed_rows: int


class LogContext(Protocol):
    """A decoder during an event. See ``BinlogDecoder``."""

    flavor: str
    destination: str
    journal: str
    follow_only: bool
    statement_count: int

    @property
    def assembly(self) -> Assembly: ...

    @property
    def maps(self) -> TableMaps: ...

    @property
    def xa(self) -> Replayed: ...

    @property
    def position(self) -> Position: ...

    @property
    def server_version(self) -> str: ...

    @property
    def release(self) -> Release: ...

    def begin(self, p: bytes, start: int) -> Transaction: ...

    def open(self, p: bytes, size: int, start: int) -> Transaction: ...

    def finish(self, p: bytes, size: int, start: int) -> None: ...

    def finish_with(self, entry: Entry) -> None: ...

    def feed(self, events: Sequence[bytes]) -> None: ...

    def replay(self, prepared: PreparedXa, deliver: Callable[[list[Entry]], None]) -> LogContext: ...
