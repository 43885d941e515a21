"""Two sources of one replication, fakes: switching, the position on the other side, and what is not there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

import canal
from canal.parse.connect import Link
from canal.testing import FakeBinlog, _serve
from tests.support.stand_ins import Address, Pair


class Following:
    """An instance, its alarms, and the ids that it delivers."""

    def __init__(self, **options: Any) -> None:
        self.alarms: list[str] = []
        config = canal.InstanceConfig(
            destination="x",
            filter=r"shop\..*",
            alarm=lambda destination, text: self.alarms.append(text),
            reconnect_backoff=(0.01, 0.02),
            **options,
        )
        self.instance = canal.Instance(config)

    def __enter__(self) -> Following:
        self.instance.start()
        self.instance.subscribe()
        return self

    def __exit__(self, *_: object) -> None:
        self.instance.stop()

    def ids(self, count: int, timeout: float = 60.0) -> list[int]:
        """So many ids, or fewer when no more come; and that no more come."""
        found: list[int] = []
        while len(found) < count:
            message = self.instance.get(1000, timeout=timeout)
            assert message, (found, self.alarms)
            found += ids_of(message)
        found += ids_of(self.instance.get(1000, timeout=0.05))
        return found

    def wait_for(self, alarm: str) -> None:
        deadline = time.monotonic() + 60
        while not self.alarm(alarm):
            assert time.monotonic() < deadline, self.alarms
            time.sleep(0.01)

    def alarm(self, text: str) -> bool:
        return any(text in one for one in self.alarms)


def ids_of(message: canal.Message) -> list[int]:
    return [row.after["id"] for entry in message.entries for row in entry.rows if row.after is not None]


@pytest.fixture(params=["mysql", "mariadb", "without GTIDs"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    return Pair(gtid=request.param != "without GTIDs", flavor="mariadb" if request.param == "mariadb" else "mysql")


def test_a_switch_and_a_switch_back_lose_and_repeat_nothing(pair: Pair) -> None:
    with Following(source=pair.first, standby=pair.second, start="latest") as following:
        pair.write(1, 2, 3)
        assert following.ids(3) == [1, 2, 3]
        assert following.instance.switch("a test")
        pair.write(4, 5)
        assert following.ids(2) == [4, 5]
        assert following.instance.switch()
        pair.write(6)
        assert following.ids(1) == [6]
        assert following.alarm("switching from")


@pytest.mark.parametrize("restarts", [False, True], ids=["switch", "restart"])
def test_what_lies_in_a_gap_of_the_gtids_comes_from_the_other_side(restarts: bool) -> None:
    """Who applies in parallel logs a later GTID first. The cursor says which are missing, and does not close the gap."""
    pair, meta = Pair(), canal.MemoryMeta()

    def write(log: FakeBinlog, *numbers: int) -> None:
        for number in numbers:
            with log.transaction(gtid=f"{pair.first.uuid}:{number}"):
                pair.tables[id(log)].insert({"id": number})

    with Following(source=pair.first, standby=pair.second, start="latest", meta=meta) as following:
        pair.write(1, 2)
        write(pair.first, 4, 5, 8)
        assert following.ids(5) == [1, 2, 4, 5, 8]
        write(pair.second, 4, 8, 3, 5, 7, 6, 9)
        if not restarts:
            assert following.instance.switch("a test")
            assert following.ids(4) == [3, 7, 6, 9]
    if restarts:
        with Following(source=pair.second, meta=meta) as following:
            assert following.ids(4) == [3, 7, 6, 9]


def test_a_switch_from_mysql_with_gtids_to_mariadb_and_back() -> None:
    """Neither knows the GTIDs of the other: the last transactions tell the position."""
    pair = Pair(flavor="mysql", other="mariadb")
    with Following(source=pair.first, standby=pair.second, start="latest") as following:
        pair.write(1, 2, 3)
        assert following.ids(3) == [1, 2, 3]
        for other, begin in ((pair.second, "0-1-"), (pair.first, "1e11fa47-")):
            assert following.instance.switch()
            pair.write(4, 5)
            assert following.ids(2) == [4, 5]
            assert following.instance.position().source == other.identity
            assert following.instance.position().gtid.startswith(begin)
        assert not following.alarm("come again")


def test_a_switch_without_gtids_keeps_the_schema_history() -> None:
    """Cursors are positions in the log of the old server until the next ack."""
    pair = Pair(gtid=False, metadata="MINIMAL")
    with Following(source=pair.first, standby=pair.second, start="latest") as following:
        pair.write(1)
        assert following.ids(1) == [1]
        pair.write(2, to=(pair.first,))
        assert following.ids(1) == [2]
        assert following.instance.switch()
        pair.write(3, to=(pair.second,))
        assert following.ids(1) == [3]
        assert following.alarm("except the last 1")
        assert not following.alarm("schema history")


@pytest.mark.parametrize("lost", ["CREATE TABLE shop.lost (id INT)", "ALTER TABLE shop.lost ADD COLUMN a INT"])
def test_what_a_standby_lacks_of_the_statements_is_not_kept_in_the_schema_history(lost: str) -> None:
    pair = Pair(gtid=False, metadata="MINIMAL")
    with Following(source=pair.first, standby=pair.second, start="latest") as following:
        pair.write(1)
        pair.first.ddl(lost)
        pair.write(2, to=(pair.first,))
        assert following.ids(2) == [1, 2]
        assert following.instance.switch()
        pair.write(3, to=(pair.second,))
        assert following.ids(1) == [3]
        assert following.alarm("except the last 2")
        assert following.alarm("the schema history starts over")


def test_a_restart_on_the_other_side_goes_on_at_the_cursor(pair: Pair) -> None:
    meta = canal.MemoryMeta()
    with Following(source=pair.first, meta=meta) as following:
        pair.write(1, 2, 3, 4)
        assert following.ids(4) == [1, 2, 3, 4]
        following.instance.get(1)  # acks
    pair.write(5)
    with Following(source=pair.second, meta=meta) as following:
        assert following.ids(1) == [5]


def test_a_restart_after_a_switch_goes_on_at_the_standby(pair: Pair) -> None:
    """Both answer: the cursor tells which of them it is a position of."""
    meta = canal.MemoryMeta()

    def following(**options: Any) -> Following:
        return Following(**{"source": pair.first, "standby": pair.second, "meta": meta, **options})

    with following() as one:
        pair.write(1, 2)
        assert one.ids(2) == [1, 2]
        assert one.instance.switch()
        pair.write(3)
        assert one.ids(1) == [3]
        one.instance.get(1)
    pair.write(4, to=(pair.second,))  # nobody replicates to the first one any more
    with following() as one:
        assert one.ids(1) == [4]
        assert one.alarm("continuing at")
        one.instance.get(1)
    gone = Address(None)
    with following(source=pair.second, standby=gone) as one:  # the config follows: no need to ask anybody else
        assert (one.ids(0), one.alarms, gone.connects) == ([], [], 0)


def test_a_switch_that_no_ack_followed_is_forgotten_by_a_restart_and_loses_nothing(pair: Pair) -> None:
    """The cursor is still a position of the source: it is read, in silence if nobody feeds it, until somebody switches again."""
    meta = canal.MemoryMeta()

    def following() -> Following:
        return Following(source=pair.first, standby=pair.second, meta=meta)

    with following() as one:
        pair.write(1)
        assert one.ids(1) == [1]
        one.instance.get(1)
        assert one.instance.switch()
        pair.write(2, to=(pair.second,))
        found: list[int] = []
        while not found:  # what only the second one has may come by itself
            message = one.instance.get_without_ack(timeout=60)
            assert message
            found += ids_of(message)
        assert found == [2]
    with following() as one:
        assert (one.ids(0), one.alarm("continuing at")) == ([], False)
        assert one.instance.switch()
        assert one.ids(1) == [2]
        one.instance.get(1)
    with following() as one:
        assert one.ids(0) == []
        assert one.alarm("continuing at")


def test_a_standby_that_may_have_the_place_and_does_not_answer(pair: Pair) -> None:
    meta = canal.MemoryMeta()
    gone = Address(pair.second)
    with Following(source=pair.first, standby=gone, meta=meta) as one:
        pair.write(1)
        assert one.ids(1) == [1]
        assert one.instance.switch()
        pair.write(2)
        assert one.ids(1) == [2]
        one.instance.get(1)
    gone.server = None
    pair.write(3)
    with Following(source=pair.first, standby=gone, meta=meta) as one:
        assert one.ids(1) == [3]
        one.instance.get(1)
    with Following(source=pair.second, standby=Address(pair.second), meta=meta) as other:  # a position of neither
        assert other.ids(0) == []


def test_a_switch_before_the_start_stands(pair: Pair) -> None:
    """The cursor is a position of the source, which hangs: whoever switches does not want to go back there."""
    meta = canal.MemoryMeta()
    with Following(source=pair.first, standby=pair.second, meta=meta) as following:
        pair.write(1)
        assert following.ids(1) == [1]
        following.instance.get(1)
    asked, let = threading.Event(), threading.Event()

    class Hanging:
        def connect(self, server_id_hint: int | None = None) -> Any:
            if not asked.is_set():
                asked.set()
                assert let.wait(60)
            return pair.first.connect(server_id_hint)

    pair.write(2, to=(pair.second,))
    following = Following(source=Hanging(), standby=pair.second, meta=meta)
    following.instance.start()
    assert asked.wait(60)
    assert following.instance.switch()
    let.set()
    assert following.ids(1) == [2]
    assert not following.alarm("continuing at")
    following.instance.stop()


def test_a_standby_that_is_silent_at_the_start_holds_up_no_stop() -> None:
    asked, let = threading.Event(), threading.Event()

    class Silent:
        def connect(self, server_id_hint: int | None = None) -> Any:
            asked.set()
            assert let.wait(60)
            raise canal.ConnectionLostError("too late")

    pair = Pair()
    pair.write(1)
    meta = canal.MemoryMeta()
    meta.start("x")
    meta.subscribe(1001, "")
    meta.update_cursor(1001, attrs.evolve(pair.first.position, source="another"))
    meta.stop()
    following = Following(source=pair.first, standby=Silent(), meta=meta)
    following.instance.start()
    assert asked.wait(60)
    following.instance.stop()
    assert not let.is_set()
    following.instance.start()
    let.set()
    pair.write(2)
    assert following.ids(1) == [2]
    following.instance.stop()


def test_another_server_behind_the_address_is_known_by_its_identity(pair: Pair) -> None:
    address = Address(pair.first)
    with Following(source=address) as following:
        pair.write(1, 2)
        assert following.ids(2) == [1, 2]
        address.server = pair.second
        pair.first.cut_after(1)
        pair.write(3, to=(pair.first, pair.second))
        found = following.ids(1)
        assert found in ([3], [3, 3])  # it may have come from the first one before the cut
        pair.write(4, to=(pair.second,))
        assert following.ids(1) == [4]


def test_what_a_standby_without_gtids_lacks_comes_again_if_it_gets_it() -> None:
    pair = Pair(gtid=False)
    with Following(source=pair.first, standby=pair.second) as following:
        pair.write(1, 2)
        pair.write(3, 4, to=(pair.first,))
        assert following.ids(4) == [1, 2, 3, 4]
        assert following.instance.switch()
        pair.write(5, to=(pair.second,))
        assert following.ids(1) == [5]
        assert following.alarm("except the last 2")


def test_a_log_that_shows_none_of_the_transactions_is_read_from_the_time() -> None:
    pair = Pair(gtid=False)
    with Following(source=pair.first, standby=pair.second, fallback_interval=60.0) as following:
        pair.write(1, to=(pair.first,))
        pair.write(2, to=(pair.second,))
        assert following.ids(1) == [1]
        assert following.instance.switch()
        assert following.ids(1) == [2]
        assert following.alarm("changes are delivered again")


def test_heartbeats_that_outlive_a_stop_do_not_go_on_in_the_next_run() -> None:
    asked, let = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    class Hanging:
        def rows(self, sql: str, *, doing: str) -> object:
            threads.append(threading.current_thread())
            asked.set()
            assert let.wait(120)
            return []

        def close(self) -> None:
            pass

    heartbeat = canal.Heartbeat(interval=0.01, timeout=0.01)
    health = canal.ha.SourceHealth(heartbeat, lambda timeout: (None, Hanging), lambda reason: True)
    health.start("x")
    assert asked.wait(60)
    health.stop()  # does not wait for ever
    health.start("x")
    let.set()
    threads[0].join(60)
    assert not threads[0].is_alive()
    health.stop()


class Slow:
    """A standby to which a connection takes for as long as a test wants."""

    address = "slow"

    def __init__(self, server: FakeBinlog) -> None:
        self.server = server
        self.asked = threading.Event()
        self.let = threading.Event()

    def connect(self, server_id_hint: int | None = None) -> Any:
        self.asked.set()
        assert self.let.wait(120)
        return self.server.connect(server_id_hint)


def test_a_switch_that_outlives_a_stop_does_nothing_to_the_next_run() -> None:
    pair = Pair()
    slow = Slow(pair.second)
    following = Following(source=pair.first, standby=slow)
    switched: list[bool] = []
    with following:
        asking = threading.Thread(target=lambda: switched.append(following.instance.switch()))
        asking.start()
        assert slow.asked.wait(60)
    with following:
        slow.let.set()
        asking.join(30)
        assert switched == [False]
        assert following.instance.parser.source is pair.first  # type: ignore[attr-defined]


def test_a_switch_while_the_login_ends_leaves_the_old_source(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    parser = canal.parse.BinlogParser(pair.first, standby=pair.second, start="earliest", backoff=(0.01, 0.02))
    connect = Link.connect
    switched: list[bool] = []

    def connect_and_switch(link: Link, *arguments: Any) -> Any:
        connection = connect(link)
        if not switched:
            switched.append(parser.switch())
        return connection

    monkeypatch.setattr(Link, "connect", connect_and_switch)
    with canal.Instance.compose("x", parser=parser) as instance:
        instance.subscribe()
        assert switched == [True]
        pair.write(7, to=(pair.second,))
        found: list[int] = []
        while not found:
            message = instance.get(1000, timeout=60)
            assert message
            found = ids_of(message)
        assert found == [7]


@pytest.mark.parametrize("gtid", [True, False])
def test_a_standby_whose_configuration_is_wrong_changes_nothing(gtid: bool) -> None:
    pair = Pair(gtid=gtid)
    gone = Address(pair.first)
    wrong = canal.MySQLSource(port=1, ssl_mode="VERIFY_CA", ssl_ca="/there/is/no/such/file")
    quick = canal.Heartbeat(interval=0.02, retries=1)
    with Following(source=gone, standby=wrong, heartbeat=quick) as following:
        pair.write(1)
        assert following.ids(1) == [1]
        gone.server = None
        following.wait_for("cannot switch")
        assert not following.instance.switch()
        gone.server = pair.first
        pair.write(2)
        assert following.ids(1) == [2]


def test_a_switch_back_before_anything_was_delivered_goes_on_at_the_same_place() -> None:
    pair = Pair(gtid=False)
    pair.now += 1000  # what is in the second log is older than the interval
    with Following(source=pair.first, standby=pair.second) as following:
        pair.write(1, to=(pair.first,))
        assert following.ids(1) == [1]
        assert following.instance.switch()
        following.wait_for("changes are delivered again")
        assert following.instance.switch()
        pair.write(2, to=(pair.first,))
        assert following.ids(1) == [2]


def test_a_cursor_inside_of_a_transaction_that_came_again_is_found_in_the_first_log() -> None:
    """The transactions at its end are those before it, and not those that were done in the first log."""
    pair = Pair(gtid=False)
    pair.now += 1000
    began, meta = pair.now, canal.MemoryMeta()
    with Following(source=pair.first, standby=pair.second, meta=meta) as following:
        pair.write_at_once((1, 2), (3, 4), to=pair.first)
        assert following.ids(4) == [1, 2, 3, 4]
        assert following.instance.switch()
        following.wait_for("changes are delivered again")
        pair.now = began
        pair.write_at_once((1, 2), (3, 4), to=pair.second)
        message = following.instance.get_without_ack(1, timeout=60)
        assert ids_of(message) == [1]
        following.instance.ack(message.id)
    pair.write_at_once((5, 6), to=pair.first)
    with Following(source=pair.first, meta=meta) as following:
        assert following.ids(6) == [1, 2, 3, 4, 5, 6]


def test_what_the_other_server_did_while_it_had_no_gtids_comes_too() -> None:
    """A dump by its GTID set would leave that out, though the cursor says nothing of GTIDs."""
    pair, meta = Pair(gtid=False), canal.MemoryMeta()
    pair.second.switch_gtids(True)
    pair.write_at_once((8,), to=pair.second)
    pair.second.switch_gtids(False)
    pair.now += 1000
    with Following(source=pair.first, meta=meta) as following:
        pair.write(1)
        assert following.ids(1) == [1]
        following.instance.get(1, timeout=0.05)
    pair.write(2, to=(pair.second,))
    pair.second.switch_gtids(True)
    pair.write_at_once((3,), to=pair.second)
    with Following(source=pair.second, meta=meta) as following:
        assert following.ids(2) == [2, 3]
        assert following.alarm("after the same transactions")


def test_a_stream_without_gtids_that_began_at_the_end_may_switch_before_its_first_change() -> None:
    pair = Pair(gtid=False)
    pair.now = int(time.time())
    with Following(source=pair.first, standby=pair.second, start="latest") as following:
        assert following.instance.switch()
        following.wait_for("changes are delivered again")
        pair.write(1)
        assert following.ids(1) == [1]


def test_a_standby_that_does_not_answer_changes_nothing(pair: Pair) -> None:
    dead = Address(None, address="standby")
    with Following(source=pair.first, standby=dead) as following:
        pair.write(1)
        assert following.ids(1) == [1]
        assert not following.instance.switch()
        pair.write(2)
        assert following.ids(1) == [2]
        assert following.alarm("cannot switch to standby")


def test_without_a_standby_there_is_no_switch() -> None:
    pair = Pair()
    with Following(source=pair.first) as following:
        assert not following.instance.switch()
        assert following.alarm("no standby")
        pair.write(1)
        assert following.ids(1) == [1]


def test_heartbeats_notice_a_source_that_is_gone(pair: Pair) -> None:
    gone = Address(pair.first)
    quick = canal.Heartbeat(interval=0.02, retries=1)
    with Following(source=gone, standby=pair.second, heartbeat=quick) as following:
        pair.write(1)
        assert following.ids(1) == [1]
        gone.server = None
        pair.write(2, to=(pair.second,))
        assert following.ids(1) == [2]
        following.wait_for("heartbeats in a row failed")


def test_a_source_that_is_gone_before_the_start_is_replaced_too() -> None:
    pair = Pair()
    quick = canal.Heartbeat(interval=0.02, retries=1)
    with Following(source=Address(None), standby=pair.second, heartbeat=quick, standby_start="earliest") as following:
        pair.write(1)
        assert following.ids(1) == [1]


def test_one_healthy_heartbeat_forgives_all_before(caplog: pytest.LogCaptureFixture) -> None:
    switched: list[str] = []

    def switch(reason: str) -> bool:
        switched.append(reason)
        return len(switched) > 1

    health = canal.ha.SourceHealth(canal.Heartbeat(interval=3600.0, retries=2), lambda timeout: (None, lambda: None), switch)  # type: ignore[arg-type,return-value]
    for problem in ("a", "b", None, "c", "d"):
        health.take(problem)
    assert switched == []
    health.take("e")
    assert len(switched) == 1
    assert "3 heartbeats" in switched[0]
    health.take("f")  # it did not work the first time
    assert len(switched) == 2
    health.take("g")
    assert len(switched) == 2
    health.start("orders")
    health.stop()
    health.take("h")
    assert caplog.messages[-1] == "[orders] heartbeat failed, 1 in a row: h"


# -- a position that the source has lost ----------------------------------------------------------------------------------


def purged(**options: Any) -> tuple[Pair, Callable[[], Following]]:
    """A cursor in a journal that is purged, rows 3 to 5 behind it, of which 4 and 5 are still there."""
    pair = Pair()
    meta = canal.MemoryMeta()
    with Following(source=pair.first, meta=meta) as following:
        pair.write(1, 2)
        assert following.ids(2) == [1, 2]
        following.instance.get(1)
    pair.write(3)
    pair.now += 100
    kept = pair.first.rotate()
    pair.write(4, 5)
    pair.first.purge(kept)
    return pair, lambda: Following(source=pair.first, meta=meta, **options)


def test_a_lost_place_stops_the_instance_with_the_remedy() -> None:
    _, again = purged()
    with pytest.raises(canal.PositionLostError) as caught, again() as following:
        following.instance.get(timeout=60)
    assert caught.value.remedy


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [4, 5]), ("latest", []), ("time", [4, 5])])
def test_a_lost_place_is_given_up_where_the_user_says_so(policy: str, expected: list[int]) -> None:
    pair, again = purged(on_lost=policy, dump_error_threshold=1)
    with again() as following:
        assert following.ids(len(expected)) == expected
        following.wait_for("IS LOST")
        pair.write(6)
        assert following.ids(1) == [6]
        lost = [text for text in following.alarms if "IS LOST" in text]
        assert len(lost) == 1
        assert policy in lost[0]
        assert "continuing from" in lost[0]


def test_decide_unknown_on_lost_raises() -> None:
    with pytest.raises(canal.ConfigError, match="on_lost"):
        canal.InstanceConfig(destination="x", source=FakeBinlog(), on_lost="skip")


# -- a start inside a transaction --------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_a_start_anywhere_is_moved_to_the_begin_of_a_transaction(flavor: str, thorough: bool) -> None:
    log = FakeBinlog(flavor)  # type: ignore[arg-type]
    orders = log.table("shop", "orders", "id INT PRIMARY KEY")
    begins = {}
    for first in (10, 20, 30):
        begins[log.position.offset] = first
        with log.transaction():
            for one in range(first, first + 3):
                orders.insert({"id": one})
    end = log.position.offset
    for offset in range(min(begins), end, 1 if thorough else 5):
        begin = max(one for one in begins if one <= offset)
        start = canal.Position(log.journal, offset)
        with Following(source=log, start=start) as following:
            assert following.instance.position().offset == begin
            if offset % 7 == 0:
                wanted = [one for first in (10, 20, 30) if first >= begins[begin] for one in range(first, first + 3)]
                assert following.ids(len(wanted)) == wanted


def test_a_switch_between_galera_nodes_that_number_alone_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With wsrep_gtid_mode=OFF one GTID names a transaction of each node: the contents tell the position."""
    told = _serve.variables_of
    monkeypatch.setattr(_serve, "variables_of", lambda fake: told(fake) | {"wsrep_on": "ON", "wsrep_gtid_mode": "OFF"})
    seconds = iter(range(1_700_000_000, 1_800_000_000))
    now = next(seconds)
    nodes = [FakeBinlog("mariadb", uuid=f"node{number}", clock=lambda: now) for number in (1, 2)]
    tables = [node.table("shop", "t", "id INT PRIMARY KEY") for node in nodes]
    nodes[1].table("other", "t", "id INT PRIMARY KEY").insert({"id": 0}, {"id": 1})  # from here on its numbers are others
    with nodes[0].serve() as first, nodes[1].serve() as second:
        sources = [canal.MySQLSource(host=one.host, port=one.port) for one in (first, second)]
        with Following(source=sources[0], standby=sources[1], start="latest") as following:
            for number in range(1, 6):
                now = next(seconds)
                for table in tables:
                    table.insert({"id": number})
            assert following.ids(5) == [1, 2, 3, 4, 5]
            now = next(seconds)
            tables[1].insert({"id": 6})
            assert following.instance.switch()
            assert following.ids(1) == [6]
            assert following.alarm("after the same transactions")
