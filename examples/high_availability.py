"""One consumer in as many processes as you like: one delivers, the others stand by, and late writes are fenced off.

    python examples/high_availability.py zk1:2181,zk2:2181,zk3:2181 mysql-host user password rows.db

Start it twice and kill the one that prints rows. The SQLite file stands for the database that the processes share.
"""

from __future__ import annotations

import sqlite3
import sys

import canal

TABLES = """
CREATE TABLE IF NOT EXISTS turn (destination TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS change (place TEXT PRIMARY KEY, what TEXT NOT NULL);
"""


def write(database: sqlite3.Connection, destination: str, message: canal.Message) -> bool:
    """Write a batch in one transaction; False when a process that took over later has written before."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT OR IGNORE INTO turn VALUES (?, 0)", (destination,))
        turn = database.execute(
            "UPDATE turn SET epoch = ? WHERE destination = ? AND epoch <= ?", (message.epoch, destination, message.epoch)
        )
        if turn.rowcount == 0:
            return False
        for entry in message.entries:
            for number, row in enumerate(entry.rows):
                place = f"{entry.header.journal}:{entry.header.offset}:{number}"  # so that a repeat replaces itself
                what = f"{entry.header.event_type.name} {entry.header.schema}.{entry.header.table} {row.after or row.before}"
                database.execute("INSERT OR REPLACE INTO change VALUES (?, ?)", (place, what))
    return True


def main() -> None:
    hosts, host, user, password, path = sys.argv[1:]
    config = canal.InstanceConfig(
        destination="example",
        source=canal.MySQLSource(host=host, user=user, password=password),
        ha=canal.ZooKeeper(hosts=hosts, session_timeout=6.0, takeover_delay=2.0),
    )
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    database.executescript(TABLES)
    with canal.Instance(config) as instance:
        instance.subscribe()
        print(f"this process is {instance.role.value}", flush=True)
        for message in instance.stream():
            if not write(database, config.destination, message):
                print("another process has taken over: this batch is its business", flush=True)
                continue
            print(f"turn {message.epoch}: {len(message.entries)} entries up to {message.position}", flush=True)


if __name__ == "__main__":
    main()
