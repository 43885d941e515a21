"""Fake servers, and queries on them that are stopped and have left no spool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from canal.testing import FakeBinlog
from tests.support.engine import Engine
from tests.support.shop import Pair, Shop


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(FakeBinlog(getattr(request, "param", "mysql")))


@pytest.fixture
def query(shop: Shop, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Makes queries on the shop's orders, from the beginning of its log."""
    made: list[Engine] = []
    with shop.fake.serve(user="cdc", password="s3cr3t") as server:

        def make(kind: type[Engine] = Engine, **options: Any) -> Engine:
            given = {
                "host": server.host,
                "port": server.port,
                "user": "cdc",
                "password": "s3cr3t",
                "table": "shop.orders",
                "startingPosition": "earliest",
                "spoolDir": tmp_path / "spool",
                "transport": "file",
                "pollTimeout": "0.2",
            }
            given.update(options)
            if "tables" in options:
                del given["table"]
            made.append(kind(given))
            made[-1].server = server  # type: ignore[attr-defined]
            return made[-1]

        yield make
        for engine in made:
            engine.stop()
    assert not list((tmp_path / "spool").glob("*")), "a spool was left"


@pytest.fixture
def pair() -> Pair:
    return Pair()
