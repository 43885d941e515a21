"""One source for several outputs: random histories and restarts, and what one output does to the others."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

import canal
from canal.model import Rare
from canal.testing import FakeBinlog
from tests.support.instances import Alarms
from tests.support.stand_ins import Pair
from tests.support.waiting import until

FILTERS = {"one": r"s\.a", "two": r"s\.(b|c)", "all": ""}


def commit(fake: FakeBinlog, *tables: str, first: int = 0) -> None:
    """A transaction with a row of each of these tables; ids are ``first`` and on."""
    with fake.transaction():
        for number, table in enumerate(tables, first):
            fake.table("s", table, "id INT PRIMARY KEY, v VARCHAR(40)").insert({"id": number, "v": "x" * 30})


def router_of(
    fake: Any, metas: dict[str, canal.meta.MetaManager] | None = None, names: Sequence[str] = tuple(FILTERS), **options: Any
) -> canal.server.RouterSink:
    """With ``start="earliest"``, and small stores."""
    own = options.pop("own", {})
    options = {"start": "earliest", "store_entries": 32, "reconnect_backoff": (0.01, 0.05), "slow_after": 0.2, **options}
    router = canal.server.RouterSink(canal.InstanceConfig(destination="source", source=fake, **options))
    for name in names:
        router.output(name, FILTERS[name], **{"meta": (metas or {}).get(name), "store_entries": 16, **own})
    return router


def rows_of(message: canal.Message) -> list[tuple[str, int]]:
    return [(entry.header.table, row.after["id"]) for entry in message.entries for row in entry.rows if row.after]


def read(output: canal.Instance, count: int, size: int = 5) -> list[tuple[str, int]]:
    """So many rows, or more, each acked."""
    found: list[tuple[str, int]] = []

    def look() -> bool:
        message = output.get_without_ack(size, timeout=0.2)
        found.extend(rows_of(message))
        output.ack(message)
        return len(found) >= count

    until(look)
    return found


def drained(output: canal.Instance) -> list[tuple[str, int]]:
    return [row for message in output.stream(batch_size=3) for row in rows_of(message)]


@attrs.define(eq=False)
class Reader:
    """The client of an output over its lives, and what it has acked."""

    name: str
    rng: random.Random
    meta: canal.meta.MetaManager
    acked: list[tuple[str, int]] = attrs.field(factory=list)
    out: list[canal.Message] = attrs.field(factory=list)

    def step(self, output: canal.Instance) -> bool:
        """Whether there was anything."""
        message = output.get_without_ack(self.rng.randint(1, 9), timeout=0.02)
        if message:
            self.out.append(message)
        is_open = bool(self.out)
        if self.out and self.rng.random() < 0.15:
            number = self.rng.randrange(len(self.out))
            output.rollback(self.out[number])
            del self.out[number:]
        while self.out and self.rng.random() < 0.7:
            first = self.out.pop(0)
            output.ack(first)
            self.acked += rows_of(first)
        return is_open


class Machine:
    """A journal that grows, and readers of it that come and go."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        flavor, options = [("mysql", {}), ("mysql", {"gtid": False}), ("mariadb", {})][seed % 3]
        self.fake = FakeBinlog(flavor, row_event_max_size=40, **options)  # type: ignore[arg-type]
        self.rows: list[tuple[str, int]] = []
        self.evicts = seed % 2 == 1
        self.directory = directory
        self.readers = {name: Reader(name, self.rng, canal.FileMeta(directory)) for name in ("one", "two")}
        self.router = self.begin()

    def begin(self) -> canal.server.RouterSink:
        """As after a crash: of the last life there is what was acked."""
        for reader in self.readers.values():
            reader.out.clear()
            reader.meta = canal.FileMeta(self.directory)
        router = router_of(
            self.fake,
            {name: one.meta for name, one in self.readers.items()},
            tuple(self.readers),
            on_slow="evict" if self.evicts else "wait",
        )
        router.start()
        for name in self.readers:
            router.outputs[name].subscribe()
        return router

    def write(self) -> None:
        tables = self.rng.choices("abc", k=self.rng.choice([1, 1, 2, 5, 40]))
        commit(self.fake, *tables, first=len(self.rows))
        self.rows += [(table, number) for number, table in enumerate(tables, len(self.rows))]
        if self.rng.random() < 0.1:
            self.fake.rotate()

    def expected(self, name: str) -> list[tuple[str, int]]:
        return [row for row in self.rows if not FILTERS[name] or re.fullmatch(FILTERS[name], f"s.{row[0]}")]

    def act(self) -> None:
        what = self.rng.random()
        name = self.rng.choice(list(self.readers))
        output = self.router.outputs[name]
        if what < 0.25:
            self.write()
        elif what < 0.29:
            self.router.stop()
            self.router = self.begin()
        elif what < 0.35 and output.is_running:
            output.stop()
            self.readers[name].out.clear()
        elif what < 0.37:
            self.fake.cut_after(self.rng.randint(1, 9))
        elif what < 0.39 and "all" not in self.readers:
            self.readers["all"] = reader = Reader("all", self.rng, canal.FileMeta(self.directory))
            self.router.output("all", meta=reader.meta, store_entries=16).start().subscribe()
        elif not output.is_running:
            output.start()
        else:
            self.readers[name].step(output)

    def finish(self) -> None:
        self.fake.end()
        self.router.stop()
        self.router = self.begin()
        left = dict(self.readers)

        def step() -> bool:
            for name, reader in list(left.items()):
                output = self.router.outputs[name]
                is_over = output.is_exhausted
                if not reader.step(output) and is_over:
                    del left[name]
            return not left

        until(step)
        self.router.stop()


@pytest.mark.parametrize("seed", range(6))
def test_each_output_has_its_part_of_the_journal_once_through_restarts(seed: int, tmp_path: Path) -> None:
    machine = Machine(seed, tmp_path)
    for _ in range(250):
        machine.act()
    machine.finish()

    for name, reader in machine.readers.items():
        assert reader.acked == machine.expected(name), name


def part(name: str, tables: str, first: int = 0) -> list[tuple[str, int]]:
    """What of a transaction is for an output."""
    rows = [(table, number) for number, table in enumerate(tables, first)]
    return [row for row in rows if not FILTERS[name] or re.fullmatch(FILTERS[name], f"s.{row[0]}")]


class Counted(FakeBinlog):
    """Counts its connections."""

    connections = 0

    def connect(self, server_id_hint: int | None = None) -> Any:
        self.connections += 1
        return super().connect(server_id_hint)


def test_the_source_is_read_once_from_the_earliest_cursor_and_nothing_acked_comes_again() -> None:
    fake = Counted()
    metas: dict[str, canal.meta.MetaManager] = {name: canal.MemoryMeta() for name in FILTERS}
    commit(fake, *"abc")
    with router_of(fake, metas) as router:
        for name, output in router.outputs.items():
            output.subscribe()
            assert read(output, len(part(name, "abc"))) == part(name, "abc")
        commit(fake, *"abc", first=3)
        assert read(router.outputs["all"], 3) == part("all", "abc", 3)
    fake.end()
    fake.connections = 0

    with router_of(fake, metas) as router:
        found = {name: drained(output) for name, output in router.outputs.items()}

    assert found == {"one": part("one", "abc", 3), "two": part("two", "abc", 3), "all": []}
    assert fake.connections == 1


def test_what_one_output_does_to_its_entries_the_others_do_not_see() -> None:
    class Mark(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> list[canal.Entry]:
            for entry in entries:
                entry.props["mark"] = True
            return entries

    fake = FakeBinlog()
    commit(fake, *"aaaa")
    fake.end()
    router = router_of(fake, names=())
    router.output("odd", hooks=[Mark()], row_filter=lambda header, before, after: after["id"] % 2 == 1)
    router.output("other")
    with router:
        found = {}
        for name, output in router.outputs.items():
            output.subscribe()
            found[name] = list(output.stream())

    assert [row for message in found["odd"] for row in rows_of(message)] == [("a", 1), ("a", 3)]
    assert [row for message in found["other"] for row in rows_of(message)] == part("all", "aaaa")
    marks = {name: {"mark" in entry.props for one in messages for entry in one.entries} for name, messages in found.items()}
    assert marks == {"odd": {True}, "other": {False}}


def test_copies_have_all_that_entries_and_transactions_have() -> None:
    fake = FakeBinlog()
    commit(fake, *"ab")
    fake.ddl("CREATE TABLE s.z (id INT)", schema="s")
    fake.end()
    config = canal.InstanceConfig(destination="plain", source=fake, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        entries = [entry for message in instance.stream() for entry in message.entries]

    assert len(entries) == 5
    for entry in entries:
        entry.props["own"] = 1
        entry.select((0,))
        transaction = entry.transaction.copy(7)
        copied = entry.copy(transaction)
        for name in set(canal.Transaction.__slots__) - {"before"}:
            assert getattr(transaction, name) == getattr(entry.transaction, name), name
        for name in set(canal.Entry.__slots__) - {"transaction", "rare"}:
            assert getattr(copied, name) == getattr(entry, name), name
        for name in Rare.__slots__:
            assert getattr(copied.rare, name) == getattr(entry.rare, name), name
        assert (copied.transaction.before, copied.props, copied.props is entry.props) == (7, entry.props, False)
        assert copied.data is entry.data


def test_an_output_that_is_full_holds_up_the_others_and_an_alarm_names_it() -> None:
    fake, alarms = FakeBinlog(), Alarms()
    with router_of(fake, names=("one", "all"), alarm=alarms) as router:
        for output in router.outputs.values():
            output.subscribe()
        for number in range(100):
            commit(fake, "a", first=number)
        found: list[tuple[str, int]] = []
        while not any("output all (" in told and not told.is_over for told in alarms.told):
            found += read(router.outputs["one"], 0)
        assert len(found) < 50
        kept = router.instance.status().store
        assert kept is not None
        assert kept.entries <= 32
        assert router.instance.status().alarms >= 1
        while len(found) < 100:
            read(router.outputs["all"], 0)
            found += read(router.outputs["one"], 0)

        assert found == [("a", number) for number in range(100)]


def test_with_evict_it_holds_up_nobody_and_misses_nothing() -> None:
    fake, alarms = FakeBinlog(), Alarms()
    with router_of(fake, names=("one", "all"), on_slow="evict", alarm=alarms) as router:
        for output in router.outputs.values():
            output.subscribe()
        for number in range(100):
            commit(fake, "a", first=number)
        every = [("a", number) for number in range(100)]

        assert read(router.outputs["one"], 100) == every
        assert read(router.outputs["all"], 100) == every
        alarms.wait(lambda told: "output all has caught up" in told)


def test_an_output_that_fails_or_is_stopped_holds_up_nobody_and_goes_on_at_its_cursor() -> None:
    broken = True

    class Breaks(canal.Hook):
        def before(self, entries: list[canal.Entry]) -> list[canal.Entry]:
            if broken and any(entry.rows and entry.rows[0].key == (3,) for entry in entries):
                raise ValueError("out of order")
            return entries

    fake = FakeBinlog()
    router = router_of(fake, names=("one", "two"))
    fails = router.output("fails", r"s\.a", hooks=[Breaks()])
    with router:
        for output in router.outputs.values():
            output.subscribe()
        router.outputs["two"].stop()
        for number in range(100):
            commit(fake, "a", "b", first=number)
            if number == 2:
                assert read(fails, 3) == [("a", 0), ("a", 1), ("a", 2)]
        assert read(router.outputs["one"], 100) == [("a", number) for number in range(100)]
        with pytest.raises(canal.errors.HookError, match="out of order"):
            until(lambda: bool(fails.get(timeout=1)))
        assert fails.status().state is canal.State.FAILED
        fails.stop()
        broken = False

        fails.start()
        assert read(fails, 97) == [("a", number) for number in range(3, 100)]
        router.outputs["two"].start()
        assert read(router.outputs["two"], 100) == [("b", number) for number in range(1, 101)]
        status = router.outputs["two"].status()
        assert status.state is canal.State.STREAMING
        assert status.clients[0].unacked_transactions == 0


def test_an_output_that_is_added_begins_where_the_config_says_and_one_whose_log_is_gone_fails_alone() -> None:
    fake = FakeBinlog()
    lost = canal.MemoryMeta()
    lost.start("lost")
    lost.subscribe(1001, "")
    lost.update_cursor(1001, fake.position)
    lost.stop()
    commit(fake, *"ab")
    fake.rotate()
    fake.purge(fake.journal)
    commit(fake, *"ab", first=2)
    with router_of(fake, names=("one",)) as router:
        one = router.outputs["one"]
        one.subscribe()
        assert read(one, 1) == [("a", 2)]
        gone, added = router.output("lost", meta=lost).start(), router.output("added").start()
        added.subscribe()
        assert read(added, 2) == part("all", "ab", 2)
        with pytest.raises(canal.PositionLostError):
            until(lambda: bool(gone.get(timeout=1)))
        commit(fake, *"ab", first=4)

        assert (read(one, 1), read(added, 2)) == ([("a", 4)], part("all", "ab", 4))


def test_an_output_waits_for_its_router_and_both_start_again() -> None:
    fake = FakeBinlog()
    router = router_of(fake, names=("one",))
    one = router.outputs["one"].start()
    with pytest.raises(canal.ConnectionLostError, match="the router does not run"):
        one.subscribe(timeout=0.1)
    one.stop()
    for number in range(2):
        one.start()
        with router:
            assert router.is_running
            one.subscribe()
            commit(fake, "a", first=number)
            assert read(one, 1) == [("a", number)]
            with pytest.raises(canal.StateError):
                router.start()
        assert not one.is_running
        assert not router.instance.is_running
    router.stop()


def test_a_start_that_is_interrupted_while_it_writes_cursors_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, metas = FakeBinlog(), {name: canal.MemoryMeta() for name in FILTERS}
    commit(fake, *"abc")
    with router_of(fake, metas) as router:
        for output in router.outputs.values():
            output.subscribe()
        assert read(router.outputs["one"], 1) == part("one", "abc")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    router = router_of(fake, metas)
    monkeypatch.setattr(router.instance.meta, "update_cursor", interrupted)
    with pytest.raises(KeyboardInterrupt):
        router.start()
    router.stop()
    monkeypatch.undo()
    fake.end()
    with router:
        assert [drained(output) for output in router.outputs.values()] == [[], part("two", "abc"), part("all", "abc")]


def test_a_failure_of_the_source_is_one_of_each_output(tmp_path: Path) -> None:
    fake = FakeBinlog()
    metas: dict[str, canal.meta.MetaManager] = {name: canal.FileMeta(tmp_path) for name in FILTERS}
    with router_of(fake, metas) as router:
        for output in router.outputs.values():
            output.subscribe()
    commit(fake, *"ab")
    fake.rotate()
    fake.purge(fake.journal)

    with router_of(fake, metas, dump_error_threshold=0) as router:
        for output in router.outputs.values():
            with pytest.raises(canal.PositionLostError):
                until(lambda: bool(output.get(timeout=1)))  # noqa: B023


def test_what_a_router_does_not_have_is_refused() -> None:
    fake = FakeBinlog()

    def config(**options: Any) -> canal.InstanceConfig:
        return canal.InstanceConfig(destination="source", source=fake, **options)

    router = canal.server.RouterSink(config())
    router.output("one")
    for wrong, text in (("source", "already"), ("one", "already"), ("a/b", "letters")):
        with pytest.raises(canal.ConfigError, match=text):
            router.output(wrong)
    for option in ("source", "ha", "mask", "on_slow", "start", "standby"):
        with pytest.raises(canal.ConfigError, match=f"no {option} of its own"):
            router.output("two", **{option: None})
    for options, text in (
        ({"meta": canal.FileMeta("anywhere")}, "keeps no cursors"),
        ({"ha": (ha := canal.ZooKeeper(hosts="127.0.0.1:1")), "meta": canal.meta.MixedMeta(ha)}, "keeps no cursors"),
    ):
        with pytest.raises(canal.ConfigError, match=text):
            canal.server.RouterSink(config(**options))
    with pytest.raises(canal.ConfigError, match="InstanceConfig"):
        canal.server.RouterSink(fake)  # type: ignore[arg-type]
    assert list(router.outputs) == ["one"]


def test_tables_are_known_as_they_were_at_the_cursor_of_each_output(tmp_path: Path) -> None:
    """What has been given to an output is not acked by it: its former tables are still asked for after a restart."""
    fake = FakeBinlog(metadata="MINIMAL")
    table = fake.table("s", "a", "id INT PRIMARY KEY, one INT")

    def router() -> canal.server.RouterSink:
        metas = {"one": canal.FileMeta(tmp_path)}
        return router_of(fake, metas, ("one",), schema_history=canal.FileHistory(tmp_path), start="latest")

    with router() as first:
        first.outputs["one"].subscribe()
        table.insert({"id": 1, "one": 10})
        until(lambda: first.outputs["one"].status().store.put_rows == 1)  # type: ignore[union-attr]
        table.alter("ALTER TABLE s.a RENAME COLUMN one TO two", "id INT PRIMARY KEY, two INT")
        table.insert({"id": 2, "two": 20})
        until(lambda: first.outputs["one"].status().store.put_rows >= 2)  # type: ignore[union-attr]
        until(lambda: not first.instance.status().store.entries)  # type: ignore[union-attr]
        parser = first.instance.parser
        assert isinstance(parser, canal.parse.BinlogParser)
        assert parser.oldest() == first.outputs["one"].position()
    fake.end()
    with router() as second:
        found = [change.after.as_dict() for change in second.outputs["one"].changes() if change.after]

    assert found == [{"id": 1, "one": 10}, {"id": 2, "two": 20}]


@pytest.mark.parametrize("gtid", [True, False])
def test_a_switch_of_the_source_loses_nothing_for_outputs_that_stand_apart(gtid: bool) -> None:
    pair = Pair(gtid=gtid)
    metas: dict[str, canal.meta.MetaManager] = {name: canal.MemoryMeta() for name in ("ahead", "behind")}

    def router() -> canal.server.RouterSink:
        made = router_of(
            pair.first,
            names=(),
            standby=pair.second,
            standby_start="earliest",
            filter=r"shop\..*",
            heartbeat=canal.Heartbeat(interval=600),
        )
        for name, meta in metas.items():
            made.output(name, meta=meta)
        return made

    pair.write(1, 2, 3, 4, 5, 6)
    with router() as one:
        for output in one.outputs.values():
            output.subscribe()
        assert [id for _, id in read(one.outputs["ahead"], 6)] == [1, 2, 3, 4, 5, 6]
        assert [id for _, id in read(one.outputs["behind"], 2, size=1)] == [1, 2]
    with router() as one:
        assert one.instance.switch()
        pair.write(7, to=(pair.second,))

        assert [id for _, id in read(one.outputs["behind"], 5)] == [3, 4, 5, 6, 7]
        again = [id for _, id in read(one.outputs["ahead"], 1)]
        while again[-1] != 7:
            again += [id for _, id in read(one.outputs["ahead"], 1)]
        assert again == list(range(again[0], 8))
        assert not gtid or again == [7]


@pytest.mark.parametrize(
    ("metadata", "history", "meta", "expected"),
    [
        ("MINIMAL", None, canal.FileMeta, 1),
        ("FULL", None, canal.FileMeta, 0),
        ("MINIMAL", canal.FileHistory, canal.FileMeta, 0),
        ("MINIMAL", None, None, 0),
    ],
    ids=["nothing tells", "full metadata", "history", "cursors in memory"],
)
def test_start_without_metadata_and_history_warns(metadata: Any, history: Any, meta: Any, expected: int, tmp_path: Path) -> None:
    """For a restart would stop all outputs at rows from before an ALTER."""
    fake, told = FakeBinlog(metadata=metadata), []
    fake.table("s", "a", "id INT PRIMARY KEY")
    options = {} if history is None else {"schema_history": history(tmp_path / "history")}
    metas = {} if meta is None else {"one": meta(tmp_path)}
    with router_of(fake, metas, ["one"], alarm=lambda destination, text: told.append(text), **options) as router:
        router.outputs["one"].subscribe()

    assert sum("schema_history=canal.FileHistory" in text and "outputs one" in text for text in told) == expected


def test_output_whose_log_is_purged_stops_alone(tmp_path: Path) -> None:
    fake = FakeBinlog()
    metas = {name: canal.FileMeta(tmp_path / name) for name in ("one", "all")}
    with router_of(fake, metas, ["one", "all"]) as router:
        for output in router.outputs.values():
            output.subscribe()
        commit(fake, "a")
        fake.rotate()
        commit(fake, "a")
        fake.rotate()
        commit(fake, "a")
        assert len(read(router.outputs["all"], 3)) == 3
    commit(fake, "a", first=7)
    fake.purge("binlog.000003")
    with router_of(fake, metas, ["one", "all"], dump_error_threshold=0) as router:
        assert read(router.outputs["all"], 1) == [("a", 7)]
        with pytest.raises(canal.PositionLostError, match="It is the cursor of output one"):
            read(router.outputs["one"], 1)
