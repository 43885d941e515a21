"""Stores: buffers of entries between the sink and the clients."""

from canal.store.memory import MemoryStore
from canal.store.patience import HeldBack, Patience
from canal.store.protocol import CatchUpStore, EntryStore, Slice

__all__ = ["CatchUpStore", "EntryStore", "HeldBack", "MemoryStore", "Patience", "Slice"]
