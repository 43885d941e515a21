"""The tables that gh-ost and pt-online-schema-change fill beside the one that they alter.

Never takes a table for theirs whose name is none that they give, or that the log shows to be somebody else's. Where the log
shows nothing the name decides, if the table is there that it is made of; an alarm tells of the first row that is left out so.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator

import attrs

from canal._util.bounded import Recent, Told
from canal.statement import Statement, Table

#: Names have 64 characters at most: gh-ost shortens the table's name in its own ones, pt-osc cuts off what is too much.
_LONGEST = 64
#: What gh-ost puts behind: ghost, changelog, checkpoint and old table, the last also with a time or after --revert.
_GHOST_ENDS = tuple(re.compile(end + r"\Z") for end in ("_gh[ock]", "_del", "_rev_del", r"_\d{14}_del", r"_\d{14}_rev_del"))
#: What pt-osc puts before: underscores until the name is free, for the old table then also six letters and digits.
_PERCONA_START = re.compile(r"(?:[A-Za-z0-9]{6}_)*(?P<underscores>_{1,10})")
_PERCONA_ENDS = ("_new", "_old")
#: What stands in each statement of gh-ost.
_GHOST_MARK = re.compile(r"/\*\s*gh-ost\b")
#: What each trigger of pt-osc is called, at the head of its statement, and a table that one writes to.
_HEAD = 1000
_PERCONA_TRIGGER, _WRITTEN = re.compile(r"\bTRIGGER\b[^(]*?\bpt_osc_", re.IGNORECASE), re.compile(r"`([^`]+)`\.`([^`]+)`")


def stems(name: str) -> Iterator[tuple[str, bool]]:
    """What the base table of a shadow table may be called, and whether it may go on after that."""
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
    """Whose a table is, as far as the log shows it."""

    TOOL = enum.auto()
    #: Its CREATE may be pt-osc's: the triggers that fill it would follow, before any row.
    UNDECIDED = enum.auto()
    USER = enum.auto()


def _folded(name: Table) -> Table:
    """Statements may write names in another case than the log does of rows."""
    return name[0].lower(), name[1].lower()


class ShadowTables:
    """Decides which tables are shadows, and asks for what exists only where a name looks like one.

    Args:
        passes: whether the filter lets a table through: a shadow of one that it does not is left to the filter.
        tables_like: ``(schema, name, is_prefix)``: the tables of a schema that are called so, or begin so; None when nobody
            can tell: then the name decides.
        alarm: told of each table of which rows are left out by its name alone, with the first of them.
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
        self._gone: set[Table] = set()  # with the last statement, of which it is still asked
        self._told = Told[Table]()

    # -- what the log shows --------------------------------------------------------------------------------------------

    def follow(self, statement: Statement, sql: str) -> None:
        """A statement of the log comes by, which may make, rename or fill a table."""
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
        # An old table of pt-osc is never created, and one of 64 characters may be cut before its end.
        return _Maker.UNDECIDED if name[1].endswith("_new") or _may_be_cut(name[1]) else _Maker.USER

    def _renamed(self, old: Table, new: Table, statement: Statement, sql: str) -> _Maker | None:
        """Whose a table is under its new name; None where the log does not show it."""
        if _GHOST_MARK.search(sql):
            return _Maker.TOOL
        if any(to == old and self.base_of(*come) for come, to in statement.renames):  # a shadow takes its place
            return _Maker.TOOL
        return self._makers.get(_folded(old)) if any(stems(old[1])) else _Maker.USER

    # -- the decision --------------------------------------------------------------------------------------------------

    def base_of(self, schema: str, table: str) -> str:
        """The table that ``table`` is a shadow of, as far as is known before it has rows; "" for none."""
        name = (schema, table)
        base = self._bases.get(name)
        if base is None:
            maker = self._makers.get(_folded(name))
            base = "" if maker is _Maker.USER else next(self._candidates(schema, table), "")
            if maker is _Maker.TOOL and not base:  # what it was made of is not there any more
                base = next((stem for stem, _ in stems(table) if self._passes(schema, stem)), "")
            self._bases[name] = base
        return base

    def leaves_out_rows(self, schema: str, table: str) -> bool:
        """Whether rows of the table are left out, now that one comes."""
        name = (schema, table)
        base = self.base_of(schema, table)
        if not base:
            return False
        maker = self._makers.get(_folded(name))
        if maker is _Maker.UNDECIDED:  # no trigger of pt-osc writes it
            self._makers[_folded(name)], self._bases[name] = _Maker.USER, ""
            self._tell(name, f"its rows are delivered, as no tool fills it to alter {schema}.{base}; its CREATE was left out")
            return False
        if maker is None:
            self._tell(
                name,
                f"it is named like one that gh-ost or pt-online-schema-change fills to alter {schema}.{base}, and its "
                "CREATE was not seen: its changes are not delivered. If it is a table of your own, set shadow_tables=True",
            )
        return True

    def _tell(self, name: Table, what: str) -> None:
        if self._told.is_first(name):
            self._alarm(f"rows come of {'.'.join(name)}: {what}")

    def _candidates(self, schema: str, table: str) -> Iterator[str]:
        for stem, is_open in stems(table):
            there = self._tables_like(schema, stem, is_open)
            if is_open:
                bases = [base for base in there or () if len(base) > len(stem)]
            else:
                bases = [stem] if there is None or stem in there else []
            yield from (base for base in bases if base != table and self._passes(schema, base))

    def without_swap(self, statement: Statement) -> Statement:
        """A RENAME that puts a shadow in its base table's place as what it is: an ALTER of the base table."""
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
