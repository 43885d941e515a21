"""The GTIDs of a batch as text."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from canal.formats.gtid_text import from_text, to_text

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCES = st.sampled_from([f"{UUID}:", f"{UUID}:tag_1:", f"44444444{UUID[8:]}:", "0-1-", "7-12-"])
GTIDS = st.builds(lambda source, number: f"{source}{number}", SOURCES, st.integers(1, 40) | st.integers(1, (1 << 63) - 2))


def texts(values: list[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.string())])


@given(st.lists(GTIDS), st.lists(st.none() | st.sampled_from(["log.000001:7", "", f"{UUID}:", "0-1", "log:3"])), st.randoms())
def test_gtids_come_back_and_nothing_else_does(gtids: list[str], others: list[str | None], random: object) -> None:
    values = [*gtids, *others]
    random.shuffle(values)  # type: ignore[attr-defined]

    assert sorted(from_text(to_text(texts(values)))) == sorted(set(gtids))


def test_the_text_is_the_same_for_the_same_gtids_and_short() -> None:
    some = [f"{UUID}:{number * number % 100_003 * 5 + number % 3}" for number in range(1, 20_000)]

    assert to_text(texts(some)) == to_text(texts(some[::-1]))
    assert len(to_text(texts(some))) < 2 * len(set(some))
    assert to_text(texts(["binlog.000001:4"])) == ""
    assert from_text("") == []
