"""What every meta manager does alike."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from canal.errors import NotSubscribedError, StateError
from canal.meta import FileMeta, MemoryMeta, MetaManager, MixedMeta, PeriodMixedMeta, ZooKeeperMeta
from canal.position import Position
from canal.zookeeper.session import ZooKeeper

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HERE = Position("bin.000001", 2**33, f"{UUID}:1-5", row=3, timestamp=7, server_id=2, source=UUID)
THERE = Position("bin.000002", 4)

Make = Callable[[], MetaManager]


IN_ZOOKEEPER = {
    "zookeeper": ZooKeeperMeta,
    "zookeeper mixed": MixedMeta,
    "zookeeper by interval": lambda config: PeriodMixedMeta(config, 3600.0),
}


def _params() -> list[object]:
    marked = [pytest.param(name, marks=pytest.mark.zookeeper) for name in IN_ZOOKEEPER]
    return ["memory", "file", "file flushed by interval", *marked]


@pytest.fixture(params=_params())
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A function that makes managers on one storage; the memory is its object's, so there it is always the same."""
    if request.param == "memory":
        memory = MemoryMeta()
        return lambda: memory
    if request.param in IN_ZOOKEEPER:
        server = request.getfixturevalue("zookeeper_server")
        config = ZooKeeper(hosts=server.hosts, root=request.getfixturevalue("zookeeper_root"), session_timeout=30.0)
        return lambda: IN_ZOOKEEPER[request.param](config)
    durability = "interval" if "interval" in request.param else "ack"
    return lambda: FileMeta(tmp_path, durability, 3600.0)


@pytest.fixture
def meta(make: Make):
    manager = make()
    manager.start("example")
    yield manager
    manager.stop()


def test_it_meets_the_protocol(meta: MetaManager) -> None:
    assert isinstance(meta, MetaManager)


def test_it_starts_empty(meta: MetaManager) -> None:
    assert meta.subscriptions() == {}
    assert meta.cursor(1) is None


def test_subscribe_again_replaces_the_filter_and_keeps_the_cursor(meta: MetaManager) -> None:
    meta.subscribe(1, "a\\..*")
    assert meta.cursor(1) is None
    meta.update_cursor(1, HERE)
    meta.subscribe(1, "b\\..*")
    assert meta.subscriptions() == {1: "b\\..*"}
    assert meta.cursor(1) == HERE


def test_cursors_of_clients_are_independent(meta: MetaManager) -> None:
    meta.subscribe(2, "")
    meta.subscribe(1, "")
    meta.update_cursor(1, HERE)
    meta.update_cursor(2, THERE)
    meta.update_cursor(1, THERE)
    meta.update_cursor(1, HERE)
    assert (meta.cursor(1), meta.cursor(2)) == (HERE, THERE)
    assert list(meta.subscriptions()) == [1, 2]


def test_unsubscribe_forgets_filter_and_cursor(meta: MetaManager) -> None:
    meta.subscribe(1, "")
    meta.update_cursor(1, HERE)
    meta.unsubscribe(1)
    meta.unsubscribe(1)
    assert meta.subscriptions() == {}
    assert meta.cursor(1) is None
    meta.subscribe(1, "")
    assert meta.cursor(1) is None


def test_a_cursor_needs_a_subscription(meta: MetaManager) -> None:
    with pytest.raises(NotSubscribedError):
        meta.update_cursor(1, HERE)
    assert meta.cursor(1) is None


def test_the_subscriptions_are_a_copy(meta: MetaManager) -> None:
    meta.subscribe(1, "")
    meta.subscriptions().clear()
    assert meta.subscriptions() == {1: ""}


def test_state_outlives_stop_and_start(make: Make) -> None:
    meta = make()
    meta.start("example")
    meta.subscribe(1, "表\\..*")
    meta.subscribe(2, "")
    meta.subscribe(3, "")
    meta.update_cursor(1, HERE)
    meta.update_cursor(1, THERE)
    meta.update_cursor(3, HERE)
    meta.unsubscribe(3)
    meta.stop()
    again = make()
    again.start("example")
    assert again.subscriptions() == {1: "表\\..*", 2: ""}
    assert (again.cursor(1), again.cursor(2), again.cursor(3)) == (THERE, None, None)
    again.stop()


def test_the_last_unsubscribe_is_kept(make: Make) -> None:
    for act in (lambda meta: meta.subscribe(1, ""), lambda meta: meta.unsubscribe(1)):
        meta = make()
        meta.start("example")
        act(meta)
        meta.stop()
    meta = make()
    meta.start("example")
    assert meta.subscriptions() == {}
    meta.stop()


def test_destinations_are_apart(make: Make) -> None:
    meta = make()
    meta.start("one")
    meta.subscribe(1, "")
    meta.stop()
    meta = make()
    meta.start("two")
    assert meta.subscriptions() == {}
    meta.stop()
    meta = make()
    meta.start("one")
    assert meta.subscriptions() == {1: ""}
    meta.stop()


def test_calls_need_a_start(make: Make) -> None:
    meta = make()
    meta.stop()
    calls: list[Callable[[], object]] = [
        lambda: meta.subscribe(1, ""),
        lambda: meta.unsubscribe(1),
        meta.subscriptions,
        lambda: meta.cursor(1),
        lambda: meta.update_cursor(1, HERE),
        meta.flush,
    ]
    for _ in range(2):
        for call in calls:
            with pytest.raises(StateError):
                call()
        meta.start("example")
        meta.flush()
        with pytest.raises(StateError):
            meta.start("example")
        meta.stop()
        meta.stop()


def test_threads_lose_no_update(meta: MetaManager) -> None:
    def work(client_id: int) -> None:
        meta.subscribe(client_id, "")
        for offset in range(1, 31):
            meta.update_cursor(client_id, Position("bin.000001", offset))

    threads = [threading.Thread(target=work, args=(client_id,)) for client_id in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(meta.subscriptions()) == set(range(8))
    assert {meta.cursor(client_id) for client_id in range(8)} == {Position("bin.000001", 30)}
