"""The Protocols of sinks and hooks. Pass a custom sink to ``Instance.compose``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from canal.model import Entry
from canal.rows.mask import Masks
from canal.store.protocol import EntryStore


@runtime_checkable
class Sink(Protocol):
    """Receives decoded entries on the parser's thread. An exception stops the instance."""

    def start(self, destination: str, store: EntryStore) -> None:
        """Prepare for entries. The instance is starting; write the entries to ``store``."""

    def stop(self) -> None:
        """Release resources. The instance has stopped."""

    def sink(self, entries: list[Entry]) -> None:
        """Accept entries in source order: whole transactions, or pieces if a transaction is very large.

        After this call returns, the parser does not send the entries again: after a reconnect it continues with the next one.
        """

    def restart(self) -> None:
        """Handle a reconnect of the parser: an open transaction is sent again from BEGIN."""


@runtime_checkable
class MaskingSink(Protocol):
    """A sink that withholds statements on masked tables. A masking parser requires it."""

    @property
    def masks(self) -> Masks:
        """The tables with withheld statements."""


@runtime_checkable
class ExclusiveSink(Protocol):
    """A sink that may serve only one Instance at a time. Other sinks may be shared."""

    @property
    def is_exclusive(self) -> bool:
        """Return whether to refuse a second Instance with this sink."""


class Hook:
    """Base class for sink hooks. Override the methods you need. An exception stops the instance."""

    def before(self, entries: list[Entry]) -> Sequence[Entry]:
        """Return the entries to store. A hook may drop entries or annotate ``entry.props``, but not reorder or add entries."""
        return entries

    def after(self, entries: Sequence[Entry]) -> None:
        """Handle entries after they are stored."""
