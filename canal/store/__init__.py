"""Stores: where entries wait between the sink and the clients."""

from canal.store.memory import MemoryStore
from canal.store.patience import HeldBack, Patience
from canal.store.protocol import EntryStore, Slice

__all__ = ["EntryStore", "HeldBack", "MemoryStore", "Patience", "Slice"]
