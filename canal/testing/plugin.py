"""pytest fixtures for tests of code that consumes changes; installed with the library, nothing to configure.

Never imports the library before a test asks for a fixture.

    def test_consumer(fake_binlog, canal_instance):
        orders = fake_binlog.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(40)")
        instance = canal_instance(fake_binlog)
        orders.insert({"id": 1, "note": "new"})
        message = instance.get_without_ack(100, timeout=5)
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from canal.instance.instance import Instance
    from canal.testing.fake import FakeBinlog


@pytest.fixture
def fake_binlog() -> Iterator[FakeBinlog]:
    """An empty :class:`canal.testing.fake.FakeBinlog` of MySQL flavour, ended after the test."""
    from canal.testing.fake import FakeBinlog

    with FakeBinlog() as fake:
        yield fake


@pytest.fixture
def canal_instance() -> Iterator[Callable[..., Instance]]:
    """Make a started and subscribed Instance of a source, which is stopped after the test.

    ``canal_instance(fake, filter=r"shop\\..*")``: keyword arguments are those of :class:`canal.InstanceConfig`; the
    destination is "test" and the start "earliest" unless given.
    """
    from canal.config import InstanceConfig
    from canal.instance.instance import Instance

    started: list[Instance] = []

    def make(source: Any, **options: Any) -> Instance:
        config = InstanceConfig(**{"destination": "test", "start": "earliest", **options, "source": source})
        instance = Instance(config)
        instance.start()
        started.append(instance)
        instance.subscribe()
        return instance

    yield make
    for instance in reversed(started):
        instance.stop()
