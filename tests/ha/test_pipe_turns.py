"""Pipes of processes that take turns: what a writer knows ends with its turn, and a standby opens no target."""

from __future__ import annotations

import json
import shlex
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest

import canal
from canal.cli.main import main
from canal.ha import Role, overview
from canal.targets import HTTPTarget, JSONLinesTarget, SQLiteTarget
from canal.targets.protocol import Target, Work
from canal.testing.zookeeper import ZooKeeperServer
from tests.support.ha_group import PATIENT, Group, end_wait
from tests.support.harnesses import Receiver
from tests.support.pipes import QUICK
from tests.support.waiting import until


@pytest.fixture
def group(zookeeper_server: ZooKeeperServer, zookeeper_root: str) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(zookeeper_server, zookeeper_root, stack)


def pass_on(owner: canal.Instance, heir: canal.Instance) -> None:
    owner.release()
    end_wait(heir, Role.ACTIVE)
    assert heir.wait_active(60)
    end_wait(owner, Role.STANDBY)


def pipes(group: Group, kind: type[Target], *where: Any) -> tuple[list[canal.Instance], list[canal.Pipe]]:
    """Two processes with a pipe each, the first of which is active."""
    first = group.instance(zookeeper=PATIENT, start="earliest")
    both = [first, group.instance(zookeeper=PATIENT, start="earliest")]
    return both, [canal.pipe(one, kind(*where), on_error=QUICK).start() for one in both]


def take_turns(group: Group, both: list[canal.Instance], done: Any) -> None:
    """A, B and A again, with rows in each turn."""
    owner, heir = both
    for _ in range(3):
        rows = group.write(3)
        until(lambda: done(rows[-1] + 1))  # noqa: B023
        pass_on(owner, heir)
        owner, heir = heir, owner


def test_a_process_that_has_its_turn_again_sends_nothing_twice(group: Group) -> None:
    with Receiver() as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        both, running = pipes(group, HTTPTarget, receiver.url)

        def ids() -> list[int]:
            return [json.loads(line)["after"]["id"] for _, body in receiver.requests for line in body.splitlines()]

        def is_acknowledged(count: int) -> bool:
            owner = next(one for one in both if one.role is Role.ACTIVE)
            return len(ids()) >= count and not owner.list_batches()

        take_turns(group, both, is_acknowledged)
        for pipe in running:
            pipe.stop()
        receiver.shutdown()
        assert ids() == list(range(9))
        assert [pipe.status().failures for pipe in running] == [0, 0]


def test_a_process_that_has_its_turn_again_reads_the_progress_anew(
    group: Group, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "copy.db"

    def count() -> int:
        with closing(sqlite3.connect(path)) as connection:
            try:
                return int(connection.execute("SELECT count(*) FROM orders").fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    both, running = pipes(group, SQLiteTarget, path)
    take_turns(group, both, lambda rows: count() == rows)
    for pipe in running:
        pipe.stop()
    assert sum(pipe.status().changes for pipe in running) == 9
    assert "behind the cursor" not in caplog.text


class _Counting(JSONLinesTarget):
    """A target that counts how often each of its objects is open."""

    opened: ClassVar[Counter[int]] = Counter()

    @contextmanager
    def begin(self, stream: str) -> Iterator[Work]:
        self.opened[id(self)] += 1
        try:
            with super().begin(stream) as work:
                yield work
        finally:
            self.opened[id(self)] -= 1


def test_a_standby_opens_no_target(group: Group, tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    both, running = pipes(group, _Counting, path)

    def opened() -> list[int]:
        return [_Counting.opened[id(pipe.target)] for pipe in running]

    for turn in range(3):
        owner, heir = (turn % 2), (turn + 1) % 2
        rows = group.write(3)
        until(lambda: path.exists() and len(path.read_text().splitlines()) == rows[-1] + 1)  # noqa: B023
        if turn == 0:
            assert opened() == [1, 0]
        until(lambda: opened()[owner] == 1 and opened()[heir] == 0)  # noqa: B023
        pass_on(both[owner], both[heir])
    for pipe in running:
        pipe.stop()
    assert opened() == [0, 0]
    assert [pipe.status().failures for pipe in running] == [0, 0]


def test_a_count_of_turns_of_another_zookeeper_is_named_and_adopted(group: Group, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"

    def count() -> int:
        with closing(sqlite3.connect(path)) as connection:
            return int(connection.execute("SELECT count(*) FROM orders").fetchone()[0])

    first = group.instance(start="earliest")
    overview.adopt(group.session(), "d", 5)
    until(lambda: first._ha.fence is not None and first._ha.fence.epoch == 6)  # type: ignore[union-attr]
    with canal.pipe(first, SQLiteTarget(path), on_error=QUICK) as pipe:
        group.write(2)
        until(lambda: pipe.status().changes == 2)
    first.stop()
    group.config = attrs.evolve(group.config, root=f"{group.config.root}/rebuilt")
    second = group.instance(start="earliest")
    group.write(1)
    lasting = canal.Retry(times=None, first=0.01, longest=0.1)
    with canal.pipe(second, SQLiteTarget(path), on_error=lasting) as pipe:
        error = until(lambda: pipe.status().error)
        assert "another ZooKeeper, root or destination has counted it" in error.message
        assert count() == 2
        command = shlex.split(error.remedy.partition(": canal ")[2])
        assert command[-4:-2] == ["--epoch", "6"]
        assert main(command) == 0
        until(lambda: count() == 3)
    assert second._ha.fence.epoch == 7  # type: ignore[union-attr]
