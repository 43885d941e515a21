"""Configurations in files: canal's own and ours, read once (``canal.load``) or followed (``Server.follow``).

Never imported by a part.
"""

from canal.server.configuration.sources import ConfigSource, DirectorySource, ZooKeeperSource

__all__ = ["ConfigSource", "DirectorySource", "ZooKeeperSource"]
