"""The tables of a source at a log position, by name as the server compares names, and the tables with unknown columns.

Never parses a statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import attrs

from canal.parse.schema.parts import INNODB, Key
from canal.parse.schema.table_state import TableVersion
from canal.schema import TableSchema, column_from_text
from canal.statement import Table

#: Format of documents; format 1 lacks ``unread``, and is written if there is none.
FORMAT = 2


class Tables:
    """The tables, databases and temporary tables of a source, by names as the server compares them."""

    def __init__(self, *, lower_case_table_names: int | None = 0, complete: bool = True, unread: Iterable[str] = ()) -> None:
        self.lower_case_table_names = lower_case_table_names
        self.complete = complete
        self.unread = set(map(self.fold_name, unread))
        self._tables: dict[Table, TableVersion] = {}
        self._doubtful: dict[Table, Table] = {}
        self.databases: dict[str, str] = {}
        #: Databases that a statement created or dropped: all their tables are newer, so all are known.
        self.whole: set[str] = set()
        #: Temporary tables by session.
        self.temporary: dict[int | None, set[Table]] = {}
        #: The names in use by lower-case name, if the setting is unknown.
        self._spelled: dict[Table, set[Table]] = {}

    def get(self, schema: str, table: str) -> TableVersion | None:
        """Return the table; None if it is unknown or doubtful."""
        return self._tables.get(self.fold((schema, table)))

    def put(self, state: TableVersion) -> None:
        """Set a table that was read from the server, or proved by row metadata."""
        key = self.fold((state.schema.schema, state.schema.table))
        self.spell(key)
        self._tables[key] = state
        self._doubtful.pop(key, None)

    def remove(self, schema: str, table: str) -> None:
        """Remove a table that does not exist: it is no longer doubtful."""
        self.drop(self.fold((schema, table)))

    def set_database(self, schema: str, charset: str) -> None:
        """Set the default charset of a database; "": unknown."""
        if charset:
            self.databases[self.fold_name(schema)] = charset
        else:
            self.databases.pop(self.fold_name(schema), None)

    def tables(self) -> list[TableVersion]:
        """Return all known tables in the order of their names."""
        return [self._tables[key] for key in sorted(self._tables)]

    def doubtful_tables(self) -> list[Table]:
        """Return the names of tables that may exist with unknown columns."""
        return [self._doubtful[key] for key in sorted(self._doubtful)]

    def is_doubtful(self, schema: str, table: str) -> bool:
        """Return whether the table may exist with unknown columns."""
        key = self.fold((schema, table))
        is_read = key[0] in self.whole or self.complete and key[0] not in self.unread
        unknown = not is_read and key not in self._tables
        return key in self._doubtful or unknown

    def namesakes(self, table: Table) -> list[Table]:
        """Return known or doubtful tables whose names differ only in case, which some servers treat as the same table."""
        names = self._spelled.get(lower(table), set()) - {table}
        return sorted(name for name in names if name in self._tables or name in self._doubtful)

    def key(self, table: Table) -> Table:
        """Return a key that is equal for all spellings of a table's name."""
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
        """Return a name as the server stores it."""
        return text.lower() if self.lower_case_table_names == 1 else text

    def forget(self, table: Table) -> None:
        key = self.fold(table)
        self.spell(key)
        self._tables.pop(key, None)
        self._doubtful[key] = table

    def tables_of(self, database: str | None) -> list[Table]:
        """Return the names of a database's tables, or of all tables."""
        wanted = None if database is None else self.fold_name(database)
        names = {key: (state.schema.schema, state.schema.table) for key, state in self._tables.items()}
        names.update(self._doubtful)
        return [names[key] for key in sorted(names) if wanted is None or key[0] == wanted]

    # -- snapshots -----------------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the catalog as JSON values; equal catalogs return equal documents."""
        return {
            **self.settings(),
            "tables": [table_to_document(self._tables[key]) for key in sorted(self._tables)],
            "doubtful": [list(self._doubtful[key]) for key in sorted(self._doubtful)],
        }

    def settings(self) -> dict[str, Any]:
        """Return the document without the tables."""
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
        """Read a document of ``to_document``.

        Raises:
            ValueError: the document has another format or is damaged.
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
    """Remove a table from a key's set, and remove the key if the set becomes empty."""
    tables = sets.get(key, set())
    tables.discard(table)
    if not tables:
        sets.pop(key, None)


def lower(table: Table) -> Table:
    return table[0].lower(), table[1].lower()


def differ_in_case(name: str, other: str) -> bool:
    return name != other and name.lower() == other.lower()


def table_to_document(state: TableVersion) -> dict[str, Any]:
    """Return a table as JSON values."""
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
    """Read a document of ``table_to_document``."""
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
        raise ValueError("a name is not text")
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
