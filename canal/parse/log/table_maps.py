"""The table maps that the stream has announced.

Never reads what is in one: ``resolve`` does, once for each that differs.
"""

from __future__ import annotations

from typing import Callable

from canal.binlog import event_layout as layout
from canal.binlog.event_types import TABLE_MAP
from canal.binlog.server_facts import Release
from canal.errors import TruncatedError
from canal.model.table import TableMap
from canal.rows import wire

#: So many table maps are kept for the next time that they come, and so many bytes of them.
_MOST_MAPS = 4096
_MAP_BYTES = 16 << 20


class TableMaps:
    """Finds the table of a rows event by its id, and the ``TableMap`` of a map that comes again by its bytes.

    Args:
        resolve: called with the body of a table map that was not seen before, and the release that wrote it; gives its
            ``TableMap`` or raises.
    """

    def __init__(self, resolve: Callable[[bytes, Release], TableMap]) -> None:
        self._resolve = resolve
        self._maps = {}
        self._tables = {}
        self.forget()
        self.end_statement()

    def announce(self, p: bytes, end: int, writer: Release) -> None:
        """Take a TABLE_MAP event."""
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
        """The table that the statement has given this id to; most statements have one table."""
        if self._one is not None and self._one_id == table_id:
            return self._one
        return self._tables.get(table_id)

    def end_statement(self) -> None:
        """Ids mean nothing any more."""
        self._one = None
        self._one_id = 0
        if self._tables:
            self._tables.clear()

    def forget(self) -> None:
        """A schema may have changed: the same bytes may mean another table."""
        self._maps.clear()
        self._bytes = 0
        self._body = b""
        self._last = None
