from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from canal.targets import SQLiteTarget
from canal.testing.processes import scratch
from tests.support.harnesses import Receiver
from tests.support.replica_set import ReplicaSet
from tests.support.target_servers import FerretDBServer


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: a commit waits for the disk otherwise."""
    with tempfile.TemporaryDirectory(dir=scratch()) as path:
        yield Path(path)


@pytest.fixture
def target(folder: Path) -> SQLiteTarget:
    return SQLiteTarget(folder / "copy.db")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def mongo_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those that a killed writer leaves open are closed, or their threads would hold up the end of the process."""
    clients: list[Any] = []

    def make(*words: Any, **options: Any) -> Any:
        clients.append(real(*words, **options))
        return clients[-1]

    real: Any = pymongo.MongoClient
    monkeypatch.setattr(pymongo, "MongoClient", make)
    yield
    for client in clients:
        client.close()


@pytest.fixture
def replica_set(ferretdb_server: FerretDBServer) -> Iterator[ReplicaSet]:
    with ReplicaSet((ferretdb_server.host, ferretdb_server.port)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
        server.client.close()
