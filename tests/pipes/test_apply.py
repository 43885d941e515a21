"""What a batch of changes comes to, and that each is applied once: against a dict, whatever is delivered again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal.errors import ConfigError, StreamMismatchError, TargetError, TargetSchemaError, UnfitChangeError, UsageError
from canal.pipes.apply import PlainBatch
from canal.position import Position
from canal.spark import apply_changes
from canal.targets.protocol import Progress, TableProgress
from canal.targets.tables.outcome import fit, wider
from tests.support.histories import COLUMNS, KEYS, MemoryTarget, change, content, deliveries, form, histories, table


@given(st.data())
def test_the_target_is_what_the_table_was_after_each_batch(data: st.DataObject) -> None:
    history = data.draw(histories())
    target = MemoryTarget()
    done = 0
    for run in data.draw(deliveries(history)):
        fn = apply_changes(target, KEYS)
        for first, end in run:
            rows = table(history.changes[first:end])
            order = data.draw(st.permutations(range(rows.num_rows)))  # partitions come in any order
            rows = rows.take(pa.array(order, pa.int64()))
            cut = data.draw(st.integers(0, rows.num_rows))
            fn(pa.concat_tables([rows.slice(0, cut), rows.slice(cut)]), 0)
            done = max(done, end)
            assert content(target.rows) == history.states[done]


def whole(number: int, **more: object) -> dict[str, object]:
    return {"id": number, "k": "x", "a": 1, "b": None, **more}


def refused(
    error: type[Exception], changes: list[dict[str, Any]], match: str, target: MemoryTarget | None = None, **options: Any
) -> None:
    """The batch is refused, and nothing of it is in the target."""
    target = target or MemoryTarget()
    before, stored = target.rows, dict(target.stored)
    with pytest.raises(error, match=match):
        apply_changes(target, KEYS, **options)(table(changes))
    assert target.rows is before
    assert target.stored == stored


def applied(*batches: list[dict[str, object]], **options: object) -> MemoryTarget:
    target = MemoryTarget()
    for changes in batches:
        apply_changes(target, KEYS, **options)(table(changes))
    return target


def test_two_rows_swap_their_keys() -> None:
    one, two = {**whole(1), "b": "one"}, {**whole(2), "b": "two"}
    spare = {**one, "id": 9}
    target = applied(
        [change("I", 1, 0, one), change("I", 1, 1, two)],
        [change("U", 2, 0, spare, one), change("U", 2, 1, {**two, "id": 1}, two), change("U", 2, 2, {**one, "id": 2}, spare)],
    )

    assert {key: row["b"] for key, row in content(target.rows).items()} == {(1, "x"): "two", (2, "x"): "one"}


def test_a_transaction_that_is_split_over_batches_is_told_by_the_number_of_the_change() -> None:
    changes = [change("I", 7, number, whole(number)) for number in range(4)]
    target = applied(changes[:2])

    apply_changes(target, KEYS)(table(changes[1:]))

    assert len(content(target.rows)) == 4
    assert target.stored["canal"].table.last_change == (7, 3)


def test_the_checkpoint_s_batch_ids_say_nothing() -> None:
    target = MemoryTarget()
    fn = apply_changes(target, KEYS)

    fn(table([change("I", 1, 0, whole(1))]), 5)
    fn(table([change("I", 2, 0, whole(2))]), 0)  # the checkpoint was deleted

    assert len(content(target.rows)) == 2


def test_a_truncate_takes_all_rows_and_what_follows_is_put() -> None:
    emptied = change("T", 2, 0, {}, whole=True)
    patch = change("U", 3, 0, {"a": 5}, {"id": 1, "k": "x"})
    target = applied([change("I", 1, 0, whole(1)), change("I", 1, 1, whole(2))])

    refused(UnfitChangeError, [emptied, patch], "target lacks", target)
    apply_changes(target, KEYS)(table([emptied, change("I", 4, 0, whole(3))]))
    assert set(content(target.rows)) == {(3, "x")}
    apply_changes(target, KEYS)(table([change("I", 5, 0, whole(4)), change("T", 6, 0, {}, whole=True)]))

    assert content(target.rows) == {}
    assert target.stored["canal"].table.last_change == (6, 0)


def test_a_batch_that_was_applied_is_not_written_again() -> None:
    target = applied([change("I", 1, 0, whole(1)), change("I", 1, 1, whole(2))], [change("I", 1, 1, whole(2))])

    assert target.version == 1


def test_of_two_truncates_the_last_one_counts() -> None:
    first, second = change("T", 2, 0, {}, whole=True), change("T", 4, 0, {}, whole=True)

    assert content(applied([change("I", 1, 0, whole(1)), first, change("I", 3, 0, whole(2)), second]).rows) == {}


def test_a_null_is_written_and_an_absent_column_is_left() -> None:
    old = whole(1, a=5, b="p")
    target = applied([change("I", 1, 0, old)], [change("U", 2, 0, {"a": None}, {"id": 1, "k": "x"})])

    assert content(target.rows)[1, "x"] == whole(1, a=None, b="p")


def test_a_partial_image_moves_a_row_with_what_it_does_not_tell() -> None:
    target = applied(
        [change("I", 1, 0, whole(1, a=5, b="p"))],
        [change("U", 2, 0, {"id": 3}, {"id": 1, "k": "x"}), change("U", 2, 1, {"a": 6}, {"id": 3, "k": "x"})],
    )

    assert content(target.rows) == {(3, "x"): whole(3, a=6, b="p")}


def test_a_partial_image_of_a_row_that_is_not_there_is_refused() -> None:
    refused(UnfitChangeError, [change("U", 2, 0, {"a": 6}, {"id": 3, "k": "x"})], "target lacks")


def test_an_insert_that_lacks_columns_is_refused_or_null() -> None:
    changes = [change("I", 1, 0, {"id": 1, "k": "x", "a": 1})]

    refused(UnfitChangeError, changes, "defaults are not logged")
    assert content(applied(changes, absent="null").rows) == {(1, "x"): whole(1)}


def test_a_key_that_is_null_is_refused() -> None:
    updates = [change("U", 1, 0, whole(1), before) for before in (None, {"id": 1, "k": None})]
    for one in (change("I", 1, 0, whole(1, k=None)), *updates):
        refused(UnfitChangeError, [one], "key column (k|id) is NULL")


def test_a_value_that_its_type_cannot_hold_is_refused_null_or_kept(caplog: pytest.LogCaptureFixture) -> None:
    changes = [change("I", 1, 0, whole(1, a=None), _exact={"a": "0000-00-00"})]

    refused(UnfitChangeError, changes, "types of a do not hold 1 values")
    assert content(applied(changes, exact="null").rows) == {(1, "x"): whole(1, a=None)}
    assert "count 1, columns a" in caplog.text
    assert content(applied(changes, exact="keep").rows) == {(1, "x"): whole(1, a=None, _exact=[("a", "0000-00-00")])}


def test_a_kept_text_goes_with_the_column_that_it_is_of() -> None:
    target = applied(
        [change("I", 1, 0, whole(1, a=None, b=None), _exact={"a": "0000-00-00", "b": "ff"})],
        [change("U", 2, 0, {"b": "q"}, {"id": 1, "k": "x"})],
        [change("U", 3, 0, {"id": 2}, {"id": 1, "k": "x"})],
        exact="keep",
    )

    assert content(target.rows) == {(2, "x"): whole(2, a=None, b="q", _exact=[("a", "0000-00-00")])}


def test_a_json_document_of_which_only_the_change_is_known_is_always_refused() -> None:
    changes = [change("I", 1, 0, whole(1), _exact={"b": "JSON_SET(b, '$.x', 1)"})]

    for exact in ("refuse", "null", "keep"):
        refused(UnfitChangeError, changes, "only the change is known", exact=exact)


def test_a_deleted_row_s_odd_value_is_of_no_interest() -> None:
    target = applied([change("I", 1, 0, whole(1))], [change("D", 2, 0, whole(1, a=None), _exact={"a": "0000-00-00"})])

    assert content(target.rows) == {}


# -- snapshots -------------------------------------------------------------------------------------------------------------


def read(txn: int, *numbers: int, **more: object) -> list[dict[str, object]]:
    return [change("r", txn, -1, whole(number, **more)) for number in numbers]


def test_chunks_of_a_snapshot_come_in_batches_and_again() -> None:
    target = applied(read(5, 1, 2), read(5, 3), read(5, 3), [change("D", 5, 0, whole(2))], read(5, 3, 2))

    assert set(content(target.rows)) == {(1, "x"), (3, "x")}


def test_a_row_of_a_snapshot_never_overwrites_a_streamed_one() -> None:
    streamed = [change("U", 5, 0, whole(1, a=2), whole(1)), change("D", 6, 0, whole(2))]

    for batches in ([read(5, 1, 2) + streamed], [read(5, 1, 2), streamed, read(5, 1, 2)], [read(5, 1, 2) + streamed, read(5, 1)]):
        assert content(applied(*batches).rows) == {(1, "x"): whole(1, a=2)}


def test_a_snapshot_of_a_table_that_was_followed_is_refused_or_replaces_it() -> None:
    target = applied(read(5, 1, 2), [change("I", 6, 0, whole(3))])
    later = read(9, 1) + [change("I", 9, 0, whole(4))]

    refused(StreamMismatchError, later, "a snapshot begins", target)
    fn = apply_changes(target, KEYS, snapshot="replace")
    fn(table(later))
    fn(table(later + read(9, 5)))

    assert set(content(target.rows)) == {(1, "x"), (4, "x")}


def test_a_snapshot_that_is_older_than_the_target_replaces_nothing() -> None:
    target = applied([change("I", 6, 0, whole(3))])

    refused(StreamMismatchError, read(5, 1), "a snapshot begins", target, snapshot="replace")


def test_changes_from_before_a_snapshot_are_in_it() -> None:
    """Without its checkpoint the query was started at an earlier position."""
    target = applied(read(5, 1, 2), [change("D", 3, 0, whole(1)), change("I", 4, 0, whole(2)), change("I", 6, 0, whole(3))])

    assert set(content(target.rows)) == {(1, "x"), (2, "x"), (3, "x")}


def begins(txn: int) -> list[dict[str, object]]:
    """What the first chunk of a snapshot gives when it has no rows."""
    return [change("T", txn, -1, {}, whole=True)]


def holding(*numbers: int) -> MemoryTarget:
    """A target with rows that nothing of the stream tells of."""
    target = MemoryTarget()
    target.rows = pa.Table.from_pylist([whole(number) for number in numbers], pa.schema(list(COLUMNS.items())))
    return target


def test_a_snapshot_of_an_empty_table_is_the_beginning_of_one() -> None:
    target = applied(begins(5), [change("I", 6, 0, whole(1))])
    assert target.stored["canal"].table.snapshot == 5

    refused(StreamMismatchError, begins(9), "a snapshot begins", target)
    fn = apply_changes(target, KEYS, snapshot="replace")
    fn(table(begins(9)))
    assert content(target.rows) == {}
    fn(table([change("I", 9, 0, whole(2))]))
    fn(table(begins(9)))
    refused(StreamMismatchError, begins(7), "a snapshot begins", target, snapshot="replace")

    assert set(content(target.rows)) == {(2, "x")}


def test_the_beginning_of_a_snapshot_is_appended_as_it_was_told() -> None:
    target = MemoryTarget()
    for changes in (begins(5), begins(5), [change("I", 5, 0, whole(1))], begins(5)):
        apply_changes(target, None)(table(changes))

    assert target.rows is not None
    assert [(row["_op"], row["_ord"]) for row in target.rows.to_pylist()] == [("T", -1), ("I", 0)]


def test_an_empty_chunk_takes_nothing_of_the_others_away() -> None:
    for batches in (
        [begins(5) + read(5, 1), begins(5)],
        [read(5, 1) + begins(5)],
        [read(5, 1), begins(5)],
        [begins(5), read(5, 1), begins(5)],
        [read(5, 1), [change("I", 5, 0, whole(2)), change("D", 6, 0, whole(2))], begins(5)],
    ):
        assert set(content(applied(*batches).rows)) == {(1, "x")}


def test_a_snapshot_over_rows_that_nobody_knows_is_refused_or_replaces_or_keeps_them() -> None:
    for first in (read(5, 1), begins(5), begins(5) + read(5, 1)):
        refused(StreamMismatchError, first, "has rows and no progress", holding(1, 2))
        wanted = {(1, "x")} if first[-1]["_op"] == "r" else set()
        for snapshot, rows in (("replace", wanted), ("keep", wanted | {(2, "x"), (3, "x")})):
            target = holding(2, 3)
            for changes in (first, first, [change("I", 6, 0, whole(4))]):
                apply_changes(target, KEYS, snapshot=snapshot)(table(changes))
            assert set(content(target.rows)) == rows | {(4, "x")}
    refused(StreamMismatchError, read(9, 1), "a snapshot begins", applied([change("I", 6, 0, whole(3))]), snapshot="keep")


def test_a_stream_without_a_snapshot_follows_what_is_there() -> None:
    target = holding(1, 2)
    apply_changes(target, KEYS)(table([change("D", 6, 0, whole(1))]))

    assert set(content(target.rows)) == {(2, "x")}


# -- what is no continuation -----------------------------------------------------------------------------------------------


def test_a_log_that_began_anew_is_told_by_its_age() -> None:
    target = applied([change("I", 50, 0, whole(1))])
    young = [change("I", 3, 0, whole(2), _ts=1_900_000_000_000_000)]

    refused(StreamMismatchError, young, "younger than all applied changes", target)


def test_times_that_are_not_in_the_order_of_the_log_are_no_other_log() -> None:
    """A long transaction is logged when it commits, with the times of its statements."""
    changes = [change("I", 3, 0, whole(1), _ts=1_900_000_000_000_000), change("I", 4, 0, whole(2), _ts=1_800_000_000_000_000)]
    target = applied(changes[:1], changes[1:], changes)

    assert set(content(target.rows)) == {(1, "x"), (2, "x")}


def test_two_streams_have_progress_of_their_own() -> None:
    target = MemoryTarget()
    apply_changes(target, KEYS, stream="one")(table([change("I", 50, 0, whole(1))]))
    apply_changes(target, KEYS, stream="two")(table([change("I", 3, 0, whole(2))]))

    assert set(content(target.rows)) == {(1, "x"), (2, "x")}


def in_loop(start: Position, end: Position, table: str = "shop.orders") -> PlainBatch:
    return PlainBatch(table, start, end)


A, B, UUID = "a-server", "b-server", "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def at(source: str, number: int) -> Position:
    return Position("binlog.000001", number, gtid=f"{UUID}:1-{number}" if number else "", source=source)


def at_gtid(number: int, txn: int) -> dict[str, object]:
    return change("I", txn, 0, whole(number), _gtid=f"{UUID}:{number}", _ts=1_700_000_000_000_000 + number)


def test_another_server_s_numbers_go_on_in_the_next_epoch() -> None:
    target = MemoryTarget()
    fn = apply_changes(target, KEYS)
    fn(table([at_gtid(1, 500)]), in_loop(at(A, 0), at(A, 1)))
    fn(table([at_gtid(2, 3)]), in_loop(at(A, 1), at(B, 2)))
    fn(table([at_gtid(2, 3), at_gtid(3, 4)]), in_loop(at(A, 1), at(B, 3)))

    assert set(content(target.rows)) == {(1, "x"), (2, "x"), (3, "x")}
    assert target.stored["canal"].table.txn == 1 << 58 | 4


def test_what_another_server_tells_again_is_known_by_its_gtid() -> None:
    """The batch was applied and not acked before the server was changed."""
    target = MemoryTarget()
    apply_changes(target, None)(table([at_gtid(1, 500), at_gtid(2, 501)]), in_loop(at(A, 0), at(A, 2)))
    apply_changes(target, None)(table([at_gtid(2, 3), at_gtid(3, 4)]), in_loop(at(A, 1), at(B, 3)))

    assert target.rows is not None
    assert target.rows["id"].to_pylist() == [1, 2, 3]


def test_another_server_is_not_followed_from_within_a_transaction() -> None:
    """GTIDs do not tell which of its changes were applied."""
    target = MemoryTarget()
    within = attrs.evolve(at(A, 2), row=1)
    apply_changes(target, None)(table([at_gtid(1, 500), at_gtid(3, 501)]), in_loop(at(A, 0), within))

    with pytest.raises(StreamMismatchError, match="it is unknown which"):
        apply_changes(target, None)(table([at_gtid(3, 3)]), in_loop(at(A, 1), at(B, 3)))


def test_another_server_without_gtids_is_followed_only_behind_what_is_applied() -> None:
    target = MemoryTarget()
    fn = apply_changes(target, KEYS)
    end = Position("a.000001", 700, source=A)
    fn(table([change("I", 500, 0, whole(1))]), in_loop(Position("a.000001", 4, source=A), end))

    with pytest.raises(StreamMismatchError, match="it is unknown which"):
        fn(table([change("I", 3, 0, whole(2))]), in_loop(Position("a.000001", 4, source=A), Position("b.000001", 70, source=B)))
    fn(table([change("I", 3, 0, whole(2))]), in_loop(end, Position("b.000001", 70, source=B)))

    assert set(content(target.rows)) == {(1, "x"), (2, "x")}


def test_a_sink_takes_one_table() -> None:
    fn = apply_changes(MemoryTarget(), KEYS)
    fn(table([change("I", 1, 0, whole(1))]), in_loop(at(A, 0), at(A, 1)))

    with pytest.raises(UsageError, match=r"changes of shop\.customers"):
        fn(table([change("I", 2, 0, whole(1))]), in_loop(at(A, 1), at(A, 2), "shop.customers"))


# -- columns ---------------------------------------------------------------------------------------------------------------


def test_columns_that_differ_are_refused_or_added() -> None:
    target = applied([change("I", 1, 0, whole(1))])
    wider = {**COLUMNS, "c": pa.duration("us")}
    del wider["b"]
    rows = pa.Table.from_pylist([change("I", 2, 0, {"id": 2, "k": "x", "a": 1, "c": 7}, whole=True)], schema=form(wider))

    with pytest.raises(TargetSchemaError, match="the target lacks c; the changes lack b"):
        apply_changes(target, KEYS)(rows)
    apply_changes(target, KEYS, schema="add")(rows)

    assert content(target.rows)[1, "x"] == {**whole(1), "c": None}
    assert content(target.rows)[2, "x"] == {**whole(2), "c": dt.timedelta(microseconds=7)}


def test_a_value_that_does_not_fit_the_target_is_refused() -> None:
    target = applied([change("I", 1, 0, whole(1))])
    target.rows = target.rows.cast(target.rows.schema.set(2, pa.field("a", pa.int8())))

    refused(TargetSchemaError, [change("I", 2, 0, whole(2, a=300))], "does not fit", target)
    apply_changes(target, KEYS)(table([change("I", 2, 0, whole(2, a=100))]))

    assert content(target.rows)[2, "x"]["a"] == 100


NARROW = {"i": pa.int32(), "j": pa.int64(), "f": pa.float32(), "d": pa.decimal128(4, 2), "s": pa.struct([("x", pa.int32())])}
WIDE = {"i": 1 << 40, "j": Decimal(2**64 - 1), "f": 1.1, "d": Decimal("12345.678"), "s": {"x": 1 << 40}}


@pytest.mark.parametrize("name", NARROW)
def test_the_type_that_holds_a_column_and_what_comes(name: str) -> None:
    column = pa.chunked_array([pa.array([WIDE[name]])])

    kind = wider(column, NARROW[name])

    assert kind is not None
    assert column.cast(kind).to_pylist() == [WIDE[name]]
    assert pa.array([None], NARROW[name]).cast(kind).to_pylist() == [None]
    nothing = pa.chunked_array([pa.array([None], column.type)])
    assert wider(nothing, NARROW[name]) == (kind if name in "jf" else NARROW[name])


def test_a_decimal_that_the_target_cannot_hold_is_refused() -> None:
    """Also where 128 bits are not enough, which Arrow itself does not notice."""
    rows = pa.table({"a": [Decimal("1" * 38)]})

    with pytest.raises(TargetSchemaError, match="does not fit"):
        fit(rows, pa.schema([("a", pa.decimal128(38, 2))]))


def test_of_a_text_and_a_number_there_is_no_wider_type() -> None:
    assert wider(pa.chunked_array([["a"]]), pa.int32()) is None
    assert wider(pa.chunked_array([[Decimal("1" * 38)]]), pa.decimal128(38, 2)) is None


def test_what_is_not_of_the_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="_ord, _ts"):
        apply_changes(MemoryTarget(), KEYS)(pa.table({"_op": ["I"], "_txn": [1]}))
    with pytest.raises(ConfigError, match="no columns nope"):
        apply_changes(MemoryTarget(), ["nope"])(table([change("I", 1, 0, whole(1))]))
    with pytest.raises(ConfigError, match="sequence of column names"):
        apply_changes(MemoryTarget(), "id")
    with pytest.raises(ConfigError, match="exact must be"):
        apply_changes(MemoryTarget(), KEYS, exact="maybe")  # type: ignore[arg-type]


def test_progress_is_read_back_or_refused() -> None:
    progress = Progress(at(A, 3), 2, "shop.orders", table=TableProgress(1 << 58 | 7, -1, ts=5, snapshot=3, server=A))

    assert Progress.from_text(progress.to_text()) == progress
    for text in ("", "[]", "{}", '{"v": 2}', '{"v": 1}', progress.to_text().replace('"ts"', '"tx"')):
        with pytest.raises(TargetError, match="cannot be read"):
            Progress.from_text(text)
