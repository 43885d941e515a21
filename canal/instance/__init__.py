"""One destination: the parts composed, and get, ack and rollback for its clients."""

from canal.instance.instance import Instance

__all__ = ["Instance"]
