"""Many tables in one process: each is copied once, whatever happens meanwhile, and followed; and what that takes of memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

import canal
from canal.errors import ConfigError, NotSubscribedError, StreamMismatchError
from canal.pipes.apply import ApplyChanges
from canal.snapshot.copies import CopyStatus, copies
from canal.spark import apply_changes, copy_table, foreach_batch
from canal.targets.tables import DeltaTableTarget
from canal.testing import FakeBinlog
from canal.testing.servers import ThrowawayServer
from tests.support.engine import PATIENCE
from tests.support.live import source

EXAMPLE = Path(__file__).parents[2] / "examples" / "many_tables.py"
TABLES = 40


def until(true: Callable[[], bool], child: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + 3 * PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        assert child is None or child.poll() is None, "the process has ended"
        time.sleep(0.02)


def lake_rows(path: Path) -> dict[int, str] | None:
    try:
        rows = DeltaTable(str(path)).to_pyarrow_table()
    except TableNotFoundError:
        return None
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist()))


def server_rows(server: ThrowawayServer, table: str) -> dict[int, str]:
    return dict(server.query(f"SELECT id, v FROM {table}"))


@pytest.mark.lines("mariadb")
def test_forty_tables_in_one_process_take_less_than_a_gigabyte(
    server: ThrowawayServer, database: str, tmp_path: Path, record: Callable[..., None]
) -> None:
    """Copied, followed under load, killed, and followed again."""
    names = [f"{database}.t{number}" for number in range(TABLES)]
    for name in names:
        server.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(40))")
        server.query(f"INSERT INTO {name} VALUES {','.join(f'({n}, {chr(39)}old{chr(39)})' for n in range(500))}")
    address = f"{server.host}:{server.port}"
    command = [sys.executable, str(EXAMPLE), address, server.user, server.password, database, str(tmp_path)]
    numbers = itertools.count()

    def write(rounds: int) -> None:
        for number in itertools.islice(numbers, rounds):
            name = names[number % TABLES]
            server.query(f"REPLACE INTO {name} VALUES ({number % 700}, 'new {number}')")
            server.query(f"DELETE FROM {name} WHERE id = {number * 7 % 600}")
            server.query(f"UPDATE IGNORE {name} SET id = id + 1000 WHERE id = {number * 3 % 500}")

    with running(command, tmp_path / "log") as child:  # killed in the middle of its copies
        until(lambda: lake_rows(tmp_path / names[4]) is not None, child)
        write(TABLES)
    with running(command, tmp_path / "log") as child:
        write(TABLES)
        until(lambda: all(lake_rows(tmp_path / name) == server_rows(server, name) for name in names), child)
        record(
            kind="spark many",
            server=f"{server.kind} {server.version}",
            processes=1,
            bytes=peak(child.pid),
            wrong=[],
            what=f"{TABLES} tables, one loop into Delta, killed once",
        )
        assert peak(child.pid) < 1 << 30
        assert not Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()  # it has no other process


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])}
    with log.open("ab") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as child:
        try:
            yield child
            assert child.poll() is None, log.read_text()
        finally:
            child.kill()


def peak(pid: int) -> int:
    """The most memory that a process had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


# -- one table -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(server: ThrowawayServer, database: str) -> str:
    server.query(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    server.query(f"INSERT INTO {database}.t VALUES {','.join(f'({n}, {chr(39)}old{chr(39)})' for n in range(400))}")
    return f"{database}.t"


@contextlib.contextmanager
def following(server: ThrowawayServer, table: str, meta: Path) -> Iterator[canal.Instance]:
    schema = table.partition(".")[0]
    config = canal.InstanceConfig(destination="s", source=source(server), filter=rf"{schema}\..*", meta=canal.FileMeta(str(meta)))
    with canal.Instance(config) as instance:
        instance.subscribe()
        yield instance


def follow(instance: canal.Instance, sink: ApplyChanges, equal: Callable[[], bool]) -> None:
    """Run the loop until the target is the table."""
    stop, failed = threading.Event(), []

    def loop() -> None:
        try:
            foreach_batch(None, instance, sink, stop=stop, timeout=0.1)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        until(lambda: bool(failed) or equal())
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


@pytest.mark.parametrize("meanwhile", ["TRUNCATE {0}", *(f"ALTER TABLE {{0}} MODIFY v {kind}" for kind in ("TEXT", "CHAR(3)"))])
def test_what_changes_between_the_subscription_and_the_copy_is_in_the_copy(
    server: ThrowawayServer, table: str, tmp_path: Path, meanwhile: str
) -> None:
    sink = apply_changes(DeltaTableTarget(str(tmp_path / "t")), keys=["id"])
    with following(server, table, tmp_path / "meta") as instance:
        server.query(f"UPDATE {table} SET v = 'one' WHERE id < 50")
        server.query(f"DELETE FROM {table} WHERE id > 300")
        server.query(meanwhile.format(table))
        server.query(f"REPLACE INTO {table} VALUES (1000, 'two')")
        assert copy_table(instance, table, sink, chunk_rows=50)
        assert lake_rows(tmp_path / "t") == server_rows(server, table)
        server.query(f"INSERT INTO {table} VALUES (1001, 'new')")
        follow(instance, sink, lambda: lake_rows(tmp_path / "t") == server_rows(server, table))
        assert not copy_table(instance, table, sink)


def test_a_copy_that_was_not_finished_is_begun_anew_and_until_then_nothing_is_applied(
    server: ThrowawayServer, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = apply_changes(DeltaTableTarget(str(tmp_path / "t")), keys=["id"])
    apply, calls = ApplyChanges.__call__, itertools.count(1)
    seen: list[CopyStatus] = []

    def dying(self: ApplyChanges, df: Any, batch: Any = None) -> None:
        if next(calls) == 4:
            seen.extend(copies())
            raise KeyboardInterrupt
        apply(self, df, batch)

    with following(server, table, tmp_path / "meta") as instance:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(ApplyChanges, "__call__", dying)
            copy_table(instance, table, sink, chunk_rows=50)
        done = len(lake_rows(tmp_path / "t") or {})
        assert 0 < done < 400
        assert [(one.destination, one.table, one.rows) for one in seen] == [(instance.destination, table, done)]
        assert copies() == []
        server.query(f"DELETE FROM {table} WHERE id < 60")
        with pytest.raises(StreamMismatchError, match="is not complete"):
            follow(instance, sink, lambda: False)
        assert copy_table(instance, table, sink, chunk_rows=50)
        assert lake_rows(tmp_path / "t") == server_rows(server, table)
        follow(instance, sink, lambda: True)


def test_an_empty_table_is_copied_as_it_is(server: ThrowawayServer, table: str, tmp_path: Path) -> None:
    server.query(f"DELETE FROM {table}")
    sink = apply_changes(DeltaTableTarget(str(tmp_path / "t")), keys=["id"])
    with following(server, table, tmp_path / "meta") as instance:
        copy_table(instance, table, sink)
        server.query(f"INSERT INTO {table} VALUES (1, 'first')")
        follow(instance, sink, lambda: lake_rows(tmp_path / "t") == {1: "first"})


def test_a_copy_of_what_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    sink = apply_changes(DeltaTableTarget(str(tmp_path / "t")), keys=["id"])
    config = canal.InstanceConfig(destination="s", source=FakeBinlog(), start="earliest")
    with canal.Instance(config) as instance, pytest.raises(ConfigError, match="from a server"):
        copy_table(instance, "a.b", sink)


def test_a_copy_before_the_subscription_is_refused(server: ThrowawayServer, table: str, tmp_path: Path) -> None:
    sink = apply_changes(DeltaTableTarget(str(tmp_path / "t")), keys=["id"])
    config = canal.InstanceConfig(destination="s", source=source(server))
    with canal.Instance(config) as instance, pytest.raises(NotSubscribedError):
        copy_table(instance, table, sink)
