"""What an ALTER TABLE makes of a table: its clauses read from tokens and applied in the server's order.

Never touches another table: renames and exchanged partitions are left to the catalog.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

import attrs

from canal.binlog.server_facts import Release
from canal.parse.schema.definition import (
    GEOMETRIES,
    INNODB,
    PRIMARY,
    Body,
    CharsetChoice,
    ColumnDefinition,
    ColumnType,
    Dialect,
    Key,
    NotUnderstoodError,
    Options,
    at_key,
    char_bytes,
    column_name,
    converted_type,
    engine_name,
    expect,
    group,
    join_choices,
    maybe_charset,
    name,
    pass_value,
    read_body,
    read_column,
    read_definition,
    read_key,
    resolve,
    text_size,
    type_text,
)
from canal.parse.schema.scanner import END, NAME, WORD, Scanner
from canal.rows.charsets import WIDE, encoded, label_text
from canal.schema import UNTOLD, ColumnSchema, TableSchema, column_from_text, is_sure, label_bytes
from canal.statement import Table


@attrs.frozen
class TableState:
    """A table as of a position: its columns in the order of its rows, and what its later changes depend on.

    ``charset`` is the default of new text columns, None where it is not known. ``keys`` are all indexes in the order
    of the server, None where they are not known (a change that depends on them then makes the table doubtful).
    """

    schema: TableSchema
    charset: str | None
    keys: tuple[Key, ...] | None = None
    #: The column that ends a row's time in a MariaDB table WITH SYSTEM VERSIONING, "" in others.
    row_end: str = ""
    #: How many of the last columns are MariaDB's own, in its rows but not in its information_schema.
    hidden: int = 0
    #: Whether its first column is surely AUTO_INCREMENT, in InnoDB and without partitions.
    counts_first: bool = False
    #: In lower case; it is taken to be InnoDB where no statement names another one.
    engine: str = INNODB
    partitioned: bool = False
    #: In lower case the AUTO_INCREMENT column, "" where there is none; None: not known.
    counted: str | None = None

    @property
    def shown(self) -> tuple[ColumnSchema, ...]:
        """The columns that information_schema has."""
        return tuple(column for column in self.defined if not column.hidden)

    @property
    def defined(self) -> tuple[ColumnSchema, ...]:
        """The columns that statements made, those of MySQL's functional keys among them."""
        columns = self.schema.columns
        return columns[: len(columns) - self.hidden]

    @property
    def as_logged(self) -> TableSchema:
        """As its rows are in the log: of a table WITH SYSTEM VERSIONING those in MINIMAL images lack VIRTUAL values."""
        if not self.row_end:
            return self.schema
        return attrs.evolve(
            self.schema, columns=tuple(attrs.evolve(column, logged=not column.virtual) for column in self.schema.columns)
        )


#: MariaDB's column of the time a row ends, in tables that name none.
ROW_END = "row_end"
#: Bytes of the longest unique key that an engine of MariaDB keeps without a hidden hash; None: it never has one.
_LONGEST_KEY: dict[str, int | None] = {INNODB: 3072, "myisam": 1000, "memory": None, "aria": None}
#: What every engine can do without.
_SURE_KEY = 255
#: Bytes of a column of geometry that MariaDB takes into a key which does not say how many, and those that it takes for all.
_GEOMETRY_BYTES, _POINT_BYTES = 8, 25
GEOMETRY_NUMBER = 4
#: Of a TIMESTAMP(6), which versioned tables add to each unique key.
_ROW_END_BYTES = 7


def hidden_columns(columns: tuple[ColumnSchema, ...], keys: Iterable[Key], row_end: str) -> tuple[ColumnSchema, ...]:
    """What MariaDB adds to a table's rows: the times of a versioned row, a hash for each unique key that is too long."""
    hidden = []
    if row_end and not any(column.name.lower() == row_end.lower() for column in columns):
        for bound in ("row_start", ROW_END):
            column = column_from_text(bound, "timestamp(6)", nullable=False, visible=False)
            hidden.append(attrs.evolve(column, key=bound == ROW_END and any(c.key for c in columns)))
    for i in range(sum(key.hash for key in keys)):
        # In the order in which statements have named the keys, which information_schema does not tell.
        hidden.append(column_from_text(f"DB_ROW_HASH_{i + 1}", "bigint(20) unsigned", nullable=None, visible=False))
    return tuple(hidden)


def _hashed(key: Key, columns: dict[str, ColumnSchema], engine: str, row_end: str) -> Key:
    """A key as MariaDB keeps it: ``hash``, which was whether it is asked for, is whether it makes a hidden column."""
    parts = tuple(_geometry_part(part, columns) for part in key.columns)
    if not key.unique or key.is_primary:
        return attrs.evolve(key, columns=parts, hash=False)
    sizes = [_key_bytes(columns[named.lower()], length) for named, length in key.columns if named.lower() in columns]
    if row_end and row_end.lower() not in {named.lower() for named, _ in key.columns}:
        sizes.append(_ROW_END_BYTES)
    is_long = None in sizes or sum(size or 0 for size in sizes) > (_LONGEST_KEY.get(engine, _SURE_KEY) or sys.maxsize)
    if engine not in _LONGEST_KEY and (is_long or key.hash):
        raise NotUnderstoodError("how long a unique key may get")
    return attrs.evolve(key, columns=parts, hash=_LONGEST_KEY.get(engine) is not None and (is_long or key.hash))


def _geometry_part(part: tuple[str, int | None], columns: dict[str, ColumnSchema]) -> tuple[str, int | None]:
    base = columns[part[0].lower()].base_type if part[0].lower() in columns else ""
    return (part[0], _GEOMETRY_BYTES) if part[1] is None and base in GEOMETRIES and base != "point" else part


def _key_bytes(column: ColumnSchema, length: int | None) -> int | None:
    """What a column takes in a key; None where MariaDB takes all of it by a hash only."""
    base = column.base_type
    if base.endswith(("text", "blob")) or base in GEOMETRIES and base != "point":
        return None if length is None else length * char_bytes(column.charset)
    length = length or _declared(column)
    return length * char_bytes(column.charset) if length else _bytes(column)


def functional_columns(key: Key) -> list[ColumnSchema]:
    """What MySQL adds to a table for the expressions of a key, behind all columns that are there."""
    expressions = sum(not part for part, _ in key.columns)
    return [ColumnSchema(f"!hidden!{key.name}!{n}", nullable=None, visible=False, hidden=True) for n in range(expressions)]


def _with_functional(
    columns: list[ColumnSchema], old: Iterable[Key], dropped: set[str], renamed: dict[str, str], keys: Iterable[Key]
) -> list[ColumnSchema]:
    """Columns with those of functional keys: without those of dropped ones, then with those of new ones."""
    kept = []
    for column in columns:
        owner, _, number = column.name[len("!hidden!") :].rpartition("!") if column.hidden else ("", "", "")
        if column.hidden and not owner and any(key.name.lower() in dropped and functional_columns(key) for key in old):
            raise NotUnderstoodError("which hidden column a functional key has")
        if column.hidden and owner.lower() in renamed:
            column = attrs.evolve(column, name=f"!hidden!{renamed[owner.lower()]}!{number}")
        if not column.hidden or owner.lower() not in dropped:
            kept.append(column)
    there = {column.name.lower() for column in kept}
    if any(name.startswith("!hidden!!") for name in there):
        there |= {column.name.lower() for key in old for column in functional_columns(key)}
    return kept + [one for key in keys for one in functional_columns(key) if one.name.lower() not in there]


# -- keys --------------------------------------------------------------------------------------------------------------


def named_keys(known: Iterable[Key], added: Iterable[Key], old: Iterable[Key] | None = None) -> list[Key]:
    """All keys, where those without a name got one as the server gives it: that of their first column, numbered.

    One that is added if it does not exist is compared with ``old``, the keys before the statement dropped any, and with
    those that were added before it.
    """
    keys = list(known)
    there = {key.name.lower() for key in (keys if old is None else old)}
    taken = {key.name.lower() for key in keys}
    for key in added:
        stem = key.columns[0][0] or "functional_index"
        if key.conditional and (key.name or stem).lower() in there:
            continue
        there.add((key.name or stem).lower())
        found, count = key.name or stem, 1
        while not key.name and (found.lower() in taken or found.lower() == "primary"):
            count += 1
            found = f"{stem}_{count}"
        taken.add(found.lower())
        keys.append(attrs.evolve(key, name=found, conditional=False))
    return keys


def with_keys(
    columns: list[ColumnSchema], keys: list[Key], row_end: str, release: Release, ordered: bool = False
) -> tuple[tuple[ColumnSchema, ...], tuple[Key, ...]]:
    """Columns with their key flags, and the keys in the server's order.

    Where there is no primary key, the servers show and log the first unique one without NULLs and prefixes as such.
    MariaDB adds the end of a row's time to the unique keys of versioned tables, and leaves keys in their order (``ordered``)
    where a statement adds none and leaves the columns of such a key: only the first one is ever such.
    """
    primary = {column.lower() for key in keys if key.is_primary for column, _ in key.columns}
    # The servers read keys one by one: to those before a primary key its columns may still be NULL.
    before = {column.name.lower(): column for column in columns}
    first = next((i for i, key in enumerate(keys) if key.is_primary), 0)
    columns = [attrs.evolve(c, nullable=False) if c.name.lower() in primary else c for c in columns]
    by_name = {column.name.lower(): column for column in columns}
    keys = [attrs.evolve(key, columns=tuple(_part(part, by_name) for part in key.columns)) for key in keys]
    if not primary and any(_needs_nullability(key, by_name, release) for key in keys):
        raise NotUnderstoodError("a unique key of a column that may be nullable")
    if not ordered:
        ranks = [_rank(key, before if i < first else by_name, release) for i, key in enumerate(keys)]
        keys = [key for _, key in sorted(zip(ranks, keys), key=lambda ranked: ranked[0])]
    chosen: set[str] = set()
    if keys and _is_shown_as_primary(keys[0], by_name, release):
        chosen = {column.lower() for column, _ in keys[0].columns} | {row_end.lower()}
    return tuple(attrs.evolve(c, key=c.name.lower() in chosen) for c in columns), tuple(keys)


def _is_shown_as_primary(first: Key, columns: dict[str, ColumnSchema], release: Release) -> bool:
    geometry = GEOMETRY_NUMBER if release.is_mariadb else 0
    return first.is_primary or _identifies(first, columns, release.has("full_prefixes"), geometry)


def _rank(key: Key, columns: dict[str, ColumnSchema], release: Release) -> int:
    """0 for the primary key, 1 for a unique key that can stand in for it, then other unique ones, those by a hash, the rest.

    Of those that may be NULL, the ones with a part of a column come behind the others.
    """
    if key.is_primary:
        return 0
    if not key.unique:
        return 6
    if key.hash:
        return 5
    takes_full = release.has("full_prefixes_first")
    geometry = _GEOMETRY_BYTES if release.is_mariadb else 0
    if _identifies(key, columns, takes_full, geometry):
        return 1
    parts = [(columns.get(named.lower()), length) for named, length in key.columns]
    if all(column is not None and column.nullable is False for column, _ in parts):
        return 2
    return 3 if all(length is None or takes_full and _is_full(column, length, geometry) for column, length in parts) else 4


def _needs_nullability(key: Key, columns: dict[str, ColumnSchema], release: Release) -> bool:
    """Whether it may stand in for the primary key or not, as a column is nullable or not, which is not known."""
    sure = {name: attrs.evolve(one, nullable=False) if one.nullable is None else one for name, one in columns.items()}
    return _rank(key, columns, release) == 3 and _rank(key, sure, release) == 1


def _identifies(key: Key, columns: dict[str, ColumnSchema], takes_full: bool, geometry: int) -> bool:
    """Whether a unique key tells all rows apart.

    ``takes_full``: also by a prefix that takes all of a TINYTEXT, or so many bytes of a geometry.
    """
    return key.unique and not key.hash and all(
        _can_identify(columns.get(named.lower()), length, takes_full, geometry) for named, length in key.columns
    )  # fmt: skip


def _can_identify(column: ColumnSchema | None, length: int | None, takes_full: bool, geometry: int) -> bool:
    if column is None or column.nullable is not False or column.virtual:
        return False
    if length is None:
        return not column.base_type.endswith(("text", "blob"))
    return takes_full and _is_full(column, length, geometry)


def _is_full(column: ColumnSchema | None, length: int, geometry: int) -> bool:
    """Whether a prefix of a TEXT or BLOB has as many bytes as the column, or one of a geometry so many."""
    if column is not None and column.base_type in GEOMETRIES and column.base_type != "point":
        return length == geometry
    if column is None or not column.base_type.endswith(("text", "blob")):
        return False
    return _key_bytes(column, length) == text_size(column.base_type)


def with_points(keys: Iterable[Key], columns: Iterable[ColumnSchema], is_mariadb: bool) -> list[Key]:
    """The keys, of which a POINT is always all; MariaDB takes that for a prefix, so that it identifies no row."""
    points = {column.name.lower() for column in columns if column.base_type == "point"}
    length = _POINT_BYTES if is_mariadb else None
    return [
        attrs.evolve(key, columns=tuple((name, length if name.lower() in points else size) for name, size in key.columns))
        for key in keys
    ]


def _part(part: tuple[str, int | None], columns: dict[str, ColumnSchema]) -> tuple[str, int | None]:
    """A column of a key; a prefix as long as the column is none."""
    column = columns.get(part[0].lower())
    if column is not None and f"({part[1]})" in column.column_type and column.labels is None:
        return part[0], None
    return part


# -- clauses -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Placed:
    """A column that is added, or one that replaces ``old``. ``definition`` None: only renamed to ``name``."""

    name: str
    definition: ColumnDefinition | None
    old: str = ""
    first: bool = False
    after: str = ""
    #: IF EXISTS or IF NOT EXISTS.
    conditional: bool = False


@attrs.define
class Alteration:
    """The clauses of one ALTER TABLE."""

    #: Added and replaced columns, in the order of the text.
    placed: list[_Placed] = attrs.field(factory=list)
    #: Dropped columns and keys, with whether IF EXISTS was given.
    dropped: dict[str, bool] = attrs.field(factory=dict)
    dropped_keys: dict[str, bool] = attrs.field(factory=dict)
    #: Of keys, checks or foreign keys.
    dropped_constraints: set[str] = attrs.field(factory=set)
    renamed_keys: dict[str, str] = attrs.field(factory=dict)
    visible: dict[str, bool] = attrs.field(factory=dict)
    body: Body = attrs.field(factory=Body)
    charset: CharsetChoice | None = None
    convert: CharsetChoice | None = None
    #: ADD or DROP SYSTEM VERSIONING.
    versioned: bool | None = None
    rename: Table | None = None
    #: CONVERT PARTITION … TO TABLE: the new table; CONVERT TABLE … TO PARTITION: the one that goes.
    split_off: Table | None = None
    taken_in: Table | None = None
    #: The engine that it gets, in lower case, "" where none is named.
    engine: str = ""
    #: It gets partitions, or loses them.
    partitioned: bool | None = None
    #: There are clauses that make the table anew, of which nothing else here tells.
    remakes: bool = False
    #: It is a CREATE TABLE … LIKE.
    copies: bool = False


def read_alteration(scan: Scanner, dialect: Dialect, default_schema: str) -> Alteration:
    """The clauses up to the end of the statement, the table's name taken."""
    reader = _AlterReader(scan, dialect, default_schema)
    reader.read()
    return reader.found


#: Clauses that change no column, with all that follows them up to the next comma.
_HARMLESS = frozenset(
    "ENABLE DISABLE ALGORITHM LOCK FORCE WITH WITHOUT DISCARD IMPORT TRUNCATE COALESCE REORGANIZE EXCHANGE ANALYZE "
    "CHECK OPTIMIZE REBUILD REPAIR SECONDARY_LOAD SECONDARY_UNLOAD UPGRADE NOWAIT WAIT TYPE AUTO_INCREMENT "
    "AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM COMMENT CONNECTION DATA INDEX DELAY_KEY_WRITE INSERT_METHOD "
    "KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PASSWORD ROW_FORMAT STATS_AUTO_RECALC STATS_PERSISTENT "
    "STATS_SAMPLE_PAGES TABLESPACE STORAGE UNION TRANSACTIONAL PAGE_CHECKSUM SEQUENCE ENCRYPTION COMPRESSION "
    "AUTOEXTEND_SIZE ENGINE_ATTRIBUTE SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE START".split()
)

#: Those of them that leave a table and its keys as they are.
_IDLE = frozenset(
    "ENABLE DISABLE ALGORITHM LOCK NOWAIT WAIT DISCARD IMPORT TRUNCATE COALESCE REORGANIZE EXCHANGE ANALYZE CHECK OPTIMIZE "
    "REBUILD REPAIR".split()
)


class _AlterReader:
    def __init__(self, scan: Scanner, dialect: Dialect, default_schema: str) -> None:
        self.scan, self.dialect, self.default_schema = scan, dialect, default_schema
        self.found = Alteration()

    def read(self) -> None:
        scan = self.scan
        while not scan.at_end():
            self._clause()
            if scan.peek()[2] in ("PARTITION", "REMOVE"):  # only the end of the statement can follow
                self._partitions()
            if not scan.at_end():
                expect(scan, ",")
                if scan.at_end():
                    raise NotUnderstoodError("a comma at the end")

    def _skip(self) -> None:
        while not self.scan.at_end():
            self.scan.take()

    def _partitions(self) -> None:
        self.found.partitioned = self.scan.peek()[2] == "PARTITION"
        self._skip()

    def _clause(self) -> None:
        scan = self.scan
        key = scan.peek()[2]
        handler = {
            "ADD": self._add, "DROP": self._drop, "MODIFY": self._modify, "CHANGE": self._change,
            "ALTER": self._alter, "RENAME": self._rename, "CONVERT": self._convert,
        }.get(key)  # fmt: skip
        if handler is not None:
            scan.take()
            handler()
        elif key in ("PARTITION", "REMOVE"):
            self._partitions()
        elif key == "ORDER":
            self.found.remakes = True
            self._skip()
        else:
            self._options()

    def _options(self) -> None:
        """Table options, which may follow each other without commas, and clauses that change no column."""
        scan, one = self.scan, False
        while not scan.at_end() and scan.peek()[2] not in (",", "PARTITION", "REMOVE"):
            choice = maybe_charset(scan)
            if choice is not None:
                self.found.charset = join_choices(self.found.charset, choice)
            elif scan.peek()[2] == "ENGINE":
                self.found.engine = engine_name(scan)
            elif scan.peek()[2] in _HARMLESS:
                self.found.remakes |= scan.peek()[2] not in _IDLE
                self._harmless()
            elif scan.peek()[0] in (WORD, NAME) and scan.peek(1)[2] == "=":
                self._option()
            else:
                raise NotUnderstoodError(f"unknown clause {scan.peek()[2]}")
            one = True
        if not one and not scan.at_end() and scan.peek()[2] == ",":
            raise NotUnderstoodError("an empty clause")

    def _option(self) -> None:
        self.found.remakes = True
        self.scan.take()
        self.scan.accept("=")
        pass_value(self.scan)

    def _harmless(self) -> None:
        """One option, or a clause about partitions, whose list of names may have commas."""
        scan = self.scan
        key = scan.take()[2]
        if key in ("WITH", "WITHOUT"):
            expect(scan, "VALIDATION")
        elif key in ("FORCE", "NOWAIT", "SECONDARY_LOAD", "SECONDARY_UNLOAD"):
            return
        elif key in ("ENABLE", "DISABLE"):
            expect(scan, "KEYS")
        elif key == "START":
            expect(scan, "TRANSACTION")
        elif key in ("DATA", "INDEX"):
            expect(scan, "DIRECTORY")
            scan.accept("=")
            scan.take()
        elif key == "STORAGE":
            expect(scan, "DISK", "MEMORY")
        elif key == "UPGRADE":
            expect(scan, "PARTITIONING")
        elif scan.peek()[2] in ("PARTITION", "TABLESPACE"):
            self._skip()
        else:
            scan.accept("=")
            pass_value(scan)

    def _if_exists(self) -> bool:
        if self.scan.accept("IF"):
            self.scan.accept("NOT")
            expect(self.scan, "EXISTS")
            return True
        return False

    def _add(self) -> None:
        scan, body = self.scan, self.found.body
        if scan.peek()[2] == "PARTITION":
            return self._skip()
        if scan.accept_all("SYSTEM", "VERSIONING"):
            self.found.versioned = True
            return None
        if at_key(scan):
            self.found.remakes |= scan.peek()[2] in ("CONSTRAINT", "CHECK", "FOREIGN", "PERIOD")
            return read_key(scan, self.dialect, body)
        scan.accept("COLUMN")
        conditional = self._if_exists()
        if scan.accept("("):
            inner = read_body(scan, self.dialect)
            for column in inner.columns:
                self.found.placed.append(_Placed(column.name, column, conditional=conditional))
            self._take_keys(inner.keys, conditional)
            body.periods |= inner.periods
            return None
        own = Body()
        self._place(read_column(scan, self.dialect, own), "", conditional, own.keys)
        return None

    def _place(self, column: ColumnDefinition, old: str, conditional: bool, keys: list[Key]) -> None:
        first, after = bool(self.scan.accept("FIRST")), ""
        if not first and self.scan.accept("AFTER"):
            after = name(self.scan)
        self.found.remakes |= first or bool(after)  # also where IF EXISTS leaves nothing else to do
        self._take_keys(keys, conditional)
        self.found.placed.append(_Placed(column.name, column, old, first, after, conditional))

    def _take_keys(self, keys: list[Key], conditional: bool) -> None:
        """MariaDB adds the keys of columns with IF [NOT] EXISTS also where it leaves the columns as they are."""
        self.found.body.keys += [attrs.evolve(key, conditional=key.conditional or conditional) for key in keys]

    def _drop(self) -> None:
        scan, found = self.scan, self.found
        key = scan.peek()[2]
        if key == "PARTITION":
            return self._skip()
        if scan.accept_all("SYSTEM", "VERSIONING"):
            found.versioned = False
        elif scan.accept_all("PERIOD", "FOR"):
            found.remakes = True
            self._if_exists()
            name(scan)
        elif key == "PRIMARY":
            scan.take()
            expect(scan, "KEY")
            found.dropped_keys[PRIMARY.lower()] = False
        elif key in ("INDEX", "KEY"):
            scan.take()
            conditional = self._if_exists()
            found.dropped_keys[name(scan).lower()] = conditional
        elif key == "CONSTRAINT":
            scan.take()
            conditional = self._if_exists()
            if scan.accept_all("PRIMARY", "KEY"):
                found.dropped_keys[PRIMARY.lower()] = conditional
            else:
                found.remakes = True
                found.dropped_constraints.add(name(scan).lower())
        elif key in ("FOREIGN", "CHECK"):
            found.remakes = True
            scan.take()
            scan.accept("KEY")
            self._if_exists()
            name(scan)
        else:
            scan.accept("COLUMN")
            conditional = self._if_exists()
            found.dropped[column_name(scan).lower()] = conditional
        scan.accept("RESTRICT", "CASCADE")
        return None

    def _modify(self) -> None:
        self.scan.accept("COLUMN")
        conditional = self._if_exists()
        own = Body()
        column = read_column(self.scan, self.dialect, own)
        self._place(column, column.name, conditional, own.keys)

    def _change(self) -> None:
        self.scan.accept("COLUMN")
        conditional = self._if_exists()
        old = column_name(self.scan)
        own = Body()
        column = read_definition(self.scan, self.dialect, own, column_name(self.scan))
        self._place(column, old, conditional, own.keys)

    def _alter(self) -> None:
        scan = self.scan
        self.found.remakes = True
        if scan.peek()[2] in ("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            scan.take()
            self._if_exists()
            name(scan)
            scan.accept("NOT")
            expect(scan, "VISIBLE", "INVISIBLE", "IGNORED", "ENFORCED")
            return
        scan.accept("COLUMN")
        self._if_exists()
        column = column_name(scan)
        if scan.accept("DROP"):
            expect(scan, "DEFAULT")
        elif expect(scan, "SET") and scan.accept("DEFAULT"):
            _skip_clause(scan)
        else:
            self.found.visible[column.lower()] = expect(scan, "VISIBLE", "INVISIBLE") == "VISIBLE"

    def _rename(self) -> None:
        scan = self.scan
        if scan.peek()[2] in ("INDEX", "KEY", "COLUMN"):
            column = scan.take()[2] == "COLUMN"
            conditional = self._if_exists()
            old = name(scan)
            expect(scan, "TO")
            new = name(scan)
            if column:
                self.found.placed.append(_Placed(new, None, old, conditional=conditional))
            else:
                self.found.renamed_keys[old.lower()] = new
            return
        scan.accept("TO", "AS", "=")
        # A bare name is one in the session's schema, not in that of the table.
        self.found.rename = self._table()

    def _table(self) -> Table:
        found = self.scan.table(self.default_schema)
        if found is None:
            raise NotUnderstoodError("no table where one should stand")
        return found

    def _convert(self) -> None:
        scan, found = self.scan, self.found
        if scan.accept("PARTITION"):
            name(scan)
            expect(scan, "TO")
            expect(scan, "TABLE")
            found.split_off = self._table()
            if scan.accept("WITH", "WITHOUT"):
                expect(scan, "VALIDATION")
        elif scan.accept("TABLE"):
            found.taken_in = self._table()
            self._skip()
        else:
            expect(scan, "TO")
            found.convert = None  # where MySQL 5.7 takes several, the last one counts
            while (choice := maybe_charset(scan)) is not None:
                found.convert = join_choices(found.convert, choice)
            if found.convert is None:
                raise NotUnderstoodError("CONVERT TO what?")


def _skip_clause(scan: Scanner) -> None:
    while not scan.at_end() and scan.peek()[2] != ",":
        if scan.peek()[2] == "(":
            group(scan)
        elif scan.take()[0] == END:
            return


# -- application -------------------------------------------------------------------------------------------------------


def altered(
    state: TableState, change: Alteration, dialect: Dialect, database: str | None, session: str | None = None
) -> TableState:
    """The table after the clauses; ``database`` is the default charset of its schema, ``session`` of the current one."""
    convert = None
    if change.convert is not None:
        unsure = dialect.is_mariadb and not dialect.has("convert_by_database")
        if unsure and database != session and change.convert.charset is None:
            raise NotUnderstoodError("DEFAULT may be that of either database")
        convert = change.convert.over(database if dialect.is_mariadb else session)
    if change.convert is not None and convert is None:
        raise NotUnderstoodError("CONVERT TO a charset that is not known")
    charset = change.charset.over(database) if change.charset else convert or state.charset
    if convert and not dialect.is_mariadb:  # refused since 8.0 where it differs from the default
        charset = convert
    known = {column.name.lower() for column in state.shown}
    change = attrs.evolve(change, placed=_effective(change.placed, known))
    columns_made = _columns(state, change, dialect, convert or charset, convert)
    columns = [made.column for made in columns_made]
    forgets = dialect.has("in_place_alters") and not dialect.has("converts_in_place")
    if convert and convert != state.charset and forgets and tuple(columns) == state.shown:
        charset = None  # the old one or the new one
    periods = {bound.lower() for bounds in change.body.periods.values() for bound in bounds}
    columns = [attrs.evolve(c, nullable=False) if c.name.lower() in periods else c for c in columns]
    if not columns:
        raise NotUnderstoodError("no column is left")
    if len({column.name.lower() for column in columns}) != len(columns):
        raise NotUnderstoodError("two columns of one name")
    if not dialect.has("members_apart"):
        _check_members(columns, dialect)
    row_end = _row_end(state, change)
    counted = _counted(state, change, columns_made)
    if dialect.is_mariadb:
        columns = _with_unlogged(state, change, columns, columns_made, counted)
    made, keys = _keys(state, change, dialect, columns, columns_made, row_end)
    hidden: tuple[ColumnSchema, ...] = ()
    if dialect.is_mariadb and keys is not None:
        hidden = hidden_columns(made, keys, row_end)
    elif state.hidden or (dialect.is_mariadb and (row_end or any(key.unique for key in change.body.keys))):
        raise NotUnderstoodError("hidden columns, and the keys are not known")
    schema = attrs.evolve(state.schema, columns=made + hidden)
    engine = change.engine or state.engine
    partitioned = state.partitioned if change.partitioned is None else change.partitioned
    counts_first = engine == INNODB and not partitioned and _counts_first(state, change, columns_made)
    return TableState(schema, charset, keys, row_end, len(hidden), counts_first, engine, partitioned, counted)


def _counted(state: TableState, change: Alteration, made: list[_Made]) -> str | None:
    """The AUTO_INCREMENT column after the clauses."""
    defined = {p.name.lower(): p.definition for p in change.placed if p.definition is not None}
    counting = [name for name, definition in defined.items() if definition.auto_increment]
    if counting:
        return counting[-1]
    if not state.counted:
        return state.counted
    new = next((one.name for one in made if not one.is_new and (one.old or one.name) == state.counted), "")
    return "" if new in defined else new


def _with_unlogged(
    state: TableState, change: Alteration, columns: list[ColumnSchema], made: list[_Made], counted: str | None
) -> list[ColumnSchema]:
    """MariaDB logs a VIRTUAL column that is made of the AUTO_INCREMENT one as if the new row's number were 0."""
    defined = {p.name.lower(): p.definition.made_of for p in change.placed if p.definition is not None}
    sources = {column.name.lower() for column in columns if not column.virtual} if counted is None else {counted} - {""}
    if counted is None and state.keys is not None:
        sources &= {name.lower() for key in state.keys for name, _ in key.columns[:1]}
    # A column that begins to count: what the VIRTUAL columns that stay are made of is not kept.
    before = next((one.old or one.name for one in made if one.name == counted and not one.is_new), "")
    is_new = bool(counted) and state.counted not in (None, before)
    unlogged: set[str] = set()
    while True:
        found = {
            column.name.lower() for column in columns
            if column.virtual and (
                bool(defined[column.name.lower()] & (sources | unlogged)) if column.name.lower() in defined
                else is_new or not column.logged
            )
        }  # fmt: skip
        if found == unlogged:
            return [attrs.evolve(one, logged=False) if one.name.lower() in unlogged else one for one in columns]
        unlogged = found


def _row_end(state: TableState, change: Alteration) -> str:
    """The column that ends a row's time after the clauses, "" in a table without system versioning."""
    if change.versioned is None:
        return state.row_end
    named = [p.name for p in change.placed if p.definition is not None and p.definition.row_bound == "END"]
    return (named[0] if named else ROW_END) if change.versioned else ""


@attrs.frozen
class _Made:
    """A column of the new table, and in lower case the one that it is a CHANGE or RENAME of ("" for all others)."""

    column: ColumnSchema
    old: str = ""
    is_new: bool = False

    @property
    def name(self) -> str:
        return self.column.name.lower()

    def is_of(self, column: ColumnSchema) -> bool:
        """Whether it is this column of the old table, as it was or changed."""
        return not self.is_new and (self.old or self.name) == column.name.lower()


def _columns(
    state: TableState, change: Alteration, dialect: Dialect, charset: str | None, convert: str | None
) -> list[_Made]:
    """The columns in their new order: those that stay, each with what replaces it; then each clause adds or moves one."""
    known = {column.name.lower() for column in state.shown}
    placed = change.placed
    if change.visible.keys() - known or {c for c, conditional in change.dropped.items() if not conditional} - known:
        raise NotUnderstoodError("a column that the table does not have")
    replaced = {p.old.lower(): p for p in placed if p.old.lower() in known - change.dropped.keys()}
    made: list[_Made] = []
    for column in state.defined:
        old = column.name.lower()
        new = replaced.get(old)
        if old in change.dropped:
            continue
        column = attrs.evolve(column, visible=change.visible.get(old, column.visible))
        if new is not None and new.definition is not None:
            is_text = new.definition.type.base.endswith(("text", "blob"))
            if convert and is_text and dialect.has("converts_by_old_column"):
                raise NotUnderstoodError("what was in the column decides how long it gets")
            column = resolve(new.definition, dialect, charset, forced=convert is not None)
        else:
            column = _converted(attrs.evolve(column, name=new.name if new else column.name), convert, dialect)
        made.append(_Made(column, old if new else ""))
    for p in placed:
        old = p.old.lower()
        if old in replaced:
            if p.first or p.after:
                moved = made.pop(next(i for i, one in enumerate(made) if one.old == old))
                made.insert(_place_of(p, made), moved)
        else:
            if old:  # MariaDB lets a statement change what it adds itself
                _remove_new(p.name, made)
            if p.definition is None:
                raise NotUnderstoodError("a column that the table does not have")
            column = resolve(p.definition, dialect, charset, forced=convert is not None)
            made.insert(_place_of(p, made), _Made(column, is_new=True))
    return _with_generated_key(state, made) if dialect.has("generated_keys") else made


def _with_generated_key(state: TableState, made: list[_Made]) -> list[_Made]:
    """The columns in the server's order: a primary key that MySQL has made stays before all others."""
    if not state.defined or not _may_be_generated(state):
        return made
    ordered = sorted(made, key=lambda one: not one.is_of(state.defined[0]))
    if ordered != made and not state.counts_first:
        raise NotUnderstoodError("a column before one that MySQL may have made")
    return ordered


def _may_be_generated(state: TableState) -> bool:
    """Whether the first column looks like the primary key that MySQL makes in a table without one."""
    first = state.defined[0]
    is_alone = [column for column in state.defined if column.key] == [first]
    is_primary = state.keys is None or any(key.is_primary for key in state.keys)
    is_of_type = first.base_type == "bigint" and first.unsigned and not first.visible
    return first.name.lower() == "my_row_id" and is_of_type and is_alone and is_primary


def _counts_first(state: TableState, change: Alteration, made: list[_Made]) -> bool:
    """Whether the first column is surely AUTO_INCREMENT after the clauses."""
    defined = [p.definition for p in change.placed if p.definition is not None and p.name.lower() == made[0].name]
    return defined[-1].auto_increment if defined else state.counts_first and made[0].is_of(state.defined[0])


def _remove_new(name: str, made: list[_Made]) -> None:
    for i, column in enumerate(made):
        if column.is_new and column.name == name.lower():
            del made[i]
            return
    raise NotUnderstoodError("a column that the table does not have")


def _effective(placed: list[_Placed], known: set[str]) -> list[_Placed]:
    """Without IF EXISTS of a column that does not exist, and IF NOT EXISTS of one that does or was made just before."""
    kept = []
    added: set[str] = set()
    for one in placed:
        is_idle = one.old.lower() not in known if one.old else one.name.lower() in known | added
        if not (one.conditional and is_idle):
            kept.append(one)
            added.add(one.name.lower())
    return kept


def _place_of(placed: _Placed, columns: list[_Made]) -> int:
    if placed.first:
        return 0
    if not placed.after:
        return len(columns)
    for i, column in enumerate(columns):
        if column.name == placed.after.lower():
            return i + 1
    raise NotUnderstoodError(f"no column {placed.after!r} to stand after")


def _converted(column: ColumnSchema, charset: str | None, dialect: Dialect) -> ColumnSchema:
    """A column that was there before CONVERT TO; one that the same statement defines keeps its type."""
    base = column.base_type
    if charset is None or column.charset in (None, "binary") or base == "json":
        return column
    labels = column.labels
    if labels is None:
        text = converted_type(column.column_type, column.charset, charset, dialect)
    else:
        labels = _relabelled(labels, str(column.charset), charset, dialect)
        text = type_text(ColumnType(base, labels=labels), dialect, charset)
    made = column_from_text(
        column.name, text, charset=None if charset == "binary" else charset, nullable=column.nullable, key=column.key,
        visible=column.visible, virtual=column.virtual,
    )  # fmt: skip
    return attrs.evolve(made, labels=labels)


def _check_members(columns: list[ColumnSchema], dialect: Dialect) -> None:
    """Servers that take members for texts which end with a NUL byte spoil those that have one, or those of two columns.

    Members in ucs2 and its like they keep as hexadecimal digits, which old ones spoil where two columns have the same.
    """
    labelled = [column for column in columns if column.labels is not None]
    narrow = {tuple(_label_bytes(label, one) for label in one.labels or ()) for one in labelled if one.charset not in WIDE}
    if len({tuple(label.partition(b"\0")[0] for label in labels) for labels in narrow}) < len(narrow):
        raise NotUnderstoodError("members of one column may become those of another one")
    if dialect.has("wide_labels"):
        return
    wide = [column.labels for column in labelled if column.charset in WIDE]
    if len(set(wide)) < len(wide) or any(b"\0" in label for labels in narrow for label in labels):
        raise NotUnderstoodError("members are spoiled")


def _label_bytes(label: str, column: ColumnSchema) -> bytes:
    charset = "utf8mb4" if column.charset in (None, "binary") else str(column.charset)
    return encoded(label, charset) if is_sure(label) else label_bytes(label)


def _relabelled(labels: tuple[str, ...], old: str, new: str, dialect: Dialect) -> tuple[str, ...]:
    """The members after CONVERT TO, which keeps their bytes: other texts where the charsets differ, or none."""
    if old == UNTOLD:
        raise NotUnderstoodError("members, and their charset is not known")
    if (old in WIDE or new in WIDE) and old != new and not dialect.has("wide_labels"):
        raise NotUnderstoodError("members are spoiled")
    return tuple(_relabelled_one(label, old, new) for label in labels)


def _relabelled_one(label: str, old: str, new: str) -> str:
    raw = encoded(label, old) if is_sure(label) else label_bytes(label)
    # Servers show a member that their own charset lacks as "?": its bytes are not known then.
    return label if not is_sure(label) and b"?" in raw else label_text(raw, new)


def _keys(
    state: TableState, change: Alteration, dialect: Dialect, columns: list[ColumnSchema], made: list[_Made], row_end: str
) -> tuple[tuple[ColumnSchema, ...], tuple[Key, ...] | None]:
    if state.keys is None:
        return _unknown_keys(state, change, dialect, columns, made), None
    by_name = {column.name.lower(): column for column in columns}
    new_keys = [_with_period(key, change.body) for key in change.body.keys]
    if any(part and part.lower() not in by_name for key in new_keys for part, _ in key.columns):
        raise NotUnderstoodError("a key of a column that the table does not have")
    # MariaDB does not find those by a hash among the constraints.
    constraints = {key.name.lower() for key in state.keys if key.unique and not key.hash} & change.dropped_constraints
    if not dialect.has("unique_constraints"):
        constraints = set()
    dropped = constraints | change.dropped_keys.keys()
    for missing in change.dropped_keys.keys() - {key.name.lower() for key in state.keys}:
        # The index of a foreign key, which is not kept here; but a name like a_2 depends on all others.
        if not change.dropped_keys[missing] and (missing == "primary" or missing.rpartition("_")[2].isdigit()):
            raise NotUnderstoodError(f"no key {missing!r}")
    kept = []
    for key in state.keys:
        if key.name.lower() in dropped:
            continue
        found = (_kept_part(part, state, change, dialect, columns, made) for part in key.columns)
        parts = tuple(part for part in found if part is not None)
        if parts:
            kept.append(attrs.evolve(key, name=change.renamed_keys.get(key.name.lower(), key.name), columns=parts))
    added = [attrs.evolve(key, columns=tuple(_added_part(part, by_name) for part in key.columns)) for key in new_keys]
    ordered = with_points(named_keys(kept, added, state.keys), columns, dialect.is_mariadb)
    if not dialect.has("hash_keys"):  # USING HASH is but a word there
        ordered = [attrs.evolve(key, hash=False) for key in ordered]
    elif change.remakes or len(ordered) > len(kept) or _has_effect(state, change):
        ordered = _rehashed(state, change, ordered[: len(kept)], ordered[len(kept) :], columns, row_end)
    if dialect.logs_functional_keys:
        columns = _with_functional(columns, state.keys, dropped, change.renamed_keys, ordered)
    is_ordered = dialect.has("keeps_key_order") and len(ordered) == len(kept) and not change.copies
    is_ordered = is_ordered and not _is_demoted(state, change, dialect, kept, by_name)
    return with_keys(columns, ordered, row_end, dialect, is_ordered)


def _with_period(key: Key, body: Body) -> Key:
    """A key WITHOUT OVERLAPS, which has the end and the start of its period behind its columns."""
    if not key.period:
        return key
    if key.period.lower() not in body.periods:
        raise NotUnderstoodError("a period that was there before the statement")
    start, end = body.periods[key.period.lower()]
    return attrs.evolve(key, columns=(*key.columns, (end, None), (start, None)), period="")


def _is_demoted(
    state: TableState, change: Alteration, dialect: Dialect, kept: list[Key], columns: dict[str, ColumnSchema]
) -> bool:
    """Whether a column of the key that is shown as primary goes, or may be NULL now: MariaDB then puts all keys in order anew."""
    before = {column.name.lower(): column for column in state.shown}
    if not state.keys or not _is_shown_as_primary(state.keys[0], before, dialect):
        return False
    old = state.keys[0]
    name = change.renamed_keys.get(old.name.lower(), old.name)
    new = next((key for key in kept if key.name == name), None)
    if new is None:
        return old.name.lower() not in change.dropped_keys.keys() | change.dropped_constraints
    may_be_null = not new.is_primary and any(columns[named.lower()].nullable for named, _ in new.columns)
    return len(new.columns) < len(old.columns) or may_be_null


def _added_part(part: tuple[str, int | None], columns: dict[str, ColumnSchema]) -> tuple[str, int | None]:
    """A column of a new key; of a number its bytes may stand there as a prefix."""
    if not part[0]:
        return part
    column, length = columns[part[0].lower()], part[1]
    base = column.base_type
    if length and base.endswith(("text", "blob")):
        return column.name, min(length, text_size(base))
    return column.name, length if length and _takes_prefix(column, length) else None


def _has_effect(state: TableState, change: Alteration) -> bool:
    """Whether clauses, IF EXISTS or not, do more than to give the table another name."""
    columns = {column.name.lower() for column in state.shown}
    keys = {key.name.lower() for key in state.keys or ()}
    others = (change.placed, change.renamed_keys, change.visible, change.charset, change.convert, change.versioned is not None)
    gone = columns & change.dropped.keys() or keys & change.dropped_keys.keys()
    return bool(gone or any(others) or change.engine or change.partitioned is not None)


def _rehashed(
    state: TableState, change: Alteration, kept: list[Key], added: list[Key], columns: list[ColumnSchema], row_end: str
) -> list[Key]:
    """The keys of a table that is made anew, of which USING HASH is forgotten for those that there were."""
    by_name = {column.name.lower(): column for column in columns}
    is_unsure = any(key.unique and not key.is_primary for key in kept)
    if "memory" in (state.engine, change.engine) and change.engine not in ("", state.engine) and is_unsure:
        raise NotUnderstoodError("MEMORY does not tell which keys are USING HASH")
    engine = change.engine or state.engine
    return [_hashed(one, by_name, engine, row_end) for one in [*(attrs.evolve(key, hash=False) for key in kept), *added]]


def _kept_part(
    part: tuple[str, int | None], state: TableState, change: Alteration, dialect: Dialect, columns: list[ColumnSchema],
    made: list[_Made],
) -> tuple[str, int | None] | None:
    """A part of a key that stays, None where its column is gone."""
    old, length = part
    new = _successor(old, made) if old else ""
    if not old or not new:
        return None if old else part
    if length is None and not dialect.is_mariadb and old.lower() not in change.dropped:
        length = _prefix_of_whole(next(column for column in state.shown if column.name.lower() == old.lower()))
    return new, _length(old, new, length, state, change, columns)


def _prefix_of_whole(column: ColumnSchema) -> int | None:
    """What MySQL's key of a whole ENUM, SET or POINT takes of a text instead: its bytes, mostly."""
    if column.base_type == "point":
        return _POINT_BYTES
    if column.labels is None:
        return None
    lengths, size, width = list(map(len, column.labels)), _bytes(column), char_bytes(column.charset)
    most = max(lengths) if column.base_type == "enum" else sum(lengths) + len(lengths) - 1
    return None if most * width == size else size // width or None


def _length(
    old_name: str, name: str, length: int | None, state: TableState, change: Alteration, columns: list[ColumnSchema]
) -> int | None:
    """What a key takes of a column; of a text or geometry in the stead of a dropped column as much as it took of that one."""
    new = next(column for column in columns if column.name.lower() == name.lower())
    if old_name.lower() not in change.dropped:
        if length and new.base_type.endswith(("text", "blob")):
            return min(length, text_size(new.base_type))
        return length if length and _takes_prefix(new, length) else None
    old = next(column for column in state.shown if column.name.lower() == old_name.lower())
    is_whole_text = length is None and old.base_type.endswith(("text", "blob"))
    takes_part = new.charset is not None or new.base_type.endswith(("char", "binary", "blob")) or new.base_type in GEOMETRIES
    if is_whole_text or not takes_part or (old.column_type, old.charset) == (new.column_type, new.charset):
        return length
    found = length or _declared(old) or _bytes(old) // char_bytes(old.charset)
    return None if found in (0, _declared(new)) else found


def _takes_prefix(column: ColumnSchema, length: int) -> bool:
    """Whether a key may take so many characters of the column; else it takes all of it."""
    base = column.base_type
    if base in GEOMETRIES:
        return True
    most = text_size(base) if base.endswith(("text", "blob")) else _declared(column)
    return length <= most


_BYTES = {
    "tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8, "float": 4, "double": 8, "date": 3, "year": 1,
    "timestamp": 4, "datetime": 5, "time": 3, "uuid": 16, "inet4": 4, "inet6": 16, "point": _POINT_BYTES,
}  # fmt: skip


def _bytes(column: ColumnSchema) -> int:
    """What a value takes in a key, of a type that is no text."""
    base, numbers = column.base_type, [int(n) for n in re.findall(r"\d+", column.column_type.partition(")")[0])]
    if base == "bit":
        return (numbers[0] + 7) // 8
    if base == "decimal":
        return sum(digits // 9 * 4 + (digits % 9 + 1) // 2 for digits in (numbers[0] - numbers[1], numbers[1]))
    if column.labels is not None:
        members = len(column.labels)
        return (1 if members < 256 else 2) if base == "enum" else _set_bytes(members)
    if base not in _BYTES:
        raise NotUnderstoodError("how much a key took")
    return _BYTES[base] + ((numbers[0] + 1) // 2 if numbers and base in ("timestamp", "datetime", "time") else 0)


def _set_bytes(members: int) -> int:
    size = (members + 7) // 8
    return 8 if size > 4 else size


def _declared(column: ColumnSchema) -> int:
    """The n of CHAR(n) and the like, 0 for other types."""
    digits = column.column_type.partition("(")[2].rstrip(")")
    return int(digits) if column.base_type.endswith(("char", "binary")) and digits.isdigit() else 0


def _successor(name: str, made: list[_Made]) -> str:
    """The column that takes over from another one in a key: the first that is a change of it, or has its name."""
    wanted = name.lower()
    return next((m.column.name for m in made if (m.old or m.name) == wanted), "")


def _unknown_keys(
    state: TableState, change: Alteration, dialect: Dialect, columns: list[ColumnSchema], made: list[_Made]
) -> tuple[ColumnSchema, ...]:
    """Key flags where the indexes are not known, as far as that goes without them."""
    flagged = {_successor(column.name, made).lower() for column in state.schema.keys}
    nullable = {_successor(column.name, made).lower() for column in state.schema.columns if column.nullable}
    if change.dropped_keys or change.dropped_constraints or "" in flagged:
        raise NotUnderstoodError("a key is dropped, and the others are not known")
    if not flagged and (change.dropped or any(c.name.lower() in nullable and not c.nullable for c in columns)):
        raise NotUnderstoodError("a unique key may become the primary one")
    keys = [_with_period(key, change.body) for key in change.body.keys]
    if flagged and not any(key.is_primary for key in keys):
        keys.insert(0, Key(PRIMARY, True, tuple((named, None) for named in sorted(flagged))))
    return with_keys(columns, keys, "", dialect)[0]


def copied(state: TableState, schema: str, table: str, dialect: Dialect) -> TableState:
    """The table that CREATE TABLE … LIKE makes."""
    named = attrs.evolve(state, schema=TableSchema(schema, table, state.schema.columns))
    return altered(named, Alteration(remakes=True, copies=True), dialect, None)


def created(
    schema: str, table: str, body: Body, dialect: Dialect, charset: str | None, options: Options
) -> TableState:
    """The table that a CREATE TABLE with these brackets makes: an empty one with everything added."""
    change = Alteration(placed=[_Placed(column.name, column) for column in body.columns], body=body)
    change.versioned = options.versioned or body.versioned
    change.engine, change.partitioned = options.engine, options.partitioned
    return altered(TableState(TableSchema(schema, table, ()), charset, (), counted=""), change, dialect, charset)
