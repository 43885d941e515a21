"""Drops kinds of changes, by canal's switches. Independent of table names and values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from canal.errors import ConfigError
from canal.model import Entry, EntryType, EventType

Kind = Literal["insert", "update", "delete", "ddl", "dml", "dcl", "tableless"]

#: A description of each kind, for docs and errors.
KINDS: Final[dict[str, str]] = {
    "insert": "rows that were inserted",
    "update": "rows that were updated",
    "delete": "rows that were deleted",
    "ddl": "statements that change a schema",
    "dml": "statements that change rows, which a log has beside rows or in their stead",
    "dcl": "all other statements, such as GRANT, CREATE USER, CREATE VIEW and ANALYZE",
    "tableless": "statements that name no table, but for CREATE DATABASE, DROP DATABASE and what cannot be understood: "
    "what canal never delivers",
}
_ROWS: Final = {EventType.INSERT: "insert", EventType.UPDATE: "update", EventType.DELETE: "delete"}
_STATEMENTS: Final = {"ddl": "ddl", "dml": "dml", "other": "dcl"}
_ALTER: Final = re.compile(r"(\s|/\*.*?\*/)*ALTER\b", re.IGNORECASE | re.DOTALL)


class LeaveOut:
    """Drops entries of some kinds; BEGIN and END stay. Raises ConfigError for an unknown kind."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self._kinds = frozenset((kinds,) if isinstance(kinds, str) else kinds)
        unknown = sorted(str(kind) for kind in self._kinds if kind not in KINDS)
        if unknown:
            raise ConfigError(f"leave_out names {', '.join(map(repr, unknown))}", remedy=f"There are {', '.join(KINDS)}.")

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def kept(self, entries: list[Entry]) -> list[Entry]:
        """Return the entries to deliver, in order."""
        return [entry for entry in entries if not self._drops(entry)]

    def _drops(self, entry: Entry) -> bool:
        if entry.entry_type is not EntryType.ROWDATA:
            return False
        statement = entry.statement
        if statement is None:
            return _ROWS.get(entry.event_type) in self._kinds
        if _STATEMENTS.get(statement.kind) in self._kinds:
            return True
        return (
            "tableless" in self._kinds
            and not statement.tables
            and not statement.doubtful
            and (not statement.schema_wide or _ALTER.match(entry.sql or "") is not None)
        )
