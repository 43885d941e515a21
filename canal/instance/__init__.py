"""One destination: its parts, and get, ack and rollback for its clients."""

from canal.instance.instance import CLIENT_ID, Instance

__all__ = ["CLIENT_ID", "Instance"]
