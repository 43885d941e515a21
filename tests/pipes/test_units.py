"""Units of a pipe: how many changes are fetched at once."""

from __future__ import annotations

import canal
from canal.changes import Reader
from canal.pipes.units import Units
from canal.testing import FakeBinlog
from tests.support.waiting import until


def test_pace_of_full_and_slow_units_doubles_their_size_until_they_are_quick() -> None:
    fake = FakeBinlog()
    table = fake.table("shop", "orders", "id INT PRIMARY KEY")
    for number in range(1500):
        table.insert({"id": number})
    fake.end()
    config = canal.InstanceConfig(destination="d", source=fake, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        until(lambda: instance._is_over(1001))  # all of it is in the store
        units = Units(instance, 1001, 10, 0.0, Reader(), None, True, "stop", False)
        sizes = []
        try:
            for number in range(12):
                unit = units.next()
                assert unit is not None
                sizes.append(unit.message.row_count)
                assert units._ahead is not None
                units._ahead.result()  # or the next one may have its size or the one after
                units.ack(unit)
                units.pace(unit, 5.0 if number < 8 else 0.1)
        finally:
            units.close()
    assert sizes == [10, 10, 20, 20, 40, 40, 80, 80, 160, 160, 80, 40]
