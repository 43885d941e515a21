"""What the tests of the web page share: its application on a port, an Instance to show, and what must be quoted."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import canal
from canal.testing import FakeBinlog

NASTY = "<img src=x onerror=alert(1)>"


def config(destination: str, **options: Any) -> canal.InstanceConfig:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT PRIMARY KEY")
    table.insert({"id": 1})
    return canal.InstanceConfig(
        **{"destination": destination, "source": fake, "start": "earliest", "alarm": lambda name, text: None} | options
    )


class Refuse:
    def before(self, entries: Any) -> Any:
        raise ValueError(NASTY)


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of an application that is mounted below a path."""
    uvicorn = pytest.importorskip("uvicorn")

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "root_path": "/ops"}
        await app(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(mounted, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/ops/"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
