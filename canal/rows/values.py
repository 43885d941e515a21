"""The values that Python itself has no type for: absent columns, zero dates, text that is not text, partial JSON.

Never decodes anything; the decoders make these.
"""

from __future__ import annotations

from typing import Any, Self

import attrs


class Absent:
    """The type of :data:`ABSENT`, which has this one instance."""

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


#: The value of a column that the row image leaves out (``binlog_row_image`` MINIMAL or NOBLOB); NULL is None.
ABSENT = Absent()


class ZeroDate(str):
    """A DATE, DATETIME or TIMESTAMP that is no date, as the server prints it.

    Such as ``0000-00-00``, ``2026-00-15`` and ``2026-02-31``; also years beyond Python's.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ZeroDate({str.__repr__(self)})"


class AmbiguousLabel(str):
    """The text of an ENUM or SET value that another number has too, because a member is empty or comes twice.

    It equals the text alone. ``number`` is what the log holds: the number of the ENUM's member from 1, or the bits of the SET.
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
    """The empty text of an ENUM that holds none of its members (index 0), not a member ``''``; it equals ``""``."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return super().__new__(cls, "", 0)

    def __repr__(self) -> str:
        return "NoLabel()"

    def __reduce__(self) -> tuple[Any, ...]:
        return (NoLabel, ())


class InvalidText(bytes):
    """The bytes of a text that are not valid in ``charset``, the column's.

    Also what is known of a label that cannot be told: ``number`` is then what the log holds, the number of an ENUM's label from 1
    or the bits of a SET.
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
    """The text of a MariaDB JSON column that objects were asked of and that cannot be objects.

    Either it is no JSON, or an object in it has the same member twice.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"InvalidJson({str.__repr__(self)})"


class JsonText(str):
    """The server's text of a document, for a target of an Instance that gives objects: a form may write it as it stands."""

    __slots__ = ()


@attrs.frozen
class JsonDiff:
    """One step of a partial update of a JSON document (``binlog_row_value_options=PARTIAL_JSON``).

    ``operation`` is REPLACE, INSERT or REMOVE; ``path`` is the server's text of it, such as ``$.a[3]``; ``value`` is text
    or objects, as the instance gives JSON, and ``ABSENT`` for REMOVE. INSERT into an array moves the cells behind it.
    """

    operation: str
    path: str
    value: Any


@attrs.frozen
class PartialJson:
    """A JSON document of which the log tells only what was changed, as the row image before it lacks the column."""

    diffs: tuple[JsonDiff, ...]

    def expression(self, column: str) -> str:
        """The change as canal writes it, like SQL: ``JSON_REMOVE(JSON_REPLACE(doc, '$.a', 1), '$.b')``."""
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
