"""Finds the tables that a row change logged as a statement affects, as far as the text shows them."""

from __future__ import annotations

from collections.abc import Callable

from canal.parse.schema.scanner import Scanner
from canal.statement import Statement, Table, other_statement, unique

Handler = Callable[[Scanner, str], Statement]

_INSERT_WORDS = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
_AFTER_TABLE = frozenset(
    "SET WHERE ON USING JOIN INNER CROSS LEFT RIGHT FULL NATURAL STRAIGHT_JOIN PARTITION USE IGNORE FORCE ORDER LIMIT "
    "FOR RETURNING".split()
)


def opaque_dml(schema: str) -> Statement:
    """Return a statement that changes rows in a way that the text does not show, such as by a stored function."""
    return Statement("dml", "QUERY", default_schema=schema, doubtful=True)


def _dml(event_type: str, tables: list[Table], schema: str) -> Statement:
    if not tables:
        return Statement("dml", event_type, (), schema, doubtful=True)
    return Statement("dml", event_type, unique(tables), schema)


def insert(scan: Scanner, schema: str) -> Statement:
    while scan.accept(*_INSERT_WORDS):
        pass
    table = scan.table(schema)
    return _dml("INSERT", [table] if table else [], schema)


def load(scan: Scanner, schema: str) -> Statement:
    if scan.peek()[2] not in ("DATA", "XML"):
        return other_statement(schema)
    while not scan.at_end():
        if scan.take()[2] == "INTO" and scan.accept("TABLE"):
            table = scan.table(schema)
            return _dml("INSERT", [table] if table else [], schema)
    return _dml("INSERT", [], schema)


def update(scan: Scanner, schema: str) -> Statement:
    """Return all listed tables: finding those that SET changes would require their columns."""
    while scan.accept("LOW_PRIORITY", "IGNORE"):
        pass
    return _dml("UPDATE", [table for _, table in _references(scan, schema, ("SET",))], schema)


def delete(scan: Scanner, schema: str) -> Statement:
    while scan.accept("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY"):
        pass
    targets_last = scan.accept("FROM")
    targets = _delete_targets(scan, schema)
    if targets_last and not scan.accept("USING"):
        return _dml("DELETE", [table for _, table in targets], schema)
    if not targets_last and not scan.accept("FROM"):
        return _dml("DELETE", [], schema)
    references = _references(scan, schema, ("WHERE", "ORDER", "LIMIT", "RETURNING"))
    aliases = {alias.lower(): table for alias, table in references}
    return _dml("DELETE", [t if owned else aliases.get(t[1].lower(), t) for owned, t in targets], schema)


def _delete_targets(scan: Scanner, schema: str) -> list[tuple[bool, Table]]:
    """Return (has a schema, table) for the names before USING or FROM, or for a single table."""
    targets = []
    while True:
        owned = scan.peek(1)[2] == "." and scan.peek(2)[2] != "*"
        table = scan.table(schema)
        if table is None:
            break
        targets.append((owned, table))
        if scan.accept("."):
            scan.accept("*")
        if not scan.accept(","):
            break
    return targets


def _references(scan: Scanner, schema: str, stop: tuple[str, ...]) -> list[tuple[str, Table]]:
    """Return (alias, table) for table references up to one of the ``stop`` words. Skips derived tables."""
    found = []
    expect = True
    while not scan.at_end() and scan.peek()[2] not in stop:
        key = scan.peek()[2]
        if key == "(":
            if expect and scan.peek(1)[2] not in ("SELECT", "WITH", "VALUES", "TABLE"):
                scan.take()
            else:
                scan.skip_group()
                expect = False
        elif key in (",", "JOIN", "STRAIGHT_JOIN"):
            scan.take()
            expect = True
        elif key == "{":  # ODBC: { OJ a LEFT JOIN b … }
            scan.take()
            scan.take()
        elif key == "LATERAL" or not expect or not scan.at_name():
            scan.take()
        elif scan.peek(1)[2] == "(":  # a table function
            scan.take()
            expect = False
        else:
            expect = False
            table = scan.table(schema)
            if table is not None:
                found.append((_alias(scan) or table[1], table))
    return found


def _alias(scan: Scanner) -> str:
    if scan.peek()[2] == "PARTITION":
        scan.take()
        scan.skip_group()
    named = scan.accept("AS")
    if scan.at_name() and (named or scan.peek()[2] not in _AFTER_TABLE):
        return scan.take()[1]
    return ""


def with_(scan: Scanner, schema: str) -> Statement:
    """Skip common table expressions before an UPDATE or DELETE."""
    while not scan.at_end():
        key = scan.peek()[2]
        if key == "(":
            scan.skip_group()
        elif key == "SELECT":
            break
        else:
            scan.take()
            handler = _AFTER_WITH.get(key)
            if handler is not None:
                return handler(scan, schema)
    return opaque_dml(schema)


_AFTER_WITH: dict[str, Handler] = {"INSERT": insert, "REPLACE": insert, "UPDATE": update, "DELETE": delete}
