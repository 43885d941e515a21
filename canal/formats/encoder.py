"""What makes messages of changes: the Protocol that targets with keys and headers ask, and what all encoders share.

Never reads anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Protocol, runtime_checkable

import attrs

from canal.changes.change import Change
from canal.errors import UnfitChangeError


@attrs.frozen
class Encoded:
    """One message. ``key`` None: it has none. ``value`` None: a tombstone, which says that nothing of the key is left."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@runtime_checkable
class Encoder(Protocol):
    """A format. Encoders are called by one thread at a time, and give the same for a change that is given again, but for the
    time at which they were asked where their format has that."""

    def messages(self, change: Change) -> Sequence[Encoded]:
        """The messages of a change, in their order; () where the format has none for it.

        Raises:
            UnfitChangeError: the format has no form for it.
        """

    def __call__(self, change: Change) -> str:
        """The values alone, a line for each message; "" where there is none. For targets that have neither keys nor headers."""


class TextEncoder:
    """The base of encoders whose values are text without an end of line."""

    def messages(self, change: Change) -> Sequence[Encoded]:
        raise NotImplementedError

    def __call__(self, change: Change) -> str:
        return "\n".join(one.value.decode() for one in self.messages(change) if one.value is not None)


def names(change: Change) -> tuple[str, str]:
    """The database and the table, as the rules call them; the table is "" of a statement that names none."""
    table = change.table
    if table.name == table.source or table.name.startswith(f"{table.database}."):
        return table.database, table.name[len(table.database) + 1 :]
    first, dot, rest = table.name.partition(".")
    return (first, rest) if dot else (table.database, first)


def split(position: str) -> tuple[str, int]:
    """Journal and offset of ``journal:offset``."""
    journal, _, offset = position.rpartition(":")
    return journal, int(offset)


def unfit(change: Change, what: str, remedy: str) -> NoReturn:
    """Refuse a change for which a format has no form."""
    raise UnfitChangeError(f"{change.table.source}: {what}", changes=(change,), position=change.origin.position, remedy=remedy)
