"""Map source tables and columns to unique names in a target.

Never opens a target. The target stores the registry of names with its progress, so restarts check it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs

from canal._util.bounded import Recent
from canal.changes.change import Table
from canal.errors import ConfigError, TargetError

#: Name of a table in the target: schema and table, or the table alone.
Path: TypeAlias = tuple[str, ...]

_FORMAT: Final = 1
_RENAME: Final = 'Give one of them another name by canal.Rule(to="…").'
#: Letters of ASCII that some databases compare without case.
_ASCII: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def same(name: str) -> str:
    """Return the name: the fold of a target with case-sensitive names."""
    return name


def ascii_lower(name: str) -> str:
    """Return the name with ASCII letters in lower case: the fold of a target for which Ä and ä differ, but A and a do not."""
    return name.translate(_ASCII)


@attrs.frozen(kw_only=True)
class Naming:
    """Rules of the names in one target.

    Args:
        fold: function that returns the same text for names of tables and schemas that the target considers equal.
        fold_columns: the same function for columns.
        longest: maximum bytes of a name in UTF-8, or None for no limit below that of the source.
        schema: schema of tables without one, or None if the target has no schemas.
        is_flat: whether a table has one name, ``schema.table``.
        reserved: tables of this library in the target.
        takes_column: function that returns whether a column may have a name.
    """

    fold: Callable[[str], str] = same
    fold_columns: Callable[[str], str] = same
    longest: int | None = None
    schema: str | None = ""
    is_flat: bool = False
    reserved: Iterable[Path] = ()
    takes_column: Callable[[str], bool] = bool

    def path(self, table: Table) -> Path:
        """Return the name of a table in the target."""
        if self.is_flat:
            return (table.name,)
        name = table.path[-1]
        if self.schema is None:
            return (name,)
        schema = table.path[-2] if len(table.path) > 1 else self.schema
        return (schema, name) if schema else (name,)

    def folded(self, path: Path) -> Path:
        """Return a path that is equal for names that the target considers equal."""
        return tuple([self.fold(part) for part in path])

    def check(self, table: Table) -> None:
        """Check the names of a table and of its columns.

        Raises:
            ConfigError: a name is too long or reserved, or two columns would have one name.
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
    """A table of the target as of the last commit."""

    mark: str
    """Mark that distinguishes the table from another table with the same name, or ""."""

    columns: frozenset[str]
    """Folded names."""


class Names:
    """Registry of the target's tables: the source table of each, and its state as of the last commit.

    Args:
        naming: rules of names in the target.
        text: stored text of ``to_text``, or None.
        forget: statement that deletes the stored names, for remedies.
    """

    def __init__(self, naming: Naming, text: str | None = None, forget: str = "") -> None:
        self.naming = naming
        self.forget = forget
        self._written: dict[Path, Written] = {}
        self._owners: dict[Path, tuple[str, ...]] = {}
        self._claimed: Recent[Table, Path] = Recent()
        self.is_changed = False
        """Whether the registry has unsaved changes. The target resets it after storing."""
        if text is not None:
            self._read(text)

    def claim(self, table: Table) -> Path:
        """Return the table's name in the target and reserve the name for this source table.

        Raises:
            ConfigError: the name belongs to another source table, or the target refuses it.
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
        """Return the table as of the last commit, or None if it was never written."""
        return self._written.get(self.naming.folded(path))

    def keep(self, path: Path, mark: str, columns: Iterable[str]) -> None:
        """Record the state of a table before a commit."""
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
        """Return the registry as text, to be stored with the progress."""
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
