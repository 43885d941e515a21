"""The judge of the fault run of high availability sees each kind of violation that is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.ha_journal import Record, append, judge, read_records
from tests.support.journal import Journal, JournalTransaction, check


def change(number: int) -> tuple[Any, ...]:
    return ("s", "load_session", "UPDATE", {"id": 1, "txn": number - 1}, {"id": 1, "txn": number})


def got(epoch: int, batch: int, numbers: list[int], at: float, took: float = 0.1) -> Record:
    """A batch of transactions that lie at offsets of their own."""
    pieces = [((1, number, 0), [change(number)]) for number in numbers]
    return ("GOT", epoch, batch, at, at + took, (1, numbers[-1], 0), pieces)


def acked(epoch: int, batch: int, at: float, answer: str = "ACKED", took: float = 0.1) -> list[Record]:
    return [("ACKING", epoch, batch, at), (answer, epoch, batch, at + took)]


FIRST: list[Record] = [got(1, 1, [1, 2], 1), *acked(1, 1, 2), got(1, 2, [3, 4], 3)]


def numbers_of(changes: list[Any]) -> list[int]:
    return [one[4]["txn"] for one in changes]


def test_a_takeover_between_get_and_ack_is_in_order() -> None:
    verdict = judge([FIRST, [got(2, 1, [3, 4, 5], 10), *acked(2, 1, 11)]], [("FAULT", 3, "x"), ("DEATH", 4.0, 1, "killed")])

    assert verdict.violations == []
    assert numbers_of(verdict.changes) == [1, 2, 3, 4, 5]
    assert verdict.repeated == 2
    assert verdict.waits == {"killed": [pytest.approx(6.1)]}


@pytest.mark.parametrize("answer", [[("UNKNOWN", 1, 2, 4.5)], []], ids=["error", "killed"])
@pytest.mark.parametrize("durable", [False, True])
def test_an_ack_without_an_answer_counts_when_the_next_owner_begins_behind_it(answer: list[Record], durable: bool) -> None:
    following = [5] if durable else [3, 4, 5]
    verdict = judge([[*FIRST, ("ACKING", 1, 2, 4), *answer], [got(2, 1, following, 10), *acked(2, 1, 11)]])

    assert verdict.violations == []
    assert numbers_of(verdict.changes) == [1, 2, 3, 4, 5]


def test_a_turn_that_begins_with_a_begin_alone_decides_with_its_next_batch() -> None:
    alone = ("GOT", 2, 1, 10, 10.1, (1, 4, 0), [])
    verdict = judge([[*FIRST, ("ACKING", 1, 2, 4)], [alone, *acked(2, 1, 11), got(2, 2, [5], 12), *acked(2, 2, 13)]])

    assert verdict.violations == []
    assert numbers_of(verdict.changes) == [1, 2, 3, 4, 5]


def test_an_ack_that_is_tried_again_counts_once() -> None:
    verdict = judge([[*FIRST, *acked(1, 2, 4, "UNKNOWN"), *acked(1, 2, 5), got(1, 3, [5], 6), *acked(1, 3, 7)]])

    assert verdict.violations == []
    assert numbers_of(verdict.changes) == [1, 2, 3, 4, 5]


def test_a_rollback_allows_to_deliver_again() -> None:
    again = got(1, 3, [3], 5)

    assert judge([[*FIRST, ("ROLLBACK", 1), again, *acked(1, 3, 6)]]).violations == []
    assert "not rolled back" in judge([[*FIRST, again]]).violations[0]


def test_a_refused_ack_of_an_earlier_epoch_does_no_harm() -> None:
    frozen = [*FIRST, *acked(1, 2, 20, "REFUSED")]

    assert judge([frozen, [got(2, 1, [3, 4], 10), *acked(2, 1, 11)]]).violations == []


def test_a_refused_owner_that_stays_active_delivers_again() -> None:
    again = [got(1, 3, [3, 4], 6), got(1, 4, [5], 7), *acked(1, 3, 8), *acked(1, 4, 9)]
    undecided = judge([[*FIRST, *acked(1, 2, 4, "UNKNOWN"), *acked(1, 2, 5, "REFUSED"), *again]])
    refused = judge([[*FIRST, *acked(1, 2, 5, "REFUSED"), *again]])

    for verdict in (undecided, refused):
        assert verdict.violations == []
        assert numbers_of(verdict.changes) == [1, 2, 3, 4, 5]


PLANTED: dict[str, tuple[str, list[list[Record]]]] = {
    "two processes ack one range": (
        "two acks were accepted for one range",
        [[*FIRST, *acked(1, 2, 4)], [got(2, 1, [3, 4], 10), *acked(2, 1, 11)]],
    ),
    "a frozen owner's ack overtakes the next owner's": (
        "two acks were accepted for one range",
        [[*FIRST, *acked(1, 2, 4, took=20)], [got(2, 1, [3, 4], 10), *acked(2, 1, 11)]],
    ),
    "an earlier epoch acks": (
        "was acked after an ack of epoch 2 was accepted",
        [[*FIRST, *acked(1, 2, 20)], [got(2, 1, [3, 4], 10), *acked(2, 1, 11)]],
    ),
    "an earlier epoch acks while the later one delivers": (
        "was acked after epoch 2 had delivered",
        [[*FIRST, *acked(1, 2, 20)], [got(2, 1, [3, 4], 10)]],
    ),
    "an earlier epoch delivers": (
        "arrived after epoch 2 had delivered",
        [[*FIRST, got(1, 3, [5], 20)], [got(2, 1, [3, 4], 10), *acked(2, 1, 11)]],
    ),
    "what an earlier epoch asked for in time arrives too late": (
        "arrived after epoch 2 had delivered",
        [[*FIRST, got(1, 3, [5], 9, took=11)], [got(2, 1, [3, 4], 10), *acked(2, 1, 11)]],
    ),
    "two processes have one epoch": ("epoch 1 is of process 0 and of 1", [FIRST, [got(1, 9, [5], 10)]]),
    "an epoch goes back in a process": ("came after epoch 2", [[got(2, 1, [1], 1), got(1, 2, [2], 2)]]),
    "an acked change comes again": ("was acked", [FIRST, [got(2, 1, [2, 3], 10)]]),
    "a batch begins amid another's": (
        "in the middle of",
        [[*FIRST, ("ACKING", 1, 2, 4)], [got(2, 1, [4, 5], 10), *acked(2, 1, 11)]],
    ),
    "a batch is not in order": ("is not in order", [[got(1, 1, [2, 1], 1)]]),
    "a batch is acked before an older one": ("was acked before", [[*FIRST, got(1, 3, [5], 5), *acked(1, 3, 6)]]),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name: str) -> None:
    text, lives = PLANTED[name]

    assert any(text in violation for violation in judge(lives).violations)


def test_other_content_at_the_same_place_is_found() -> None:
    kind, epoch, batch, asked, came, end, pieces = got(2, 1, [3], 10)
    other = (kind, epoch, batch, asked, came, end, [(pieces[0][0], [change(7)])])

    assert "something else" in judge([FIRST, [other]]).violations[0]


@pytest.mark.parametrize(
    "lives",
    [
        pytest.param([[*FIRST, *acked(1, 2, 4)], [got(2, 1, [6], 10), *acked(2, 1, 11)]], id="skipped by the next owner"),
        pytest.param([[*FIRST, *acked(1, 2, 4, "REFUSED")], [got(2, 1, [5, 6], 10), *acked(2, 1, 11)]], id="refused, yet moved"),
        pytest.param([[*FIRST, *acked(1, 2, 4), got(1, 3, [6], 5), *acked(1, 3, 6)]], id="skipped"),
    ],
)
def test_a_lost_change_is_missing_from_what_the_load_committed(lives: list[list[Record]]) -> None:
    transactions = [JournalTransaction(1, number, outcome="committed") for number in range(1, 7)]

    found = check(Journal("s", transactions), judge(lives).changes)

    assert found
    assert all("not delivered" in one for one in found)


def test_a_record_that_a_kill_has_cut_counts_as_not_written(tmp_path: Path) -> None:
    path = tmp_path / "life-0000"
    with open(path, "wb", buffering=0) as file:
        append(file.fileno(), "START", 1)
        append(file.fileno(), *FIRST[0])
    path.write_bytes(path.read_bytes()[:-1])

    assert read_records(path) == [("START", 1)]
