"""Classifies a statement of the binary log: kind, canal's event type and affected tables.

Never raises for any text, and reads only as much as necessary: an INSERT of many megabytes costs as much as a short one. It has
a handler per statement type and is not a full parser, because names have fixed places. The schema history parses column
definitions.
"""

from __future__ import annotations

import attrs

from canal.parse.schema import dml
from canal.parse.schema.dml import Handler
from canal.parse.schema.scanner import END, MARK, WORD, Scanner
from canal.parse.schema.verbs import transaction_statement
from canal.statement import Statement, Table, doubtful_statement, other_statement, unique

_OTHER_VERBS = frozenset(
    "GRANT REVOKE SET FLUSH ANALYZE REPAIR CHECK CHECKSUM INSTALL UNINSTALL LOCK UNLOCK USE RESET CHANGE "
    "START STOP KILL SHOW DESCRIBE DESC EXPLAIN HELP PREPARE EXECUTE DEALLOCATE SHUTDOWN RESTART CLONE BINLOG CACHE "
    "HANDLER PURGE SIGNAL RESIGNAL GET BACKUP".split()
)
#: Objects of CREATE, ALTER and DROP that are not tables.
_OTHER_OBJECTS = frozenset(
    "VIEW FUNCTION PROCEDURE TRIGGER EVENT PACKAGE USER ROLE SERVER TABLESPACE LOGFILE RESOURCE INSTANCE LIBRARY "
    "CATALOG PREPARE REFERENCE COMPRESSION_DICTIONARY".split()
)
#: Words that may stand between CREATE, ALTER or DROP and the object.
_MODIFIERS = frozenset(
    "OR REPLACE TEMPORARY ONLINE OFFLINE IGNORE UNIQUE FULLTEXT SPATIAL VECTOR AGGREGATE UNDO EXTERNAL MATERIALIZED "
    "JSON RELATIONAL DUALITY GLOBAL".split()
)
_TABLE_WORDS = ("TABLE", "TABLES")
_INDEX_WORDS = ("INDEX", "KEY")
#: Items of an ALTER TABLE that have no effect alone.
_MANNERS = frozenset(("ALGORITHM", "LOCK"))


def if_exists(scan: Scanner) -> bool:
    if scan.accept("IF"):
        scan.accept("NOT")
        scan.accept("EXISTS")
        return True
    return False


def pass_wait(scan: Scanner) -> None:
    """Skip MariaDB's WAIT n or NOWAIT."""
    if not scan.accept("NOWAIT") and scan.peek()[2] == "WAIT" and scan.peek(1)[1].isdigit():
        scan.take()
        scan.take()


def _user(scan: Scanner) -> None:
    """Skip the user after DEFINER: ``= name@host`` or CURRENT_USER()."""
    scan.accept("=")
    scan.take()
    if scan.accept("@"):
        scan.take()
    elif scan.accept("("):
        scan.accept(")")


def object_of(scan: Scanner) -> tuple[str, frozenset[str]]:
    """Take the object of a CREATE, ALTER or DROP; return it with the modifiers before it."""
    modifiers = set()
    while True:
        key = scan.take()[2]
        if key == "DEFINER":
            _user(scan)
        elif key == "ALGORITHM":
            scan.accept("=")
            scan.take()
        elif key == "SQL":
            scan.accept("SECURITY")
            scan.take()
        elif key in _MODIFIERS:
            modifiers.add(key)
        else:
            return key, frozenset(modifiers)


def created_or_altered(scan: Scanner, schema: str) -> Table | None:
    """Take the table of a CREATE TABLE or ALTER TABLE and return it; None for other statements."""
    if not scan.accept("CREATE", "ALTER") or object_of(scan)[0] != "TABLE":
        return None
    if_exists(scan)
    return scan.table(schema)


def _create(scan: Scanner, schema: str) -> Statement:
    what, modifiers = object_of(scan)
    if what in ("TABLE", "SEQUENCE"):
        return _create_table(scan, schema, modifiers)
    if what == "INDEX":
        return _index(scan, schema, "CINDEX")
    if what in ("DATABASE", "SCHEMA"):
        return _database(scan, schema, "REPLACE" in modifiers)
    return other_statement(schema) if what in _OTHER_OBJECTS else doubtful_statement(schema)


def _create_table(scan: Scanner, schema: str, modifiers: frozenset[str]) -> Statement:
    conditional = if_exists(scan)
    table = scan.table(schema)
    if table is None:
        return doubtful_statement(schema)
    like, selects, starts = _definition(scan, schema)
    temporary = "TEMPORARY" in modifiers
    event_type = "QUERY" if temporary else "CREATE"
    return Statement(
        "ddl",
        event_type,
        (table,),
        schema,
        (event_type,),
        temporary=temporary,
        conditional=conditional,
        replaces="REPLACE" in modifiers,
        like=like,
        selects=selects,
        starts_transaction=starts,
        doubtful=scan.broken,
    )


def _definition(scan: Scanner, schema: str) -> tuple[Table | None, bool, bool]:
    """Parse the rest of a CREATE TABLE; return (LIKE table, has SELECT, has START TRANSACTION)."""
    parenthesis = scan.peek()[2] == "(" and scan.peek(1)[2] == "LIKE"
    if parenthesis:
        scan.take()
    if scan.accept("LIKE"):
        like = scan.table(schema)
        scan.accept(")")
        return like, False, False
    depth = 0
    starts = False
    before = ""
    while not (scan.at_end() and (depth <= 0 or scan.peek()[0] == END)):
        key = scan.take()[2]
        if key == "(":
            depth += 1
        elif key == ")":
            depth -= 1
        elif key == "SELECT" and before != ".":  # a reserved word: a name would be quoted
            return None, True, False
        starts = key == "TRANSACTION" and before == "START" and depth <= 0
        before = key
    return None, False, starts


def _index(scan: Scanner, schema: str, event_type: str) -> Statement:
    conditional = if_exists(scan)
    while not scan.at_end():
        if scan.take()[2] == "ON":
            table = scan.table(schema)
            if table is not None:
                _skip_statement(scan)
                return Statement("ddl", event_type, (table,), schema, (event_type,), conditional=conditional)
            break
    return doubtful_statement(schema)


def _database(scan: Scanner, schema: str, replaces: bool = False, unnamed: bool = False) -> Statement:
    conditional = if_exists(scan)
    name = schema
    if scan.at_name() and not (unnamed and is_database_option(scan)):
        name = scan.take()[1]
    _skip_statement(scan)
    return Statement(
        "ddl", "QUERY", (), schema, ("QUERY",), schema_wide=True, database=name, conditional=conditional, replaces=replaces
    )


def is_database_option(scan: Scanner) -> bool:
    """Return whether an option follows, as in ALTER DATABASE without a name."""
    key, after = scan.peek()[2], scan.peek(1)
    if key in ("DEFAULT", "COLLATE", "CHARACTER"):  # reserved words
        return True
    if key == "READ":
        return after[2] == "ONLY"
    return key in ("CHARSET", "ENCRYPTION", "COMMENT") and (after[0] != WORD or key == "CHARSET")


def _drop(scan: Scanner, schema: str) -> Statement:
    what, modifiers = object_of(scan)
    if what in _TABLE_WORDS or what == "SEQUENCE":
        conditional = if_exists(scan)
        tables = _table_list(scan, schema)
        pass_wait(scan)
        scan.accept("RESTRICT", "CASCADE")
        doubtful = not tables or not scan.at_end() or scan.broken
        temporary = "TEMPORARY" in modifiers
        effect = "QUERY" if temporary else "ERASE"
        _skip_statement(scan)
        return Statement(
            "ddl",
            effect if tables else "QUERY",
            unique(tables),
            schema,
            (effect,),
            conditional=conditional,
            temporary=temporary,
            doubtful=doubtful,
        )
    if what == "INDEX":
        return _index(scan, schema, "DINDEX")
    if what in ("DATABASE", "SCHEMA"):
        return _database(scan, schema)
    return other_statement(schema) if what in _OTHER_OBJECTS else doubtful_statement(schema)


def _table_list(scan: Scanner, schema: str) -> list[Table]:
    tables = []
    while (table := scan.table(schema)) is not None:
        tables.append(table)
        if not scan.accept(","):
            break
    return tables


def _truncate(scan: Scanner, schema: str) -> Statement:
    scan.accept("TABLE")
    table = scan.table(schema)
    if table is None:
        return doubtful_statement(schema)
    pass_wait(scan)
    return Statement("ddl", "TRUNCATE", (table,), schema, ("TRUNCATE",), doubtful=scan.broken or not scan.at_end())


def _optimize(scan: Scanner, schema: str) -> Statement:
    scan.accept("NO_WRITE_TO_BINLOG", "LOCAL")
    if not scan.accept(*_TABLE_WORDS):
        return doubtful_statement(schema)
    return Statement("other", "QUERY", default_schema=schema, remade=tuple(_table_list(scan, schema)))


def _rename(scan: Scanner, schema: str) -> Statement:
    if scan.accept("USER"):
        return other_statement(schema)
    if scan.accept("DATABASE", "SCHEMA"):  # only in MySQL 5.1.7 to 5.1.22
        return doubtful_statement(schema)
    if not scan.accept(*_TABLE_WORDS):
        return doubtful_statement(schema)
    conditional = if_exists(scan)
    pairs = []
    while True:
        old = scan.table(schema)
        pass_wait(scan)
        new = scan.table(schema) if scan.accept("TO") else None
        if old is None or new is None:
            break
        pairs.append((old, new))
        if not scan.accept(","):
            break
    if not pairs:
        return doubtful_statement(schema)
    doubtful = old is None or new is None or scan.broken or not scan.at_end()
    tables = unique([table for pair in pairs for table in pair])
    return Statement("ddl", "RENAME", tables, schema, ("RENAME",), tuple(pairs), conditional=conditional, doubtful=doubtful)


def _alter(scan: Scanner, schema: str) -> Statement:
    what, _ = object_of(scan)
    if what == "SEQUENCE" or what == "TABLE":
        conditional = if_exists(scan)
        table = scan.table(schema)
        if table is None:
            return doubtful_statement(schema)
        pass_wait(scan)
        return _alter_items(scan, schema, table, conditional)
    if what in ("DATABASE", "SCHEMA"):
        return _database(scan, schema, unnamed=True)
    return other_statement(schema) if what in _OTHER_OBJECTS else doubtful_statement(schema)


def _alter_items(scan: Scanner, schema: str, table: Table, conditional: bool) -> Statement:
    effects: list[str] = []
    tables = [table]
    renames: list[tuple[Table, Table]] = []
    while True:
        effect = _alter_item(scan, schema, table, tables, renames)
        if effect and effect not in effects:
            effects.append(effect)
        if not _next_item(scan):
            break
    if not effects:
        effects.append("ALTER")
    # canal reports only the first effect. We choose the most important, and event_types has all.
    event_type = next((e for e in ("RENAME", "ALTER") if e in effects), effects[0])
    return Statement(
        "ddl",
        event_type,
        unique(tables),
        schema,
        tuple(effects),
        tuple(renames[-1:]),
        conditional=conditional,
        doubtful=scan.broken,
    )


def _alter_item(scan: Scanner, schema: str, table: Table, tables: list[Table], renames: list[tuple[Table, Table]]) -> str:
    """Return the effect of the next ALTER item, "" for none. The caller skips the rest of the item."""
    key = scan.peek()[2]
    if key == "ADD":
        scan.take()
        return _add_item(scan)
    if key == "DROP":
        scan.take()
        return "DINDEX" if scan.peek()[2] in ("INDEX", "KEY", "CONSTRAINT") else "ALTER"
    if key == "RENAME" and scan.peek(1)[2] not in ("COLUMN", "INDEX", "KEY"):
        scan.take()
        scan.accept("TO", "AS", "=")
        # A name without a schema belongs to the session's schema, not to the table's (seen on MySQL 9.7 and MariaDB 10.11).
        new = scan.table(schema)
        if new is None:
            return "ALTER"
        tables.append(new)
        renames.append((table, new))
        return "RENAME"
    if key in ("EXCHANGE", "CONVERT"):
        scan.take()
        other = _partition_table(scan, schema, key)
        if other is not None:
            tables.append(other)
        return "ALTER"
    return "" if key in _MANNERS and scan.peek(1)[0] in (WORD, MARK) else "ALTER"


def _add_item(scan: Scanner) -> str:
    if scan.accept("CONSTRAINT") and scan.peek()[2] not in ("UNIQUE", "PRIMARY", "FOREIGN", "CHECK"):
        scan.take()
    key = scan.peek()[2]
    if key in ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL"):
        return "CINDEX"
    if key == "VECTOR" and scan.peek(1)[2] in _INDEX_WORDS:
        return "CINDEX"
    return "ALTER"


def _partition_table(scan: Scanner, schema: str, key: str) -> Table | None:
    """Return the t of EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t, CONVERT TABLE t TO PARTITION p."""
    if key == "CONVERT" and scan.accept("TABLE"):
        return scan.table(schema)
    if not scan.accept("PARTITION"):
        return None
    scan.take()
    if scan.accept_all("WITH", "TABLE") or scan.accept_all("TO", "TABLE"):
        return scan.table(schema)
    return None


def _next_item(scan: Scanner) -> bool:
    """Skip to the next item of a list, including the comma; return False at the end of the statement."""
    while not scan.at_end():
        key = scan.peek()[2]
        if key == "(":
            scan.skip_group()
            continue
        scan.take()
        if key == ",":
            return True
    return False


def _skip_statement(scan: Scanner) -> None:
    while _next_item(scan):
        pass


def _set(scan: Scanner, schema: str) -> Statement:
    """Classify SET: MariaDB's SET STATEMENT … FOR precedes any statement; other SETs change no table."""
    if not scan.accept("STATEMENT"):
        return other_statement(schema)
    while not scan.at_end():
        if scan.peek()[2] == "(":
            scan.skip_group()
        elif scan.take()[2] == "FOR":
            return _one(scan, schema)
    return doubtful_statement(schema)


_HANDLERS: dict[str, Handler] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "OPTIMIZE": _optimize,
    "RENAME": _rename,
    "INSERT": dml.insert,
    "REPLACE": dml.insert,
    "LOAD": dml.load,
    "UPDATE": dml.update,
    "DELETE": dml.delete,
    "WITH": dml.with_,
    "SET": _set,
}
_OPAQUE_DML = frozenset(("SELECT", "CALL", "DO", "VALUES", "TABLE", "("))


def _one(scan: Scanner, schema: str) -> Statement:
    """Classify the statement that begins at the next token."""
    key = scan.take()[2]
    handler = _HANDLERS.get(key)
    if handler is not None:
        return handler(scan, schema)
    if key in _OTHER_VERBS:
        return other_statement(schema)
    if key in _OPAQUE_DML:
        return dml.opaque_dml(schema)
    return doubtful_statement(schema)


def _merge(first: Statement, second: Statement) -> Statement:
    """Combine two statements of a text: the effects of both, with the type of the first."""
    return attrs.evolve(
        first,
        event_type=second.event_type if first.temporary and second.event_types else first.event_type,
        tables=unique([*first.tables, *second.tables]),
        event_types=tuple(dict.fromkeys((*first.event_types, *(second.event_types or (second.event_type,))))),
        renames=first.renames + second.renames,
        schema_wide=first.schema_wide or second.schema_wide,
        database=first.database or second.database,
        doubtful=first.doubtful or second.doubtful or (first.schema_wide and second.schema_wide),
        temporary=first.temporary and second.temporary,
    )


def classify(sql: str, default_schema: str, *, sql_mode: int = 0, flavor: str = "") -> Statement:
    """Classify ``sql``, executed in a session with the current schema ``default_schema``.

    ``sql_mode`` (from the event's status variables) determines the meaning of double quotes and backslashes. With 0, a
    double-quoted word is a name where only a name is allowed. ``flavor``: see :class:`Scanner`.
    """
    statement = transaction_statement(sql, default_schema)
    if statement is not None:
        return statement
    scan = Scanner(sql, sql_mode, flavor)
    while scan.accept(";"):
        pass
    if scan.peek()[0] == END:  # only whitespace and comments
        return doubtful_statement(default_schema) if scan.broken else other_statement(default_schema)
    statement = _one(scan, default_schema)
    while statement.kind == "ddl" and scan.accept(";"):
        if scan.at_end():
            continue
        following = _one(scan, default_schema)
        if following.kind in ("ddl", "dml"):
            statement = _merge(statement, following)
        if following.kind != "ddl":
            break
    return statement
