"""What is Redis's own: members of sets, and clusters, whose servers have no MULTI together."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import canal
from canal.errors import ConfigError, TargetConflictError, UnfitChangeError
from canal.targets import JSONLinesTarget, RedisTarget
from canal.targets.redis_cluster import _tags, slot_of
from canal.testing import FakeBinlog
from canal.testing.target_servers import RedisCluster, RedisServer

# redis-py leaves connections open where a cluster cannot be begun with.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
_numbers = itertools.count(1)


class Shop:
    """A table of its own on shared servers, and who writes it."""

    def __init__(self, fake: FakeBinlog) -> None:
        self.fake = fake
        self.name = f"orders_{os.getpid()}_{next(_numbers)}"
        self.key = f"shop.{self.name}"
        self.table = fake.table("shop", self.name, "id INT PRIMARY KEY, n INT")

    def send(self, target: RedisTarget, **options: Any) -> canal.Pipe:
        self.fake.end()
        with canal.Instance(canal.InstanceConfig(destination="shop", source=self.fake, start="earliest")) as instance:
            instance.subscribe()
            made = canal.pipe(instance, target, **{"on_error": "stop", "stream": self.name, **options})
            made.run()
            return made

    def change(self, number: int) -> tuple[list[canal.changes.Change], canal.targets.Progress]:
        """The change of this number, and the progress behind all."""
        reader = canal.changes.Reader(is_log=False)
        with canal.Instance(canal.InstanceConfig(destination="shop", source=self.fake, start="earliest")) as instance:
            instance.subscribe()
            found: list[canal.changes.Change] = []
            for message in instance.stream():
                found += [change for entry in message.entries for change in reader.changes(entry)]
                if len(found) > number:
                    assert message.position is not None
                    return found[number : number + 1], canal.targets.Progress(message.position)
        raise AssertionError


@pytest.fixture
def shop(fake_binlog: FakeBinlog) -> Iterator[Shop]:
    yield Shop(fake_binlog)
    gc.collect()


@pytest.fixture
def single(redis_server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        yield client


@pytest.fixture
def cluster(redis_cluster: RedisCluster) -> Iterator[Any]:
    client = redis.cluster.RedisCluster.from_url(redis_cluster.url, decode_responses=True)
    yield client
    client.close()


def test_members_of_rows_that_change_or_go_are_taken_out(redis_server: RedisServer, single: Any, shop: Shop) -> None:
    shop.table.insert({"id": 1, "n": 5})
    shop.table.insert({"id": 2, "n": 3})
    shop.table.insert({"id": 3, "n": 4})
    shop.table.update({"id": 1, "n": 5}, {"n": 1})
    shop.table.delete({"id": 2, "n": 3})

    assert shop.send(RedisTarget(redis_server.url, "sortedset", score="n"), batch_size=1).status().commits > 1

    assert single.zrange(shop.key, 0, -1, withscores=True) == [('{"id":1,"n":1}', 1.0), ('{"id":3,"n":4}', 4.0)]
    assert single.hgetall(f"canal_members:{{{shop.key}}}") == {"1": '{"id":1,"n":1}', "3": '{"id":3,"n":4}'}


def test_a_row_without_a_score_is_parked_or_stops_the_pipe(
    redis_server: RedisServer, single: Any, shop: Shop, tmp_path: Any
) -> None:
    shop.table.insert({"id": 1, "n": 5})
    shop.table.insert({"id": 2, "n": None})
    target = RedisTarget(redis_server.url, "sortedset", score="n")
    with pytest.raises(UnfitChangeError, match="n of a row of .* no score"):
        shop.send(target)

    shop.send(target, on_unfit=JSONLinesTarget(tmp_path / "parked"))

    assert single.zrange(shop.key, 0, -1) == ['{"id":1,"n":5}']
    assert '"id":2' in (tmp_path / "parked").read_text()


def test_the_slot_of_a_key_is_that_of_the_servers(cluster: Any) -> None:
    names = ["a", "shop.orders:1", "{shop}:x", "{}a", "a{b}c{d}", "}{", "a{b", "é:\\:{x}y"]

    assert [slot_of(name.encode()) for name in names] == [cluster.cluster_keyslot(name) for name in names]
    assert [slot_of(f"p:{{{tag}}}:s".encode()) for tag in _tags()] == list(range(16384))


@pytest.mark.parametrize("structure", ["hash", "json"])
def test_a_writer_that_is_paused_in_its_commit_overwrites_nothing_of_a_later_one(
    structure: Any, redis_cluster: RedisCluster, cluster: Any, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at the progress already: what a later one has written, deleted or emptied since refuses it."""
    shop.table.insert({"id": 1, "n": 1})
    shop.table.delete({"id": 1, "n": 1})
    shop.table.insert({"id": 2, "n": 2})
    shop.fake.ddl(f"TRUNCATE TABLE {shop.key}", "shop")
    target = RedisTarget(redis_cluster.url, structure, cluster=True)
    insert, progress = shop.change(0)
    other, _ = shop.change(2)
    with target.begin(shop.name) as early:
        early.progress(shop.key)
        shop.send(target)
        monkeypatch.setattr(early, "_claim", lambda *words: None)
        for changes in (insert, other):
            early.apply(changes)
            with pytest.raises(TargetConflictError):
                early.commit(progress, shop.key)

    assert [cluster.exists(f"{shop.key}:{number}") for number in (1, 2)] == [0, 0]


def test_a_writer_that_began_before_another_one_is_refused_at_its_look(
    redis_cluster: RedisCluster, cluster: Any, shop: Shop
) -> None:
    shop.table.insert({"id": 1, "n": 1})
    shop.table.insert({"id": 2, "n": 2})
    target = RedisTarget(redis_cluster.url, cluster=True)
    changes, progress = shop.change(1)
    with target.begin(shop.name) as early, target.begin(shop.name) as late:
        early.progress(shop.key)
        late.progress(shop.key)
        early.apply(changes)
        with pytest.raises(TargetConflictError, match="another writer"):
            early.commit(progress, shop.key)

    assert cluster.exists(f"{shop.key}:2") == 0


def test_a_server_of_the_cluster_that_dies_is_waited_for(redis_cluster: RedisCluster, cluster: Any, shop: Shop) -> None:
    target = RedisTarget(redis_cluster.url, cluster=True)
    for number in range(60):
        shop.table.insert({"id": number, "n": number})
    redis_cluster.servers[1].kill()
    shop.fake.end()
    with canal.Instance(canal.InstanceConfig(destination="shop", source=shop.fake, start="earliest")) as instance:
        instance.subscribe()
        retry = canal.Retry(times=None, first=0.05, longest=0.5)
        with canal.pipe(instance, target, stream=shop.name, on_error=retry) as pipe:
            while not pipe.status().failures:
                pipe.join(0.02)
            redis_cluster.servers[1].start()
            pipe.join()
    redis_cluster.wait()

    assert sorted(int(cluster.hget(f"{shop.key}:{number}", "n")) for number in range(60)) == list(range(60))


def test_a_server_is_no_cluster_and_a_cluster_no_server(
    redis_server: RedisServer, redis_cluster: RedisCluster, shop: Shop
) -> None:
    shop.table.insert({"id": 1})

    with pytest.raises(ConfigError, match="no cluster"):
        shop.send(RedisTarget(redis_server.url, cluster=True))
    with pytest.raises(ConfigError, match="of a cluster"):
        shop.send(RedisTarget(redis_cluster.url))
    with pytest.raises(ConfigError, match="has braces"):
        target = RedisTarget(redis_cluster.url, "list", cluster=True)
        shop.send(target, rules=[canal.Rule(to="{{a}}{table}")])


@pytest.mark.parametrize("options", [{"structure": "bag"}, {"structure": "sortedset"}, {"score": "n"}])
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RedisTarget("redis://localhost", **options)
