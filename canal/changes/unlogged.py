"""Changes to rows by statements that log no rows.

The text of the statement decides. An uncertain effect counts as a change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from canal.changes.alters import added_values, altered, altered_values
from canal.model import Entry, EventType
from canal.parse.schema.scanner import END, WORD, Scanner
from canal.rows.mask import WITHHELD
from canal.schema import TableSchema
from canal.statement import Statement

NOT_UNDERSTOOD: Final = "a statement that is not understood"


#: Any table of a schema.
ALL: Final = "*"


def statement_of(entry: Entry) -> Statement:
    """Return the parsed statement of an entry."""
    assert entry.statement is not None
    return entry.statement


def text_of(entry: Entry) -> str:
    """Return the text of a statement, even if a mask hides it from users."""
    return statement_of(entry).withheld or entry.sql or ""


def touched(entry: Entry, accepts: Callable[[str, str], bool], known: Collection[TableSchema]) -> list[tuple[str, str]]:
    """Return the tables of the stream that a statement names or may affect."""
    statement = statement_of(entry)
    named = dict.fromkeys((*statement.tables, *(one for pair in statement.renames for one in pair)))
    found = [name for name in named if accepts(*name)]
    if statement.schema_wide or statement.doubtful:
        found += [(one.schema, one.table) for one in known] or [(statement.database or statement.default_schema, ALL)]
    return list(dict.fromkeys(found))


def unlogged(entry: Entry, schema: str, table: str, columns: Collection[str] | None = None) -> str:
    """Describe how a statement changed, or may have changed, a table's rows without logging rows. Return "" if it did not.

    Args:
        columns: report renames of these columns only. None: report renames and drops of all columns.
    """
    return lost(entry, schema, table) or _altered(entry, schema, table, columns)


def lost(entry: Entry, schema: str, table: str) -> str:
    """Return how a statement removed, added or changed rows of a table without a row in the log; "" if it did not.

    An ALTER that changes values is not included; see ``unlogged``.
    """
    statement = statement_of(entry)
    found = _loss(entry, schema, table)
    is_unknown = statement.doubtful or text_of(entry) == WITHHELD and _touches(entry, schema, table)
    if not found and is_unknown and not statement.temporary:
        return f"{NOT_UNDERSTOOD} may have changed {schema}.{table}"
    return found


def _loss(entry: Entry, schema: str, table: str) -> str:
    statement, name = statement_of(entry), f"{schema}.{table}"
    ours, schema, table = _touches(entry, schema, table), schema.lower(), table.lower()
    if statement.temporary:
        return ""
    if statement.kind == "dml" or statement.selects:
        if not ours and statement.doubtful and statement.kind == "dml":
            return f"a statement that does not tell its tables may have changed {name}: its rows are not in the log"
        return f"{name} was changed by a statement, whose rows are not in the log" if ours else ""
    if any((new[0].lower(), new[1].lower()) == (schema, table) for _, new in statement.renames):
        return f"another table was renamed to {name}, with rows that were not in the stream"
    if any((old[0].lower(), old[1].lower()) == (schema, table) for old, _ in statement.renames):
        return f"{name} was renamed"
    words = _words(entry) if ours or statement.schema_wide else ""
    if statement.schema_wide and statement.database.lower() == schema and (statement.replaces or words.startswith("DROP ")):
        return f"{name} was dropped with its database"
    if not ours:
        return ""
    if entry.event_type in (EventType.TRUNCATE, EventType.ERASE):
        return f"{name} was {'emptied by TRUNCATE' if entry.event_type is EventType.TRUNCATE else 'dropped'}"
    if statement.replaces:
        return f"{name} was replaced"
    if _PARTITIONS.search(words):
        return f"partitions of {name} were emptied, dropped or exchanged"
    if _IGNORE.match(words):
        return f"{name} was altered with IGNORE, which leaves out rows"
    return ""


def _altered(entry: Entry, schema: str, table: str, columns: Collection[str] | None) -> str:
    """Describe changed values that only the text of an ALTER shows, not the columns before and after it."""
    if not _touches(entry, schema, table):
        return ""
    if _drops_primary_key(entry):
        return (
            f"an ALTER of {schema}.{table} drops its primary key: a target with that key cannot hold rows which are equal in it"
        )
    if "ALTER" not in statement_of(entry).event_types:
        return ""
    dropped, renamed = _gone(entry)
    gone = dropped | renamed if columns is None else renamed & {name.lower() for name in columns}
    what = f"{', '.join(sorted(gone))} was dropped or renamed" if gone else ""
    if not what and _GENERATED.search(_words(entry)):
        what = "a generated column was defined anew"
    return altered(f"{schema}.{table}", what) if what else ""


def altered_by(
    entry: Entry, schema: str, table: str, known: TableSchema | None, *, chosen: Collection[str] | None = None
) -> str | None:
    """Describe how an ALTER changed, or may have changed, values of existing rows.

    Args:
        known: the table before the ALTER. A table without columns has no rows.
        chosen: check only these existing columns, in lower case. None: check all columns.

    Returns:
        "" if no value changed, or None if the text and the columns before it are not sufficient to decide.
    """
    statement = statement_of(entry)
    if not _touches(entry, schema, table) or "ALTER" not in statement.event_types or known is not None and not known.columns:
        return ""
    sql, words = text_of(entry), _words(entry)
    flavor = "mariadb" if isinstance(entry.transaction.gtid_source, tuple) else "mysql"
    what = added_values(sql, statement, flavor) if chosen is None and _ADDS.search(words) else ""
    if what == "" and _TYPES.search(words):
        what = None if known is None else altered_values(known, sql, statement, flavor)
    if what is None and chosen is not None and not _names_one(entry, chosen):
        what = ""
    return what and altered(f"{schema}.{table}", what)


def _names_one(entry: Entry, columns: Collection[str]) -> bool:
    """Return whether a statement names a column of these, or affects all columns."""
    take = _scanner(entry).take
    while (token := take())[0] != END:
        if token[1].lower() in columns or token[0] == WORD and token[2] == "CONVERT":
            return True
    return False


def dropped(entry: Entry, schema: str, table: str) -> set[str]:
    """Return the lower-case names of columns that an ALTER of the table drops. It may add other columns with these names."""
    return _gone(entry)[0] if _touches(entry, schema, table) and "ALTER" in statement_of(entry).event_types else set()


def _touches(entry: Entry, schema: str, table: str) -> bool:
    return any((one.lower(), other.lower()) == (schema.lower(), table.lower()) for one, other in statement_of(entry).tables)


_PARTITIONS: Final = re.compile(
    r"\b(?:(?:TRUNCATE|DROP|EXCHANGE|DISCARD|IMPORT|CONVERT) (?:PARTITION|TABLESPACE)|CONVERT TABLE)\b"
)
_ADDS: Final = re.compile(r"\bADD\b")
_TYPES: Final = re.compile(r"\b(?:MODIFY|CHANGE|CONVERT TO)\b")
_GENERATED: Final = re.compile(r"\b(?:MODIFY|CHANGE)\b.*\bAS\b")
_IGNORE: Final = re.compile(r"ALTER (?:ONLINE )?IGNORE TABLE\b")


def _scanner(entry: Entry) -> Scanner:
    return Scanner(text_of(entry), statement_of(entry).sql_mode)


def _words(entry: Entry) -> str:
    """Return the words of a statement joined by spaces, without comments. Quoted names, texts and punctuation become "?"."""
    take, found = _scanner(entry).take, []
    while (token := take())[0] != END:
        found.append(token[2] if token[0] == WORD else "?")
    return " ".join(found)


def _gone(entry: Entry) -> tuple[set[str], set[str]]:
    """Return the lower-case names of the columns that an ALTER drops, and the old and new names of those that it renames."""
    scan, dropped, renamed = _scanner(entry), set(), set()
    while (token := scan.take())[0] != END:
        if token[0] != WORD or token[2] not in ("DROP", "CHANGE", "RENAME"):
            continue
        is_column = scan.accept("COLUMN") or token[2] == "CHANGE"
        scan.accept_all("IF", "EXISTS")
        if not scan.at_name() or not is_column and (token[2] == "RENAME" or scan.peek()[2] in _NO_COLUMNS):
            continue
        name = scan.take()[1].lower()
        scan.accept("TO")
        if token[2] == "DROP":
            dropped.add(name)
        elif (new := scan.peek()[1].lower()) != name:
            renamed |= {name, new}
    return dropped, renamed


def _drops_primary_key(entry: Entry) -> bool:
    """Return whether an ALTER drops the primary key, even if it adds another key."""
    scan = _scanner(entry)
    while (token := scan.take())[0] != END:
        if token[0] == WORD and token[2] == "DROP":
            is_index = scan.accept("INDEX") or scan.accept("KEY") or scan.accept("CONSTRAINT")
            scan.accept_all("IF", "EXISTS")
            if scan.peek()[1].upper() == "PRIMARY" and (is_index or scan.peek()[0] == WORD):
                return True
    return False


_NO_COLUMNS: Final = frozenset(
    ("INDEX", "KEY", "CONSTRAINT", "FOREIGN", "PRIMARY", "CHECK", "PARTITION", "PERIOD", "SYSTEM", "DEFAULT")
)
