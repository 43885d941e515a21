"""The changes that two formats are compared with Debezium on."""

from __future__ import annotations

import pytest

import canal
from canal.changes import Change, Reader
from tests.support.debezium import HERE


@pytest.fixture(scope="module")
def changes() -> list[Change]:
    source = canal.LocalBinlogSource(HERE / "binlog.000001")
    config = canal.InstanceConfig(destination="golden", source=source, start="earliest", filter=r"shop\..*")
    reader = Reader(is_log=True)
    with canal.Instance(config) as instance:
        instance.subscribe()
        return [change for message in instance.stream() for entry in message.entries for change in reader.changes(entry)]
