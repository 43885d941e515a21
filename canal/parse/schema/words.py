"""Parses the smallest parts of a statement: names, numbers, strings, values and charsets.

Never guesses: a text that is not understood raises NotUnderstoodError.
"""

from __future__ import annotations

import re

from canal.parse.schema.parts import NO_BACKSLASH_ESCAPES, CharsetChoice, Dialect, NotUnderstoodError
from canal.parse.schema.scanner import END, NAME, STRING, WORD, Scanner
from canal.rows.charsets import is_charset
from canal.schema import charset_name


def expect(scan: Scanner, *keys: str) -> str:
    found = scan.accept(*keys)
    if not found:
        raise NotUnderstoodError(f"{scan.peek()[1]!r} instead of {' or '.join(keys)}")
    return found


def take_name(scan: Scanner) -> str:
    if not scan.at_name():
        raise NotUnderstoodError("a name is missing")
    return scan.take()[1]


def column_name(scan: Scanner) -> str:
    """Parse a column name. Servers except MySQL 8.0 and later also accept table.column and schema.table.column."""
    found = take_name(scan)
    while scan.accept("."):
        found = take_name(scan)
    return found


def take_number(scan: Scanner) -> int:
    text = scan.take()[1]
    digits = text.lstrip("0") or "0"
    if not text.isascii() or not text.isdigit() or len(digits) > 20:  # int() limits the number of digits
        raise NotUnderstoodError(f"{text[:20]!r} is not a number, or too large")
    return int(digits)


def take_group(scan: Scanner) -> frozenset[str]:
    """Skip a group in parentheses, which begins here; return the words and names in lower case."""
    if scan.peek()[2] != "(":
        raise NotUnderstoodError("a parenthesis is missing")
    depth, words = 0, set()
    while True:
        kind, text, key = scan.take()
        if kind == END:
            raise NotUnderstoodError("a parenthesis does not close")
        if kind in (WORD, NAME):
            words.add(text.lower())
        depth += (key == "(") - (key == ")")
        if not depth:
            return frozenset(words)


_ESCAPES = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}


def take_string(scan: Scanner, dialect: Dialect) -> str:
    """Parse a quoted string."""
    kind, text, key = scan.take()
    if kind != STRING:
        raise NotUnderstoodError("a string is missing")
    if key != '"':
        text = text.replace("''", "'") if dialect.sql_mode & NO_BACKSLASH_ESCAPES else _SINGLE.sub(_unescape, text)
    elif not dialect.sql_mode & NO_BACKSLASH_ESCAPES:
        text = _BACKSLASH.sub(_unescape, text)
    return text


_BACKSLASH = re.compile(r"\\(.)", re.DOTALL)
_SINGLE = re.compile(r"''|\\(.)", re.DOTALL)


def _unescape(found: re.Match[str]) -> str:
    return "'" if found[1] is None else _ESCAPES.get(found[1], found[1])


def maybe_charset(scan: Scanner) -> CharsetChoice | None:
    """Parse CHARACTER SET x, CHARSET x or COLLATE x, with or without DEFAULT and =; return None if none follows."""
    ahead = 1 if scan.peek()[2] == "DEFAULT" else 0
    key = scan.peek(ahead)[2]
    if key in ("CHARACTER", "CHAR") and scan.peek(ahead + 1)[2] == "SET":
        words = ahead + 2
    elif key in ("CHARSET", "COLLATE"):
        words = ahead + 1
    else:
        return None
    for _ in range(words):
        scan.take()
    scan.accept("=")
    if scan.accept("DEFAULT"):
        return CharsetChoice(is_default=True)
    kind, text, _ = scan.take()
    if kind not in (WORD, NAME, STRING):
        raise NotUnderstoodError("a charset is missing")
    return of_collation(text) if key == "COLLATE" else CharsetChoice(known_charset(text))


def known_charset(text: str) -> str:
    charset = charset_name(text.lower())
    if not is_charset(charset):
        raise NotUnderstoodError(f"unknown charset {text!r}")
    return charset


def of_collation(text: str) -> CharsetChoice:
    """Return the charset of a collation. MariaDB's uca1400_… collations work with any charset, so they imply none."""
    collation = text.lower()
    charset = None if collation.startswith("uca1400") else known_charset(collation.partition("_")[0])
    return CharsetChoice(charset, collation=collation)


def join_choices(first: CharsetChoice | None, second: CharsetChoice | None) -> CharsetChoice | None:
    """Combine a charset and a collation, in any order: a named charset has priority over the default."""
    if first is None or second is None:
        return first or second
    return second if second.charset else first


_AFTER_POINT = re.compile("[0-9]+(E[0-9]*)?|E[0-9]*")


def pass_value(scan: Scanner) -> None:
    """Skip a default or an option's value: a literal, a function call, NEXT VALUE FOR a sequence, or an expression."""
    scan.accept("+", "-")
    if scan.peek()[2] == "(":
        take_group(scan)
        return
    if scan.accept("{"):  # {d '2026-01-01'}
        while scan.peek()[0] != END and not scan.accept("}"):
            scan.take()
        return
    kind, _, key = scan.take()
    if kind == END or key in (",", ")", ";"):
        raise NotUnderstoodError("a value is missing")
    if key == "CASE":
        _pass_case(scan)
        return
    if key == "@":
        scan.accept("@")
        key = take_name(scan)
    if kind == WORD and key[:1] == "_" and (scan.peek()[1][:2] in ("0x", "0b") or scan.peek()[2] in ("X", "B")):
        scan.take()  # skip the charset in _latin1 0x61 or _latin1 x'61'
    if key in ("NEXT", "PREVIOUS") and scan.accept("VALUE"):
        expect(scan, "FOR")
        key = take_name(scan)
    if key == "." or key[:1].isdigit():
        _pass_number(scan, key)
        return
    while scan.accept("."):
        take_name(scan)
    if scan.peek()[2] == "(":
        take_group(scan)
    while scan.peek()[0] == STRING:  # _utf8mb4'x', x'00' and adjacent strings
        scan.take()


def _pass_case(scan: Scanner) -> None:
    """Skip the rest of CASE … END."""
    while not scan.accept("END"):
        kind, _, key = scan.peek()
        if kind == END or key in (";", ")"):
            raise NotUnderstoodError("a CASE without END")
        if key == "(":
            take_group(scan)
        elif scan.take()[2] == "CASE":
            _pass_case(scan)


def _pass_number(scan: Scanner, key: str) -> None:
    """Skip the rest of 1.5e-3, .5 or 1. after the first token."""
    if (key == "." or scan.accept(".")) and _AFTER_POINT.fullmatch(scan.peek()[2]):
        key = scan.take()[2]
    if key[-1:] == "E" and scan.accept("+", "-"):
        take_number(scan)


def pass_references(scan: Scanner) -> None:
    """Skip the rest of REFERENCES t (c) MATCH … ON DELETE … ON UPDATE …."""
    if scan.table("") is None:
        raise NotUnderstoodError("a table name is missing")
    if scan.peek()[2] == "(":
        take_group(scan)
    if scan.accept("MATCH"):
        expect(scan, "FULL", "PARTIAL", "SIMPLE")
    while scan.peek()[2] == "ON" and scan.peek(1)[2] in ("DELETE", "UPDATE"):
        scan.take()
        scan.take()
        action = expect(scan, "RESTRICT", "CASCADE", "SET", "NO")
        if action in ("SET", "NO"):
            expect(scan, "NULL", "DEFAULT", "ACTION")
