"""Several instances in one process: a server of destinations, routers, configurations in files."""

from canal.server.configuration.sources import ConfigSource, DirectorySource, ZooKeeperSource
from canal.server.router import RouterSink
from canal.server.server import Server, load

__all__ = ["ConfigSource", "DirectorySource", "RouterSink", "Server", "ZooKeeperSource", "load"]
