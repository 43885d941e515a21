"""What a load has committed, and the check of a change stream against it.

Never uses the library's own decoder or model: it works on plain tuples, so that any reader can be judged.

A *change* is ``(schema, table, op, before, after)`` with op ``"INSERT"``, ``"UPDATE"``, ``"DELETE"`` or ``"DDL"``;
before and after are dicts by column name or None; a DDL has its text in ``after["sql"]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import attrs

__all__ = [
    "Change",
    "Ddl",
    "Journal",
    "JournalTransaction",
    "ORDER_TABLE",
    "SESSION_TABLE",
    "Tables",
    "changes_of",
    "check",
    "compare_tables",
    "replay",
    "same_value",
]

RowDict: TypeAlias = Mapping[str, Any]
Change: TypeAlias = tuple[str, str, str, RowDict | None, RowDict | None]
#: Rows by their ``id``, by table name.
Tables: TypeAlias = dict[str, dict[int, RowDict]]
Outcome: TypeAlias = Literal["committed", "rolled back", "unknown"]

#: The first change of each transaction is an update of its session's row here; it says which transaction it is.
SESSION_TABLE: Final = "load_session"
#: The last change of a stamped transaction is an update of the one row here. The row lock makes ``n`` the commit order.
ORDER_TABLE: Final = "load_order"
_MARKERS: Final = (SESSION_TABLE, ORDER_TABLE)
#: Columns that DDL adds during a load begin like this.
ADDED: Final = "x_"
_MOST: Final = 50


@attrs.define
class JournalTransaction:
    """One transaction of a writer: the changes of each of its statements, as read back before the commit."""

    session: int
    number: int
    statements: list[list[Change]] = attrs.field(factory=list)
    order: int | None = None
    outcome: Outcome = "rolled back"

    def __str__(self) -> str:
        return f"transaction {self.session}.{self.number}"


@attrs.define
class Ddl:
    """One DDL statement that the server accepted (or may have, when the connection was lost: ``unknown``)."""

    number: int
    kind: str
    table: str
    sql: str
    renamed: str = ""
    outcome: Outcome = "committed"


@attrs.define
class Journal:
    """All that the sessions of a load did in one schema."""

    schema: str
    transactions: list[JournalTransaction] = attrs.field(factory=list)
    ddl: list[Ddl] = attrs.field(factory=list)

    def committed(self) -> list[JournalTransaction]:
        return [one for one in self.transactions if one.outcome == "committed"]

    def row_changes(self) -> int:
        """How many changed rows a reader of everything gets, those of the marker tables left out."""
        return sum(len(statement) for one in self.committed() for statement in one.statements)

    def find_ddl(self, sql: str) -> Ddl | None:
        """Tell which statement of the DDL session ``sql`` is; None for another one, such as the set-up's."""
        number = re.search(r"load ddl (\d+)", sql)
        if number:
            return next((one for one in self.ddl if one.number == int(number[1])), None)
        # Servers write DROP TABLE anew, without its comment; the load never uses a dropped name again.
        dropped = re.match(r"\s*DROP TABLE (?:IF EXISTS )?(?:`?\w+`?\.)?`?(\w+)`?", sql, re.IGNORECASE)
        if dropped:
            drops = (one for one in self.ddl if one.kind == "DROP" and one.outcome != "rolled back")
            return next((one for one in drops if one.table == dropped[1]), None)
        return None


def changes_of(entries: Iterable[Any]) -> Iterator[Change]:
    """Turn entries of a canal message into changes."""
    for entry in entries:
        if entry.entry_type.name != "ROWDATA":
            continue
        header = entry.header
        if entry.row_change.is_ddl:
            yield header.schema, header.table, "DDL", None, {"sql": entry.row_change.sql}
            continue
        for row in entry.rows:
            before = row.before.as_dict() if row.before is not None else None
            after = row.after.as_dict() if row.after is not None else None
            yield header.schema, header.table, header.event_type.name, before, after


def _naive(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def same_value(column: str, expected: Any, got: Any) -> bool:
    """Compare a value as PyMySQL's SELECT gives it with a reader's; types must agree, save for what no reader shares.

    A reader may give BIT as int, TIMESTAMP as an aware datetime, and JSON with other white space and key order.
    """
    if isinstance(expected, bytes) and isinstance(got, int) and not isinstance(got, bool):
        return int.from_bytes(expected, "big") == got
    expected, got = _naive(expected), _naive(got)
    if type(expected) is not type(got):
        return False
    if column.endswith("json") and isinstance(expected, str):
        try:
            return bool(json.loads(expected) == json.loads(got))
        except ValueError:
            return False
    return bool(expected == got)


def _row_difference(expected: RowDict | None, got: RowDict | None) -> str:
    if expected is None or got is None:
        if expected is got:
            return ""
        return f"expected {'no row' if expected is None else 'a row'}, got {'none' if got is None else 'one'}"
    if list(expected) != list(got):
        return f"columns {list(got)} instead of {list(expected)}"
    wrong = [name for name in expected if not same_value(name, expected[name], got[name])]
    return ", ".join(f"{name} is {got[name]!r}, not {expected[name]!r}" for name in wrong)


def _key(change: Change) -> Any:
    row = change[4] if change[4] is not None else change[3]
    return row.get("id") if row is not None else None


def _name(change: Change) -> str:
    return f"{change[2]} {change[1]} id {_key(change)}"


class _Differences(list[str]):
    """Collects the first few differences and counts the others."""

    def __init__(self) -> None:
        super().__init__()
        self.more = 0

    def add(self, text: str) -> None:
        if len(self) < _MOST:
            self.append(text)
        else:
            self.more += 1

    def done(self) -> list[str]:
        return [*self, *([f"and {self.more} more"] if self.more else [])]


@attrs.define
class _Delivery:
    """The changes a reader gave between one session marker and the next."""

    session: int
    number: int
    order: int | None = None
    changes: list[Change] = attrs.field(factory=list)
    cut: bool = False  # the next marker repeats an earlier transaction, or this one: the reader was restarted here

    @property
    def key(self) -> tuple[int, int]:
        return self.session, self.number


def _deliveries(changes: Iterable[Change], found: _Differences) -> list[_Delivery]:
    deliveries: list[_Delivery] = []
    for change in changes:
        _, table, op, _, after = change
        if table == SESSION_TABLE:
            if op == "UPDATE" and after is not None:
                deliveries.append(_Delivery(after["id"], after["txn"]))
        elif table == ORDER_TABLE:
            if op == "UPDATE" and after is not None and deliveries:
                last = deliveries[-1]
                last.order = after["n"]
                if (after["session"], after["txn"]) != last.key:
                    found.add(f"the order row of {after['session']}.{after['txn']} came in transaction {last.key}")
        elif not deliveries:
            found.add(f"{_name(change)} came before any transaction of the load")
        elif deliveries[-1].order is not None:
            found.add(f"{_name(change)} came after the end of transaction {deliveries[-1].key}")
        else:
            deliveries[-1].changes.append(change)
    return deliveries


def _compare(expected: JournalTransaction, got: _Delivery) -> Iterator[str]:
    """Compare one transaction; rows of one statement may come in any order among themselves."""
    if got.order != expected.order:
        yield f"{expected}: order {got.order}, not {expected.order}"
    at = 0
    for number, statement in enumerate(expected.statements, 1):
        piece = got.changes[at : at + len(statement)]
        at += len(piece)
        wanted = {(one[1], one[2], _key(one)): one for one in statement}
        for change in piece:
            one = wanted.pop((change[1], change[2], _key(change)), None)
            if one is None:
                yield f"{expected}, statement {number}: unexpected {_name(change)}"
                continue
            for side, image in (("before", 3), ("after", 4)):
                difference = _row_difference(one[image], change[image])  # type: ignore[arg-type]
                if difference:
                    yield f"{expected}, statement {number}: {_name(change)}: {side}: {difference}"
        for one in wanted.values():
            yield f"{expected}, statement {number}: missing {_name(one)}"
    for change in got.changes[at:]:
        yield f"{expected}: {_name(change)} is one change too many"


def _is_complete(expected: JournalTransaction, got: _Delivery) -> bool:
    return len(got.changes) >= sum(map(len, expected.statements)) and got.order == expected.order


def check(journal: Journal, changes: Iterable[Change], *, repeats: bool = False) -> list[str]:
    """Compare a change stream with the journal; an empty list means they agree.

    Verifies that every committed transaction came, once and whole, that no rolled back one did, the order within each
    session and of all stamped transactions, every value before and after, and that every DDL came once and in order.

    Args:
        journal: what the load did. The reader must have started before the load did, and read to its end.
        changes: of all tables of the schema, in the order of delivery. Other schemas are left out here.
        repeats: allow what at-least-once delivery may do: going back and giving the same transactions again, also from
            the middle of one. Each must come whole at least once, and the first whole deliveries must be in order.
    """
    found = _Differences()
    rows: list[Change] = []
    ddl: list[str] = []
    for change in changes:
        if change[0] != journal.schema:
            continue
        if change[2] == "DDL":
            ddl.append(str((change[4] or {}).get("sql", "")))
        elif change[2] in ("INSERT", "UPDATE", "DELETE"):
            rows.append(change)
        else:
            found.add(f"unknown operation {change[2]}")
    _check_transactions(journal, _deliveries(rows, found), repeats, found)
    _check_ddl(journal, ddl, repeats, found)
    return found.done()


def _check_transactions(journal: Journal, deliveries: Sequence[_Delivery], repeats: bool, found: _Differences) -> None:
    known = {(one.session, one.number): one for one in journal.transactions}
    seen: set[tuple[int, int]] = set()
    last_number: dict[int, int] = {}
    last_order: int | None = None
    for got in deliveries:
        expected = known.get(got.key)
        if expected is None or expected.outcome == "rolled back":
            why = "unknown to the journal" if expected is None else "rolled back"
            found.add(f"transaction {got.session}.{got.number} was delivered, but is {why}")
            continue
        if got.key in seen:
            if not repeats:
                found.add(f"{expected} was delivered again")
            continue
        if repeats and not _is_complete(expected, got):
            continue  # cut off by a restart; when it never comes whole it is reported as missing
        seen.add(got.key)
        for difference in _compare(expected, got):
            found.add(difference)
        if got.number <= last_number.get(got.session, -1):
            found.add(f"{expected} came after {got.session}.{last_number[got.session]}")
        last_number[got.session] = got.number
        if got.order is not None:
            if last_order is not None and got.order != last_order + 1:
                found.add(f"{expected} is number {got.order} in commit order, but came after number {last_order}")
            last_order = got.order
    for one in journal.committed():
        if (one.session, one.number) not in seen:
            found.add(f"{one} was committed, but not delivered")


def _check_ddl(journal: Journal, texts: Iterable[str], repeats: bool, found: _Differences) -> None:
    seen: set[int] = set()
    last = -1
    for sql in texts:
        one = journal.find_ddl(sql)
        if one is None:
            if "load ddl" in sql:
                found.add(f"a DDL was delivered that the journal does not know: {sql}")
            continue
        if one.number in seen:
            if not repeats:
                found.add(f"DDL {one.number} was delivered again: {sql}")
            continue
        seen.add(one.number)
        if one.number < last:
            found.add(f"DDL {one.number} came after DDL {last}")
        last = one.number
    for one in journal.ddl:
        if one.outcome == "committed" and one.number not in seen:
            found.add(f"DDL {one.number} was not delivered: {one.sql}")


def replay(journal: Journal, changes: Iterable[Change]) -> tuple[Tables, list[str]]:
    """Apply a stream without repeats to empty tables; give the tables and what did not fit.

    This proves the order per row, since each change must find the row as the change before it has left it.
    """
    found = _Differences()
    tables: Tables = {}
    for change in changes:
        schema, table, op, before, after = change
        if schema != journal.schema or table in _MARKERS:
            continue
        if op == "DDL":
            _apply_ddl(tables, journal.find_ddl(str((after or {}).get("sql", ""))))
            continue
        rows = tables.setdefault(table, {})
        key = _key(change)
        present = rows.get(key)
        if (present is None) != (before is None):
            found.add(f"{_name(change)}: the row is {'not there' if present is None else 'there already'}")
        elif present is not None and before is not None:
            # Columns may have been added or dropped since.
            wrong = [name for name in before if name in present and not same_value(name, present[name], before[name])]
            if wrong:
                found.add(f"{_name(change)}: {', '.join(wrong)} was something else before")
        if after is None:
            rows.pop(key, None)
        else:
            rows[key] = after
    return tables, found.done()


def _apply_ddl(tables: Tables, ddl: Ddl | None) -> None:
    if ddl is None:
        return
    if ddl.kind in ("DROP", "TRUNCATE"):
        tables.pop(ddl.table, None)
    elif ddl.kind == "RENAME" and ddl.table in tables:
        tables[ddl.renamed] = tables.pop(ddl.table)


def compare_tables(final: Tables, replayed: Tables) -> list[str]:
    """Compare the tables at the end, by SELECT, with a replay; added columns are compared where the replay has them."""
    found = _Differences()
    for table in sorted(final.keys() | replayed.keys()):
        if table in _MARKERS:
            continue
        expected, got = final.get(table, {}), replayed.get(table, {})
        for key in sorted(expected.keys() ^ got.keys()):
            found.add(f"{table} id {key} is {'missing from' if key in expected else 'too many in'} the replay")
        for key in sorted(expected.keys() & got.keys()):
            for name, value in expected[key].items():
                if name not in got[key]:
                    if not name.startswith(ADDED):
                        found.add(f"{table} id {key}: no column {name} in the replay")
                elif not same_value(name, value, got[key][name]):
                    found.add(f"{table} id {key}: {name} is {got[key][name]!r}, not {value!r}")
    return found.done()
