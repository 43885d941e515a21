"""A statement in the log, as parsed from its text: kind, canal's event type, and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

#: (schema, table)
Table = tuple[str, str]


class Verb:
    """Transaction statements. Plain integers, for comparisons in compiled code."""

    NONE: Final = 0
    BEGIN: Final = 1
    COMMIT: Final = 2
    ROLLBACK: Final = 3
    ROLLBACK_TO: Final = 4
    SAVEPOINT: Final = 5
    RELEASE_SAVEPOINT: Final = 6
    XA_START: Final = 7
    XA_END: Final = 8
    XA_PREPARE: Final = 9
    XA_COMMIT: Final = 10
    XA_ROLLBACK: Final = 11


@attrs.frozen
class Statement:
    """The effect of a statement.

    ``kind`` is "begin", "commit", "rollback", "savepoint", "xa", "ddl", "dml" or "other". ``event_type`` is the name of canal's
    event type. ``event_types`` has all effects in text order, as an ALTER may have several. ``tables`` has the changed
    (schema, table) pairs in text order, as written; tables that are only read are not included. ``renames`` has the (old,
    new) pairs of a rename. ``schema_wide``: the statement affects all of ``database``. ``doubtful``: it may change tables that
    could not be determined.
    """

    kind: str
    event_type: str
    tables: tuple[Table, ...] = ()
    default_schema: str = ""
    event_types: tuple[str, ...] = ()
    renames: tuple[tuple[Table, Table], ...] = ()
    schema_wide: bool = False
    database: str = ""
    doubtful: bool = False
    #: The tables are temporary: private to their session, without rows in the log. The event type is QUERY.
    temporary: bool = False
    #: IF EXISTS or IF NOT EXISTS: the statement may have had no effect.
    conditional: bool = False
    #: OR REPLACE.
    replaces: bool = False
    #: CREATE TABLE … LIKE: the table with the copied definition.
    like: Table | None = None
    #: CREATE TABLE … SELECT: it also writes rows that are not logged as rows.
    selects: bool = False
    #: MySQL's atomic CREATE TABLE … SELECT: a transaction with the rows follows (START TRANSACTION clause).
    starts_transaction: bool = False
    #: A :class:`Verb` for begin, commit, rollback, savepoint and xa.
    verb: int = Verb.NONE
    #: The XA identifier as servers write it, such as ``X'7831',X'62',7``; "" if it cannot be parsed.
    xid: str = ""
    #: The savepoint name of SAVEPOINT and ROLLBACK TO, in lower case because names are case-insensitive.
    savepoint: str = ""
    #: The transaction rolled the statement back (ROLLBACK, ROLLBACK TO or XA ROLLBACK). Only changes to non-transactional tables
    #: remain.
    rolled_back: bool = False
    #: XA COMMIT … ONE PHASE.
    one_phase: bool = False
    #: OPTIMIZE TABLE: the rows stay. MariaDB rebuilds an InnoDB table, like ALTER TABLE … FORCE.
    remade: tuple[Table, ...] = ()
    #: The text if masks withhold it. Consumers of the entry do not see it; the library uses it to find the effect on rows.
    withheld: str = attrs.field(default="", repr=False, eq=False)
    #: The session's sql_mode, needed to parse the text.
    sql_mode: int = attrs.field(default=0, repr=False, eq=False)
    #: The session's explicit_defaults_for_timestamp, for a statement that changes a schema; None if unknown.
    explicit_defaults: bool | None = attrs.field(default=None, repr=False, eq=False)


def doubtful_statement(schema: str) -> Statement:
    """Return a statement that may change unknown tables."""
    return Statement("ddl", "QUERY", default_schema=schema, doubtful=True)


def other_statement(schema: str) -> Statement:
    """Return a statement that changes no table."""
    return Statement("other", "QUERY", default_schema=schema)


def unique(tables: Iterable[Table]) -> tuple[Table, ...]:
    """Return the tables without duplicates, in order."""
    return tuple(dict.fromkeys(tables))
