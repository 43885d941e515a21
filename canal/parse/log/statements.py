"""Applies QUERY events other than BEGIN and COMMIT to the open transaction.

Never decodes a row. Never compiled, because statements are rare compared with rows.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import attrs

from canal.binlog import event_layout as layout
from canal.binlog.event_types import QUERY
from canal.binlog.server_facts import Release
from canal.errors import GO_ON_AFTER, UnsupportedError
from canal.model import Entry, EntryType, EventType
from canal.parse.log.context import LogContext
from canal.parse.log.events import ddl_context, query_context, status_of
from canal.parse.log.states import TransactionState
from canal.rows import wire
from canal.rows.charsets import lenient_text
from canal.statement import Statement, Verb

log = logging.getLogger("canal.parse")

_ROWDATA = EntryType.ROWDATA


class Statements:
    """Applies the statements of QUERY events.

    Args:
        classify, wants, changed: see ``BinlogDecoder``.
        xa: called with an XA statement, see ``XaTransactions.take``.
    """

    def __init__(
        self,
        classify: Callable[..., Statement],
        wants: Callable[[Any], Any],
        changed: Callable[[Any, str, bytes], None],
        xa: Callable[[LogContext, bytes, int, Statement], None],
    ) -> None:
        self._classify = classify
        self._wants = wants
        self._changed = changed
        self._xa = xa

    def take(self, decoder: LogContext, data: bytes, end: int, start: int, schema_start: int, schema_end: int) -> None:
        """Process a QUERY event. The default schema is between the two indexes; the text follows, up to ``end``."""
        assembly = decoder.assembly
        codec, sql_mode = query_context(data[layout.QUERY_STATUS : schema_start])
        schema = data[schema_start:schema_end].decode("utf-8", "surrogateescape")
        sql = lenient_text(data[schema_end + 1 : end], codec)
        if sql.startswith("# Dum"):  # MariaDB's placeholder for an event that the replica does not support
            return
        statement = self._classify(sql, schema, sql_mode=sql_mode, flavor=decoder.flavor)
        if statement.kind == "begin":
            if assembly.txn is None:
                decoder.open(data, len(data), start)
        elif statement.kind == "commit":
            decoder.finish(data, len(data), start)
        elif statement.kind == "rollback":
            rollback(decoder, data, start, statement)
        elif statement.kind == "savepoint":
            if statement.verb == Verb.SAVEPOINT:
                assembly.set_savepoint(statement.savepoint)
        else:
            if assembly.tape is not None:
                assembly.tape.add_statement(data, statement, sql)
            if statement.kind == "xa":
                self._xa(decoder, data, start, statement)
            elif assembly.state == TransactionState.UNDECIDED:
                _leave_out(decoder, data, start, statement)
            else:
                explicit = explicit_defaults(decoder, data) if statement.kind == "ddl" else None
                statement = attrs.evolve(statement, sql_mode=sql_mode, explicit_defaults=explicit)
                self._deliver(decoder, data, start, sql, statement)

    def _deliver(self, decoder: LogContext, data: bytes, start: int, sql: str, statement: Statement) -> None:
        assembly = decoder.assembly
        if statement.kind != "dml":
            decoder.maps.forget()
            self._changed(statement, sql, data)
        wanted = self._wants(statement)
        if wanted is None:
            _leave_out(decoder, data, start, statement)
            return
        statement = wanted
        txn, is_alone = assembly.txn, False
        if txn is None and statement.starts_transaction:  # MySQL's atomic CREATE TABLE … SELECT
            txn = decoder.open(data, len(data), start)
        elif txn is None:
            txn, is_alone = decoder.begin(data, start), True
        txn.thread_id = wire.u32(data, layout.QUERY_THREAD)
        txn.has_rows = True
        entry = Entry(
            _ROWDATA,
            EventType[statement.event_type],
            txn,
            data,
            start,
            wire.u32(data, layout.TIME),
            wire.u32(data, layout.SERVER),
        )
        entry.sql = sql
        entry.size += sys.getsizeof(sql)
        entry.statement = statement
        entry.first_row = max(txn.row_count, assembly.skip)
        if assembly.undone_row >= 0:
            assembly.mark_undone(entry, assembly.undone_row)
        if statement.kind == "dml":
            decoder.statement_count += 1
        if is_alone:
            decoder.finish_with(entry)
        elif txn.row_count < assembly.skip:
            assembly.ordinal += 1  # later rows are done, so the statement is too
        else:
            assembly.add(entry)


def explicit_defaults(decoder: LogContext, data: bytes) -> bool | None:
    """Return explicit_defaults_for_timestamp of the session; None if the server does not log it."""
    status = status_of(data)
    found = ddl_context(status, mariadb=decoder.flavor == "mariadb").explicit_defaults
    release = Release.parse(decoder.server_version)
    if release.is_mariadb and not found and not release.has("logs_explicit_defaults"):
        return None  # 0 may mean that the server does not log it
    return False if found is None and not release.has("explicit_defaults") else found


def rollback(decoder: LogContext, data: bytes, start: int, statement: Statement) -> None:
    """Apply ROLLBACK or ROLLBACK TO.

    Servers from 5.5 on log these only if the transaction has changes besides rows that cannot be undone.
    """
    assembly, txn = decoder.assembly, decoder.assembly.txn
    is_partial = statement.verb == Verb.ROLLBACK_TO
    if txn is not None:
        count = assembly.undo(statement.savepoint if is_partial else None)
        if count:
            if not decoder.release.has("savepoints_logged"):
                raise UnsupportedError(
                    f"ROLLBACK in {txn!r}: servers before 5.5 do not log which rows it undoes",
                    event_type=QUERY,
                    remedy=f"Nothing was skipped. {GO_ON_AFTER}",
                )
            log.info("[%s] %r rolls back %d of its rows", decoder.destination, txn, count)
    if not is_partial:
        decoder.finish(data, len(data), start)


def _leave_out(decoder: LogContext, data: bytes, start: int, statement: Statement) -> None:
    """Skip a filtered statement. Alone, it leaves an empty transaction."""
    if decoder.assembly.txn is not None:
        decoder.assembly.ordinal += 1
        return
    decoder.open(data, len(data), start)
    if not statement.starts_transaction:
        decoder.finish(data, len(data), start)
