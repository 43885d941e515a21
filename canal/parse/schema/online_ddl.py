"""Recognises the shadow tables of gh-ost and pt-online-schema-change.

Never takes a table for a shadow if the name does not match the tools' patterns, or if the log shows that a user created it.
Without evidence in the log, the name decides if the base table exists. An alarm reports the first row skipped by name alone.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator

import attrs

from canal._util.bounded import Recent, Told
from canal.statement import Statement, Table

#: Maximum length of names: gh-ost shortens the table's name, pt-osc truncates the result.
_LONGEST = 64
#: gh-ost's suffixes: ghost, changelog, checkpoint and old table, the last also with a time or after --revert.
_GHOST_ENDS = tuple(re.compile(end + r"\Z") for end in ("_gh[ock]", "_del", "_rev_del", r"_\d{14}_del", r"_\d{14}_rev_del"))
#: pt-osc's prefixes: underscores until the name is unused; for the old table also six letters and digits.
_PERCONA_START = re.compile(r"(?:[A-Za-z0-9]{6}_)*(?P<underscores>_{1,10})")
_PERCONA_ENDS = ("_new", "_old")
#: Comment in every statement of gh-ost.
_GHOST_MARK = re.compile(r"/\*\s*gh-ost\b")
#: Name of pt-osc's triggers, searched in the head of the statement, and a table that a trigger writes to.
_HEAD = 1000
_PERCONA_TRIGGER, _WRITTEN = re.compile(r"\bTRIGGER\b[^(]*?\bpt_osc_", re.IGNORECASE), re.compile(r"`([^`]+)`\.`([^`]+)`")


def stems(name: str) -> Iterator[tuple[str, bool]]:
    """Yield possible names of a shadow table's base, each with whether the name may be truncated."""
    cut = _may_be_cut(name)
    if name.startswith("_"):
        for pattern in _GHOST_ENDS:
            found = pattern.search(name)
            if found and found.start() > 1:
                yield name[1 : found.start()], cut
    start = _PERCONA_START.match(name)
    if start is None:
        return
    first, last = start.span("underscores")
    for begin in range(first + 1, last + 1):
        rest = name[begin:]
        for end in _PERCONA_ENDS:
            if rest.endswith(end) and len(rest) > len(end):
                yield rest[: -len(end)], False
            elif cut:
                yield from ((rest[:-kept], False) for kept in (3, 2, 1) if rest.endswith(end[:kept]))
        if cut:
            yield rest, True


def _may_be_cut(name: str) -> bool:
    return len(name) >= _LONGEST or len(name.encode("utf-8", "surrogateescape")) >= _LONGEST


class _Maker(enum.Enum):
    """The creator of a table, as far as the log shows it."""

    TOOL = enum.auto()
    #: The CREATE may be from pt-osc. If so, triggers that fill the table follow before any row.
    UNDECIDED = enum.auto()
    USER = enum.auto()


def _folded(name: Table) -> Table:
    """Return the name in lower case: statements may use another case than row events."""
    return name[0].lower(), name[1].lower()


class ShadowTables:
    """Decides which tables are shadow tables. Queries existing tables only if a name matches.

    Args:
        passes: whether the filter accepts a table. A shadow of a table that is filtered out is left to the filter.
        tables_like: ``(schema, name, is_prefix)``: returns the schema's tables with this name or prefix; None if unknown, then
            the name decides.
        alarm: called for each table whose rows are skipped by name alone, at the first row.
    """

    def __init__(
        self,
        passes: Callable[[str, str], bool],
        tables_like: Callable[[str, str, bool], list[str] | None],
        alarm: Callable[[str], None],
    ) -> None:
        self._passes = passes
        self._tables_like = tables_like
        self._alarm = alarm
        self._bases = Recent[Table, str]()
        self._makers = Recent[Table, _Maker]()
        self._gone: set[Table] = set()  # tables removed by the last statement, which may still be queried
        self._told = Told[Table]()

    # -- what the log shows --------------------------------------------------------------------------------------------

    def follow(self, statement: Statement, sql: str) -> None:
        """Process a statement of the log that may create, rename or fill a table."""
        if statement.temporary:
            return
        self._bases.clear()
        for name in self._gone:
            self._note(name, None)
        renamed = {old for old, _ in statement.renames}.difference(new for _, new in statement.renames)
        self._gone = {*statement.tables} if "ERASE" in statement.event_types else renamed
        if _PERCONA_TRIGGER.search(sql[:_HEAD]):
            for name in _WRITTEN.findall(sql):
                self._note(name, _Maker.TOOL)
        elif statement.event_type == "CREATE" and statement.tables:
            self._note(statement.tables[0], self._creator(statement.tables[0], sql))
        moved = {old: self._renamed(old, new, statement, sql) for old, new in statement.renames}
        for old, new in statement.renames:
            self._note(new, moved[old])

    def _note(self, name: Table, maker: _Maker | None) -> None:
        if maker is None:
            self._makers.pop(_folded(name), None)
        elif any(stems(name[1])):
            self._makers[_folded(name)] = maker

    @staticmethod
    def _creator(name: Table, sql: str) -> _Maker:
        if _GHOST_MARK.search(sql):
            return _Maker.TOOL
        # pt-osc never creates the old table, and a name of 64 characters may be truncated before the suffix.
        return _Maker.UNDECIDED if name[1].endswith("_new") or _may_be_cut(name[1]) else _Maker.USER

    def _renamed(self, old: Table, new: Table, statement: Statement, sql: str) -> _Maker | None:
        """Return the creator of a renamed table; None if the log does not show it."""
        if _GHOST_MARK.search(sql):
            return _Maker.TOOL
        if any(to == old and self.base_of(*come) for come, to in statement.renames):  # a shadow table replaces it
            return _Maker.TOOL
        return self._makers.get(_folded(old)) if any(stems(old[1])) else _Maker.USER

    # -- the decision --------------------------------------------------------------------------------------------------

    def base_of(self, schema: str, table: str) -> str:
        """Return the base table of a shadow table, as far as known before rows come; "" if it is none."""
        name = (schema, table)
        base = self._bases.get(name)
        if base is None:
            maker = self._makers.get(_folded(name))
            base = "" if maker is _Maker.USER else next(self._candidates(schema, table), "")
            if maker is _Maker.TOOL and not base:  # the base table no longer exists
                base = next((stem for stem, _ in stems(table) if self._passes(schema, stem)), "")
            self._bases[name] = base
        return base

    def leaves_out_rows(self, schema: str, table: str) -> bool:
        """Return whether the table's rows must be skipped, when a row comes."""
        name = (schema, table)
        base = self.base_of(schema, table)
        if not base:
            return False
        maker = self._makers.get(_folded(name))
        if maker is _Maker.UNDECIDED:  # no trigger of pt-osc fills it
            self._makers[_folded(name)], self._bases[name] = _Maker.USER, ""
            self._tell(name, f"they are delivered, because no tool fills it to alter {schema}.{base}; its CREATE was skipped")
            return False
        if maker is None:
            self._tell(
                name,
                f"the name matches a table that gh-ost or pt-online-schema-change fills to alter {schema}.{base}, and its "
                "CREATE was not seen: its changes are not delivered. If it is a normal table, set shadow_tables=True",
            )
        return True

    def _tell(self, name: Table, what: str) -> None:
        if self._told.is_first(name):
            self._alarm(f"received rows of {'.'.join(name)}: {what}")

    def _candidates(self, schema: str, table: str) -> Iterator[str]:
        for stem, is_open in stems(table):
            there = self._tables_like(schema, stem, is_open)
            if is_open:
                bases = [base for base in there or () if len(base) > len(stem)]
            else:
                bases = [stem] if there is None or stem in there else []
            yield from (base for base in bases if base != table and self._passes(schema, base))

    def without_swap(self, statement: Statement) -> Statement:
        """Convert a RENAME that swaps in a shadow table into an ALTER of the base table."""
        shadows = {name: (name[0], base) for name in statement.tables if (base := self.base_of(*name))}
        gone = {old for old, new in statement.renames if shadows.get(new) == old}
        come = {new for old, new in statement.renames if shadows.get(old) == new}
        altered = gone & come
        if not altered:
            return statement
        others = tuple(pair for pair in statement.renames if not altered & set(pair))
        tables = tuple(name for name in statement.tables if name in altered or any(name in pair for pair in others))
        types = ("RENAME", "ALTER") if others else ("ALTER",)
        return attrs.evolve(statement, tables=tables, renames=others, event_type=types[0], event_types=types)
