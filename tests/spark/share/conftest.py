"""A fake server, and a driver that shares an Instance of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from canal.testing import FakeBinlog
from tests.support.driver import Driver
from tests.support.shop import Shop


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(FakeBinlog(getattr(request, "param", "mysql")))


@pytest.fixture
def driver(shop: Shop, tmp_path: Path) -> Iterator[Driver]:
    with shop.fake.serve(user="cdc", password="s3cr3t") as server:
        made = Driver(shop, server, tmp_path)
        yield made
        for engine in made.made:
            engine.stop()
        made.stop()
    assert not list((tmp_path / "spool").glob("*")), "a spool was left"
