"""Any tables and rows that FakeBinlog can encode come back as they were given, however the bytes arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import canal
from canal.parse.log.framing import FileFramer, PacketFramer
from canal.rows.values import ABSENT
from canal.testing.fake import FakeBinlog, FakeColumn
from tests.support.packets import dump, pieces
from tests.support.random_logs import Row, decode, logs

# -- columns and their values: (what is given, what must come back) -----------------------------------------------------


# -- logs ----------------------------------------------------------------------------------------------------------------


# -- the way back --------------------------------------------------------------------------------------------------------


def assert_row(found: Any, expected: Row | None, columns: tuple[FakeColumn, ...], image: str) -> None:
    if expected is None:
        assert found is None
        return
    assert found.keys() == list(expected)
    for column, value in zip(columns, found):
        if value is ABSENT:
            assert image == "MINIMAL" or (image == "NOBLOB" and column.is_blob and not column.key)
        else:
            assert expected[column.name] == value, column
            if column.type == "decimal" and value is not None:
                assert -value.as_tuple().exponent == column.args[1]


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_each_of_many_rows_comes_once_and_in_order(flavor: Any) -> None:
    """Through all parts of an Instance, in transactions of one row and of many, larger than a piece and a batch."""
    fake = FakeBinlog(flavor=flavor, row_event_max_size=1000)
    table = fake.table("shop", "orders", "id INT UNSIGNED PRIMARY KEY, note VARCHAR(20)")
    written: list[int] = []
    for size in [1] * 1500 + [2000, 1, 700]:
        rows = range(len(written), len(written) + size)
        table.insert(*[{"id": number, "note": f"row {number}"} for number in rows])
        written += rows
    fake.end()
    found: list[tuple[int, str]] = []
    config = canal.InstanceConfig(destination="many", source=fake, start="earliest", store_entries=64)
    with canal.Instance(config) as instance:
        instance.subscribe()
        for message in instance.stream(batch_size=37):
            found += [tuple(row.after) for entry in message.entries for row in entry.rows if row.after]  # type: ignore[misc]

    assert found == [(number, f"row {number}") for number in written]


def in_place(framer: Any, chunks: list[bytes]) -> Iterator[Sequence[bytes]]:
    """What the framer gives of each part that its room takes; in the end there is nothing left of them in its buffer."""
    for chunk in chunks:
        while chunk:
            room = framer.room()
            count = min(len(room), len(chunk))
            room[:count] = chunk[:count]
            chunk = chunk[count:]
            yield framer.advance(count)
    room = framer.room()
    room[:] = b"\xaa" * len(room)


WAYS: dict[str, Callable[[bytes, list[int]], list[bytes]]] = {
    "whole": lambda data, cuts: [data],
    "byte by byte": lambda data, cuts: [data[at : at + 1] for at in range(len(data))],
    "in random pieces": pieces,
}


@pytest.mark.parametrize("way", WAYS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(log=logs(), cuts=st.lists(st.integers(0, 1 << 20), max_size=30), as_packets=st.booleans(), stays=st.booleans())
def test_what_was_written_comes_back(way: str, log: Any, cuts: list[int], as_packets: bool, stays: bool) -> None:
    """Whether the events are copied or decoded where they were received, which later ones overwrite."""
    fake, written = log
    framer: Any = PacketFramer(64) if as_packets else FileFramer(4, 64)
    data = dump(fake.events()) if as_packets else fake.bytes()[4:]

    batches = in_place(framer, WAYS[way](data, cuts)) if stays else (framer.feed(piece) for piece in WAYS[way](data, cuts))
    entries = decode(fake, batches)

    assert (framer.pending, framer.error) == (0, None)
    changes = [(entry, change) for entry in entries for change in entry.rows]
    assert [(e.event_type.name, e.header.table) for e, _ in changes] == [(kind, table) for kind, table, _, _ in written]
    for (entry, change), (_, _, before, after) in zip(changes, written):
        table = fake._tables["shop", entry.header.table].columns
        assert_row(change.before, before, table, fake.row_image)
        assert_row(change.after, after, table, fake.row_image)
        if change.before is not None:
            keys = [column.name for column in table if column.key]
            assert ABSENT not in [change.before[name] for name in keys]
        if change.after is not None and before is not None:  # what has changed is there
            assert all(change.after[name] is not ABSENT for name in after if after[name] != before[name])
    if fake.gtid:
        assert entries[-1].header.gtid in fake.executed or fake.executed.endswith(entries[-1].header.gtid.rpartition(":")[2])
