"""A query at another server of its replication, and batches that are read again there."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from canal.errors import PositionLostError
from canal.parse.source.connection import MySQLConnection
from canal.testing.proxy import FaultProxy
from tests.support.engine import Engine
from tests.support.shop import Pair, ids, served


def wait_no_longer(engine: Engine, options: Any = None) -> Any:
    """Have the reader wait for nothing that another server has not got yet, or again as ``options`` say. What they were."""
    assert engine.reader is not None
    runner = engine.reader._runner
    before = runner._options
    runner._options = options or attrs.evolve(before, start_timeout=0.0)
    return before


def test_a_batch_that_is_read_again_at_another_server_holds_the_same_transactions(pair: Pair, tmp_path: Path) -> None:
    """Its log has them in another order: those of later batches are held back, and come later."""
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2, 3)
        engine.receive(pair.shops[0].fake.position)
        engine.plan_next()
        assert len(engine.run()) == 2
        engine.stop()  # the batch of 2 and 3 is planned
        pair.write(1, 4, 1, 3, 5, 2, 6)
        engine.start(**second)
        assert engine.step()
        assert sorted(ids(engine.sink[len(engine.offsets) - 1])) == [2, 3]
        engine.until(6)
        assert sorted(ids(engine.rows)) == [1, 2, 3, 4, 5, 6]
        epochs = {row["id"] // 1000: row["_txn"] >> 58 for row in engine.rows}
        assert epochs == {1: 0, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1}
        assert json.loads(engine.offsets[-1])["ep"] == 1
        engine.stop()
        pair.write(1, 7)
        pair.write(0, 5, 4, 6, 8, 7)
        engine.start(**first)
        engine.until(8)
        assert sorted(ids(engine.rows)) == [1, 2, 3, 4, 5, 6, 7, 8]
        assert engine.rows[-1]["_txn"] >> 58 == 2


@pytest.mark.parametrize("how", ["planned", "available now"])
def test_the_last_transaction_at_another_server_is_read_to_its_end_however_it_comes(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its GTID, which ends the batch, comes before its rows, and each event by itself."""
    read, left = MySQLConnection.read, dict[Any, list[bytes]]()

    def one_event(connection: MySQLConnection, timeout: float) -> list[bytes] | None:
        if not left.get(connection):
            found = read(connection, timeout)
            if not found:
                return found
            left[connection] = list(found)
        return [left[connection].pop(0)]

    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2, 3, size=20)
        engine.receive(pair.shops[0].fake.position)
        if how == "planned":
            engine.plan_next()
            assert len(engine.run()) == 40
        engine.stop()
        pair.write(1, 1)
        pair.write(1, 2, 3, size=20)
        pair.write(1, 4)
        monkeypatch.setattr(MySQLConnection, "read", one_event)
        if how == "planned":
            engine.start(**second)
            assert engine.step()
        else:
            proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
            engine.start(available_now=True, host="127.0.0.1", port=proxy.port)
            proxy.retarget(second["host"], second["port"])
            proxy.cut()
            while engine.step():
                pass
        assert ids(engine.rows) == [1, *[2] * 20, *[3] * 20]


def test_a_batch_over_a_change_of_the_server_is_read_again_by_gtid(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        engine.options["maxRowsPerBatch"] = "1"
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        before = len(engine.offsets)
        pair.write(0, 2)
        engine.until(2)
        engine.stop()
        pair.write(1, 1, 3, 2, 4)
        engine.start(**second)
        engine.until(3)
        engine.stop()
        # As if one batch had held 2 of the first server and 3 of the second, in whose log 2 lies behind the batch's end.
        offsets = engine.offsets
        engine.offsets, engine.committed, engine.sink = [offsets[before - 1], offsets[-1]], 1, {}
        engine.start()
        engine.step()
        assert sorted(ids(engine.rows)) == [2, 3]


def test_without_gtids_a_batch_cannot_be_read_again_at_another_server(tmp_path: Path) -> None:
    pair = Pair(gtid=False)
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.step()
        engine.plan_next()
        engine.stop()
        pair.write(1, 1)
        engine.start(**second)
        engine.plan()
        with pytest.raises(PositionLostError, match="is one of server"):
            engine.run()


def test_a_part_of_a_transaction_cannot_be_read_again_at_another_server(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        engine.options["maxTransactionBytes"] = engine.options["maxBytesPerBatch"] = "10k"
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2, size=100)
        engine.plan_next()
        assert json.loads(engine.offsets[-1])["position"]["row"]
        engine.stop()
        pair.write(1, 1)
        pair.write(1, 2, size=100)
        engine.start(**second)
        engine.plan()
        with pytest.raises(PositionLostError, match="inside a transaction of another server"):
            engine.run()


def test_a_server_that_becomes_another_one_under_the_stream_costs_nothing(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
        engine.options["host"], engine.options["port"] = "127.0.0.1", str(proxy.port)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2)
        engine.until(2)
        pair.write(1, 1, 3, 2, 4)
        proxy.retarget(second["host"], second["port"])
        proxy.cut()
        engine.until(4)
        assert ids(engine.rows) == [1, 2, 3, 4]
        assert [row["_txn"] >> 58 for row in engine.rows] == [0, 0, 1, 1]
        assert [json.loads(offset)["ep"] for offset in (engine.offsets[0], engine.offsets[-1])] == [0, 1]


def test_without_gtids_a_server_that_becomes_another_one_is_an_error(tmp_path: Path) -> None:
    """Its log is read from some time before, so what comes may have come already."""
    pair = Pair(gtid=False)
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
        engine.options["host"], engine.options["port"] = "127.0.0.1", str(proxy.port)
        pair.write(0, 1, 2)
        engine.start()
        engine.until(2)
        pair.write(1, 1, 3, 2, 4)
        proxy.retarget(second["host"], second["port"])
        proxy.cut()
        with pytest.raises(PositionLostError, match="another server.*without GTIDs"):
            engine.until(3)
        assert ids(engine.rows) == [1, 2]


def test_available_now_keeps_what_another_server_has_in_another_order(pair: Pair, tmp_path: Path) -> None:
    """The server changes after the end was taken: what its log has before that end cannot be passed over."""
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        engine.stop()
        pair.write(0, 2, 3)
        pair.write(1, 4, 1, 3, 5, 2, 6)
        proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
        engine.start(available_now=True, host="127.0.0.1", port=proxy.port)
        proxy.retarget(second["host"], second["port"])
        proxy.cut()
        while engine.step():
            pass
        assert {2, 3} <= set(ids(engine.rows))
        engine.stop()
        engine.start(**second)
        assert sorted(ids(engine.until(6))) == [1, 2, 3, 4, 5, 6]


def test_available_now_whose_end_another_server_has_not_got_is_an_error(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (first, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        engine.stop()
        pair.write(0, 2, 3)
        pair.write(1, 1, 2)
        proxy = stack.enter_context(FaultProxy(first["host"], first["port"]))
        engine.start(available_now=True, host="127.0.0.1", port=proxy.port)
        proxy.retarget(second["host"], second["port"])
        proxy.cut()
        while len(engine.rows) < 2:
            assert engine.step()
        assert ids(engine.rows) == [1, 2]
        wait_no_longer(engine)
        with pytest.raises(PositionLostError, match="lacks transactions"):
            while engine.step():
                pass
        assert ids(engine.rows) == [1, 2]


def test_a_batch_whose_end_another_server_has_not_got_is_an_error(pair: Pair, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        engine, (_, second) = served(pair, tmp_path, stack)
        pair.write(0, 1)
        engine.start()
        engine.until(1)
        pair.write(0, 2, 3)
        while not engine.plan():
            pass
        engine.stop()
        pair.write(1, 1)
        engine.start(**second)
        options = wait_no_longer(engine)
        with pytest.raises(PositionLostError, match="lacks transactions"):
            engine.run()
        pair.write(1, 3, 2)
        wait_no_longer(engine, options)
        engine.run()
        assert set(ids(engine.sink[len(engine.offsets) - 1])) <= {2, 3}
