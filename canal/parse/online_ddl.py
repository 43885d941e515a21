"""The tables that gh-ost and pt-online-schema-change fill beside the one that they alter: told by their names.

Never takes a table for theirs whose base table is not there: ``_orders_old`` is one only where ``orders`` is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

import attrs

from canal.parse.ddl import Statement, Table

log = logging.getLogger("canal.parse")

#: Names have 64 characters at most: gh-ost shortens the table's name in its own ones, pt-osc cuts off what is too much.
_LONGEST = 64
#: What gh-ost puts behind: ghost, changelog, checkpoint and old table, the last also with a time or after --revert.
_GHOST_ENDS = tuple(re.compile(end + r"\Z") for end in ("_gh[ock]", "_del", "_rev_del", r"_\d{14}_del", r"_\d{14}_rev_del"))
#: What pt-osc puts before: underscores until the name is free, for the old table then also six letters and digits.
_PERCONA_START = re.compile(r"(?:[A-Za-z0-9]{6}_)*(?P<underscores>_{1,10})")
_PERCONA_ENDS = ("_new", "_old")


def stems(name: str) -> Iterator[tuple[str, bool]]:
    """What the base table of a shadow table may be called, and whether it may go on after that."""
    cut = len(name) >= _LONGEST or len(name.encode("utf-8", "surrogateescape")) >= _LONGEST
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


class ShadowTables:
    """Decides which tables are shadows, and asks for what exists only where a name looks like one.

    Args:
        passes: whether the filter lets a table through: a shadow of one that it does not is left to the filter.
        tables_like: ``(schema, name, is_prefix)``: the tables of a schema that are called so, or begin so; None when nobody
            can tell: then the name decides.
    """

    def __init__(
        self, passes: Callable[[str, str], bool], tables_like: Callable[[str, str, bool], list[str] | None]
    ) -> None:
        self._passes = passes
        self._tables_like = tables_like
        self._bases: dict[Table, str] = {}
        self._told: set[Table] = set()
        self.destination = ""

    def forget(self) -> None:
        """Tables were made or dropped: decide anew."""
        self._bases.clear()

    def base_of(self, schema: str, table: str) -> str:
        """The table that ``table`` is a shadow of; "" for none."""
        name = (schema, table)
        base = self._bases.get(name)
        if base is None:
            base = self._bases[name] = next(self._candidates(schema, table), "")
            if base and name not in self._told:
                self._told.add(name)
                log.warning(
                    "[%s] %s.%s is named like a table that gh-ost or pt-online-schema-change makes to alter %s.%s: its "
                    "changes are not delivered. If it is a table of your own, set shadow_tables=True in the InstanceConfig",
                    self.destination, schema, table, schema, base,
                )  # fmt: skip
        return base

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
