"""The changes that two formats are compared with Debezium on."""

from __future__ import annotations

import attrs
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
        found = [change for message in instance.stream() for entry in message.entries for change in reader.changes(entry)]
    for change in found:  # which geometry it is a server tells, and the log does not
        change.table.columns = tuple(
            attrs.evolve(column, column_type="point") if column.name == "pt" else column for column in change.table.columns
        )
    return found
