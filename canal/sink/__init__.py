"""Sinks: filters and hooks for entries between the parser and the store."""

from canal.sink.entry_sink import EntrySink, RowPredicate
from canal.sink.leave_out import Kind, LeaveOut
from canal.sink.protocol import Hook, Sink

__all__ = ["EntrySink", "Hook", "Kind", "LeaveOut", "RowPredicate", "Sink"]
