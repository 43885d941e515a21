"""The values that Python itself has no type for: absent columns, zero dates and text that is not text.

Never decodes anything; the decoders make these.
"""

from __future__ import annotations

from typing import Any


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


class InvalidText(bytes):
    """The bytes of a text that are not valid in ``charset``, the column's."""

    charset: str

    def __new__(cls, raw: bytes, charset: str = "") -> InvalidText:
        self = super().__new__(cls, raw)
        self.charset = charset
        return self

    def __repr__(self) -> str:
        return f"InvalidText({bytes.__repr__(self)}, {self.charset!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (InvalidText, (bytes(self), self.charset))
