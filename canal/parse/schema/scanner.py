"""Splits a statement into tokens as the server's lexer does.

Never raises for any text, and reads only as far as requested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from canal.statement import Table

#: Bits of sql_mode that affect the lexer.
ANSI_QUOTES = 1 << 2
NO_BACKSLASH_ESCAPES = 1 << 20

#: A statement with more tokens (seconds of scanning) is treated as doubtful.
MAX_TOKENS = 500_000

WORD, NAME, STRING, MARK, END = "word", "name", "string", "mark", "end"

#: (kind, text, key). Compare ``key``: the upper-case word or the mark, "" for quoted names and strings (``"`` for a
#: double-quoted string).
Token = tuple[str, str, str]
_END_TOKEN: Token = (END, "", "")


@lru_cache(maxsize=None)
def _lexer(backslash: bool, ansi: bool) -> re.Pattern[str]:
    """Return the lexer's rules. Every repetition is possessive, so that no text causes backtracking.

    A possessive group contains no lookahead and no repeated group: Python before 3.11.5 resumes after such a part when the
    group fails, and would treat the text between two comments as a comment.
    """
    escape = r"[^{q}\\]++|\\.|{q}{q}" if backslash else "[^{q}]++|{q}{q}"
    single = escape.format(q="'")
    double = '[^"]++|""' if ansi else escape.format(q='"')
    return re.compile(
        rf"""
          (?P<skip>[\x00\x09-\x0d\x20]++|--(?=[\x00-\x20]|\Z)[^\n]*+|\#[^\n]*+)
        | (?P<open>/\*M?!(?:[0-9]{{5,6}})?)
        | (?P<comment>/\*)
        | (?P<close>\*/)
        | (?P<word>[0-9A-Za-z_$\x80-\U0010ffff]++)
        | `(?P<name>(?:[^`]++|``)*+)`
        | '(?P<string>(?:{single})*+)'
        | "(?P<double>(?:{double})*+)"
        | (?P<broken>['"`])
        | (?P<mark>.)
        """,
        re.VERBOSE | re.DOTALL,
    )


#: Characters that MySQL replaces with "?" in names, and that MariaDB refuses.
_BEYOND_3_BYTES = re.compile("[\U00010000-\U0010ffff]")


class Scanner:
    """Produces the tokens of a text on demand. The contents of executable comments are part of the text.

    ``flavor`` "mysql" makes ``/*M! */`` a plain comment, and replaces characters in names as MySQL does. (A server blanks the
    ``!`` of comments that it does not execute before it logs the text, so versions do not matter.) An unfinished quote or
    comment ends the tokens and sets ``broken``, as does a token beyond ``most``.
    """

    def __init__(self, sql: str, sql_mode: int = 0, flavor: str = "", *, most: int = MAX_TOKENS) -> None:
        self.broken = False
        self._most = most
        self._count = 0
        self._ahead: list[Token] = []
        self._tokens = self._scan(sql, sql_mode, flavor == "mysql")

    def _scan(self, sql: str, sql_mode: int, mysql: bool) -> Iterator[Token]:
        ansi = bool(sql_mode & ANSI_QUOTES)
        match = _lexer(not sql_mode & NO_BACKSLASH_ESCAPES, ansi).match
        at, inside = 0, 0
        while found := match(sql, at):
            at = found.end()
            kind = found.lastgroup
            text = found[kind] if kind else ""
            if mysql and not text.isascii() and (kind in ("word", "name") or (kind == "double" and ansi)):
                text = _BEYOND_3_BYTES.sub("?", text)
            if kind == "word":
                yield (WORD, text, text.upper() if text.isascii() else text)
            elif kind == "name":
                yield (NAME, text.replace("``", "`"), "")
            elif kind == "string":
                yield (STRING, text, "")  # raw: with doubled quotes and backslashes
            elif kind == "double":  # a name with ANSI_QUOTES; otherwise the place determines whether it is a string
                yield (NAME, text.replace('""', '"'), "") if ansi else (STRING, text.replace('""', '"'), '"')
            elif kind == "mark":
                yield (MARK, text, text)
            elif kind == "comment" or (kind == "open" and mysql and text[2] == "M"):
                at = sql.find("*/", found.start() + 2) + 2
                if at < 2:
                    self.broken = True
                    return
            elif kind == "open":
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
        """Return a coming token without taking it."""
        while len(self._ahead) <= distance:
            self._count += 1
            if self._count > self._most:
                self.broken = True
                return _END_TOKEN
            self._ahead.append(next(self._tokens, _END_TOKEN))
        return self._ahead[distance]

    def take(self) -> Token:
        """Take the next token; END if there are no more."""
        token = self.peek()
        if self._ahead:
            self._ahead.pop(0)
        return token

    def accept(self, *keys: str) -> str:
        """Take and return the next token if it is among these keywords or marks; otherwise return ""."""
        key = self.peek()[2]
        if key and key in keys:
            self.take()
            return key
        return ""

    def accept_all(self, *keys: str) -> bool:
        """Take these keywords if all of them follow."""
        if all(self.peek(i)[2] == key for i, key in enumerate(keys)):
            for _ in keys:
                self.take()
            return True
        return False

    def at_name(self) -> bool:
        kind, _, key = self.peek()
        return kind == WORD or kind == NAME or key == '"'

    def table(self, default_schema: str) -> Table | None:
        """Take a table name, ``t``, ``s.t`` or ``.t``; return None if there is none."""
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
        """Skip a group in parentheses."""
        depth = 0
        while (token := self.take())[0] != END:
            if token[2] == "(":
                depth += 1
            elif token[2] == ")":
                depth -= 1
                if depth <= 0:
                    return

    def at_end(self) -> bool:
        """Return whether the statement ends here: end of the text or a semicolon."""
        token = self.peek()
        return token[0] == END or token[2] == ";"
