"""Parses keys, constraints and periods of a CREATE TABLE or ALTER TABLE.

Never guesses: a text that is not fully understood raises NotUnderstoodError.
"""

from __future__ import annotations

from canal.parse.schema.parts import PRIMARY, Body, Dialect, Key, NotUnderstoodError
from canal.parse.schema.scanner import NAME, WORD, Scanner
from canal.parse.schema.words import expect, pass_references, take_group, take_name, take_number

_KEY_WORDS = ("KEY", "INDEX")
_KEY_STARTS = frozenset(
    ("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK", "PERIOD", "VECTOR")
)


def at_key(scan: Scanner) -> bool:
    """Return whether a key, a constraint or a period begins here rather than a column."""
    key, after = scan.peek()[2], scan.peek(1)[2]
    if key == "PERIOD":
        return after == "FOR"
    if key == "VECTOR":
        return after in (*_KEY_WORDS, "(")
    return key in _KEY_STARTS


def read_key(scan: Scanner, dialect: Dialect, body: Body) -> None:
    """Parse a key, a constraint or a period."""
    named = ""
    if scan.accept("CONSTRAINT"):
        _if_not_exists(scan)
        if scan.peek()[2] not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            named = take_name(scan)
    word = scan.take()[2]
    if word == "PERIOD":
        return _period(scan, body)
    if word == "CHECK":
        take_group(scan)
        scan.accept("NOT")
        scan.accept("ENFORCED")
        return None
    if word == "FOREIGN":
        return _foreign_key(scan)
    if word not in ("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "VECTOR"):
        raise NotUnderstoodError(f"unknown constraint {word}")
    if word == "PRIMARY":
        expect(scan, "KEY")
        named = PRIMARY
    elif word not in _KEY_WORDS:
        scan.accept(*_KEY_WORDS)
    conditional = _if_not_exists(scan)
    own = "" if _at_key_columns(scan) else take_name(scan)
    unique = word in ("PRIMARY", "UNIQUE")
    body.keys.append(read_key_rest(scan, named if word == "PRIMARY" else own or named, unique, conditional))
    return None


def read_key_rest(scan: Scanner, named: str, unique: bool, conditional: bool) -> Key:
    """Parse a key from USING or the columns on."""
    is_hash = _using(scan)
    columns, period = _key_columns(scan)
    is_hash = key_options(scan) or is_hash
    return Key(named, unique, columns, is_hash and named != PRIMARY, conditional, period)


def _using(scan: Scanner) -> bool:
    return bool(scan.accept("USING", "TYPE")) and scan.take()[2] == "HASH"


def _if_not_exists(scan: Scanner) -> bool:
    if scan.peek()[2] == "IF" and scan.peek(1)[2] == "NOT" and scan.peek(2)[2] == "EXISTS":
        for _ in range(3):
            scan.take()
        return True
    return False


def _at_key_columns(scan: Scanner) -> bool:
    return scan.peek()[2] == "(" or (scan.peek()[2] in ("USING", "TYPE") and scan.peek(1)[2] != "(")


def _key_columns(scan: Scanner) -> tuple[tuple[tuple[str, int | None], ...], str]:
    """Return (column, prefix length) pairs ("" for an expression), and the period of WITHOUT OVERLAPS or ""."""
    expect(scan, "(")
    columns: list[tuple[str, int | None]] = []
    while True:
        part = _key_part(scan)
        if scan.accept_all("WITHOUT", "OVERLAPS"):
            expect(scan, ")")
            return tuple(columns), part[0]
        columns.append(part)
        if expect(scan, ",", ")") == ")":
            return tuple(columns), ""


def _key_part(scan: Scanner) -> tuple[str, int | None]:
    if scan.peek()[2] == "(":
        take_group(scan)
        part: tuple[str, int | None] = ("", None)
    else:
        named, length = take_name(scan), None
        if scan.accept("("):
            length = take_number(scan)
            expect(scan, ")")
        part = (named, length)
    scan.accept("ASC", "DESC")
    return part


_KEY_OPTIONS = (
    "KEY_BLOCK_SIZE",
    "WAIT",
    "NOWAIT",
    "WITH",
    "COMMENT",
    "VISIBLE",
    "INVISIBLE",
    "IGNORED",
    "NOT",
    "CLUSTERING",
    "ENGINE_ATTRIBUTE",
    "SECONDARY_ENGINE_ATTRIBUTE",
)


def key_options(scan: Scanner) -> bool:
    """Skip a key's options; return whether they contain USING HASH."""
    is_hash = False
    while True:
        if scan.peek()[2] in ("USING", "TYPE"):
            is_hash = _using(scan)
            continue
        key = scan.accept(*_KEY_OPTIONS)
        if key in ("KEY_BLOCK_SIZE", "COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
            scan.accept("=")
            scan.take()
        elif key == "WAIT":
            take_number(scan)
        elif key == "WITH":
            expect(scan, "PARSER")
            scan.take()
        elif key == "NOT":
            expect(scan, "IGNORED")
        elif key == "CLUSTERING":
            if scan.accept("="):
                scan.take()
        elif not key:
            if scan.peek()[0] not in (WORD, NAME) or scan.peek(1)[2] != "=" or scan.peek()[2] in ("ALGORITHM", "LOCK"):
                return is_hash
            for _ in range(3):  # an engine's option, such as M=8 of a vector index
                scan.take()


def _foreign_key(scan: Scanner) -> None:
    expect(scan, "KEY")
    _if_not_exists(scan)
    if scan.peek()[2] != "(":
        take_name(scan)
    take_group(scan)
    expect(scan, "REFERENCES")
    pass_references(scan)


def _period(scan: Scanner, body: Body) -> None:
    expect(scan, "FOR")
    _if_not_exists(scan)
    period = take_name(scan).lower()
    expect(scan, "(")
    start = take_name(scan)
    expect(scan, ",")
    body.periods[period] = start, take_name(scan)
    expect(scan, ")")
