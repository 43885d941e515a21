"""What tests of pipes share: a config, a process's life, a table, a target that fails."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import canal
from canal.targets import SQLiteTarget
from canal.testing import FakeBinlog

QUICK = canal.Retry(times=5, first=0.001, longest=0.002)


def read(target: SQLiteTarget, sql: str) -> list[Any]:
    with closing(sqlite3.connect(target.path)) as connection:
        return connection.execute(sql).fetchall()


def of(fake: FakeBinlog, **options: Any) -> canal.InstanceConfig:
    given = {"destination": "test", "source": fake, "start": "earliest", "meta": canal.MemoryMeta()}
    return canal.InstanceConfig(**{**given, **options})


@contextmanager
def life(fake: FakeBinlog, folder: Path | None = None, **options: Any) -> Iterator[canal.Instance]:
    """One life of a process."""
    meta = canal.MemoryMeta() if folder is None else canal.FileMeta(folder / "cursors")
    with canal.Instance(of(fake, meta=meta, **options)) as instance:
        instance.subscribe()
        yield instance


def orders(fake: FakeBinlog, name: str = "orders") -> Any:
    return fake.table("shop", name, "id INT PRIMARY KEY, n INT, note VARCHAR(40)")


def fail(*errors: Exception | None) -> Callable[[str], None]:
    """What fails before each of the next commits."""
    left = list(errors)

    def at(point: str) -> None:
        if point == "before" and left and (error := left.pop(0)) is not None:
            raise error

    return at


def awaited(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 120))
