"""The table maps in the stream.

Never parses a map: ``resolve`` does, once for each distinct map.
"""

from __future__ import annotations

from typing import Callable

from canal.binlog import event_layout as layout
from canal.binlog.event_types import TABLE_MAP
from canal.binlog.server_facts import Release
from canal.errors import TruncatedError
from canal.model.table import TableMap
from canal.rows import wire

#: Maximum number and total bytes of resolved table maps to keep.
_MOST_MAPS = 4096
_MAP_BYTES = 16 << 20


class TableMaps:
    """Finds the table of a rows event by id, and the ``TableMap`` of a repeated map by its bytes.

    Args:
        resolve: called with the body of a new table map and the release that wrote it; returns a ``TableMap`` or raises.
    """

    def __init__(self, resolve: Callable[[bytes, Release], TableMap]) -> None:
        self._resolve = resolve
        self._maps = {}
        self._tables = {}
        self.forget()
        self.end_statement()

    def announce(self, p: bytes, end: int, writer: Release) -> None:
        """Process a TABLE_MAP event."""
        if end < layout.MAP_LEAST:
            raise TruncatedError("TABLE_MAP event is too short", event_type=TABLE_MAP)
        if len(self._body) != end - layout.MAP_FLAGS or not wire.same(p, layout.MAP_FLAGS, self._body, 0, end - layout.MAP_FLAGS):
            self._look_up(wire.piece(p, layout.MAP_FLAGS, end), writer)
        table_id = wire.u48(p, layout.MAP_TABLE)
        if self._one is None or self._one_id == table_id:
            self._one = self._last
            self._one_id = table_id
        else:
            self._tables[table_id] = self._last

    def _look_up(self, body: bytes, writer: Release) -> None:
        table = self._maps.get(body)
        if table is None:
            table = self._resolve(body, writer)
            if len(self._maps) >= _MOST_MAPS or self._bytes > _MAP_BYTES:
                self.forget()
            self._maps[body] = table
            self._bytes += table.size
        self._body = body
        self._last = table

    def find(self, table_id: int) -> TableMap | None:
        """Return the statement's table with this id. Most statements have one table."""
        if self._one is not None and self._one_id == table_id:
            return self._one
        return self._tables.get(table_id)

    def end_statement(self) -> None:
        """Forget the table ids: they are valid for one statement."""
        self._one = None
        self._one_id = 0
        if self._tables:
            self._tables.clear()

    def forget(self) -> None:
        """Forget the resolved maps: after a schema change, the same bytes may mean another table."""
        self._maps.clear()
        self._bytes = 0
        self._body = b""
        self._last = None
