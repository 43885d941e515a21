"""What a statement of the log did, as it was read from its text: its kind, canal's event type and the tables that it touches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

#: (schema, table)
Table = tuple[str, str]


class Verb:
    """Statements of transactions; plain integers because compiled code compares them."""

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
    """What a statement does.

    ``kind`` is "begin", "commit", "rollback", "savepoint", "xa", "ddl", "dml" or "other"; ``event_type`` the name of
    canal's event type; ``event_types`` all effects in the order of the text (an ALTER may have several).
    ``tables`` are all (schema, table) pairs that it changes, in the order of the text, names as written; sources that
    it only reads are not among them. A rename has its (old, new) pairs in ``renames`` too; all at once, in order.
    ``schema_wide``: it is about the whole of ``database``. ``doubtful``: it may change tables that could not be named.
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
    #: The tables are temporary ones: no other session sees them and they have no rows in the log. The event type is QUERY.
    temporary: bool = False
    #: IF EXISTS or IF NOT EXISTS was given: it may have done nothing.
    conditional: bool = False
    #: OR REPLACE was given.
    replaces: bool = False
    #: CREATE TABLE … LIKE: the table whose definition was copied.
    like: Table | None = None
    #: CREATE TABLE … SELECT: it also writes rows, which are not in the log as rows.
    selects: bool = False
    #: MySQL's atomic CREATE TABLE … SELECT: a transaction with the rows follows (START TRANSACTION clause).
    starts_transaction: bool = False
    #: Of :class:`Verb`, for begin, commit, rollback, savepoint and xa.
    verb: int = Verb.NONE
    #: The XA identifier as servers write it, such as ``X'7831',X'62',7``; "" where it does not read as one.
    xid: str = ""
    #: The name of SAVEPOINT and ROLLBACK TO, in lower case, which is how they compare.
    savepoint: str = ""
    #: Its transaction took the statement back by ROLLBACK, ROLLBACK TO or XA ROLLBACK: only what it changed in tables without
    #: transactions stays.
    rolled_back: bool = False
    #: XA COMMIT … ONE PHASE.
    one_phase: bool = False
    #: OPTIMIZE TABLE: tables whose rows stay; MariaDB makes a table of InnoDB anew, as ALTER TABLE … FORCE does.
    remade: tuple[Table, ...] = ()
    #: The text, where masks withhold it from whoever is given the entry: what the statement did to rows is read from it.
    withheld: str = attrs.field(default="", repr=False, eq=False)
    #: The session's, by which the text is to be read.
    sql_mode: int = attrs.field(default=0, repr=False, eq=False)
    #: explicit_defaults_for_timestamp of the session, of a statement that changes a schema; None: not known.
    explicit_defaults: bool | None = attrs.field(default=None, repr=False, eq=False)


def doubtful_statement(schema: str) -> Statement:
    """One that may change tables, nobody knows which."""
    return Statement("ddl", "QUERY", default_schema=schema, doubtful=True)


def other_statement(schema: str) -> Statement:
    """One that changes no table."""
    return Statement("other", "QUERY", default_schema=schema)


def unique(tables: Iterable[Table]) -> tuple[Table, ...]:
    """Each of the tables once, in the order given."""
    return tuple(dict.fromkeys(tables))
