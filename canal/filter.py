"""Table and column filters in canal's syntax.

Results are not cached: the parser filters once per table map and keeps the result.

Patterns are Python regular expressions. A pattern such as ``(a+)+b`` can take exponential time for a long table name (at most
64 characters). Do not accept filters from untrusted users.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby

import attrs

from canal.errors import ConfigError

_CLOSING = {"{": "}", "[": "]", "(": ")"}

_GRAPHS = ("L", "Nd", "Pc", "Pd", "Po", "Ps", "Pe", "Sc", "Sm", "Sk")
#: The characters of POSIX classes in canal, by category and character. Filters ignore case, so upper equals lower.
_POSIX: dict[str, Callable[[str, str], bool]] = {
    "alnum": lambda kind, char: kind.startswith(("L", "Nd")),
    "alpha": lambda kind, char: kind.startswith("L"),
    "ascii": lambda kind, char: char.isascii(),
    "blank": lambda kind, char: kind.startswith("Z"),
    "cntrl": lambda kind, char: kind == "Cc",
    "digit": lambda kind, char: kind == "Nd",
    "graph": lambda kind, char: kind.startswith(_GRAPHS),
    "lower": lambda kind, char: kind == "Lt" or char.isupper() or char.islower(),
    "print": lambda kind, char: kind.startswith((*_GRAPHS, "Z")),
    "punct": lambda kind, char: kind.startswith(_GRAPHS[2:]),
    "space": lambda kind, char: char in "\t\n\v\f\r\x1c\x1d\x1e\x1f" or kind[0] == "Z" and char not in "\xa0\u2007\u202f",
    "upper": lambda kind, char: kind == "Lt" or char.isupper() or char.islower(),
    "word": lambda kind, char: char == "_" or kind.startswith(("L", "Nd")),
    "xdigit": lambda kind, char: char in "0123456789abcdefABCDEF",
}
_POSIX_CLASS = re.compile(rf"\[:(\^?)({'|'.join(_POSIX)}):\]")


@cache
def _posix_ranges(is_not: str, name: str) -> str:
    """Return a POSIX class in Python's bracket syntax. Table names have no characters beyond U+FFFF."""
    holds = _POSIX[name]
    chars = (code for code in range(1, 1 << 16) if holds(unicodedata.category(chr(code)), chr(code)) != bool(is_not))
    runs = ([code for _, code in run] for _, run in groupby(enumerate(chars), lambda pair: pair[1] - pair[0]))
    return "".join(f"\\u{run[0]:04x}-\\u{run[-1]:04x}" for run in runs)


def _without_posix(pattern: str) -> str:
    """Return the pattern with ranges in place of POSIX classes, which Python does not support."""
    done, at, is_class = [], 0, False
    while at < len(pattern):
        char, found = pattern[at], _POSIX_CLASS.match(pattern, at) if is_class else None
        if found is not None:
            done.append(_posix_ranges(found[1], found[2]))
            at = found.end()
            continue
        if char == "\\":
            char = pattern[at : at + 2]
        elif char == "[" and not is_class:
            is_class = True
            char += re.compile(r"\^?\]?").match(pattern, at + 1)[0]  # type: ignore[index]
        elif char == "]":
            is_class = False
        done.append(char)
        at += len(char)
    return "".join(done)


def split_patterns(text: str) -> list[tuple[int, str]]:
    """Split at commas outside ``{}``, ``[]`` and ``()`` that are not escaped. Return each pattern with its start."""
    parts = []
    start = 0
    waiting: list[str] = []
    in_class = 0  # index after the "[" of the open character class
    index = 0
    while index < len(text):
        char = text[index]
        if char == "\\":
            if text[index : index + 3] == "\\\\.":
                raise _bad_filter(
                    text,
                    index,
                    "two backslashes before a dot match a backslash",
                    "Write one backslash (canal's properties files need two); for a backslash in a name write [\\\\].",
                )
            index += 1
        elif in_class and (posix := _POSIX_CLASS.match(text, index)):
            index = posix.end() - 1
        elif in_class:
            first = text[in_class:index] in ("", "^")  # "]" directly after "[" is literal
            if char == "]" and not first:
                in_class = 0
        elif char == "[":
            in_class = index + 1
        elif char in "{(":
            waiting.append(_CLOSING[char])
        elif waiting and char == waiting[-1]:
            waiting.pop()
        elif char == "," and not waiting:
            parts.append((start, text[start:index]))
            start = index + 1
        index += 1
    parts.append((start, text[start:]))
    stripped = ((start + len(part) - len(part.lstrip()), part.strip()) for start, part in parts)
    return [(start, part) for start, part in stripped if part]


def _bad_filter(text: str, index: int, reason: str, remedy: str = "") -> ConfigError:
    return ConfigError(
        f"bad table filter {text!r}: {reason} at position {index}",
        remedy=remedy or r'A filter is a list such as "shop\..*,crm\.customer_\d{1,2}".',
    )


def _compile(text: str) -> tuple[re.Pattern[str], ...]:
    """Compile patterns for complete lower-case names; () for an empty filter."""
    patterns = []
    for start, part in split_patterns(text):
        try:
            with warnings.catch_warnings():  # warnings about "[[", which is literal in all versions so far
                warnings.simplefilter("ignore", FutureWarning)
                patterns.append(re.compile(_without_posix(part), re.IGNORECASE | re.DOTALL))
        except (re.error, OverflowError, RecursionError) as error:
            index = start + (getattr(error, "pos", None) or 0)
            raise _bad_filter(text, index, f"{getattr(error, 'msg', error)} in {part!r}") from None
    if text.strip() and not patterns:
        raise _bad_filter(text, 0, "it names no pattern", 'Use "" for all tables.')
    return tuple(patterns)


@attrs.frozen
class TableFilter:
    r"""A table filter: comma-separated regular expressions, as in canal.

    A pattern must match the complete ``schema.table``, case-insensitive; a dot matches any character. An empty ``include``
    accepts all tables, an empty ``exclude`` excludes none; ``exclude`` has precedence. Blanks around a pattern are ignored.

    Raises:
        ConfigError: an invalid regular expression; the message has the pattern and the position.
    """

    include: str = ""
    exclude: str = ""
    #: Additional filters that must accept the table; see :meth:`narrow`.
    narrowed: tuple[str, ...] = ()
    _passes: tuple[tuple[re.Pattern[str], ...], ...] = attrs.field(init=False, repr=False, eq=False)
    _drops: tuple[re.Pattern[str], ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_pre_init__(self, include: object = "", exclude: object = "", narrowed: object = ()) -> None:
        for text in (include, exclude):
            if not isinstance(text, str):
                raise ConfigError(f"a filter must be a str, with commas between its parts, not {text!r}")

    @_passes.default
    def _compile_passes(self) -> tuple[tuple[re.Pattern[str], ...], ...]:
        return tuple(patterns for text in (self.include, *self.narrowed) if (patterns := _compile(text)))

    @_drops.default
    def _compile_drops(self) -> tuple[re.Pattern[str], ...]:
        return _compile(self.exclude)

    def accepts(self, schema: str, table: str) -> bool:
        """Return whether to deliver changes of this table."""
        return self.accepts_name(f"{schema}.{table}")

    def accepts_name(self, name: str) -> bool:
        """Return whether this name passes, such as a schema name."""
        name = name.lower()
        for patterns in self._passes:
            if not any(pattern.fullmatch(name) for pattern in patterns):
                return False
        return not any(pattern.fullmatch(name) for pattern in self._drops)

    def narrow(self, client_filter: str) -> TableFilter:
        """Return the intersection with a client's filter; "" changes nothing."""
        if not client_filter.strip():
            return self
        return TableFilter(self.include, self.exclude, (*self.narrowed, client_filter))


@attrs.frozen
class FieldFilter:
    """A column filter, such as ``shop.orders:id/price,crm.customer:id/name``.

    Table names are exact; all names are case-insensitive. A table in ``include`` delivers only the listed columns and ignores
    ``exclude``. A table in ``exclude`` delivers all other columns. Other tables deliver all columns.

    Raises:
        ConfigError: a syntax error.
    """

    include: str = ""
    exclude: str = ""
    _included: dict[str, dict[str, str]] = attrs.field(init=False, repr=False, eq=False)
    _excluded: dict[str, dict[str, str]] = attrs.field(init=False, repr=False, eq=False)

    @_included.default
    def _parse_included(self) -> dict[str, dict[str, str]]:
        return _parse_fields(self.include)

    @_excluded.default
    def _parse_excluded(self) -> dict[str, dict[str, str]]:
        return _parse_fields(self.exclude)

    def columns(self) -> list[tuple[str, str, list[str]]]:
        """The listed columns: option, lower-case table, and columns as written."""
        both = ("field_filter", self._included), ("black_field_filter", self._excluded)
        return [(option, table, list(names.values())) for option, tables in both for table, names in tables.items()]

    def wanted(self, schema: str, table: str, column_names: Sequence[str], *, strict: bool = True) -> tuple[int, ...] | None:
        """Return the indexes of the columns to deliver, in table order; None for all.

        Raises:
            ConfigError: the table lacks a listed column. Not raised with ``strict=False``, for tables that may have dropped the
                column later.
        """
        key = f"{schema}.{table}".lower()
        keep = key in self._included
        fields = self._included.get(key) or self._excluded.get(key)
        if not fields:
            return None
        known = [name.lower() for name in column_names]
        if strict:
            missing = [written for name, written in fields.items() if name not in known]
            if missing:
                raise ConfigError(
                    f"the field filter names {', '.join(map(repr, missing))}, which {schema}.{table} does not have",
                    remedy=f"Its columns are {', '.join(column_names)}.",
                )
        return tuple(number for number, name in enumerate(known) if (name in fields) == keep)


def _parse_fields(text: str) -> dict[str, dict[str, str]]:
    """Return ``{lower-case table: {lower-case column: as written}}``."""
    tables: dict[str, dict[str, str]] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        table, colon, columns = item.rpartition(":")
        names = [name.strip() for name in columns.split("/")]
        schema, dot, name = table.strip().partition(".")
        if not (colon and dot and schema and name and all(names)):
            raise ConfigError(
                f"bad field filter: {item!r} in {text!r}",
                remedy='Write "schema.table:column/column", several of them with commas between.',
            )
        tables.setdefault(table.strip().lower(), {}).update((field.lower(), field) for field in names)
    return tables
