"""Finds foreign keys whose cascades are not logged, and raises an alarm once for each.

Never looks at rows. InnoDB executes ON DELETE and ON UPDATE … CASCADE and SET NULL below the binary log. The child rows that it
changes are not logged by MariaDB, nor by MySQL before 9.6 or with ``innodb_native_foreign_keys=ON``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

import attrs

from canal._util.bounded import Recent, Told
from canal.parse.schema.classify import created_or_altered
from canal.parse.schema.scanner import END, MAX_TOKENS, Scanner
from canal.statement import Statement, Table


def _cascading(rule: str) -> str:
    """Return the rule, or "" for a rule that refuses the parent's change: NO ACTION, RESTRICT and none are equivalent."""
    return rule if rule in ("CASCADE", "SET NULL") else ""


@attrs.frozen(order=True)
class ForeignKey:
    """A foreign key of ``child``, with the effect on child rows when ``parent`` changes."""

    child: Table
    parent: Table
    on_delete: str = attrs.field(default="", converter=_cascading)
    on_update: str = attrs.field(default="", converter=_cascading)

    @property
    def cascades(self) -> bool:
        return bool(self.on_delete or self.on_update)

    def __str__(self) -> str:
        rules = (("DELETE", self.on_delete), ("UPDATE", self.on_update))
        return " and ".join(f"ON {event} {rule}" for event, rule in rules if rule) + f" from {'.'.join(self.parent)}"


def keys_in(sql: str, schema: str = "", *, sql_mode: int = 0, flavor: str = "", most: int = MAX_TOKENS) -> list[ForeignKey]:
    """Return the cascading foreign keys added by CREATE TABLE and ALTER TABLE statements in the first ``most`` tokens."""
    if "references" not in sql.lower():
        return []
    found: list[ForeignKey] = []
    scan = Scanner(sql, sql_mode, flavor, most=most)
    while scan.peek()[0] != END:
        if scan.accept("USE"):
            schema = scan.take()[1]
        elif (child := created_or_altered(scan, schema)) is not None:
            found += _keys_of(scan, child, flavor)
        while scan.peek()[0] != END and not scan.accept(";"):
            scan.take()
    return [key for key in found if key.cascades]


def _keys_of(scan: Scanner, child: Table, flavor: str) -> list[ForeignKey]:
    """Return the foreign keys in the rest of a statement."""
    found = []
    named = flavor != "mysql"  # MySQL ignores REFERENCES in a column definition
    is_key = named
    while not scan.at_end():
        key = scan.take()[2]
        if key == "FOREIGN":
            is_key = True
        elif key == "REFERENCES":
            parent = scan.table(child[0])
            if parent is not None and is_key:
                found.append(ForeignKey(child, parent, *_rules(scan)))
            is_key = named
    return found


def _rules(scan: Scanner) -> tuple[str, str]:
    """Parse ON DELETE and ON UPDATE after the parent table's name."""
    rules = {"DELETE": "", "UPDATE": ""}
    if scan.peek()[2] == "(":
        scan.skip_group()
    while True:
        if scan.accept("MATCH"):
            scan.take()
        elif scan.peek()[2] == "ON" and scan.peek(1)[2] in rules:
            scan.take()
            event = scan.take()[2]
            action = scan.take()[2]
            rules[event] = f"{action} {scan.take()[2]}" if action in ("SET", "NO") else action
        else:
            return rules["DELETE"], rules["UPDATE"]


def _lower(table: Table) -> Table:
    return table[0].lower(), table[1].lower()


class CascadeWatch:
    """Tracks the cascading keys of all tables, and raises an alarm for those of delivered tables.

    Args:
        delivers: whether rows of a (schema, table) are delivered.
        alarm: called once per key, with all new keys of a table together.
    """

    def __init__(self, delivers: Callable[[str, str], bool], alarm: Callable[[str], None]) -> None:
        self._delivers = delivers
        self._alarm = alarm
        self._keys = Recent[Table, set[ForeignKey]]()  # bounded: a table may vanish unnoticed with the database
        self._told = Told[ForeignKey]()

    def add(self, keys: Iterable[ForeignKey]) -> None:
        """Add keys that the schema has."""
        keys = sorted(key for key in keys if key.cascades)
        for key in keys:
            self._keys[key.child] = self._keys.get(key.child, set()) | {key}
        self._tell(keys)

    def follow(self, sql: str, statement: Statement, *, sql_mode: int = 0, flavor: str = "") -> None:
        """Process a statement of the log: add new keys, and follow dropped and renamed tables."""
        if statement.temporary:
            return
        if "ERASE" in statement.event_types:
            for table in statement.tables:
                self._taken(table)
        self.add(keys_in(sql, statement.default_schema, sql_mode=sql_mode, flavor=flavor))
        moved = [(new, self._taken(old)) for old, new in statement.renames]
        for new, keys in moved:
            self.add(attrs.evolve(key, child=new) for key in keys)

    def _taken(self, table: Table) -> set[ForeignKey]:
        """Remove and return a table's keys. Statements may spell the name in another case (lower_case_table_names)."""
        if table not in self._keys:
            table = next((one for one in self._keys if _lower(one) == _lower(table)), table)
        return self._keys.pop(table, set())

    def _tell(self, keys: list[ForeignKey]) -> None:
        for child, group in groupby(keys, key=lambda key: key.child):
            fresh = [key for key in group if self._delivers(*child) and self._told.is_first(key)]
            if fresh:
                self._alarm(
                    f"changes of {'.'.join(child)} by foreign key are not in the source's log and will be missing: "
                    f"{'; '.join(map(str, fresh))}. Derive them from the changes of the parent, delete and update the child's "
                    "rows with separate statements, or use MySQL 9.6 or later with innodb_native_foreign_keys=OFF"
                )
