"""Who reads and from where: whether the source still answers, and which process owns the destination."""

from canal.ha.source_health import Heartbeat, SourceHealth

__all__ = ["Heartbeat", "SourceHealth"]
