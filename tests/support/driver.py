"""A driver that shares its Instance with the queries of other processes."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import canal.spark
from canal import Instance, InstanceConfig, MySQLSource
from tests.support.engine import Engine
from tests.support.shop import Shop

_numbers = itertools.count(1)
#: Seconds after which what is waited for is held to come no more.
WAIT = 60.0


class Driver:
    """A process that embeds an Instance on a fake server and shares it."""

    def __init__(self, shop: Shop, server: Any, directory: Path) -> None:
        self.shop, self.server, self.directory = shop, server, directory
        self.name = f"test {os.getpid()}/{next(_numbers)}"
        self.made: list[Engine] = []
        self.instance = self.start()

    def start(self, **config: Any) -> Instance:
        source = MySQLSource(
            host=self.server.host, port=self.server.port, user="cdc", password="s3cr3t", server_id=77, heartbeat_interval=0.5
        )
        given = {"destination": "shop", "source": source, "start": "earliest", **config}
        self.instance = Instance(InstanceConfig(**given)).start()
        canal.spark.share(self.instance, self.name)
        return self.instance

    def stop(self) -> None:
        canal.spark.unshare(self.name)
        self.instance.stop()

    def query(self, **options: Any) -> Engine:
        given = {
            "instance": self.name,
            "table": "shop.orders",
            "spoolDir": self.directory / "spool",
            "transport": "file",
            "pollTimeout": "0.2",
            **options,
        }
        if "tables" in options:
            del given["table"]
        self.made.append(Engine(given))
        return self.made[-1]

    def clients(self) -> dict[int, str]:
        return self.instance.subscriptions()
