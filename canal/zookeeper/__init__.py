"""The session with ZooKeeper that meta, ha and schema histories share."""

from canal.zookeeper.session import ZooKeeper

__all__ = ["ZooKeeper"]
