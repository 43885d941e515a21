"""What a statement of the binary log does: its kind, canal's event type and the tables that it touches.

Never raises, whatever the text, and never reads more of it than the answer needs: an INSERT of many megabytes costs as
much as a short one. It is a scanner with a handler per statement, not a full parser: the names are all at known places.
(sqlglot's tokenizer drops executable comments, keeps RENAME TABLE in one piece, always reads the whole text and raises
on an unfinished one.) What a definition says about columns is the business of the schema history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import attrs

Table = tuple[str, str]

# Verbs of transaction_verb(); plain integers because compiled code compares them.
NO_VERB = 0
BEGIN = 1
COMMIT = 2
ROLLBACK = 3
ROLLBACK_TO = 4
SAVEPOINT = 5
RELEASE_SAVEPOINT = 6
XA_START = 7
XA_END = 8
XA_PREPARE = 9
XA_COMMIT = 10
XA_ROLLBACK = 11

#: Bits of the sql_mode that a QUERY event carries and that change how text is read.
ANSI_QUOTES = 1 << 2
NO_BACKSLASH_ESCAPES = 1 << 20

#: A statement with more tokens than this (seconds of scanning) is called doubtful instead of being read to its end.
MAX_TOKENS = 500_000


@attrs.frozen
class Statement:
    """What a statement does.

    ``kind`` is "begin", "commit", "rollback", "savepoint", "xa", "ddl", "dml" or "other"; ``event_type`` the name of
    canal's event type; ``event_types`` all effects in the order of the text (an ALTER may have several).
    ``tables`` are all (schema, table) pairs that it changes, in the order of the text, names as written; sources that
    it only reads are not among them. A rename has its (old, new) pairs in ``renames`` too; all at once, in order.
    ``schema_wide``: it is about the whole of ``database``. ``doubtful``: it may change tables that could not be named.
    """

    kind: str
    event_type: str
    tables: tuple[Table, ...] = ()
    default_schema: str = ""
    event_types: tuple[str, ...] = ()
    renames: tuple[tuple[Table, Table], ...] = ()
    schema_wide: bool = False
    database: str = ""
    doubtful: bool = False
    #: The tables are temporary ones: no other session sees them and they have no rows in the log. The event type is QUERY.
    temporary: bool = False
    #: IF EXISTS or IF NOT EXISTS was given: it may have done nothing.
    conditional: bool = False
    #: OR REPLACE was given.
    replaces: bool = False
    #: CREATE TABLE … LIKE: the table whose definition was copied.
    like: Table | None = None
    #: CREATE TABLE … SELECT: it also writes rows, which are not in the log as rows.
    selects: bool = False
    #: MySQL's atomic CREATE TABLE … SELECT: a transaction with the rows follows (START TRANSACTION clause).
    starts_transaction: bool = False
    #: One of the verbs above for begin, commit, rollback, savepoint and xa.
    verb: int = NO_VERB
    #: The XA identifier as servers write it, such as ``X'7831',X'62',7``; "" where it does not read as one.
    xid: str = ""
    #: The name of SAVEPOINT and ROLLBACK TO, in lower case, which is how they compare.
    savepoint: str = ""
    #: XA COMMIT … ONE PHASE.
    one_phase: bool = False
    #: OPTIMIZE TABLE: tables whose rows stay; MariaDB makes a table of InnoDB anew, as ALTER TABLE … FORCE does.
    remade: tuple[Table, ...] = ()


# -- transaction statements: the hot path ------------------------------------------------------------------------------

_VERBS = {
    b"BEGIN": BEGIN,
    b"BEGIN WORK": BEGIN,
    b"START TRANSACTION": BEGIN,
    b"COMMIT": COMMIT,
    b"COMMIT WORK": COMMIT,
    b"ROLLBACK": ROLLBACK,
    b"ROLLBACK WORK": ROLLBACK,
}
_PREFIXES = (
    (re.compile(rb"SAVEPOINT[\s`\"/]"), SAVEPOINT),
    (re.compile(rb"ROLLBACK\s+(?:WORK\s+)?TO[\s`\"/]"), ROLLBACK_TO),
    (re.compile(rb"RELEASE\s+SAVEPOINT[\s`\"/]"), RELEASE_SAVEPOINT),
    (re.compile(rb"XA\s+(?:START|BEGIN)\b"), XA_START),
    (re.compile(rb"XA\s+END\b"), XA_END),
    (re.compile(rb"XA\s+PREPARE\b"), XA_PREPARE),
    (re.compile(rb"XA\s+COMMIT\b"), XA_COMMIT),
    (re.compile(rb"XA\s+ROLLBACK\b"), XA_ROLLBACK),
)
#: First bytes of the statements above, and of blanks and comments that may come before one.
_CANDIDATES = frozenset(b"bcrsxBCRSX/-# \t\r\n\x0b\x0c")
_BLANK = r"\s++|/\*(?!M?!)(?:[^*]++|\*(?!/))*+\*/|--(?=\s|\Z)[^\n]*+|#[^\n]*+"
_LEADING = re.compile(f"(?:{_BLANK})++".encode())
_LEADING_TEXT = re.compile(f"(?:{_BLANK})++", re.ASCII)
_TRAILING = re.compile(f"(?:{_BLANK}|;)++\\Z".encode())
#: Transaction statements are short; anything longer after its leading comments is something else.
_LONGEST = 400


def transaction_verb(sql: bytes) -> int:
    """Which transaction statement it is, or ``NO_VERB``. Exact: ``BEGIN`` is one, ``DROP TABLE my_begin`` is not."""
    verb = _VERBS.get(sql)
    if verb is not None:
        return verb
    if not sql or sql[0] not in _CANDIDATES:
        return NO_VERB
    return _slow_verb(sql)[0]


def _slow_verb(sql: bytes) -> tuple[int, bytes]:
    """The verb, and the text without comments around it."""
    leading = _LEADING.match(sql)
    start = leading.end() if leading else 0
    if len(sql) - start > _LONGEST:
        return NO_VERB, b""
    core = sql[start:]
    upper = core.upper()
    for pattern, verb in _PREFIXES:
        if pattern.match(upper):
            return verb, core
    trailing = _first_trailing(core)
    return _VERBS.get(b" ".join(upper[:trailing].split()), NO_VERB), core


def _first_trailing(core: bytes) -> int:
    """Where the blanks, semicolons and comments begin that end the text (its length if there are none)."""
    for found in re.finditer(rb"[\s;/#-]", core):
        if _TRAILING.match(core, found.start()):
            return found.start()
    return len(core)


_KINDS = {
    BEGIN: ("begin", "QUERY"),
    COMMIT: ("commit", "QUERY"),
    ROLLBACK: ("rollback", "QUERY"),
    ROLLBACK_TO: ("rollback", "QUERY"),
    SAVEPOINT: ("savepoint", "QUERY"),
    RELEASE_SAVEPOINT: ("savepoint", "QUERY"),
    XA_START: ("xa", "QUERY"),
    XA_END: ("xa", "QUERY"),
    XA_PREPARE: ("xa", "QUERY"),
    XA_COMMIT: ("xa", "XACOMMIT"),
    XA_ROLLBACK: ("xa", "XAROLLBACK"),
}
_EXACT = {text.decode(): Statement(*_KINDS[verb], verb=verb) for text, verb in _VERBS.items()}
_XA_TEXT = re.compile(r"XA\s+\w+\s+(.*?)(\s+ONE\s+PHASE)?[\s;]*\Z", re.IGNORECASE | re.DOTALL)
_XID_PART = r"(?:[xX]'([0-9a-fA-F]*)'|0x([0-9a-fA-F]+)|'([^'\\]*)')"
_XID = re.compile(rf"{_XID_PART}(?:\s*,\s*{_XID_PART}(?:\s*,\s*(\d+))?)?", re.ASCII)
_SAVEPOINT = re.compile(r"(?:ROLLBACK\s+(?:WORK\s+)?TO\s*(?:SAVEPOINT\b)?|SAVEPOINT)\s*(.*?)[\s;]*\Z", re.IGNORECASE | re.DOTALL)


def _normal_xid(text: str) -> str:
    """One spelling for the text of a statement and the fields of an XA_PREPARE event."""
    found = _XID.fullmatch(text)
    if found is None:
        return ""
    parts = [
        (found[at] or found[at + 1] or (found[at + 2] or "").encode("utf-8", "surrogatepass").hex()).lower() for at in (1, 4)
    ]
    return f"X'{parts[0]}',X'{parts[1]}',{int(found[7] or 1) & 0xFFFFFFFF}"


def _savepoint_name(text: str) -> str:
    found = _SAVEPOINT.match(text)
    name = found[1] if found else ""
    return (name[1:-1].replace("``", "`") if name[:1] == name[-1:] == "`" and len(name) > 1 else name).lower()


def _transaction_statement(sql: str, default_schema: str) -> Statement | None:
    head = sql[:1]
    if not head or ord(head) not in _CANDIDATES:
        return None
    leading = _LEADING_TEXT.match(sql)
    start = leading.end() if leading else 0
    if len(sql) - start > _LONGEST:
        return None
    verb, core = _slow_verb(sql[start:].encode("utf-8", "surrogatepass"))
    if verb == NO_VERB:
        return None
    kind, event_type = _KINDS[verb]
    xid, one_phase, savepoint = "", False, ""
    text = core.decode("utf-8", "surrogatepass")
    if kind == "xa":
        found = _XA_TEXT.match(text)
        if found:
            xid, one_phase = _normal_xid(found[1]), found[2] is not None
    elif verb in (SAVEPOINT, ROLLBACK_TO):
        savepoint = _savepoint_name(text)
    return Statement(
        kind, event_type, (), default_schema, verb=verb, xid=xid, one_phase=one_phase, savepoint=savepoint
    )


# -- the scanner -------------------------------------------------------------------------------------------------------

WORD, NAME, STRING, MARK, END = "word", "name", "string", "mark", "end"

#: (kind, text, key): ``key`` is the upper-case word or the mark, "" for quoted names and strings (``"`` for a
#: double-quoted string): compare it.
Token = tuple[str, str, str]
_END_TOKEN: Token = (END, "", "")


@lru_cache(maxsize=None)
def _lexer(backslash: bool, ansi: bool) -> re.Pattern[str]:
    """Rules of the server's lexer. Every repetition is possessive: no text can make it search back."""
    escape = r"[^{q}\\]++|\\.|{q}{q}" if backslash else "[^{q}]++|{q}{q}"
    single = escape.format(q="'")
    double = '[^"]++|""' if ansi else escape.format(q='"')
    return re.compile(
        rf"""
          (?P<skip>(?:[\x00\x09-\x0d\x20]++|--(?=[\x00-\x20]|\Z)[^\n]*+|\#[^\n]*+)++)
        | (?P<open>/\*M?!(?:[0-9]{{5,6}})?+)
        | (?P<comment>/\*(?:[^*]++|\*(?!/))*+\*/)
        | (?P<close>\*/)
        | (?P<word>[0-9A-Za-z_$\x80-\U0010ffff]++)
        | `(?P<name>(?:[^`]++|``)*+)`
        | '(?P<string>(?:{single})*+)'
        | "(?P<double>(?:{double})*+)"
        | (?P<broken>['"`]|/\*)
        | (?P<mark>.)
        """,
        re.VERBOSE | re.DOTALL,
    )


_PLAIN_COMMENT = re.compile(r"/\*(?:[^*]++|\*(?!/))*+\*/", re.DOTALL)
#: Characters that MySQL keeps as "?" in names, which MariaDB refuses.
_BEYOND_3_BYTES = re.compile("[\U00010000-\U0010ffff]")


class Scanner:
    """Tokens of a text, produced when asked for. The contents of executable comments are part of the text.

    ``flavor`` "mysql" makes ``/*M! */`` a plain comment, and names those that MySQL keeps. (A server blanks the ``!`` of
    comments that it does not execute before it writes the text to its log, so versions need no look.) Unfinished quotes or
    comments end the tokens and set ``broken``.
    """

    def __init__(self, sql: str, sql_mode: int = 0, flavor: str = "") -> None:
        self.broken = False
        self._count = 0
        self._ahead: list[Token] = []
        self._tokens = self._scan(sql, sql_mode, flavor == "mysql")

    def _scan(self, sql: str, sql_mode: int, mysql: bool) -> Iterator[Token]:
        ansi = bool(sql_mode & ANSI_QUOTES)
        match = _lexer(not sql_mode & NO_BACKSLASH_ESCAPES, ansi).match
        place, inside = 0, 0
        while found := match(sql, place):
            place = found.end()
            kind = found.lastgroup
            text = found[kind] if kind else ""
            if mysql and not text.isascii() and (kind in ("word", "name") or (kind == "double" and ansi)):
                text = _BEYOND_3_BYTES.sub("?", text)
            if kind == "word":
                yield (WORD, text, text.upper() if text.isascii() else text)
            elif kind == "name":
                yield (NAME, text.replace("``", "`"), "")
            elif kind == "string":
                yield (STRING, text, "")  # as written: quotes doubled, backslashes in place
            elif kind == "double":  # a name with ANSI_QUOTES, a string without: the place tells
                yield (NAME, text.replace('""', '"'), "") if ansi else (STRING, text.replace('""', '"'), '"')
            elif kind == "mark":
                yield (MARK, text, text)
            elif kind == "open":
                if mysql and text[2] == "M":
                    comment = _PLAIN_COMMENT.match(sql, found.start())
                    if comment is None:
                        self.broken = True
                        return
                    place = comment.end()
                else:
                    inside += 1
            elif kind == "close":
                if inside:
                    inside -= 1
                else:
                    yield (MARK, "*/", "*/")
            elif kind == "broken":
                self.broken = True
                return

    def peek(self, distance: int = 0) -> Token:
        """A coming token, without taking it."""
        while len(self._ahead) <= distance:
            self._count += 1
            if self._count > MAX_TOKENS:
                self.broken = True
                return _END_TOKEN
            self._ahead.append(next(self._tokens, _END_TOKEN))
        return self._ahead[distance]

    def take(self) -> Token:
        """The next token; END for ever once there is none."""
        token = self.peek()
        if self._ahead:
            self._ahead.pop(0)
        return token

    def accept(self, *keys: str) -> str:
        """Take the next token if it is one of these keywords or marks; gives it, or ""."""
        key = self.peek()[2]
        if key and key in keys:
            self.take()
            return key
        return ""

    def accept_all(self, *keys: str) -> bool:
        """Take these keywords if all of them come next."""
        if all(self.peek(i)[2] == key for i, key in enumerate(keys)):
            for _ in keys:
                self.take()
            return True
        return False

    def at_name(self) -> bool:
        kind, _, key = self.peek()
        return kind == WORD or kind == NAME or key == '"'

    def table(self, default_schema: str) -> Table | None:
        """A table's name, ``t`` or ``s.t`` or ``.t``; None if there is none here."""
        self.accept(".")
        if not self.at_name():
            return None
        first = self.take()[1]
        if self.peek()[2] != "." or self.peek(1)[2] == "*":
            return (default_schema, first)
        self.take()
        if not self.at_name():
            return None
        return (first, self.take()[1])

    def skip_group(self) -> None:
        """Skip a group in parentheses; the opening one comes next."""
        depth = 0
        while (token := self.take())[0] != END:
            if token[2] == "(":
                depth += 1
            elif token[2] == ")":
                depth -= 1
                if depth <= 0:
                    return

    def at_end(self) -> bool:
        """At the end of the statement: of the text or at a semicolon."""
        token = self.peek()
        return token[0] == END or token[2] == ";"


# -- handlers ----------------------------------------------------------------------------------------------------------

_OTHER_VERBS = frozenset(
    "GRANT REVOKE SET FLUSH ANALYZE REPAIR CHECK CHECKSUM INSTALL UNINSTALL LOCK UNLOCK USE RESET CHANGE "
    "START STOP KILL SHOW DESCRIBE DESC EXPLAIN HELP PREPARE EXECUTE DEALLOCATE SHUTDOWN RESTART CLONE BINLOG CACHE "
    "HANDLER PURGE SIGNAL RESIGNAL GET BACKUP".split()
)
#: Objects of CREATE, ALTER and DROP that are no tables.
_OTHER_OBJECTS = frozenset(
    "VIEW FUNCTION PROCEDURE TRIGGER EVENT PACKAGE USER ROLE SERVER TABLESPACE LOGFILE RESOURCE INSTANCE LIBRARY "
    "CATALOG PREPARE REFERENCE COMPRESSION_DICTIONARY".split()
)
#: Words that may stand between CREATE, ALTER or DROP and the object.
_MODIFIERS = frozenset(
    "OR REPLACE TEMPORARY ONLINE OFFLINE IGNORE UNIQUE FULLTEXT SPATIAL VECTOR AGGREGATE UNDO EXTERNAL MATERIALIZED "
    "JSON RELATIONAL DUALITY GLOBAL".split()
)
_TABLE_WORDS = ("TABLE", "TABLES")
_INDEX_WORDS = ("INDEX", "KEY")
#: Items of an ALTER TABLE that change nothing by themselves.
_MANNERS = frozenset(("ALGORITHM", "LOCK"))


def _doubtful(schema: str) -> Statement:
    return Statement("ddl", "QUERY", default_schema=schema, doubtful=True)


def _other(schema: str) -> Statement:
    return Statement("other", "QUERY", default_schema=schema)


def _opaque_dml(schema: str) -> Statement:
    """A statement that was logged because it changes rows, by ways that its text does not show (a stored function)."""
    return Statement("dml", "QUERY", default_schema=schema, doubtful=True)


def _unique(items: list[Table]) -> tuple[Table, ...]:
    return tuple(dict.fromkeys(items))


def _if_exists(scan: Scanner) -> bool:
    if scan.accept("IF"):
        scan.accept("NOT")
        scan.accept("EXISTS")
        return True
    return False


def _wait(scan: Scanner) -> None:
    """MariaDB's WAIT n or NOWAIT."""
    if not scan.accept("NOWAIT") and scan.peek()[2] == "WAIT" and scan.peek(1)[1].isdigit():
        scan.take()
        scan.take()


def _user(scan: Scanner) -> None:
    """The user after DEFINER: ``= name@host`` or CURRENT_USER()."""
    scan.accept("=")
    scan.take()
    if scan.accept("@"):
        scan.take()
    elif scan.accept("("):
        scan.accept(")")


def _object(scan: Scanner) -> tuple[str, frozenset[str]]:
    """The object of a CREATE, ALTER or DROP, taken, and the modifiers before it."""
    modifiers = set()
    while True:
        key = scan.take()[2]
        if key == "DEFINER":
            _user(scan)
        elif key == "ALGORITHM":
            scan.accept("=")
            scan.take()
        elif key == "SQL":
            scan.accept("SECURITY")
            scan.take()
        elif key in _MODIFIERS:
            modifiers.add(key)
        else:
            return key, frozenset(modifiers)


def created_or_altered(scan: Scanner, schema: str) -> Table | None:
    """The table of the CREATE TABLE or ALTER TABLE that begins here, taken; None (and nothing told) for anything else."""
    if not scan.accept("CREATE", "ALTER") or _object(scan)[0] != "TABLE":
        return None
    _if_exists(scan)
    return scan.table(schema)


def _create(scan: Scanner, schema: str) -> Statement:
    what, modifiers = _object(scan)
    if what in ("TABLE", "SEQUENCE"):
        return _create_table(scan, schema, modifiers)
    if what == "INDEX":
        return _index(scan, schema, "CINDEX")
    if what in ("DATABASE", "SCHEMA"):
        return _database(scan, schema, "REPLACE" in modifiers)
    return _other(schema) if what in _OTHER_OBJECTS else _doubtful(schema)


def _create_table(scan: Scanner, schema: str, modifiers: frozenset[str]) -> Statement:
    conditional = _if_exists(scan)
    table = scan.table(schema)
    if table is None:
        return _doubtful(schema)
    like, selects, starts = _definition(scan, schema)
    temporary = "TEMPORARY" in modifiers
    event_type = "QUERY" if temporary else "CREATE"
    return Statement(
        "ddl", event_type, (table,), schema, (event_type,), temporary=temporary, conditional=conditional,
        replaces="REPLACE" in modifiers, like=like, selects=selects, starts_transaction=starts, doubtful=scan.broken,
    )  # fmt: skip


def _definition(scan: Scanner, schema: str) -> tuple[Table | None, bool, bool]:
    """The rest of a CREATE TABLE: (LIKE, SELECT, START TRANSACTION)."""
    parenthesis = scan.peek()[2] == "(" and scan.peek(1)[2] == "LIKE"
    if parenthesis:
        scan.take()
    if scan.accept("LIKE"):
        like = scan.table(schema)
        scan.accept(")")
        return like, False, False
    depth = 0
    starts = False
    before = ""
    while not (scan.at_end() and (depth <= 0 or scan.peek()[0] == END)):
        key = scan.take()[2]
        if key == "(":
            depth += 1
        elif key == ")":
            depth -= 1
        elif key == "SELECT" and before != ".":  # reserved: as a name it would be quoted
            return None, True, False
        starts = key == "TRANSACTION" and before == "START" and depth <= 0
        before = key
    return None, False, starts


def _index(scan: Scanner, schema: str, event_type: str) -> Statement:
    conditional = _if_exists(scan)
    while not scan.at_end():
        if scan.take()[2] == "ON":
            table = scan.table(schema)
            if table is not None:
                _skip_statement(scan)
                return Statement("ddl", event_type, (table,), schema, (event_type,), conditional=conditional)
            break
    return _doubtful(schema)


def _database(scan: Scanner, schema: str, replaces: bool = False, unnamed: bool = False) -> Statement:
    conditional = _if_exists(scan)
    name = schema
    if scan.at_name() and not (unnamed and _is_database_option(scan)):
        name = scan.take()[1]
    _skip_statement(scan)
    return Statement(
        "ddl", "QUERY", (), schema, ("QUERY",), schema_wide=True, database=name, conditional=conditional,
        replaces=replaces,
    )  # fmt: skip


def _is_database_option(scan: Scanner) -> bool:
    """ALTER DATABASE without a name: what comes is an option already."""
    key, after = scan.peek()[2], scan.peek(1)
    if key in ("DEFAULT", "COLLATE", "CHARACTER"):  # reserved words
        return True
    if key == "READ":
        return after[2] == "ONLY"
    return key in ("CHARSET", "ENCRYPTION", "COMMENT") and (after[0] != WORD or key == "CHARSET")


def _drop(scan: Scanner, schema: str) -> Statement:
    what, modifiers = _object(scan)
    if what in _TABLE_WORDS or what == "SEQUENCE":
        conditional = _if_exists(scan)
        tables = _table_list(scan, schema)
        _wait(scan)
        scan.accept("RESTRICT", "CASCADE")
        doubtful = not tables or not scan.at_end() or scan.broken
        temporary = "TEMPORARY" in modifiers
        effect = "QUERY" if temporary else "ERASE"
        _skip_statement(scan)
        return Statement(
            "ddl", effect if tables else "QUERY", _unique(tables), schema, (effect,), conditional=conditional,
            temporary=temporary, doubtful=doubtful,
        )  # fmt: skip
    if what == "INDEX":
        return _index(scan, schema, "DINDEX")
    if what in ("DATABASE", "SCHEMA"):
        return _database(scan, schema)
    return _other(schema) if what in _OTHER_OBJECTS else _doubtful(schema)


def _table_list(scan: Scanner, schema: str) -> list[Table]:
    tables = []
    while (table := scan.table(schema)) is not None:
        tables.append(table)
        if not scan.accept(","):
            break
    return tables


def _truncate(scan: Scanner, schema: str) -> Statement:
    scan.accept("TABLE")
    table = scan.table(schema)
    if table is None:
        return _doubtful(schema)
    _wait(scan)
    return Statement("ddl", "TRUNCATE", (table,), schema, ("TRUNCATE",), doubtful=scan.broken or not scan.at_end())


def _optimize(scan: Scanner, schema: str) -> Statement:
    scan.accept("NO_WRITE_TO_BINLOG", "LOCAL")
    if not scan.accept(*_TABLE_WORDS):
        return _doubtful(schema)
    return Statement("other", "QUERY", default_schema=schema, remade=tuple(_table_list(scan, schema)))


def _rename(scan: Scanner, schema: str) -> Statement:
    if scan.accept("USER"):
        return _other(schema)
    if scan.accept("DATABASE", "SCHEMA"):  # MySQL 5.1.7 to 5.1.22 had it
        return _doubtful(schema)
    if not scan.accept(*_TABLE_WORDS):
        return _doubtful(schema)
    conditional = _if_exists(scan)
    pairs = []
    while True:
        old = scan.table(schema)
        _wait(scan)
        new = scan.table(schema) if scan.accept("TO") else None
        if old is None or new is None:
            break
        pairs.append((old, new))
        if not scan.accept(","):
            break
    if not pairs:
        return _doubtful(schema)
    doubtful = old is None or new is None or scan.broken or not scan.at_end()
    tables = _unique([table for pair in pairs for table in pair])
    return Statement(
        "ddl", "RENAME", tables, schema, ("RENAME",), tuple(pairs), conditional=conditional, doubtful=doubtful,
    )  # fmt: skip


def _alter(scan: Scanner, schema: str) -> Statement:
    what, _ = _object(scan)
    if what == "SEQUENCE" or what == "TABLE":
        conditional = _if_exists(scan)
        table = scan.table(schema)
        if table is None:
            return _doubtful(schema)
        _wait(scan)
        return _alter_items(scan, schema, table, conditional)
    if what in ("DATABASE", "SCHEMA"):
        return _database(scan, schema, unnamed=True)
    return _other(schema) if what in _OTHER_OBJECTS else _doubtful(schema)


def _alter_items(scan: Scanner, schema: str, table: Table, conditional: bool) -> Statement:
    effects: list[str] = []
    tables = [table]
    renames: list[tuple[Table, Table]] = []
    while True:
        effect = _alter_item(scan, schema, table, tables, renames)
        if effect and effect not in effects:
            effects.append(effect)
        if not _next_item(scan):
            break
    if not effects:
        effects.append("ALTER")
    # canal tells the first effect only; here it is the one that matters most, and event_types has all.
    event_type = next((e for e in ("RENAME", "ALTER") if e in effects), effects[0])
    return Statement(
        "ddl", event_type, _unique(tables), schema, tuple(effects), tuple(renames[-1:]), conditional=conditional,
        doubtful=scan.broken,
    )  # fmt: skip


def _alter_item(
    scan: Scanner, schema: str, table: Table, tables: list[Table], renames: list[tuple[Table, Table]]
) -> str:
    """Effect of the item that begins here ("" for none); its rest is left for the caller to skip."""
    key = scan.peek()[2]
    if key == "ADD":
        scan.take()
        return _add_item(scan)
    if key == "DROP":
        scan.take()
        return "DINDEX" if scan.peek()[2] in ("INDEX", "KEY", "CONSTRAINT") else "ALTER"
    if key == "RENAME" and scan.peek(1)[2] not in ("COLUMN", "INDEX", "KEY"):
        scan.take()
        scan.accept("TO", "AS", "=")
        # A bare name is one in the session's schema, not in that of the table (seen on MySQL 9.7 and MariaDB 10.11).
        new = scan.table(schema)
        if new is None:
            return "ALTER"
        tables.append(new)
        renames.append((table, new))
        return "RENAME"
    if key in ("EXCHANGE", "CONVERT"):
        scan.take()
        other = _partition_table(scan, schema, key)
        if other is not None:
            tables.append(other)
        return "ALTER"
    return "" if key in _MANNERS and scan.peek(1)[0] in (WORD, MARK) else "ALTER"


def _add_item(scan: Scanner) -> str:
    if scan.accept("CONSTRAINT") and scan.peek()[2] not in ("UNIQUE", "PRIMARY", "FOREIGN", "CHECK"):
        scan.take()
    key = scan.peek()[2]
    if key in ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL"):
        return "CINDEX"
    if key == "VECTOR" and scan.peek(1)[2] in _INDEX_WORDS:
        return "CINDEX"
    return "ALTER"


def _partition_table(scan: Scanner, schema: str, key: str) -> Table | None:
    """The t of EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t, CONVERT TABLE t TO PARTITION p."""
    if key == "CONVERT" and scan.accept("TABLE"):
        return scan.table(schema)
    if not scan.accept("PARTITION"):
        return None
    scan.take()
    if scan.accept_all("WITH", "TABLE") or scan.accept_all("TO", "TABLE"):
        return scan.table(schema)
    return None


def _next_item(scan: Scanner) -> bool:
    """Skip to the next item of a list, taking the comma; False at the end of the statement."""
    while not scan.at_end():
        key = scan.peek()[2]
        if key == "(":
            scan.skip_group()
            continue
        scan.take()
        if key == ",":
            return True
    return False


def _skip_statement(scan: Scanner) -> None:
    while _next_item(scan):
        pass


# -- statement-format changes of rows ----------------------------------------------------------------------------------

_INSERT_WORDS = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
_AFTER_TABLE = frozenset(
    "SET WHERE ON USING JOIN INNER CROSS LEFT RIGHT FULL NATURAL STRAIGHT_JOIN PARTITION USE IGNORE FORCE ORDER LIMIT "
    "FOR RETURNING".split()
)


def _dml(event_type: str, tables: list[Table], schema: str) -> Statement:
    if not tables:
        return Statement("dml", event_type, (), schema, doubtful=True)
    return Statement("dml", event_type, _unique(tables), schema)


def _insert(scan: Scanner, schema: str) -> Statement:
    while scan.accept(*_INSERT_WORDS):
        pass
    table = scan.table(schema)
    return _dml("INSERT", [table] if table else [], schema)


def _load(scan: Scanner, schema: str) -> Statement:
    if scan.peek()[2] not in ("DATA", "XML"):
        return _other(schema)
    while not scan.at_end():
        if scan.take()[2] == "INTO" and scan.accept("TABLE"):
            table = scan.table(schema)
            return _dml("INSERT", [table] if table else [], schema)
    return _dml("INSERT", [], schema)


def _update(scan: Scanner, schema: str) -> Statement:
    """All tables of the list: which of them the SET names would need their columns."""
    while scan.accept("LOW_PRIORITY", "IGNORE"):
        pass
    return _dml("UPDATE", [table for _, table in _references(scan, schema, ("SET",))], schema)


def _delete(scan: Scanner, schema: str) -> Statement:
    while scan.accept("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY"):
        pass
    targets_last = scan.accept("FROM")
    targets = _delete_targets(scan, schema)
    if targets_last and not scan.accept("USING"):
        return _dml("DELETE", [table for _, table in targets], schema)
    if not targets_last and not scan.accept("FROM"):
        return _dml("DELETE", [], schema)
    references = _references(scan, schema, ("WHERE", "ORDER", "LIMIT", "RETURNING"))
    aliases = {alias.lower(): table for alias, table in references}
    return _dml("DELETE", [t if owned else aliases.get(t[1].lower(), t) for owned, t in targets], schema)


def _delete_targets(scan: Scanner, schema: str) -> list[tuple[bool, Table]]:
    """Names before USING or FROM, or of the only table: (has a schema of its own, name)."""
    targets = []
    while True:
        owned = scan.peek(1)[2] == "." and scan.peek(2)[2] != "*"
        table = scan.table(schema)
        if table is None:
            break
        targets.append((owned, table))
        if scan.accept("."):
            scan.accept("*")
        if not scan.accept(","):
            break
    return targets


def _references(scan: Scanner, schema: str, stop: tuple[str, ...]) -> list[tuple[str, Table]]:
    """(alias, table) of a list of table references up to one of the words; derived tables are only read."""
    found = []
    expect = True
    while not scan.at_end() and scan.peek()[2] not in stop:
        key = scan.peek()[2]
        if key == "(":
            if expect and scan.peek(1)[2] not in ("SELECT", "WITH", "VALUES", "TABLE"):
                scan.take()
            else:
                scan.skip_group()
                expect = False
        elif key in (",", "JOIN", "STRAIGHT_JOIN"):
            scan.take()
            expect = True
        elif key == "{":  # ODBC: { OJ a LEFT JOIN b … }
            scan.take()
            scan.take()
        elif key == "LATERAL" or not expect or not scan.at_name():
            scan.take()
        elif scan.peek(1)[2] == "(":  # a table function
            scan.take()
            expect = False
        else:
            expect = False
            table = scan.table(schema)
            if table is not None:
                found.append((_alias(scan) or table[1], table))
    return found


def _alias(scan: Scanner) -> str:
    if scan.peek()[2] == "PARTITION":
        scan.take()
        scan.skip_group()
    named = scan.accept("AS")
    if scan.at_name() and (named or scan.peek()[2] not in _AFTER_TABLE):
        return scan.take()[1]
    return ""


def _with(scan: Scanner, schema: str) -> Statement:
    """Common table expressions before an UPDATE or DELETE."""
    while not scan.at_end():
        key = scan.peek()[2]
        if key == "(":
            scan.skip_group()
        elif key == "SELECT":
            break
        else:
            scan.take()
            handler = _AFTER_WITH.get(key)
            if handler is not None:
                return handler(scan, schema)
    return _opaque_dml(schema)


def _set(scan: Scanner, schema: str) -> Statement:
    """SET STATEMENT … FOR (MariaDB) stands before any statement; every other SET changes no table."""
    if not scan.accept("STATEMENT"):
        return _other(schema)
    while not scan.at_end():
        if scan.peek()[2] == "(":
            scan.skip_group()
        elif scan.take()[2] == "FOR":
            return _one(scan, schema)
    return _doubtful(schema)


_Handler = Callable[[Scanner, str], Statement]
_AFTER_WITH: dict[str, _Handler] = {"INSERT": _insert, "REPLACE": _insert, "UPDATE": _update, "DELETE": _delete}
_HANDLERS: dict[str, _Handler] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "OPTIMIZE": _optimize,
    "RENAME": _rename,
    "INSERT": _insert,
    "REPLACE": _insert,
    "LOAD": _load,
    "UPDATE": _update,
    "DELETE": _delete,
    "WITH": _with,
    "SET": _set,
}
_OPAQUE_DML = frozenset(("SELECT", "CALL", "DO", "VALUES", "TABLE", "("))


def _one(scan: Scanner, schema: str) -> Statement:
    """The statement that begins at the next token."""
    key = scan.take()[2]
    handler = _HANDLERS.get(key)
    if handler is not None:
        return handler(scan, schema)
    if key in _OTHER_VERBS:
        return _other(schema)
    if key in _OPAQUE_DML:
        return _opaque_dml(schema)
    return _doubtful(schema)


def _merge(first: Statement, second: Statement) -> Statement:
    """Two statements of one text: every effect of both, told under the type of the first."""
    return attrs.evolve(
        first,
        event_type=second.event_type if first.temporary and second.event_types else first.event_type,
        tables=_unique([*first.tables, *second.tables]),
        event_types=tuple(dict.fromkeys((*first.event_types, *(second.event_types or (second.event_type,))))),
        renames=first.renames + second.renames,
        schema_wide=first.schema_wide or second.schema_wide,
        database=first.database or second.database,
        doubtful=first.doubtful or second.doubtful or (first.schema_wide and second.schema_wide),
        temporary=first.temporary and second.temporary,
    )


def classify(sql: str, default_schema: str, *, sql_mode: int = 0, flavor: str = "") -> Statement:
    """What ``sql`` does in a session whose current schema is ``default_schema``.

    ``sql_mode`` (from the event's status variables) decides what double quotes and backslashes mean; with 0 a
    double-quoted word is taken as a name wherever only a name can stand. ``flavor``: see :class:`Scanner`.
    """
    statement = _EXACT.get(sql) or _transaction_statement(sql, default_schema)
    if statement is not None:
        return statement
    scan = Scanner(sql, sql_mode, flavor)
    while scan.accept(";"):
        pass
    if scan.peek()[0] == END:  # only blanks and comments
        return _doubtful(default_schema) if scan.broken else _other(default_schema)
    statement = _one(scan, default_schema)
    while statement.kind == "ddl" and scan.accept(";"):
        if scan.at_end():
            continue
        following = _one(scan, default_schema)
        if following.kind in ("ddl", "dml"):
            statement = _merge(statement, following)
        if following.kind != "ddl":
            break
    return statement
