"""Who reads and from where: whether the source still answers, and which process owns the destination."""

from canal.ha.machine import Role
from canal.ha.running import RunningMonitor
from canal.ha.source_health import Heartbeat, SourceHealth

__all__ = ["Heartbeat", "Role", "RunningMonitor", "SourceHealth"]
