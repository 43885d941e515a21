"""Several instances in one process: a server of destinations, routers, configurations in files."""

from canal.server.server import Server, load

__all__ = ["Server", "load"]
