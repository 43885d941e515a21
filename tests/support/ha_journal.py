"""The verdict on a fault run of several embedding processes, from what each of them wrote down.

Never uses the library under test: it reads the journals of the processes, and what the load says that it committed.

A journal is a file of records, each a pickled tuple behind its length. Those of a process:

    START    process id
    SESSION  id, password                          of its session with ZooKeeper, each time there is a new one
    SUBSCRIBED                                     or noted that it is to
    GOT      epoch, batch, asked, came, end, pieces   before anything is acked
    ACKING   epoch, batch, time                    before the call
    ACKED    epoch, batch, time                    the call has returned
    REFUSED  epoch, batch, time                    it has raised NotActiveError
    UNKNOWN  epoch, batch, time                    it has raised something else: accepted or not
    ROLLBACK epoch                                 of all that is outstanding
    STOPPED  step                                  it stops itself (SIGSTOP) where it is about to take this step
    ERROR    where, text

and those of the run itself: DEATH (time, epoch, kind): the owner with that epoch was harmed; OVER (time, kind): what was
done to the processes has ended; MENDED (time, kind): acks are accepted again. Times are of the machine's monotonic clock.
A position is (number of the log file, offset, row), pieces are (position, changes) in the order of delivery.
"""

from __future__ import annotations

import bisect
import itertools
import os
import pickle
import struct
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from tests.support.journal import Change

LogPosition: TypeAlias = tuple[int, int, int]
Record: TypeAlias = tuple[Any, ...]
_START: LogPosition = (-1, 0, 0)


def append(file: int, *record: Any) -> None:
    """Write a record; it outlives the process when this returns."""
    data = pickle.dumps(record)
    os.write(file, struct.pack("<I", len(data)) + data)


def split_records(data: bytes) -> tuple[list[Record], int]:
    """The whole records at the start of ``data``, and their size; one that a kill has cut counts as not written."""
    records: list[Record] = []
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("<I", data, at)
        if at + 4 + size > len(data):
            break
        records.append(pickle.loads(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return records, at


def read_records(path: Path) -> list[Record]:
    return split_records(path.read_bytes())[0]


Answer: TypeAlias = Literal["accepted", "refused", "unknown"]


@attrs.define(eq=False)
class Ack:
    """One call; without an answer the process has not lived to write it down."""

    called: float
    answer: Answer = "unknown"
    answered: float = float("inf")


@attrs.define(eq=False)
class Batch:
    life: int
    epoch: int
    number: int
    asked: float
    came: float
    end: LogPosition
    pieces: list[tuple[LogPosition, list[Change]]]
    acks: list[Ack] = attrs.field(factory=list)

    @property
    def first(self) -> LogPosition | None:
        return self.pieces[0][0] if self.pieces else None

    @property
    def last(self) -> LogPosition:
        return self.pieces[-1][0] if self.pieces else _START

    @property
    def is_accepted(self) -> bool:
        return any(ack.answer == "accepted" for ack in self.acks)

    @property
    def is_doubtful(self) -> bool:
        return not self.is_accepted and any(ack.answer == "unknown" for ack in self.acks)

    def __str__(self) -> str:
        return f"batch {self.number} of process {self.life}, epoch {self.epoch}, up to {self.end}"


@attrs.define
class Verdict:
    """What the journals show."""

    violations: list[str] = attrs.field(factory=list)
    changes: list[Change] = attrs.field(factory=list)
    """What a consumer holds that keeps a change once its ack is durable: to be compared with what was committed."""
    batches: int = 0
    epochs: int = 0
    accepted: int = 0
    refused: int = 0
    doubtful: int = 0
    repeated: int = 0
    """Changes that came more than once."""
    waits: dict[str, list[float]] = attrs.field(factory=dict)
    """By kind of fault: seconds from the owner's death to the next batch that another epoch delivered."""
    mended: dict[str, list[float]] = attrs.field(factory=dict)
    """By kind of fault: seconds from its end until acks were accepted again."""
    steps: Counter[str] = attrs.field(factory=Counter)
    """Where processes have stopped themselves, and how often."""
    faults: Counter[str] = attrs.field(factory=Counter)
    processes: int = 0


#: What an owner did, in its order: it got a batch, an ack of one was called, it rolled all back.
_Step: TypeAlias = tuple[Literal["got", "ack", "rollback"], Batch | None]


def judge(lives: Sequence[Sequence[Record]], run: Sequence[Record] = ()) -> Verdict:
    """Read the journals of all processes, one for each life, and of the run."""
    verdict = Verdict(processes=len(lives))
    turns = _read_turns(lives, verdict)
    batches = [batch for steps in turns.values() for kind, batch in steps if kind == "got" and batch is not None]
    _check_clock(batches, verdict)
    _check_acks(batches, verdict)
    _check_same_content(batches, verdict)
    _merge(turns, verdict)
    verdict.epochs = len(turns)
    verdict.batches = len(batches)
    answers = [ack.answer for batch in batches for ack in batch.acks]
    verdict.accepted, verdict.refused = answers.count("accepted"), answers.count("refused")
    verdict.doubtful = answers.count("unknown")
    _measure(batches, run, verdict)
    return verdict


def _read_turns(lives: Sequence[Sequence[Record]], verdict: Verdict) -> dict[int, list[_Step]]:
    """What happened in each epoch; an epoch belongs to one process."""
    turns: dict[int, list[_Step]] = {}
    holders: dict[int, int] = {}
    for life, records in enumerate(lives):
        known: dict[tuple[int, int], Batch] = {}
        newest = 0
        for kind, *values in records:
            if kind == "GOT":
                batch = Batch(life, *values)
                if holders.setdefault(batch.epoch, life) != life:
                    verdict.violations.append(f"epoch {batch.epoch} is of process {holders[batch.epoch]} and of {life}")
                if batch.epoch < newest:
                    verdict.violations.append(f"{batch} came after epoch {newest}")
                newest = max(newest, batch.epoch)
                known[batch.epoch, batch.number] = batch
                turns.setdefault(batch.epoch, []).append(("got", batch))
            elif kind == "ACKING":
                batch = known[values[0], values[1]]
                batch.acks.append(Ack(values[2]))
                turns[batch.epoch].append(("ack", batch))
            elif kind in ("ACKED", "REFUSED", "UNKNOWN"):
                ack = known[values[0], values[1]].acks[-1]
                ack.answered = values[2]
                ack.answer = {"ACKED": "accepted", "REFUSED": "refused", "UNKNOWN": "unknown"}[kind]  # type: ignore[assignment]
            elif kind == "ROLLBACK" and values[0] in turns:
                turns[values[0]].append(("rollback", None))
            elif kind == "STOPPED":
                verdict.steps[values[0]] += 1
    return dict(sorted(turns.items()))


def _check_clock(batches: list[Batch], verdict: Verdict) -> None:
    """Nothing arrives, and no ack is accepted that was called, after a later epoch had delivered."""
    delivered = sorted((batch.came, batch.epoch) for batch in batches)
    moments = [came for came, _ in delivered]
    newest = list(itertools.accumulate((epoch for _, epoch in delivered), max))
    for batch in batches:
        done = [("arrived", batch.came), *(("was acked", ack.called) for ack in batch.acks if ack.answer == "accepted")]
        for doing, moment in done:
            before = bisect.bisect_left(moments, moment)
            if before and newest[before - 1] > batch.epoch:
                verdict.violations.append(f"{batch} {doing} after epoch {newest[before - 1]} had delivered")


def _check_acks(batches: list[Batch], verdict: Verdict) -> None:
    """Epochs of accepted acks never go back: one that was called after another was accepted is not of an earlier epoch."""
    accepted = [(ack, batch) for batch in batches for ack in batch.acks if ack.answer == "accepted"]
    accepted.sort(key=lambda one: one[0].answered)
    moments = [ack.answered for ack, _ in accepted]
    newest = list(itertools.accumulate((batch.epoch for _, batch in accepted), max))
    for ack, batch in accepted:
        index = bisect.bisect_left(moments, ack.called)
        if index and newest[index - 1] > batch.epoch:
            verdict.violations.append(f"{batch} was acked after an ack of epoch {newest[index - 1]} was accepted")


def _check_same_content(batches: list[Batch], verdict: Verdict) -> None:
    """What comes again is what came before."""
    seen: dict[LogPosition, list[Change]] = {}
    for batch in batches:
        for position, changes in batch.pieces:
            if seen.setdefault(position, changes) is not changes:
                verdict.repeated += len(changes)
                if seen[position] != changes:
                    verdict.violations.append(f"{batch}: at {position} came something else before")


def _merge(turns: dict[int, list[_Step]], verdict: Verdict) -> None:
    settled = _START  # position of the last entry whose ack is durable
    doubts: list[Batch] = []  # of the present and the last turn

    def settle(batch: Batch) -> None:
        nonlocal settled
        if batch.first is None:
            return  # a BEGIN alone says nothing of what is before it
        if batch.first <= settled:
            told = f"{batch} begins at {batch.first}, not after {settled}"
            verdict.violations.append(f"two acks were accepted for one range: {told}")
        verdict.changes += [change for position, changes in batch.pieces if position > settled for change in changes]
        settled = max(settled, batch.last)
        doubts.clear()

    def resolve(first: LogPosition) -> None:
        """Where a turn begins tells which of the acks without an answer was the last one that is durable."""
        durable = [one for one in doubts if settled < one.last < first]
        amid = [one for one in doubts if one.first is not None and one.first < first <= one.last]
        if durable:
            settle(max(durable, key=lambda one: one.last))
        elif amid:
            verdict.violations.append(f"a turn begins at {first}, in the middle of {amid[0]}")
        doubts.clear()

    for epoch, steps in turns.items():
        outstanding: deque[Batch] = deque()
        for kind, batch in steps:
            if kind == "rollback":
                outstanding.clear()
                continue
            assert batch is not None
            if kind == "got":
                if batch.first is not None:
                    if any(one.epoch != epoch for one in doubts):
                        resolve(batch.first)
                    _check_begin(batch, outstanding, settled, verdict)
                outstanding.append(batch)
            elif batch in outstanding:  # else a call that is repeated: the first one has been counted
                if outstanding[0] is not batch and (batch.is_accepted or batch.is_doubtful):
                    verdict.violations.append(f"{batch} was acked before {outstanding[0]}")
                if batch.is_accepted:
                    outstanding.remove(batch)
                    settle(batch)
                elif batch.is_doubtful and batch.pieces:
                    doubts.append(batch)
                if batch.acks[-1].answer == "refused":
                    outstanding.clear()  # who is refused loses all that he holds


def _check_begin(batch: Batch, outstanding: deque[Batch], settled: LogPosition, verdict: Verdict) -> None:
    positions = [position for position, _ in batch.pieces]
    if positions != sorted(set(positions)):
        verdict.violations.append(f"{batch} is not in order")
    before = max([settled, *(one.last for one in outstanding)])
    if positions[0] <= settled:
        verdict.violations.append(f"{batch} begins at {positions[0]}, but {settled} was acked")
    elif positions[0] <= before:
        verdict.violations.append(f"{batch} begins at {positions[0]}, but {before} came before, not rolled back")


def _measure(batches: list[Batch], run: Sequence[Record], verdict: Verdict) -> None:
    over = 0.0
    for kind, *values in run:
        if kind == "DEATH":
            moment, epoch, fault = values
            following = [batch.came for batch in batches if batch.epoch > epoch]
            if following:
                verdict.waits.setdefault(fault, []).append(min(following) - moment)
        elif kind == "FAULT":
            verdict.faults[values[1]] += 1
        elif kind == "OVER":
            over = values[0]
        elif kind == "MENDED":
            verdict.mended.setdefault(values[1], []).append(values[0] - over)


def iter_lives(directory: Path) -> Iterator[list[Record]]:
    for path in sorted(one for one in directory.glob("life-*") if not one.suffix):
        yield read_records(path)
