"""One of several processes that run one loop of foreach_batch: in the midst of its first batch it lets another one take over.

Prints "ready" when it takes part, waits for a line, and prints the ids of each batch that its function was called with.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import canal
from canal.ha import Role
from canal.spark import Batch, apply_changes, foreach_batch
from canal.targets.tables import DeltaTableTarget
from canal.zookeeper.session import ZooKeeper


def main(port: int, hosts: str, root: str, path: str) -> None:
    config = canal.InstanceConfig(
        destination="d",
        start="earliest",
        filter="shop.orders",
        source=canal.MySQLSource(host="127.0.0.1", port=port, user="u", password="p"),
        ha=ZooKeeper(hosts=hosts, root=root, session_timeout=20.0, takeover_delay=0.3),
    )
    apply = apply_changes(DeltaTableTarget(path), None)
    calls = 0
    with canal.Instance(config) as instance:

        def rests() -> int:
            return instance.status().role_changes[Role.RESTING.value]

        def fn(df: Any, batch: Batch) -> None:
            nonlocal calls
            apply(df, batch)
            print(*df["id"].to_pylist(), flush=True)
            calls += 1
            if calls == 1:
                before = rests()
                instance.release()
                while rests() == before:
                    time.sleep(0.01)

        instance.subscribe()
        print("ready", flush=True)
        sys.stdin.readline()
        foreach_batch(None, instance, fn, batch_size=2, timeout=0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
