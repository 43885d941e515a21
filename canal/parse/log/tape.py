"""Digests of transactions, where there are no GTIDs to find them by in the log of another server.

They are the same in the log of every replica, which has its own table ids, offsets, pieces, formats of rows and words for
statements. Never decodes a value.
"""

from __future__ import annotations

import zlib
from typing import Any

from canal.binlog import event_layout as layout
from canal.model.table import TableMap
from canal.model.transaction import Transaction
from canal.position import TAIL_BYTES
from canal.rows import wire

#: Digests kept before the part that nobody refers to is let go.
_TAPE_BYTES = 32768
#: A product with this odd number spreads what is in few bits over 32. C integers when compiled.
_SPREAD = 0x9E3779B1
_LOW = 0xFFFFFFFF
_BUT_LAST = 0xFFFFFFFE


class Tape:
    """The digests of the last transactions in their order, eight bytes each; transactions refer to a part of it.

    ``is_open``: the present transaction has begun one.
    """

    def __init__(self, tail: str) -> None:
        self._bytes = bytearray.fromhex(tail)
        self._digest = 0
        self._digest_of = 0
        self._head = 0
        self.drop()

    def drop(self) -> None:
        """The present transaction never was."""
        self.is_open = self._has_ddl = False

    def stamp(self, txn: Transaction) -> None:
        """A transaction begins: its digests come behind those of the transactions before it."""
        if len(self._bytes) > _TAPE_BYTES:
            self._bytes = self._bytes[-TAIL_BYTES:]
        txn.tape = self._bytes
        txn.tape_start = txn.tape_end = len(self._bytes)

    def add_rows(self, table: TableMap, data: bytes, body: int, end: int, change: int, flavor: str, txn: Transaction) -> None:
        """A rows event of the transaction."""
        if self._has_ddl:  # CREATE TABLE … SELECT, of which a replica may make two transactions
            self.close(txn)
        self._part(data, table.digest + change)
        rows = table.decoder
        # Of MariaDB's old temporal values a log that is searched does not tell how long they are.
        if rows is not None and not (rows.old_temporals and flavor == "mariadb"):
            self._digest = zlib.crc32(rows.canonical(data, body, end, change), self._digest)

    def add_statement(self, data: bytes, statement: Any, sql: str) -> None:
        """What a statement does: each server words anew what it logs. Temporary tables only some of them log."""
        if statement.temporary:
            return
        if statement.kind == "ddl":
            self._has_ddl = True
        words = [sql]
        if statement.kind != "dml" and not statement.doubtful:
            words = [statement.event_type, statement.database, statement.xid, *map(".".join, statement.tables)]
        self._part(data, zlib.crc32("\0".join(words).encode("utf-8", "surrogateescape")))

    def _part(self, data: bytes, of: int) -> None:
        """What follows is of a table or statement that ``of`` stands for."""
        p = data
        if not self.is_open:
            self.is_open = True
            self._head = (wire.u32(p, layout.TIME) + wire.u32(p, layout.SERVER) * _SPREAD) & _LOW  # which a replica keeps
            self._digest = 0
            self._digest_of = 0
        if of != self._digest_of:
            self._digest_of = of
            self._digest = ((self._digest + of) * _SPREAD) & _LOW

    def close(self, txn: Transaction) -> None:
        """The digest is complete. Its last bit tells whether a schema may have changed."""
        self._bytes += ((self._head << 32) | (self._digest & _BUT_LAST) | self._has_ddl).to_bytes(8, "big")
        self.drop()
        txn.tape_end = len(self._bytes)
