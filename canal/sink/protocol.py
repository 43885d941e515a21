"""What a sink and a hook must do. A user's own sink meets this Protocol and is given to ``Instance.compose``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from canal.model import Entry
from canal.rows.mask import Masks
from canal.store.protocol import EntryStore


@runtime_checkable
class Sink(Protocol):
    """Takes what the parser has decoded. Runs on the parser's thread; what it raises stops the instance."""

    def start(self, destination: str, store: EntryStore) -> None:
        """The line is being started; ``store`` is where entries are to go."""

    def stop(self) -> None:
        """The line has stopped."""

    def sink(self, entries: list[Entry]) -> None:
        """Take entries in the order of the source: whole transactions, or pieces of a very large one.

        When it returns they are taken for good: after a lost connection the parser continues behind them.
        """

    def restart(self) -> None:
        """The parser has lost its connection: an open transaction comes again from its BEGIN."""


@runtime_checkable
class MaskingSink(Protocol):
    """A sink that withholds statements of masked tables. A parser that masks needs one."""

    @property
    def masks(self) -> Masks:
        """The tables whose statements the sink withholds."""


@runtime_checkable
class ExclusiveSink(Protocol):
    """A sink that may serve one Instance at a time. Other sinks may be shared."""

    @property
    def is_exclusive(self) -> bool:
        """Whether a second Instance is refused when it starts with this sink."""


class Hook:
    """Base class of the sink's hooks; override what you need. An exception stops the instance."""

    def before(self, entries: list[Entry]) -> Sequence[Entry]:
        """May drop or annotate entries (``entry.props``), never reorder or add; gives what is to be stored."""
        return entries

    def after(self, entries: Sequence[Entry]) -> None:
        """The entries are in the store."""
