"""Digests of transactions, to find them in another server's log without GTIDs.

Digests are equal in the logs of all replicas, which differ in table ids, offsets, row event sizes and formats, and in the
wording of statements. Never decodes a value.
"""

from __future__ import annotations

import zlib
from typing import Any

from canal.binlog import event_layout as layout
from canal.model.table import TableMap
from canal.model.transaction import Transaction
from canal.position import TAIL_BYTES
from canal.rows import wire

#: Maximum bytes of digests to keep before dropping unreferenced digests.
_TAPE_BYTES = 32768
#: Odd multiplier that spreads a few bits over 32. C integers when compiled.
_SPREAD = 0x9E3779B1
_LOW = 0xFFFFFFFF
_BUT_LAST = 0xFFFFFFFE


class Tape:
    """The digests of the last transactions in order, eight bytes each. Transactions refer to a part of them.

    ``is_open``: whether the present transaction has begun a digest.
    """

    def __init__(self, tail: str) -> None:
        self._bytes = bytearray.fromhex(tail)
        self._digest = 0
        self._digest_of = 0
        self._head = 0
        self.drop()

    def drop(self) -> None:
        """Drop the digest of the present transaction."""
        self.is_open = self._has_ddl = False

    def stamp(self, txn: Transaction) -> None:
        """Begin a transaction: new digests follow those of earlier transactions."""
        if len(self._bytes) > _TAPE_BYTES:
            self._bytes = self._bytes[-TAIL_BYTES:]
        txn.tape = self._bytes
        txn.tape_start = txn.tape_end = len(self._bytes)

    def add_rows(self, table: TableMap, data: bytes, body: int, end: int, change: int, flavor: str, txn: Transaction) -> None:
        """Add a rows event of the transaction."""
        if self._has_ddl:  # CREATE TABLE … SELECT, which a replica may log as two transactions
            self.close(txn)
        self._part(data, table.digest + change)
        rows = table.decoder
        # A log that is searched does not contain the length of MariaDB's old temporal values.
        if rows is not None and not (rows.old_temporals and flavor == "mariadb"):
            self._digest = zlib.crc32(rows.canonical(data, body, end, change), self._digest)

    def add_statement(self, data: bytes, statement: Any, sql: str) -> None:
        """Add the effect of a statement: servers reword statements. Skip temporary tables, which only some servers log."""
        if statement.temporary:
            return
        if statement.kind == "ddl":
            self._has_ddl = True
        words = [sql]
        if statement.kind != "dml" and not statement.doubtful:
            words = [statement.event_type, statement.database, statement.xid, *map(".".join, statement.tables)]
        self._part(data, zlib.crc32("\0".join(words).encode("utf-8", "surrogateescape")))

    def _part(self, data: bytes, of: int) -> None:
        """Begin the part of the digest for a table or statement, identified by ``of``."""
        p = data
        if not self.is_open:
            self.is_open = True
            self._head = (wire.u32(p, layout.TIME) + wire.u32(p, layout.SERVER) * _SPREAD) & _LOW  # a replica keeps both
            self._digest = 0
            self._digest_of = 0
        if of != self._digest_of:
            self._digest_of = of
            self._digest = ((self._digest + of) * _SPREAD) & _LOW

    def close(self, txn: Transaction) -> None:
        """Complete the digest. The last bit is set if a schema may have changed."""
        self._bytes += ((self._head << 32) | (self._digest & _BUT_LAST) | self._has_ddl).to_bytes(8, "big")
        self.drop()
        txn.tape_end = len(self._bytes)
