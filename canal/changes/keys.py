"""Source equality of keys: the canonical values of a primary key, by the columns' types and the source's rules.

Never uses a value that was read back from a target, nor its text there.
"""

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
    """Compares the primary keys of one table as its source does.

    Of most types the source's equality is known, and ``exact`` and ``group`` are the same. Of text a collation decides ('k1' and
    'K1', 'a' and 'a ', 'ß' and 'ss'), and most logs do not name it. Two canonical values enclose the collation's equality:

    * Keys with equal ``exact`` are one key. Rows that the source keeps apart never have equal ``exact`` values.
    * Keys that the source may call equal have equal ``group`` values, or one of the two has None.

    Which to use:

    * To order changes: by ``group``. A key whose group is None is ordered with every key of its table.
    * To fold changes: by ``written``. Every row image has the text that the row stores, and an update of the text has both. So
      all changes of a row are one chain of keys. Where ``same`` returns None, the keys may be one key at different times: keep
      the order of their changes (delete before insert), or refuse.
    * To find a row in a target: by ``written``. Values that are equal to Python and the source may be different texts.

    Limits: a masked column has the equality of what its mask leaves. The group of a primary key over a prefix of a VARCHAR or
    VARBINARY column is that of the whole value, as the log does not name prefixes.
    """

    columns: tuple[ColumnSchema, ...]
    """Those of the key, in the order of its values."""

    _exact: tuple[Callable[[Any], Hashable] | None, ...] = attrs.field(init=False, repr=False, eq=False)
    _group: tuple[Callable[[Any], Hashable] | None, ...] = attrs.field(init=False, repr=False, eq=False)

    forms: tuple[Callable[[Any], Any] | None, ...] = attrs.field(init=False, repr=False, eq=False)
    """Of each column the function that ``written`` applies to its values; None if they stay as they are."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "forms", tuple([_FORMS.get(column.base_type) for column in self.columns]))
        object.__setattr__(self, "_exact", tuple([_exact(column) for column in self.columns]))
        object.__setattr__(self, "_group", tuple([_group(column) for column in self.columns]))

    @classmethod
    def of(cls, columns: Sequence[ColumnSchema], numbers: Sequence[int]) -> Self:
        """Return the rules of the key that consists of the columns with these numbers."""
        return cls(tuple([columns[number] for number in numbers]))

    def exact(self, key: Key) -> Key:
        """Return the canonical value of a key as the log has it."""
        return tuple([value if form is None else form(value) for form, value in zip(self._exact, key)])

    def written(self, key: Key) -> Key:
        """Return the key in the one form that targets are given: in UTC, without zeros behind the point, without -0.0.

        An ALTER that widens a DECIMAL and another ``time_zone`` change no key.
        """
        return tuple([value if form is None else form(value) for form, value in zip(self.forms, key)])

    def group(self, key: Key) -> Key | None:
        """Return a value that all keys share which the source may call equal to this one; None: it may equal any key."""
        found = tuple([value if form is None else form(value) for form, value in zip(self._group, key)])
        return None if _ANY in found else found

    def same(self, one: Key, other: Key) -> bool | None:
        """Return whether the source calls two keys equal; None if its collation decides."""
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
    """The group of a value that may equal any other one."""

    def __repr__(self) -> str:
        return "ANY"


_ANY: Final = _Any()


def _exact(column: ColumnSchema) -> Callable[[Any], Hashable] | None:
    """Return the function to the canonical value of a column; None: the value itself, as Python compares it.

    Python calls 1.0 and 1.00, -0.0 and 0.0, and one day in two classes of zero dates equal, as the servers do.
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
        return _any  # keys of these are prefixes, and the log does not name their length
    return _text_group if _is_text(column) else _exact(column)


def _is_text(column: ColumnSchema) -> bool:
    return column.labels is not None or column.charset not in (None, "binary")


def _instant(value: Any) -> Hashable:
    # Two moments of one zone compare by its clock, which shows an hour twice when summer ends.
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


def _unpadded(value: Any) -> Hashable:
    """BINARY is filled with zero bytes up to its length, which an ALTER may change."""
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

    Only printable ASCII has groups, without the two characters that some collations call letters. No collation of MySQL 5.5 to
    9.7 or MariaDB 10.1 to 11.8 calls two digits equal. Letters that one calls equal to others, or to nothing, are put together
    or left out: 'i' = 'j' = 'y', 'u' = 'v' = 'w', 'm' = 'n', 'c' = 'ch', 'ccs' = 'cscs'. Punctuation and case are left out.
    """
    if not isinstance(value, str) or not _PLAIN.fullmatch(value):
        return _ANY
    return tuple([part if part.isdigit() else frozenset(part) for part in _PARTS.findall(value.lower().translate(_FOLDED))])


_PLAIN: Final = re.compile("[ -_a-}]*")
_PARTS: Final = re.compile(r"\d+|[a-z]+")
_FOLDED: Final = {**{code: None for code in range(0x20, 0x7F) if not chr(code).isalnum()}, **str.maketrans("jyvwn", "iiuum", "h")}
