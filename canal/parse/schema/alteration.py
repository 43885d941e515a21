"""Parses the clauses of an ALTER TABLE from tokens.

Never applies them, and never guesses: a text that is not fully understood raises NotUnderstoodError.
"""

from __future__ import annotations

import attrs

from canal.parse.schema.definition import engine_name, read_body, read_column, read_definition
from canal.parse.schema.key_definition import at_key, read_key
from canal.parse.schema.parts import PRIMARY, Body, CharsetChoice, ColumnDefinition, Dialect, Key, NotUnderstoodError
from canal.parse.schema.scanner import END, NAME, WORD, Scanner
from canal.parse.schema.words import column_name, expect, join_choices, maybe_charset, pass_value, take_group, take_name
from canal.statement import Table


@attrs.frozen
class Placed:
    """A column that is added, or that replaces ``old``. With ``definition`` None, ``old`` is only renamed to ``name``."""

    name: str
    definition: ColumnDefinition | None
    old: str = ""
    first: bool = False
    after: str = ""
    #: IF EXISTS or IF NOT EXISTS.
    conditional: bool = False


@attrs.define
class Alteration:
    """The clauses of an ALTER TABLE."""

    #: Added and replaced columns, in the order of the text.
    placed: list[Placed] = attrs.field(factory=list)
    #: Dropped columns and keys, each with whether IF EXISTS was given.
    dropped: dict[str, bool] = attrs.field(factory=dict)
    dropped_keys: dict[str, bool] = attrs.field(factory=dict)
    #: Names of dropped keys, checks or foreign keys.
    dropped_constraints: set[str] = attrs.field(factory=set)
    renamed_keys: dict[str, str] = attrs.field(factory=dict)
    visible: dict[str, bool] = attrs.field(factory=dict)
    body: Body = attrs.field(factory=Body)
    charset: CharsetChoice | None = None
    convert: CharsetChoice | None = None
    #: ADD or DROP SYSTEM VERSIONING.
    versioned: bool | None = None
    rename: Table | None = None
    #: CONVERT PARTITION … TO TABLE creates ``split_off``. CONVERT TABLE … TO PARTITION removes ``taken_in``.
    split_off: Table | None = None
    taken_in: Table | None = None
    #: The new engine in lower case, or "".
    engine: str = ""
    #: Whether the table gets or loses partitions; None: no change.
    partitioned: bool | None = None
    #: Whether other clauses rebuild the table.
    remakes: bool = False
    #: Whether the statement is CREATE TABLE … LIKE.
    copies: bool = False


def read_alteration(scan: Scanner, dialect: Dialect, default_schema: str) -> Alteration:
    """Parse the clauses up to the end of the statement. The table's name is already taken."""
    reader = _AlterReader(scan, dialect, default_schema)
    reader.read()
    return reader.found


#: Clauses that change no column, including the words after them up to the next comma.
_HARMLESS = frozenset(
    "ENABLE DISABLE ALGORITHM LOCK FORCE WITH WITHOUT DISCARD IMPORT TRUNCATE COALESCE REORGANIZE EXCHANGE ANALYZE "
    "CHECK OPTIMIZE REBUILD REPAIR SECONDARY_LOAD SECONDARY_UNLOAD UPGRADE NOWAIT WAIT TYPE AUTO_INCREMENT "
    "AVG_ROW_LENGTH CHECKSUM TABLE_CHECKSUM COMMENT CONNECTION DATA INDEX DELAY_KEY_WRITE INSERT_METHOD "
    "KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS PASSWORD ROW_FORMAT STATS_AUTO_RECALC STATS_PERSISTENT "
    "STATS_SAMPLE_PAGES TABLESPACE STORAGE UNION TRANSACTIONAL PAGE_CHECKSUM SEQUENCE ENCRYPTION COMPRESSION "
    "AUTOEXTEND_SIZE ENGINE_ATTRIBUTE SECONDARY_ENGINE SECONDARY_ENGINE_ATTRIBUTE START".split()
)
#: The clauses among them that do not affect the table and keys.
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
            "ADD": self._add,
            "DROP": self._drop,
            "MODIFY": self._modify,
            "CHANGE": self._change,
            "ALTER": self._alter,
            "RENAME": self._rename,
            "CONVERT": self._convert,
        }.get(key)
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
        """Parse table options, which need no commas, and clauses that change no column."""
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
        """Skip an option, or a clause about partitions whose list of names may contain commas."""
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
                self.found.placed.append(Placed(column.name, column, conditional=conditional))
            self._take_keys(inner.keys, conditional)
            body.periods |= inner.periods
            return None
        own = Body()
        self._place(read_column(scan, self.dialect, own), "", conditional, own.keys)
        return None

    def _place(self, column: ColumnDefinition, old: str, conditional: bool, keys: list[Key]) -> None:
        first, after = bool(self.scan.accept("FIRST")), ""
        if not first and self.scan.accept("AFTER"):
            after = take_name(self.scan)
        self.found.remakes |= first or bool(after)  # even if IF EXISTS makes the rest a no-op
        self._take_keys(keys, conditional)
        self.found.placed.append(Placed(column.name, column, old, first, after, conditional))

    def _take_keys(self, keys: list[Key], conditional: bool) -> None:
        """Add the keys of columns. With IF [NOT] EXISTS, MariaDB adds them even if it does not change the columns."""
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
            take_name(scan)
        elif key == "PRIMARY":
            scan.take()
            expect(scan, "KEY")
            found.dropped_keys[PRIMARY.lower()] = False
        elif key in ("INDEX", "KEY"):
            scan.take()
            conditional = self._if_exists()
            found.dropped_keys[take_name(scan).lower()] = conditional
        elif key == "CONSTRAINT":
            scan.take()
            conditional = self._if_exists()
            if scan.accept_all("PRIMARY", "KEY"):
                found.dropped_keys[PRIMARY.lower()] = conditional
            else:
                found.remakes = True
                found.dropped_constraints.add(take_name(scan).lower())
        elif key in ("FOREIGN", "CHECK"):
            found.remakes = True
            scan.take()
            scan.accept("KEY")
            self._if_exists()
            take_name(scan)
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
            take_name(scan)
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
            old = take_name(scan)
            expect(scan, "TO")
            new = take_name(scan)
            if column:
                self.found.placed.append(Placed(new, None, old, conditional=conditional))
            else:
                self.found.renamed_keys[old.lower()] = new
            return
        scan.accept("TO", "AS", "=")
        # A name without a schema belongs to the session's schema, not to the table's.
        self.found.rename = self._table()

    def _table(self) -> Table:
        found = self.scan.table(self.default_schema)
        if found is None:
            raise NotUnderstoodError("a table name is missing")
        return found

    def _convert(self) -> None:
        scan, found = self.scan, self.found
        if scan.accept("PARTITION"):
            take_name(scan)
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
            found.convert = None  # MySQL 5.7 accepts several; the last is effective
            while (choice := maybe_charset(scan)) is not None:
                found.convert = join_choices(found.convert, choice)
            if found.convert is None:
                raise NotUnderstoodError("CONVERT TO what?")


def _skip_clause(scan: Scanner) -> None:
    while not scan.at_end() and scan.peek()[2] != ",":
        if scan.peek()[2] == "(":
            take_group(scan)
        elif scan.take()[0] == END:
            return
