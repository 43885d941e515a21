"""Stores: where entries wait between the sink and the clients."""

from canal.store.memory import MemoryStore
from canal.store.protocol import EntryStore, Slice

__all__ = ["EntryStore", "MemoryStore", "Slice"]
