"""Which tables and columns are delivered, in canal's filter syntax.

Never caches a decision: the parser asks once per table map and keeps the answer.

Patterns are Python regular expressions and the user's own: one such as ``(a+)+b`` can take exponential time on a long
table name (names have at most 64 characters, and each is tried once per table map). Do not take filters from people you
do not trust.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

import attrs

from canal.errors import ConfigError

_CLOSING = {"{": "}", "[": "]", "(": ")"}


def split_patterns(text: str) -> list[tuple[int, str]]:
    """The alternatives and where each begins: split at commas not escaped and not in ``{}``, ``[]``, ``()``."""
    parts = []
    start = 0
    waiting: list[str] = []
    in_class = 0  # place of the "[" of the character class that is open, + 1
    place = 0
    while place < len(text):
        char = text[place]
        if char == "\\":
            if text[place : place + 3] == "\\\\.":
                raise _bad_filter(
                    text, place, "two backslashes before a dot match a backslash",
                    "Write one backslash (canal's properties files need two); for a backslash in a name write [\\\\].",
                )  # fmt: skip
            place += 1
        elif in_class:
            first = text[in_class:place] in ("", "^")  # "]" right after "[" stands for itself
            if char == "]" and not first:
                in_class = 0
        elif char == "[":
            in_class = place + 1
        elif char in "{(":
            waiting.append(_CLOSING[char])
        elif waiting and char == waiting[-1]:
            waiting.pop()
        elif char == "," and not waiting:
            parts.append((start, text[start:place]))
            start = place + 1
        place += 1
    parts.append((start, text[start:]))
    stripped = ((start + len(part) - len(part.lstrip()), part.strip()) for start, part in parts)
    return [(start, part) for start, part in stripped if part]


def _bad_filter(text: str, place: int, reason: str, remedy: str = "") -> ConfigError:
    return ConfigError(
        f"bad table filter {text!r}: {reason} at position {place}",
        remedy=remedy or r'A filter is a list such as "shop\..*,crm\.customer_\d{1,2}".',
    )


def _compile(text: str) -> tuple[re.Pattern[str], ...]:
    """Patterns for the whole of a lower-case name; () for an empty filter."""
    patterns = []
    for start, part in split_patterns(text):
        try:
            with warnings.catch_warnings():  # about "[[", which means what it says in all versions so far
                warnings.simplefilter("ignore", FutureWarning)
                patterns.append(re.compile(part, re.IGNORECASE | re.DOTALL))
        except (re.error, OverflowError, RecursionError) as error:
            place = start + (getattr(error, "pos", None) or 0)
            raise _bad_filter(text, place, f"{getattr(error, 'msg', error)} in {part!r}") from None
    if text.strip() and not patterns:
        raise _bad_filter(text, 0, "it names no pattern", 'Use "" for all tables.')
    return tuple(patterns)


@attrs.frozen
class TableFilter:
    r"""Which tables pass: a comma-separated list of regular expressions, as in canal.

    Each must match the whole of ``schema.table`` in lower case; case is ignored and a dot matches any character. An
    empty ``include`` means all tables, an empty ``exclude`` none; ``exclude`` wins. Blanks around an alternative do not
    count.

    Raises:
        ConfigError: a pattern is not a regular expression; the message names it and the place.
    """

    include: str = ""
    exclude: str = ""
    #: Further filters that must pass too; see :meth:`narrow`.
    narrowed: tuple[str, ...] = ()
    _passes: tuple[tuple[re.Pattern[str], ...], ...] = attrs.field(init=False, repr=False, eq=False)
    _drops: tuple[re.Pattern[str], ...] = attrs.field(init=False, repr=False, eq=False)

    @_passes.default
    def _compile_passes(self) -> tuple[tuple[re.Pattern[str], ...], ...]:
        return tuple(patterns for text in (self.include, *self.narrowed) if (patterns := _compile(text)))

    @_drops.default
    def _compile_drops(self) -> tuple[re.Pattern[str], ...]:
        return _compile(self.exclude)

    def accepts(self, schema: str, table: str) -> bool:
        """Whether changes of this table pass."""
        name = f"{schema}.{table}".lower()
        for patterns in self._passes:
            if not any(pattern.fullmatch(name) for pattern in patterns):
                return False
        return not any(pattern.fullmatch(name) for pattern in self._drops)

    def narrow(self, client_filter: str) -> TableFilter:
        """The tables that pass this filter and the client's too; "" changes nothing."""
        if not client_filter.strip():
            return self
        return TableFilter(self.include, self.exclude, (*self.narrowed, client_filter))


@attrs.frozen
class FieldFilter:
    """Which columns are delivered, as ``shop.orders:id/price,crm.customer:id/name``.

    Exact table names; case is ignored in all names. For a table named in ``include`` only the columns listed there are
    delivered and ``exclude`` is not looked at; for one named in ``exclude`` all but those; for any other table all.

    Raises:
        ConfigError: the text does not follow the syntax.
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

    def wanted(
        self, schema: str, table: str, column_names: Sequence[str], *, strict: bool = True
    ) -> tuple[int, ...] | None:
        """Numbers of the columns to deliver, in the order of the table; None for all.

        Raises:
            ConfigError: the filter names a column that the table does not have (not with ``strict=False``, which is for
                a table that was seen before: the column may have been dropped since).
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
    """``{lower-case table: {lower-case column: as written}}``."""
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
