"""Recognises transaction statements, the most frequent statements in a log: BEGIN, COMMIT, savepoints and XA.

Reads only as much text as necessary.
"""

from __future__ import annotations

import re
from typing import Any

from canal.statement import Statement, Verb

_VERBS = {
    b"BEGIN": Verb.BEGIN,
    b"BEGIN WORK": Verb.BEGIN,
    b"START TRANSACTION": Verb.BEGIN,
    b"COMMIT": Verb.COMMIT,
    b"COMMIT WORK": Verb.COMMIT,
    b"ROLLBACK": Verb.ROLLBACK,
    b"ROLLBACK WORK": Verb.ROLLBACK,
}
_PREFIXES = (
    (re.compile(rb"SAVEPOINT[\s`\"/]"), Verb.SAVEPOINT),
    (re.compile(rb"ROLLBACK\s+(?:WORK\s+)?TO[\s`\"/]"), Verb.ROLLBACK_TO),
    (re.compile(rb"RELEASE\s+SAVEPOINT[\s`\"/]"), Verb.RELEASE_SAVEPOINT),
    (re.compile(rb"XA\s+(?:START|BEGIN)\b"), Verb.XA_START),
    (re.compile(rb"XA\s+END\b"), Verb.XA_END),
    (re.compile(rb"XA\s+PREPARE\b"), Verb.XA_PREPARE),
    (re.compile(rb"XA\s+COMMIT\b"), Verb.XA_COMMIT),
    (re.compile(rb"XA\s+ROLLBACK\b"), Verb.XA_ROLLBACK),
)
#: First bytes of these statements, and of whitespace and comments before them.
_CANDIDATES = frozenset(b"bcrsxBCRSX/-# \t\r\n\x0b\x0c")
_BLANK = r"\s++|--(?=\s|\Z)[^\n]*+|#[^\n]*+"
#: Whitespace, the start and end of a comment, and the starts of an executable comment.
_IN_TEXT = (re.compile(_BLANK, re.ASCII), "/*", "*/", ("/*!", "/*M!"))
_IN_BYTES = (re.compile(_BLANK.encode()), b"/*", b"*/", (b"/*!", b"/*M!"))
#: Transaction statements are short; a longer text after leading comments is another statement.
_LONGEST = 400


def _verb_of(sql: bytes) -> tuple[int, bytes]:
    """Return the verb, and the text without comments around it."""
    start = _behind_blanks(sql, 0, _IN_BYTES)
    if len(sql) - start > _LONGEST:
        return Verb.NONE, b""
    core = sql[start:]
    upper = core.upper()
    for pattern, verb in _PREFIXES:
        if pattern.match(upper):
            return verb, core
    trailing = _first_trailing(core)
    return _VERBS.get(b" ".join(upper[:trailing].split()), Verb.NONE), core


def _first_trailing(core: bytes) -> int:
    """Return the start of trailing whitespace, semicolons and comments; the text's length if there are none."""
    for found in re.finditer(rb"[\s;/#-]", core):
        at = _behind_blanks(core, found.start(), _IN_BYTES)
        while core.startswith(b";", at):
            at = _behind_blanks(core, at + 1, _IN_BYTES)
        if at == len(core):
            return found.start()
    return len(core)


def _behind_blanks(sql: Any, at: int, marks: tuple[Any, ...]) -> int:
    """Return the end of the whitespace and comments that begin at ``at``. An unfinished comment does not count.

    This is not one pattern, because Python before 3.11.5 mishandles a possessive group that fails after a lookahead.
    """
    blank, begin, end, executed = marks
    while True:
        if found := blank.match(sql, at):
            at = found.end()
        elif sql.startswith(begin, at) and not sql.startswith(executed, at) and (close := sql.find(end, at + 2)) > 0:
            at = close + 2
        else:
            return at


_KINDS = {
    Verb.BEGIN: ("begin", "QUERY"),
    Verb.COMMIT: ("commit", "QUERY"),
    Verb.ROLLBACK: ("rollback", "QUERY"),
    Verb.ROLLBACK_TO: ("rollback", "QUERY"),
    Verb.SAVEPOINT: ("savepoint", "QUERY"),
    Verb.RELEASE_SAVEPOINT: ("savepoint", "QUERY"),
    Verb.XA_START: ("xa", "QUERY"),
    Verb.XA_END: ("xa", "QUERY"),
    Verb.XA_PREPARE: ("xa", "QUERY"),
    Verb.XA_COMMIT: ("xa", "XACOMMIT"),
    Verb.XA_ROLLBACK: ("xa", "XAROLLBACK"),
}
_EXACT = {text.decode(): Statement(*_KINDS[verb], verb=verb) for text, verb in _VERBS.items()}
_XA_TEXT = re.compile(r"XA\s+\w+\s+(.*?)(\s+ONE\s+PHASE)?[\s;]*\Z", re.IGNORECASE | re.DOTALL)
_XID_PART = r"(?:[xX]'([0-9a-fA-F]*)'|0x([0-9a-fA-F]+)|'([^'\\]*)')"
_XID = re.compile(rf"{_XID_PART}(?:\s*,\s*{_XID_PART}(?:\s*,\s*(\d+))?)?", re.ASCII)
_SAVEPOINT = re.compile(r"(?:ROLLBACK\s+(?:WORK\s+)?TO\s*(?:SAVEPOINT\b)?|SAVEPOINT)\s*(.*?)[\s;]*\Z", re.IGNORECASE | re.DOTALL)


def _normal_xid(text: str) -> str:
    """Return the same spelling for a statement's text and the fields of an XA_PREPARE event."""
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


def transaction_statement(sql: str, default_schema: str) -> Statement | None:
    """Return a transaction statement; None for other statements."""
    exact = _EXACT.get(sql)
    if exact is not None:
        return exact
    head = sql[:1]
    if not head or ord(head) not in _CANDIDATES:
        return None
    start = _behind_blanks(sql, 0, _IN_TEXT)
    if len(sql) - start > _LONGEST:
        return None
    verb, core = _verb_of(sql[start:].encode("utf-8", "surrogatepass"))
    if verb == Verb.NONE:
        return None
    kind, event_type = _KINDS[verb]
    xid, one_phase, savepoint = "", False, ""
    text = core.decode("utf-8", "surrogatepass")
    if kind == "xa":
        found = _XA_TEXT.match(text)
        if found:
            xid, one_phase = _normal_xid(found[1]), found[2] is not None
    elif verb in (Verb.SAVEPOINT, Verb.ROLLBACK_TO):
        savepoint = _savepoint_name(text)
    return Statement(kind, event_type, (), default_schema, verb=verb, xid=xid, one_phase=one_phase, savepoint=savepoint)
