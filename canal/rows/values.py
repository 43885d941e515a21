"""Values without a Python type: absent columns, zero dates, invalid text and partial JSON."""

from __future__ import annotations

from typing import Any, Self

import attrs


class Absent:
    """The type of :data:`ABSENT`, a singleton."""

    __slots__ = ()
    _only: Absent | None = None

    def __new__(cls) -> Absent:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "ABSENT"


#: The value of a column that is missing from the row image (``binlog_row_image`` MINIMAL or NOBLOB). NULL is None.
ABSENT = Absent()


class ZeroDate(str):
    """An invalid DATE, DATETIME or TIMESTAMP, as the server prints it.

    Examples: ``0000-00-00``, ``2026-00-15``, ``2026-02-31``, and years beyond Python's range.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ZeroDate({str.__repr__(self)})"


class AmbiguousLabel(str):
    """An ENUM or SET text with several possible numbers, because a label is empty or duplicate.

    It equals its text. ``number`` is the logged value: the label number of an ENUM from 1, or the bits of a SET.
    """

    __slots__ = ("number",)
    number: int

    def __new__(cls, text: str, number: int) -> Self:
        self = super().__new__(cls, text)
        self.number = number
        return self

    def __repr__(self) -> str:
        return f"AmbiguousLabel({str.__repr__(self)}, {self.number})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (AmbiguousLabel, (str.__str__(self), self.number))


class NoLabel(AmbiguousLabel):
    """The empty text of an ENUM without a label (index 0), as opposed to a label ``''``. It equals ``""``."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return super().__new__(cls, "", 0)

    def __repr__(self) -> str:
        return "NoLabel()"

    def __reduce__(self) -> tuple[Any, ...]:
        return (NoLabel, ())


class InvalidText(bytes):
    """Text with bytes that are invalid in the column's ``charset``.

    Also an uncertain label. ``number`` is then the logged value: the label number of an ENUM from 1, or the bits of a SET.
    """

    charset: str
    number: int | None

    def __new__(cls, raw: bytes, charset: str = "", number: int | None = None) -> InvalidText:
        self = super().__new__(cls, raw)
        self.charset = charset
        self.number = number
        return self

    def __repr__(self) -> str:
        return f"InvalidText({bytes.__repr__(self)}, {self.charset!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (InvalidText, (bytes(self), self.charset, self.number))


class InvalidJson(str):
    """Text of a MariaDB JSON column that cannot be converted to objects: invalid JSON or a duplicate member."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"InvalidJson({str.__repr__(self)})"


class JsonText(str):
    """The server's text of a document, for targets of an Instance with JSON objects. A format may write it unchanged."""

    __slots__ = ()


@attrs.frozen
class JsonDiff:
    """A step of a partial JSON update (``binlog_row_value_options=PARTIAL_JSON``).

    ``operation`` is REPLACE, INSERT or REMOVE. ``path`` is the server's text, such as ``$.a[3]``. ``value`` is text or objects,
    or ``ABSENT`` for REMOVE. INSERT into an array shifts the following cells.
    """

    operation: str
    path: str
    value: Any


@attrs.frozen
class PartialJson:
    """A JSON document with only its changes, because the before image lacks the column."""

    diffs: tuple[JsonDiff, ...]

    def expression(self, column: str) -> str:
        """Return the change in canal's SQL form: ``JSON_REMOVE(JSON_REPLACE(doc, '$.a', 1), '$.b')``."""
        heads, tail, last = [], [], ""
        for diff in self.diffs:
            function = f"JSON_{diff.operation}("
            if diff.operation == "INSERT" and diff.path.endswith("]"):
                function = "JSON_ARRAY_INSERT("
            if function != last:
                heads.append(function)
                tail.append(")" if last else "")
            tail.append(f", '{diff.path}'" if diff.value is ABSENT else f", '{diff.path}', {diff.value}")
            last = function
        return "".join([*reversed(heads), column, *tail, ")" if heads else ""])
