"""Source equality of keys: canonical values of primary keys, by the columns' types and the source's rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any, Final, Self, TypeAlias

import attrs

from canal.binlog import type_codes as codes
from canal.rows.values import InvalidText, NoLabel
from canal.schema import ColumnSchema

Key: TypeAlias = tuple[Any, ...]


@attrs.frozen
class KeyRules:
    """Compares the primary keys of a table as the source does.

    For most types the source's equality is known, and ``exact`` and ``group`` are the same. For text a collation decides ('k1'
    and 'K1', 'a' and 'a ', 'ß' and 'ss'), and most logs do not name the collation. Two canonical values bound its equality:

    * Keys with equal ``exact`` values are the same key. Distinct rows of the source never have equal ``exact`` values.
    * Keys that the source may consider equal have equal ``group`` values, or a group is None.

    Usage:

    * To order changes, use ``group``. A key whose group is None is ordered with every key of the table.
    * To fold changes, use ``written``. Every row image has the stored text, and an update of the text has both, so all changes
      of a row form a chain of keys. If ``same`` returns None, the keys may be the same key at different times: keep the order
      of their changes (delete before insert), or refuse.
    * To find a row in a target, use ``written``. Values that are equal in Python and the source may have different texts.

    Limits: the equality of a masked column is the equality of the masked values. The log does not name key prefixes, so the group
    of a key over a prefix of a VARCHAR or VARBINARY column uses the whole value.
    """

    columns: tuple[ColumnSchema, ...]
    """The columns of the key, in order."""

    _exact: tuple[Callable[[Any], Hashable] | None, ...] = attrs.field(init=False, repr=False, eq=False)
    _group: tuple[Callable[[Any], Hashable] | None, ...] = attrs.field(init=False, repr=False, eq=False)

    forms: tuple[Callable[[Any], Any] | None, ...] = attrs.field(init=False, repr=False, eq=False)
    """The function that ``written`` applies to each column, or None if values do not change."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "forms", tuple([_FORMS.get(column.base_type) for column in self.columns]))
        object.__setattr__(self, "_exact", tuple([_exact(column) for column in self.columns]))
        object.__setattr__(self, "_group", tuple([_group(column) for column in self.columns]))

    @classmethod
    def of(cls, columns: Sequence[ColumnSchema], numbers: Sequence[int]) -> Self:
        """Return the rules for a key of the columns with these numbers."""
        return cls(tuple([columns[number] for number in numbers]))

    def exact(self, key: Key) -> Key:
        """Return the canonical value of a key from the log."""
        return tuple([value if form is None else form(value) for form, value in zip(self._exact, key)])

    def written(self, key: Key) -> Key:
        """Return the key in the form for targets: in UTC, without trailing zeros, without -0.0.

        An ALTER that widens a DECIMAL, or another ``time_zone``, does not change this form.
        """
        return tuple([value if form is None else form(value) for form, value in zip(self.forms, key)])

    def group(self, key: Key) -> Key | None:
        """Return the same value for all keys that the source may consider equal, or None if the key may equal any key."""
        found = tuple([value if form is None else form(value) for form, value in zip(self._group, key)])
        return None if _ANY in found else found

    def same(self, one: Key, other: Key) -> bool | None:
        """Return whether the source considers two keys equal, or None if an unknown collation decides."""
        if self.exact(one) == self.exact(other):
            return True
        for form, single, value, another in zip(self._group, self._exact, one, other):
            first, second = (item if form is None else form(item) for item in (value, another))
            if first != second and _ANY not in (first, second):
                return False
            if form is single and first != second:
                return False
        return None


class _Any:
    """The group of a value that may equal any other value."""

    def __repr__(self) -> str:
        return "ANY"


_ANY: Final = _Any()


def _exact(column: ColumnSchema) -> Callable[[Any], Hashable] | None:
    """Return the function that computes a column's canonical value, or None for the value itself.

    Python considers 1.0 and 1.00, -0.0 and 0.0, and the same day in two classes of zero dates equal, as the servers do.
    """
    if column.base_type == "timestamp":
        return _instant
    if column.base_type == "binary" or column.type_code == codes.STRING and column.charset in (None, "binary"):
        return _unpadded
    return _text if _is_text(column) else None


def _group(column: ColumnSchema) -> Callable[[Any], Hashable] | None:
    if column.unmasked is not None:
        return _any
    if column.type_code == codes.BLOB or column.base_type.endswith(("text", "blob")):
        return _any  # such keys are prefixes, and the log does not have the prefix length
    return _text_group if _is_text(column) else _exact(column)


def _is_text(column: ColumnSchema) -> bool:
    return column.labels is not None or column.charset not in (None, "binary")


def _instant(value: Any) -> Hashable:
    # In UTC, because two local times in the hour that occurs twice at the end of summer would compare equal.
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


def _unpadded(value: Any) -> Hashable:
    """Strip the zero bytes that pad BINARY to its length, which an ALTER may change."""
    return value.rstrip(b"\0") if isinstance(value, bytes) and not isinstance(value, InvalidText) else value


def _positive_zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _shortest(value: Any) -> Any:
    return _DIGITS.add(value.normalize(_DIGITS), 0) if isinstance(value, Decimal) else value  # 0 makes 100 of 1E+2


_DIGITS: Final = Context(prec=100)
_FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    "decimal": _shortest,
    "timestamp": _instant,
    "float": _positive_zero,
    "double": _positive_zero,
}


def _text(value: Any) -> Hashable:
    if isinstance(value, InvalidText):
        return "bytes", bytes(value), value.number
    return ("no label",) if isinstance(value, NoLabel) else value


def _any(value: Any) -> Hashable:
    return _ANY


def _text_group(value: Any) -> Hashable:
    """Return the group of a text under every collation of the servers.

    Only printable ASCII has groups, except the two characters that some collations treat as letters. No collation of MySQL 5.5 to
    9.7 or MariaDB 10.1 to 11.8 treats two digits as equal. Letters that some collation treats as equal share a group, and
    letters that it ignores are dropped: 'i' = 'j' = 'y', 'u' = 'v' = 'w', 'm' = 'n', 'c' = 'ch', 'ccs' = 'cscs'. Punctuation and
    case are ignored.
    """
    if not isinstance(value, str) or not _PLAIN.fullmatch(value):
        return _ANY
    return tuple([part if part.isdigit() else frozenset(part) for part in _PARTS.findall(value.lower().translate(_FOLDED))])


_PLAIN: Final = re.compile("[ -_a-}]*")
_PARTS: Final = re.compile(r"\d+|[a-z]+")
_FOLDED: Final = {**{code: None for code in range(0x20, 0x7F) if not chr(code).isalnum()}, **str.maketrans("jyvwn", "iiuum", "h")}
