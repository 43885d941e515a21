"""What is Redis's own: members of sets, and clusters, whose servers have no MULTI together."""

from __future__ import annotations

import gc
import itertools
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

import canal
from canal.errors import ConfigError, ConnectionLostError, TargetConflictError, UnfitChangeError
from canal.targets import JSONLinesTarget, RedisTarget
from canal.targets.redis_cluster import _tags, slot_of
from canal.testing import FakeBinlog
from tests.support.target_servers import RedisCluster, RedisServer
from tests.support.waiting import until

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


@pytest.mark.parametrize("structure", ["hash", pytest.param("json", marks=pytest.mark.nightly)])
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


@pytest.mark.usefixtures("redis_cluster")  # it has one of its own, where there is any
@pytest.mark.parametrize("structure", ["hash", "stream"])
def test_a_replica_that_takes_over_is_written_to(structure: Any, shop: Shop) -> None:
    with RedisCluster(replicated=True) as servers, ExitStack() as stack:
        nodes = [stack.enter_context(redis.Redis(port=server.port)) for server in servers.servers]

        def failover() -> None:
            for replica in nodes[3:]:
                take_over(replica)

        moved_while_writing(structure, servers, shop, failover)
        client = redis.cluster.RedisCluster.from_url(servers.url, decode_responses=True)
        stack.callback(client.close)

        assert numbers_in(client, structure, shop) == list(range(40))


def take_over(replica: redis.Redis) -> None:
    """It gives up after 5 s without votes, which it can only be asked for again."""
    asked = -math.inf

    def has_taken_over() -> bool:
        nonlocal asked
        told = replica.info("replication")
        if told["role"] == "slave" and told["master_link_status"] == "up" and time.monotonic() - asked > 6:
            asked = time.monotonic()
            replica.execute_command("CLUSTER FAILOVER")
        return bool(told["role"] == "master")

    until(has_taken_over, 120)


class Move:
    """A slot on its way from the server that has it to another one."""

    def __init__(self, cluster: RedisCluster, slot: int) -> None:
        self._nodes = [redis.Redis(port=server.port, decode_responses=True) for server in cluster.servers]
        told = self._nodes[0].cluster("NODES")
        found = [told[f"{server.host}:{server.port}"] for server in cluster.servers]
        self._ids = [node["node_id"] for node in found]
        has = [any(int(ends[0]) <= slot <= int(ends[-1]) for ends in node["slots"]) for node in found]
        self._slot, self._own, self._other = slot, has.index(True), has.index(False)

    def begin(self) -> None:
        self._nodes[self._other].execute_command("CLUSTER SETSLOT", self._slot, "IMPORTING", self._ids[self._own])
        self._nodes[self._own].execute_command("CLUSTER SETSLOT", self._slot, "MIGRATING", self._ids[self._other])

    def carry(self) -> None:
        own, other = self._nodes[self._own], self._nodes[self._other].connection_pool.connection_kwargs["port"]
        while keys := own.execute_command("CLUSTER GETKEYSINSLOT", self._slot, 1000):
            own.execute_command("MIGRATE", "127.0.0.1", other, "", 0, 5000, "KEYS", *keys)

    def end(self) -> None:
        for node in (self._nodes[self._other], *self._nodes):
            node.execute_command("CLUSTER SETSLOT", self._slot, "NODE", self._ids[self._other])
        until(lambda: len({str(self._view(node)) for node in self._nodes}) == 1)  # else an older word may count in the next move
        for node in self._nodes:
            node.close()

    @staticmethod
    def _view(node: Any) -> list[tuple[str, str, Any]]:
        return sorted((one["node_id"], one["epoch"], one["slots"]) for one in node.cluster("NODES").values())

    def whole(self) -> None:
        self.begin()
        self.carry()
        self.end()


_STRUCTURES = ["hash", "json", "set", "stream"]


def moved_while_writing(structure: Any, cluster: RedisCluster, shop: Shop, happen: Any, then: Any = None) -> None:
    """40 rows: 20 of them before something happens, and what is to be behind it then, when the pipe has felt it."""
    for number in range(20):
        shop.table.insert({"id": number, "n": number})
    config = canal.InstanceConfig(destination="shop", source=shop.fake, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        retry = canal.Retry(times=None, first=0.05, longest=0.2)
        target = RedisTarget(cluster.url, structure, cluster=True)
        with canal.pipe(instance, target, stream=shop.name, on_error=retry) as pipe:
            while pipe.status().changes < 20:
                pipe.join(0.02)
            happen()
            for number in range(20, 40):
                shop.table.insert({"id": number, "n": number})
            if then is not None:
                while not pipe.status().failures and pipe.status().changes < 40:
                    pipe.join(0.02)
                then()
            shop.fake.end()
            pipe.join()


def numbers_in(client: Any, structure: str, shop: Shop) -> list[int]:
    """Of rows, or of changes each time that it is there."""
    if structure in ("hash", "json"):
        keys = [f"{shop.key}:{number}" for number in range(40)]
        found = [client.hgetall(key) if structure == "hash" else json.loads(client.get(key) or "{}") for key in keys]
        return [int(row["n"]) for row in found if row]
    if structure == "set":
        return sorted(json.loads(member)["n"] for member in client.smembers(shop.key))
    return [json.loads(fields["change"])["after"]["n"] for _, fields in client.xrange(shop.key)]


@pytest.mark.parametrize("structure", _STRUCTURES)
def test_slots_that_another_server_has_now_are_written_there(
    structure: Any, redis_cluster: RedisCluster, cluster: Any, shop: Shop
) -> None:
    slots = {slot_of(name.encode()) for name in (shop.key, f"{shop.key}:3", f"{shop.key}:23", f"{shop.key}:24")}

    def move() -> None:
        for slot in slots:
            Move(redis_cluster, slot).whole()

    moved_while_writing(structure, redis_cluster, shop, move)

    assert numbers_in(cluster, structure, shop) == list(range(40))


@pytest.mark.parametrize("structure", _STRUCTURES)
def test_slots_on_their_way_to_another_server_are_waited_for(
    structure: Any, redis_cluster: RedisCluster, cluster: Any, shop: Shop
) -> None:
    slots = {slot_of(name.encode()) for name in (shop.key, f"{shop.key}:3", f"{shop.key}:23", f"{shop.key}:24")}
    moves = [Move(redis_cluster, slot) for slot in slots]

    def half() -> None:
        for number, move in enumerate(moves):
            move.begin()
            if number % 2 == 0:
                move.carry()

    def rest() -> None:
        for move in moves:
            move.carry()
            move.end()

    moved_while_writing(structure, redis_cluster, shop, half, rest)

    assert numbers_in(cluster, structure, shop) == list(range(40))


@pytest.mark.parametrize("structure", ["set", "stream"])
def test_where_a_slot_moves_between_look_and_commit_a_late_writer_is_still_found(
    structure: Any, redis_cluster: RedisCluster, cluster: Any, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.table.insert({"id": 1, "n": 1})
    shop.table.insert({"id": 2, "n": 2})
    target = RedisTarget(redis_cluster.url, structure, cluster=True)
    changes, progress = shop.change(0)
    with target.begin(shop.name) as early:
        early.progress(shop.key)
        early.apply(changes)
        happen = [lambda: Move(redis_cluster, slot_of(shop.key.encode())).whole(), lambda: shop.send(target)]
        for kind in (redis.client.Pipeline, redis.cluster.ClusterPipeline):
            monkeypatch.setattr(kind, "watch", _then(kind.watch, happen, 2))
            monkeypatch.setattr(kind, "multi", _then(kind.multi, happen, 1))
        with pytest.raises(ConnectionLostError, match="move to another server"):
            early.commit(progress, shop.key)
        monkeypatch.undo()
    for late in happen:
        late()

    assert numbers_in(cluster, structure, shop) == [1, 2]


def _then(call: Any, happen: list[Any], left: int) -> Any:
    """The call, and behind it the next of what is to happen, where so many are left."""

    def both(*args: Any) -> Any:
        found = call(*args)
        if len(happen) == left:
            happen.pop(0)()
        return found

    return both


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


@pytest.mark.parametrize("structure", ["hash", "json"])
def test_tables_and_keys_with_colons_stay_apart(structure: Any, redis_server: RedisServer, single: Any) -> None:
    """`t`.('a', '1') and `t:a`.('1') had one key, and TRUNCATE of the first took the rows of the second."""
    fake, name = FakeBinlog(), f"t{os.getpid()}_{next(_numbers)}"
    first = fake.table("shop", name, "k VARCHAR(9), i INT, n INT, PRIMARY KEY (k, i)")
    second = fake.table("shop", f"{name}:a", "i INT PRIMARY KEY, n INT")
    first.insert({"k": "a", "i": 1, "n": 1})
    second.insert({"i": 1, "n": 2})
    fake.ddl(f"TRUNCATE TABLE {name}", "shop")
    fake.end()

    with canal.Instance(canal.InstanceConfig(destination=name, source=fake, start="earliest")) as instance:
        instance.subscribe()
        canal.pipe(instance, RedisTarget(redis_server.url, structure), on_error="stop").run()

    assert list(single.keys(f"shop.{name}*")) == [rf"shop.{name}\:a:1"]


def test_tables_that_would_be_one_are_refused_across_restarts(redis_server: RedisServer) -> None:
    name = f"t{os.getpid()}_{next(_numbers)}"
    rule = canal.Rule(tables=r"shop\..*", to=name)
    for table in ("a", "b"):
        fake = FakeBinlog(clock=lambda: 1_700_000_000)  # one log, which is longer the second time
        fake.table("shop", "a", "id INT PRIMARY KEY").insert({"id": 1})
        if table == "b":
            fake.table("shop", "b", "id INT PRIMARY KEY").insert({"id": 1})
        fake.end()
        with canal.Instance(canal.InstanceConfig(destination=name, source=fake, start="earliest")) as instance:
            instance.subscribe()
            pipe = canal.pipe(instance, RedisTarget(redis_server.url), rules=[rule], on_error="stop", batch_size=1)
            if table == "a":
                pipe.run()
            else:
                with pytest.raises(ConfigError, match=r"both shop\.a and shop\.b would be the table"):
                    pipe.run()
