"""Sinks: what happens to entries between the parser and the store."""

from canal.sink.entry_sink import EntrySink, RowPredicate
from canal.sink.protocol import Hook, Sink

__all__ = ["EntrySink", "Hook", "RowPredicate", "Sink"]
