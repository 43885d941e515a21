"""What a target calls the tables and columns of the source, so that no two of them share a name.

Never opens a target. The registry of names is stored by the target beside its progress, so it is checked across restarts too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs

from canal._util.bounded import Recent
from canal.changes.change import Table
from canal.errors import ConfigError, TargetError

#: A table's name as the target knows it: schema and table, or the table alone.
Path: TypeAlias = tuple[str, ...]

_FORMAT: Final = 1
_RENAME: Final = 'Give one of them another name by canal.Rule(to="…").'
#: The letters of ASCII that some databases do not tell apart.
_ASCII: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def same(name: str) -> str:
    """The fold of a target that tells all names apart."""
    return name


def ascii_lower(name: str) -> str:
    """The fold of a target that does not tell A from a, but Ä from ä."""
    return name.translate(_ASCII)


@attrs.frozen(kw_only=True)
class Naming:
    """Which names a target takes, and which of them it does not tell apart.

    Args:
        fold: two tables, or schemas, are one to the target if this returns the same of their names.
        fold_columns: the same of columns.
        longest: bytes of a name in UTF-8 at most; None: what the source takes.
        schema: where a table is whose name has no schema; None: the target knows the table alone, whatever its schema.
        is_flat: it knows one text for each table, ``schema.table``.
        reserved: tables of the target that are this library's own.
        takes_column: returns whether the target has a column of that name.
    """

    fold: Callable[[str], str] = same
    fold_columns: Callable[[str], str] = same
    longest: int | None = None
    schema: str | None = ""
    is_flat: bool = False
    reserved: Iterable[Path] = ()
    takes_column: Callable[[str], bool] = bool

    def path(self, table: Table) -> Path:
        """The table's name as the target knows it."""
        if self.is_flat:
            return (table.name,)
        name = table.path[-1]
        if self.schema is None:
            return (name,)
        schema = table.path[-2] if len(table.path) > 1 else self.schema
        return (schema, name) if schema else (name,)

    def folded(self, path: Path) -> Path:
        """The same for all names that the target does not tell apart."""
        return tuple([self.fold(part) for part in path])

    def check(self, table: Table) -> None:
        """Check that the target takes the names of a table and of its columns.

        Raises:
            ConfigError: a name is too long, is one of this library's own, or two columns would be one.
        """
        path = self.path(table)
        shown = ".".join(path)
        if self.folded(path) in {self.folded(one) for one in self.reserved}:
            raise ConfigError(
                f"the changes of {table.source} would go into {shown}, in which this library keeps the progress of pipes",
                remedy='Leave the table out by exclude of the InstanceConfig, or name it anew by canal.Rule(to="…").',
            )
        self._check_length(path, f"the table {table.source}", 'canal.Rule(to="…")')
        seen: dict[str, str] = {}
        for name in table.names.names:
            self._check_length((name,), f"the column {name} of {table.source}", "canal.Rule(rename={…})")
            if not self.takes_column(name):
                raise ConfigError(
                    f"{shown} cannot have the column {name!r} of {table.source}: the target keeps such names for itself",
                    remedy="Give the column another name by canal.Rule(rename={…}).",
                )
            other = seen.setdefault(self.fold_columns(name), name)
            if other != name:
                raise ConfigError(
                    f"the columns {other} and {name} of {table.source} would be one column of {shown}",
                    remedy="Give one of them another name by canal.Rule(rename={…}).",
                )

    def _check_length(self, path: Path, what: str, remedy: str) -> None:
        for name in path:
            if self.longest is not None and len(name.encode("utf-8", "surrogatepass")) > self.longest:
                raise ConfigError(
                    f"{what} needs a name of {len(name.encode('utf-8', 'surrogatepass'))} bytes, and the target takes"
                    f" {self.longest}: it would cut the name, and take two names with one beginning for one",
                    remedy=f"Give a shorter name by {remedy}.",
                )


@attrs.frozen
class Written:
    """A table of the target as it was when it was written last."""

    mark: str
    """What tells the table from another one with its name; "" if nothing does."""

    columns: frozenset[str]
    """Folded names."""


class Names:
    """Which table of the source each table of the target belongs to, and how it was when it was written last.

    Args:
        naming: what the target tells apart.
        text: what ``to_text`` returned when it was stored last; None: nothing is stored.
        forget: how the stored names can be forgotten, for the remedy of a collision.
    """

    def __init__(self, naming: Naming, text: str | None = None, forget: str = "") -> None:
        self.naming = naming
        self.forget = forget
        self._written: dict[Path, Written] = {}
        self._owners: dict[Path, tuple[str, ...]] = {}
        self._claimed: Recent[Table, Path] = Recent()
        self.is_changed = False
        """Whether there are names that are not stored yet. The target sets it to False when they are."""
        if text is not None:
            self._read(text)

    def claim(self, table: Table) -> Path:
        """Return the table's name in the target, which from now on belongs to this table of the source.

        Raises:
            ConfigError: it belongs to another one, or the target does not take the name.
        """
        known = self._claimed.get(table)
        if known is not None:
            return known
        self.naming.check(table)
        path = self.naming.path(table)
        owner = table.origin if table.merge is None else ("", "", table.merge[0])
        folded = self.naming.folded(path)
        found = self._owners.get(folded)
        if found is None and table.columns:
            self._owners[folded] = owner
            self.is_changed = True
        elif found is not None and found != owner:
            # A statement may spell a name otherwise than the rows (lower_case_table_names).
            is_spelling = not table.columns and [part.lower() for part in found] == [part.lower() for part in owner]
            if not is_spelling:
                raise self._collision(table, path, found)
        self._claimed[table] = path
        return path

    def written(self, path: Path) -> Written | None:
        """Return how a table was when it was written last; None if it never was."""
        return self._written.get(self.naming.folded(path))

    def keep(self, path: Path, mark: str, columns: Iterable[str]) -> None:
        """Store how a table is that is about to be written."""
        found = Written(mark, frozenset(map(self.naming.fold_columns, columns)))
        if self.written(path) != found:
            self._written[self.naming.folded(path)] = found
            self.is_changed = True

    def _collision(self, table: Table, path: Path, found: tuple[str, ...]) -> ConfigError:
        shown = ".".join(path)
        if len(found) > 2 or table.merge is not None:
            column = found[2] if len(found) > 2 else table.merge[0] if table.merge is not None else ""
            return ConfigError(
                f"{table.source} would be the table {shown} of the target, which brings tables together by the column {column},"
                " and not all of them",
                remedy="Give all tables that are to be one the same canal.Rule(merge=…), and fill the target's table anew.",
            )
        gone = f" If {'.'.join(found)} is no longer to be written: {self.forget}" if self.forget else ""
        return ConfigError(
            f"both {'.'.join(found)} and {table.source} would be the table {shown} of the target",
            remedy=f"{_RENAME} Or bring them together by canal.Rule(merge=…).{gone}",
        )

    def to_text(self) -> str:
        """Return all of it, to be stored with the progress."""
        written = [[path, one.mark, sorted(one.columns)] for path, one in self._written.items()]
        tables = [[path, owner] for path, owner in self._owners.items()]
        return json.dumps({"v": _FORMAT, "tables": tables, "written": written})

    def _read(self, text: str) -> None:
        try:
            fields = json.loads(text)
            if fields["v"] == _FORMAT:
                self._owners = {tuple(path): tuple(owner) for path, owner in fields["tables"]}
                written = fields.get("written", ())
                self._written = {tuple(path): Written(mark, frozenset(columns)) for path, mark, columns in written}
                return
        except (ValueError, TypeError, KeyError):
            pass
        raise TargetError(
            "the names of tables that are stored in the target cannot be read",
            remedy="They were written by a later version of this library, or by something else; use another stream name.",
        )
