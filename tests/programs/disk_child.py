"""The process whose files are recorded: it writes, and notes what it was promised.

python -m tests.programs.disk_child WHAT ROOT
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from canal.position import Position
from tests.support.disk import mark

COUNT = 8


def position(number: int) -> Position:
    return Position("bin.000001", 100 + number, timestamp=number)


def cursors(root: Path) -> None:
    from canal.meta import FileMeta

    meta = FileMeta(root / "of" / "app")
    meta.start("example")
    meta.subscribe(1, "")
    for number in range(COUNT):
        meta.update_cursor(1, position(number))
        mark(f"1 {number}")
    meta.stop()


def cursors_together(root: Path) -> None:
    from canal.meta import FileMeta

    meta = FileMeta(root / "of" / "app")
    meta.start("example")

    def ack(client_id: int) -> None:
        for number in range(COUNT):
            meta.update_cursor(client_id, position(number))
            mark(f"{client_id} {number}")

    threads = []
    for client_id in (1, 2, 3):
        meta.subscribe(client_id, "")
        threads.append(threading.Thread(target=ack, args=(client_id,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meta.stop()


def schemas(root: Path) -> None:
    from canal.parse.schema.history import FileHistory

    history = FileHistory(root / "of" / "app", keep_days=0.0)
    history.open("example")
    for number in range(COUNT):
        history.add(position(number), {("shop", "orders"): [number]}, {"number": number})
        mark(str(number))
        if number == COUNT // 2:
            history.prune(position(number - 1))
    history.close()


def positions(root: Path) -> None:
    from canal.parse.log_positions import FileLogPositionManager

    manager = FileLogPositionManager(root / "of" / "app", interval=0.0)
    manager.start("example")
    for number in range(COUNT):
        manager.persist(lambda number=number: position(number))  # type: ignore[misc]
        mark(str(number))
    manager.stop()


def progress(root: Path) -> None:
    import pyarrow as pa

    from canal.targets.protocol import Progress, TableProgress
    from canal.targets.tables import ParquetTableTarget

    target = ParquetTableTarget(str(root / "of" / "app"), compression="none")
    rows = pa.table({"id": [1]})
    for number in range(COUNT):
        with target.begin("s", ()) as work:
            work.write(rows, rows, Progress(table=TableProgress(number, 0)), added=[], replace=False)
        mark(str(number))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
