"""Meta managers: subscriptions of a destination and the acknowledged position of each client.

Pending batches are not stored: after a restart they are delivered again.
"""

from __future__ import annotations

from canal.meta.file import FileMeta
from canal.meta.memory import MemoryMeta
from canal.meta.protocol import MetaManager
from canal.meta.stored import Storage, StoredMeta
from canal.meta.zookeeper import MixedMeta, PeriodMixedMeta, ZooKeeperMeta

__all__ = ["FileMeta", "MemoryMeta", "MetaManager", "MixedMeta", "PeriodMixedMeta", "Storage", "StoredMeta", "ZooKeeperMeta"]
