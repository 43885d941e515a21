"""The tables of a source as of a position of its log: names as the server compares them, and which are not known.

Never reads a statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import attrs

from canal.parse.schema.parts import INNODB, Key
from canal.parse.schema.table_state import TableVersion
from canal.schema import TableSchema, column_from_text
from canal.statement import Table

#: Of documents; 1 had no ``unread``, and is written where there is none.
FORMAT = 2


class Tables:
    """The tables of a source, its databases and its temporary tables, by names as the server compares them."""

    def __init__(self, *, lower_case_table_names: int | None = 0, complete: bool = True, unread: Iterable[str] = ()) -> None:
        self.lower_case_table_names = lower_case_table_names
        self.complete = complete
        self.unread = set(map(self.fold_name, unread))
        self._tables: dict[Table, TableVersion] = {}
        self._doubtful: dict[Table, Table] = {}
        self.databases: dict[str, str] = {}
        #: Databases that were made or dropped by a statement: no table of theirs is older than that.
        self.whole: set[str] = set()
        #: Temporary tables by session.
        self.temporary: dict[int | None, set[Table]] = {}
        #: Where the setting is not known, the names that there are, by what is the same in lower case.
        self._spelled: dict[Table, set[Table]] = {}

    def get(self, schema: str, table: str) -> TableVersion | None:
        """The table, None where it is unknown or doubtful."""
        return self._tables.get(self.fold((schema, table)))

    def put(self, state: TableVersion) -> None:
        """Set a table that was read from the server, or that the metadata of its rows proved."""
        key = self.fold((state.schema.schema, state.schema.table))
        self.spell(key)
        self._tables[key] = state
        self._doubtful.pop(key, None)

    def remove(self, schema: str, table: str) -> None:
        """A table that was looked for and does not exist: it is not doubtful any more."""
        self.drop(self.fold((schema, table)))

    def set_database(self, schema: str, charset: str) -> None:
        """Set the default charset of a database; "": it is not known."""
        if charset:
            self.databases[self.fold_name(schema)] = charset
        else:
            self.databases.pop(self.fold_name(schema), None)

    def tables(self) -> list[TableVersion]:
        """All tables that are known, in the order of their names."""
        return [self._tables[key] for key in sorted(self._tables)]

    def doubtful_tables(self) -> list[Table]:
        """Names of the tables that may exist with columns that are not known."""
        return [self._doubtful[key] for key in sorted(self._doubtful)]

    def is_doubtful(self, schema: str, table: str) -> bool:
        """Whether the table may exist with columns that are not known."""
        key = self.fold((schema, table))
        is_read = key[0] in self.whole or self.complete and key[0] not in self.unread
        unknown = not is_read and key not in self._tables
        return key in self._doubtful or unknown

    def namesakes(self, table: Table) -> list[Table]:
        """Tables, known or doubtful, that are the same one if the server does not look at the case of names, and else are not."""
        names = self._spelled.get(lower(table), set()) - {table}
        return sorted(name for name in names if name in self._tables or name in self._doubtful)

    def key(self, table: Table) -> Table:
        """The same for all names of one table."""
        return self.fold(table)

    def spell(self, key: Table) -> None:
        if self.lower_case_table_names is None:
            self._spelled.setdefault(lower(key), set()).add(key)

    def drop(self, key: Table) -> None:
        self._tables.pop(key, None)
        self._doubtful.pop(key, None)
        discard(self._spelled, lower(key), key)

    def fold_name(self, text: str) -> str:
        return text.lower() if self.lower_case_table_names else text

    def fold(self, table: Table) -> Table:
        return self.fold_name(table[0]), self.fold_name(table[1])

    def stored(self, text: str) -> str:
        """A name as the server keeps it."""
        return text.lower() if self.lower_case_table_names == 1 else text

    def forget(self, table: Table) -> None:
        key = self.fold(table)
        self.spell(key)
        self._tables.pop(key, None)
        self._doubtful[key] = table

    def tables_of(self, database: str | None) -> list[Table]:
        """Names of all tables, or of those of a database."""
        wanted = None if database is None else self.fold_name(database)
        names = {key: (state.schema.schema, state.schema.table) for key, state in self._tables.items()}
        names.update(self._doubtful)
        return [names[key] for key in sorted(names) if wanted is None or key[0] == wanted]

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """All of it as JSON values; equal catalogs give equal documents."""
        return {
            **self.settings(),
            "tables": [table_to_document(self._tables[key]) for key in sorted(self._tables)],
            "doubtful": [list(self._doubtful[key]) for key in sorted(self._doubtful)],
        }

    def settings(self) -> dict[str, Any]:
        """The part of the document that is not about tables."""
        return {
            "format": FORMAT if self.unread else 1,
            "lower_case_table_names": self.lower_case_table_names,
            "complete": self.complete,
            "databases": dict(sorted(self.databases.items())),
            "whole": sorted(self.whole),
            **({"unread": sorted(self.unread)} if self.unread else {}),
            "temporary": [
                [session, *map(list, sorted(tables))]
                for session, tables in sorted(self.temporary.items(), key=lambda item: (item[0] is not None, item[0] or 0))
                if tables
            ],
        }

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """Read what ``to_document`` made.

        Raises:
            ValueError: the document is of another format or is damaged.
        """
        found = document.get("format") if isinstance(document, dict) else None
        if found not in (1, FORMAT):
            raise ValueError(f"a catalog document of format {found!r}, not 1 or {FORMAT}")
        try:
            catalog = cls(
                lower_case_table_names=document["lower_case_table_names"],
                complete=document["complete"],
                unread=document.get("unread", ()),
            )
            catalog.databases.update(document["databases"])
            catalog.whole.update(document.get("whole", ()))
            for table in document["tables"]:
                catalog.put(table_from_document(table))
            for schema, table in document["doubtful"]:
                catalog.forget((schema, table))
            for session, *tables in document["temporary"]:
                catalog.temporary[session] = {(schema, table) for schema, table in tables}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError("a damaged catalog document") from error
        return catalog


def discard(sets: dict[Any, set[Table]], key: Any, table: Table) -> None:
    """Take a table out of the set of a key, which goes with its last one."""
    tables = sets.get(key, set())
    tables.discard(table)
    if not tables:
        sets.pop(key, None)


def lower(table: Table) -> Table:
    return table[0].lower(), table[1].lower()


def differ_in_case(name: str, other: str) -> bool:
    return name != other and name.lower() == other.lower()


def table_to_document(state: TableVersion) -> dict[str, Any]:
    """A table as JSON values."""
    return {
        "schema": state.schema.schema,
        "table": state.schema.table,
        "charset": state.charset,
        "row_end": state.row_end,
        "hidden": state.hidden,
        **({"counts_first": True} if state.counts_first else {}),
        **({"engine": state.engine} if state.engine != INNODB else {}),
        **({"partitioned": True} if state.partitioned else {}),
        **({"counted": state.counted} if state.counted is not None else {}),
        "columns": [
            [
                c.name,
                c.column_type,
                c.charset,
                c.nullable,
                c.key,
                c.visible,
                None if c.labels is None else list(c.labels),
                *(word for word in ("virtual", "hidden") if getattr(c, word)),
                *(() if c.logged else ("unlogged",)),
            ]
            for c in state.schema.columns
        ],
        "keys": None
        if state.keys is None
        else [[key.name, key.unique, [list(part) for part in key.columns], key.hash] for key in state.keys],
    }


def table_from_document(document: dict[str, Any]) -> TableVersion:
    """Read what ``table_to_document`` made."""
    columns = []
    for named, text, charset, nullable, key, visible, labels, *words in document["columns"]:
        column = column_from_text(named, text, charset=charset, nullable=nullable, key=key, visible=visible)
        labels = None if labels is None else tuple(labels)
        columns.append(
            attrs.evolve(
                column, labels=labels, virtual="virtual" in words, hidden="hidden" in words, logged="unlogged" not in words
            )
        )
    keys = document["keys"]
    if not all(isinstance(name, str) for name in (document["schema"], document["table"], *(column.name for column in columns))):
        raise ValueError("a name that is no text")
    return TableVersion(
        TableSchema(document["schema"], document["table"], tuple(columns)),
        document["charset"],
        None
        if keys is None
        else tuple(
            Key(named, unique, tuple((part, length) for part, length in parts), is_hash) for named, unique, parts, is_hash in keys
        ),
        document["row_end"],
        document["hidden"],
        document.get("counts_first", False),
        document.get("engine", INNODB),
        document.get("partitioned", False),
        document.get("counted"),
    )
