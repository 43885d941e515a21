"""The place in another server's log: exact where the log shows it, and never behind what is not done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import canal
from canal.parse.tail import Done, find_tail, transactions
from canal.testing import FakeBinlog

DIGESTS = [f"{number:016x}" for number in range(5)]


def log_of(digests: list[str], first: int = 0) -> list[Done]:
    return [(digest, "binlog.000001", first + number + 1) for number, digest in enumerate(digests)]


@given(
    history=st.lists(st.sampled_from(DIGESTS), min_size=1, max_size=60), data=st.data(), size=st.integers(1, 16)
)  # fmt: skip
def test_nothing_that_is_not_done_is_ever_passed_by(history: list[str], data: st.DataObject, size: int) -> None:
    """Digests that repeat, a search that begins anywhere, and a replica that lacks the last ones."""
    done = data.draw(st.integers(1, len(history)))
    begun = data.draw(st.integers(0, done - 1))  # the search goes back by more than the clocks may differ
    has = data.draw(st.integers(begun, len(history)))
    tail = "".join(history[max(done - size, 0) : done])

    found = find_tail(tail, log_of(history[begun:has], begun))

    if found is not None:
        assert found.offset <= min(done, has)


@given(before=st.integers(0, 30), tail=st.integers(1, 16), after=st.integers(0, 30), lacks=st.integers(0, 16))
def test_what_is_told_apart_is_found_exactly(before: int, tail: int, after: int, lacks: int) -> None:
    history = [f"{number:016x}" for number in range(before + tail + after)]
    wanted = "".join(history[before : before + tail])
    lacks = min(lacks, tail - 1)
    log = history if not lacks else history[: before + tail - lacks]

    found = find_tail(wanted, log_of(log))

    assert found is not None
    assert (found.offset, found.missing) == (before + tail - lacks, lacks)


def test_a_log_without_any_of_them_gives_no_place() -> None:
    assert find_tail(DIGESTS[0], log_of([DIGESTS[1]])) is None
    assert find_tail(DIGESTS[0], []) is None
    assert find_tail("", log_of(DIGESTS)) is None


def test_one_transaction_behind_another_history_is_not_taken_for_the_place() -> None:
    assert find_tail(DIGESTS[0] + DIGESTS[1], log_of([DIGESTS[2], DIGESTS[1]])) is None


def fake() -> FakeBinlog:
    made = FakeBinlog(gtid=False)
    orders = made.table("shop", "orders", "id INT PRIMARY KEY, note VARCHAR(20)")
    for number in range(5):
        with made.transaction():
            orders.insert({"id": number, "note": "x" * number}, {"id": number + 10, "note": None})
        made.ddl(f"CREATE TABLE shop.t{number} (id INT)")
        if number == 2:
            made.rotate()
    made.end()
    return made


def test_the_digests_of_a_stream_are_those_of_a_search() -> None:
    log = fake()
    config = canal.InstanceConfig(destination="tail", source=log, start="earliest")
    with canal.Instance(config) as instance:
        instance.subscribe()
        tails = []
        while message := instance.get(1, timeout=30.0):
            tails += [entry.position.tail for entry in message.entries if entry.is_end]
    connection = log.connect()
    found = list(transactions(connection, connection.resolve("earliest")))
    connection.close()

    assert tails
    for tail in tails:
        place = find_tail(tail, found)
        assert place is not None
        assert place.missing == 0
    assert tails[-1] == "".join(digest for digest, _, _ in found)[-256:]


def test_a_tail_that_is_none_is_refused() -> None:
    for text in ("xyz", "ab", "AB" * 8):
        with pytest.raises(canal.ConfigError, match="tail"):
            canal.Position(tail=text)


def test_a_log_that_was_purged_meanwhile_is_a_typed_error() -> None:
    log = fake()
    start = log.resolve("earliest")
    log.purge(log.journal)
    connection = log.connect()
    with pytest.raises(canal.PositionLostError, match="any more"):
        list(transactions(connection, start))
    connection.close()
