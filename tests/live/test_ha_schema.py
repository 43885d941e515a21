"""Without column names in the log: who takes over has the columns that each table had at his position, from ZooKeeper."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import attrs

import canal
from canal.ha import Role
from canal.testing import ZooKeeperServer
from tests.support.fix_servers import Line, Pairing
from tests.support.ha_group import PATIENT, end_wait
from tests.support.live import source, wait_for_row


def read(instance: canal.Instance, count: int, keep: bool = False) -> tuple[list[dict[str, Any]], int]:
    """So many rows, and the batches that hold them, but for the last one acked, or with ``keep`` none; gives its id."""
    rows: list[dict[str, Any]] = []
    batch = -1
    while len(rows) < count:
        if not keep:
            instance.ack(batch)
        message = instance.get_without_ack(1000, timeout=60)
        assert message, (rows, instance.role)
        batch = message.id
        rows += [row.after.as_dict() for entry in message.entries for row in entry.rows if row.after is not None]
    assert len(rows) == count, rows
    return rows, batch


def test_a_statement_while_another_process_is_active_names_the_columns_right(
    line: Line, zookeeper_server: ZooKeeperServer, zookeeper_root: str
) -> None:
    """All columns are INT, and renamed crosswise: what the table is now would fit, with the wrong names."""
    with ExitStack() as stack:
        server = stack.enter_context(Pairing(line, line.can("gtid")).server(named=False))
        server.query("CREATE DATABASE d")
        server.query("CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
        ha = canal.ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0, takeover_delay=0.2)

        def process(**zookeeper: Any) -> canal.Instance:
            own = attrs.evolve(ha, **zookeeper)
            config = canal.InstanceConfig(destination="unnamed", source=source(server), filter=r"d\..*", ha=own)
            instance = canal.Instance(config).start()
            stack.callback(instance.stop)
            instance.subscribe()
            return instance

        first, second = process(**PATIENT), process()
        server.query("INSERT INTO d.t VALUES (1, 10, 100)")
        rows, batch = read(first, 1)
        assert rows == [{"id": 1, "a": 10, "b": 100}]
        first.ack(batch)

        server.query("INSERT INTO d.t VALUES (2, 20, 200)")
        server.query("ALTER TABLE d.t CHANGE a b INT, CHANGE b a INT")
        server.query("INSERT INTO d.t VALUES (3, 30, 300)")
        server.query("ALTER TABLE d.t CHANGE a c INT, ADD COLUMN z INT FIRST, DROP COLUMN b")
        server.query("INSERT INTO d.t VALUES (0, 4, 400)")
        expected = [{"id": 2, "a": 20, "b": 200}, {"id": 3, "b": 30, "a": 300}, {"z": 0, "id": 4, "c": 400}]
        assert read(first, 3, keep=True)[0] == expected
        first.release()
        rows, batch = read(second, 3)
        assert rows == expected
        assert second.role is Role.ACTIVE
        second.ack(batch)

        end_wait(first, Role.STANDBY)
        second.stop()  # the first one has the turn again, with what was done in the other's
        end_wait(first, Role.ACTIVE)
        server.query("INSERT INTO d.t VALUES (0, 5, 500)")
        server.query("ALTER TABLE d.t CHANGE z c INT, CHANGE c z INT")
        server.query("INSERT INTO d.t VALUES (0, 6, 600)")
        rows, batch = read(first, 2)
        assert rows == [{"z": 0, "id": 5, "c": 500}, {"c": 0, "id": 6, "z": 600}]
        first.ack(batch)
        first.stop()

        server.query("INSERT INTO d.t VALUES (0, 7, 700)")  # while nobody runs
        server.query("ALTER TABLE d.t CHANGE z c INT, CHANGE c z INT")
        server.query("INSERT INTO d.t VALUES (0, 8, 800)")
        third = process()
        assert read(third, 2)[0] == [{"c": 0, "id": 7, "z": 700}, {"z": 0, "id": 8, "c": 800}]
        assert third.error is None


def test_a_take_over_after_a_switch_of_the_source(
    pairing: Pairing, zookeeper_server: ZooKeeperServer, zookeeper_root: str
) -> None:
    with ExitStack() as stack:
        one, two = stack.enter_context(pairing.pair(named=False))
        one.query("CREATE DATABASE d")
        one.query("CREATE TABLE d.t (id INT PRIMARY KEY, a INT, b INT)")
        ha = canal.ZooKeeper(hosts=zookeeper_server.hosts, root=zookeeper_root, session_timeout=30.0, takeover_delay=0.2)

        def process(**zookeeper: Any) -> canal.Instance:
            config = canal.InstanceConfig(
                destination="switched",
                source=source(one),
                standby=source(two),
                filter=r"d\..*",
                ha=attrs.evolve(ha, **zookeeper),
                heartbeat=canal.Heartbeat(interval=3600.0),
            )
            instance = canal.Instance(config).start()
            stack.callback(instance.stop)
            instance.subscribe()
            return instance

        first, second = process(**PATIENT), process()
        one.query("INSERT INTO d.t VALUES (1, 10, 100)")
        one.query("ALTER TABLE d.t CHANGE a b INT, CHANGE b a INT")
        one.query("INSERT INTO d.t VALUES (2, 20, 200)")
        rows, batch = read(first, 2)
        assert rows == [{"id": 1, "a": 10, "b": 100}, {"id": 2, "b": 20, "a": 200}]
        first.ack(batch)
        wait_for_row(two, "SELECT COUNT(*) FROM d.t WHERE id = 2")
        assert first.switch()
        two.stop_replication()
        two.query("INSERT INTO d.t VALUES (3, 30, 300)")
        rows, batch = read(first, 1)
        assert rows == [{"id": 3, "b": 30, "a": 300}]
        first.ack(batch)
        two.query("INSERT INTO d.t VALUES (4, 40, 400)")
        two.query("ALTER TABLE d.t CHANGE a b INT, CHANGE b a INT")
        two.query("INSERT INTO d.t VALUES (5, 50, 500)")
        expected = [{"id": 4, "b": 40, "a": 400}, {"id": 5, "a": 50, "b": 500}]
        assert read(first, 2, keep=True)[0] == expected
        first.release()
        assert read(second, 2)[0] == expected
