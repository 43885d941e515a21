"""Partial updates of JSON columns (T70): the diffs of MySQL's PARTIAL_UPDATE_ROWS events, and the documents that they make."""

from __future__ import annotations

import copy
import gc
import importlib.machinery
import importlib.util
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canal
import canal.rows.json as json_module
from canal.errors import DecodeError, TruncatedError, UnsupportedError
from canal.formats.columns import canal_columns
from canal.rows import decoder as rows
from canal.rows.decoder import RowDecoder
from canal.rows.json import apply_diffs, decode_diffs, decode_json, decode_objects, parse_path
from canal.rows.values import ABSENT, JsonDiff, PartialJson
from canal.schema import ColumnSchema
from canal.testing._encode import encode_json
from canal.testing.fake import FakeBinlog
from tests.support.parsing import decoded
from tests.support.partial_json import INSERT, OPERATIONS, REMOVE, REPLACE, counted, diff, document, log

PARTIAL = 3


def text(value: Any) -> str:
    """The server's text of a document, by the decoder of whole documents."""
    data = encode_json(value)
    return decode_json(data, 0, len(data))


def applied(before: Any, *diffs: bytes) -> str:
    """The text after the diffs; objects must come to the same."""
    data = b"".join(diffs)
    after = apply_diffs(text(before), decode_diffs(data, 0, len(data), True), True)
    original = copy.deepcopy(before)
    objects = apply_diffs(before, decode_diffs(data, 0, len(data), False), False)
    assert text(objects) == after
    assert before == original
    return after


# -- diffs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "diffs", "after"),
    [
        ({"a": 1}, [diff(REPLACE, "$.a", 2)], '{"a": 2}'),
        ({"a": 1}, [diff(INSERT, "$.b", "x"), diff(REMOVE, "$.a")], '{"b": "x"}'),
        ({"bb": 1}, [diff(INSERT, "$.a", None), diff(INSERT, "$.ab", True)], '{"a": null, "ab": true, "bb": 1}'),
        ({"b": 1}, [diff(INSERT, '$."é"', 1), diff(INSERT, "$.zz", 1)], '{"b": 1, "zz": 1, "é": 1}'),  # two bytes each
        ([1, 2, 3], [diff(REMOVE, "$[0]")], "[2, 3]"),
        ([1, 2, 3], [diff(INSERT, "$[1]", [])], "[1, [], 2, 3]"),
        ([1, 2, 3], [diff(INSERT, "$[100]", 4)], "[1, 2, 3, 4]"),
        ([1, 2, 3], [diff(INSERT, "$[last]", 4)], "[1, 2, 4, 3]"),
        ([1, 2, 3], [diff(INSERT, "$[last-9]", 4)], "[4, 1, 2, 3]"),
        ([1, 2, 3], [diff(REPLACE, "$[last-1]", {"k": 2.0})], '[1, {"k": 2.0}, 3]'),
        ([], [diff(INSERT, "$[0]", -0.0)], "[-0.0]"),
        ({"a": [{"b": 1e100}]}, [diff(REPLACE, "$.a[0].b", 1e16)], '{"a": [{"b": 1e16}]}'),
        ({'q"\\': 1}, [diff(REPLACE, '$."q\\"\\\\"', 2)], '{"q\\"\\\\": 2}'),
        ({"": [0]}, [diff(REMOVE, '$.""[0]')], '{"": []}'),
        ({"a b": {"$": 1}}, [diff(REMOVE, '$."a b".$')], '{"a b": {}}'),
        ({"n\n": 1}, [diff(REPLACE, '$."n\\n"', "\t\u0001\x7f")], '{"n\\n": "\\t\\u0001\x7f"}'),
        ({"a": 18446744073709551615, "b": 1.5}, [], '{"a": 18446744073709551615, "b": 1.5}'),
        ({"x": "\U0010ffff"}, [diff(INSERT, "$.y", 0)], '{"x": "\U0010ffff", "y": 0}'),
    ],
)
def test_diffs_are_applied_as_the_server_does_it(before: Any, diffs: list[bytes], after: str) -> None:
    assert applied(before, *diffs) == after


def test_numbers_and_sql_values_keep_their_exact_text() -> None:
    """What a diff does not touch is not rewritten: 1.50 stays a DECIMAL of two digits, 1e16 a double, -0 what it is."""
    before = '{"a": 1.50, "b": 1e16, "c": -0.0, "d": "2020-01-01 00:00:00.000000", "e": 100000000000000000000000000001, "f": -0}'
    data = diff(INSERT, "$.g", 1)
    assert apply_diffs(before, decode_diffs(data, 0, len(data), True), True) == before[:-1] + ', "g": 1}'


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        ({"a": 1}, diff(REPLACE, "$.b", 1)),
        ({"a": 1}, diff(INSERT, "$.a", 1)),
        ({"a": 1}, diff(REMOVE, "$.b")),
        ({"a": 1}, diff(REPLACE, "$[0]", 1)),
        ({"a": 1}, diff(INSERT, "$[0]", 1)),
        ({"a": 1}, diff(REMOVE, "$.a.b")),
        ([1], diff(REPLACE, "$[1]", 1)),
        ([1], diff(REMOVE, "$[last-1]")),
        ([1], diff(INSERT, "$.a", 1)),
        ([1], diff(INSERT, "$[0].a", 1)),
        ("a", diff(REPLACE, "$[0]", 1)),
        (1, diff(REMOVE, "$.a")),
        (None, diff(INSERT, "$.a", 1)),
        (2.5, diff(REPLACE, "$[0]", 1)),
        ([2.5], diff(REPLACE, "$[0][0]", 1)),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_a_diff_that_does_not_fit_its_document_is_refused(before: Any, wrong: bytes, as_text: bool) -> None:
    with pytest.raises(DecodeError, match="does not fit"):
        apply_diffs(text(before) if as_text else before, decode_diffs(wrong, 0, len(wrong), as_text), as_text)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "$",
        "$.",
        "$.*",
        "$[*]",
        "$**.a",
        "$[1 to 2]",
        "$[x]",
        "$[-1]",
        "$.a b",
        '$."a',
        '$."\\x"',
        '$."\\ud800"',
        "$[12345678901]",
        "$[1",
        "$a",
        "$" + "[0]" * 101,
        "$.a\n",
        "$[¹]",
    ],
)
def test_what_is_no_path_to_one_place_is_refused(path: str) -> None:
    data = diff(REMOVE, path)
    with pytest.raises(DecodeError, match=r"path|whole document"):
        decode_diffs(data, 0, len(data), True)


def test_paths() -> None:
    assert parse_path('$.a."b c"[0][last][last-2].é._$1') == ("a", "b c", 0, -1, -3, "é", "_$1")


def test_damaged_diffs_are_typed_errors() -> None:
    for data in (b"\3\x03$.a", b"\0\xfb", b"\0\3$.\xff\1\4", b"\2\xfd\xff\xff\xff", b"\0\3$.a\x02\x0c\x05"):
        with pytest.raises(DecodeError):
            decode_diffs(data, 0, len(data), True)
    whole = diff(INSERT, "$.abc", {"k": [1, "text"]})
    for size in range(1, len(whole)):
        with pytest.raises(TruncatedError, match="JSON"):
            decode_diffs(whole + b"....", 0, size, True)


numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | st.text(max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
documents = st.recursive(
    leaves, lambda some: st.lists(some, max_size=4) | st.dictionaries(names, some, max_size=4), max_leaves=12
)


def leg_text(leg: str | int) -> str:
    if isinstance(leg, int):
        return f"[{leg}]"
    plain = leg.isidentifier() and leg.isascii()
    return "." + (leg if plain else '"' + leg.translate(json_module._ESCAPES) + '"')


@settings(max_examples=settings().max_examples * 3 // 2)
@given(st.data())
def test_random_diffs_do_what_a_model_does(data: st.DataObject) -> None:
    """Against Python's own lists and dicts, written out by the encoder and decoder of whole documents."""
    model = data.draw(st.lists(documents, max_size=4) | st.dictionaries(names, documents, max_size=4))
    before, diffs = copy.deepcopy(model), []
    for _ in range(data.draw(st.integers(1, 5))):
        holder, path = model, "$"
        while True:
            inner = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            inner = [leg for leg in inner if isinstance(holder[leg], (dict, list))]
            if not inner or data.draw(st.booleans()):
                break
            leg = data.draw(st.sampled_from(inner))
            holder, path = holder[leg], path + leg_text(leg)
        value = data.draw(documents)
        operation = data.draw(st.sampled_from(OPERATIONS)) if holder else INSERT
        if isinstance(holder, dict):
            leg = data.draw(names if operation == INSERT else st.sampled_from(sorted(holder)))
            operation = REPLACE if operation == INSERT and leg in holder else operation
        else:
            leg = data.draw(st.integers(0, len(holder) if operation == INSERT else len(holder) - 1))
        if operation == REMOVE:
            del holder[leg]
        elif operation == INSERT and isinstance(holder, list):
            holder.insert(leg, copy.deepcopy(value))
        else:
            holder[leg] = copy.deepcopy(value)
        head = (path + leg_text(leg),)
        diffs.append(diff(operation, *head) if operation == REMOVE else diff(operation, *head, value))

    assert applied(before, *diffs) == text(model)


# -- rows --------------------------------------------------------------------------------------------------------------


def column(name: str, column_type: str = "") -> ColumnSchema:
    return ColumnSchema(name, column_type=column_type)


#: id INT, a JSON, n SMALLINT, b JSON, c JSON
TYPES, METAS = b"\3\xf5\2\xf5\xf5", (0, 4, 0, 4, 4)
COLUMNS = tuple(column(name) for name in ("id", "a", "n", "b", "c"))
ID, SMALL = struct.pack("<i", 7), struct.pack("<h", 5)


def event(*images: bytes, before: int = 0x1F, after: int = 0x1F, count: int = 5) -> bytes:
    size = (count + 7) // 8
    return bytes((count,)) + before.to_bytes(size, "little") + after.to_bytes(size, "little") + b"".join(images)


BEFORE = b"\xe0" + ID + document({"k": 1}) + SMALL + document([1, 2]) + document("c")
#: c is NULL before
HALF = b"\xf0" + ID + document({"k": 1}) + SMALL + document([1, 2])
#: a and b are partial, c is whole
AFTER = (
    b"\1\3"
    + b"\xe0"
    + ID
    + counted(diff(REPLACE, "$.k", 2), diff(INSERT, "$.j", 0.5))
    + SMALL
    + counted(diff(REMOVE, "$[0]"))
    + document({"whole": 1})
)
#: no options, all whole
WHOLE = b"\0" + BEFORE


def decoder(module: Any = rows, **options: Any) -> RowDecoder:
    made: RowDecoder = module.RowDecoder(TYPES, METAS, COLUMNS, **options)
    return made


def decode(data: bytes, made: RowDecoder | None = None) -> list[Any]:
    made = made or decoder()
    framed = b"\xee" * 5 + data + b"\xff" * 4
    found = made.decode(framed, 5, 5 + len(data), PARTIAL)
    assert made.walk(framed, 5, 5 + len(data), PARTIAL) == len(found)
    return found


OLD = (7, '{"k": 1}', 5, "[1, 2]", '"c"')


def test_some_columns_are_partial_and_others_whole_row_by_row() -> None:
    expected = (7, '{"j": 0.5, "k": 2}', 5, "[2]", '{"whole": 1}')
    assert decode(event(BEFORE, AFTER, BEFORE, WHOLE, HALF, AFTER)) == [(OLD, expected), (OLD, OLD), ((*OLD[:4], None), expected)]


def test_objects_instead_of_text() -> None:
    [(old, new)] = decode(event(BEFORE, AFTER), decoder(json_text=False))
    assert old == (7, {"k": 1}, 5, [1, 2], "c")
    assert new == (7, {"j": 0.5, "k": 2}, 5, [2], {"whole": 1})


def test_the_diffs_can_be_had() -> None:
    data = event(BEFORE, WHOLE, BEFORE, AFTER)
    assert decoder().diffs(data, 0, len(data)) == [
        {},
        {"a": (JsonDiff(REPLACE, "$.k", "2"), JsonDiff(INSERT, "$.j", "0.5")), "b": (JsonDiff(REMOVE, "$[0]", ABSENT),)},
    ]
    narrow = decoder(wanted=(3,), json_text=False)
    assert narrow.diffs(data, 0, len(data))[1] == {"b": (JsonDiff(REMOVE, "$[0]", ABSENT),)}
    assert decode(data, narrow) == [(([1, 2],), ([1, 2],)), (([1, 2],), ([2],))]
    assert decode(data, decoder(wanted=())) == [((), ()), ((), ())]


def test_without_the_document_before_there_are_the_diffs() -> None:
    """MINIMAL: a before image of the key alone, an after image of what was set; bits stand for absent columns too."""
    parts = diff(REPLACE, "$.k", "it's"), diff(INSERT, "$.l[0]", 2), diff(REMOVE, "$.m")
    after = b"\1\5" + b"\xfc" + counted(*parts) + document([])
    [(old, new)] = decode(event(b"\xfe" + ID, after, before=0x01, after=0x0A))
    assert old == (7, ABSENT, ABSENT, ABSENT, ABSENT)
    diffs = (JsonDiff(REPLACE, "$.k", '"it\'s"'), JsonDiff(INSERT, "$.l[0]", "2"), JsonDiff(REMOVE, "$.m", ABSENT))
    assert new == (ABSENT, PartialJson(diffs), ABSENT, "[]", ABSENT)
    schema = [ColumnSchema(name=one.name, type_code=code, column_type="json") for one, code in zip(COLUMNS, TYPES)]
    columns = canal_columns(schema, old, new)[1]
    assert [(one.name, one.value, one.updated) for one in columns] == [
        ("a", "JSON_REMOVE(JSON_ARRAY_INSERT(JSON_REPLACE(a, '$.k', \"it's\"), '$.l[0]', 2), '$.m')", True),
        ("b", "[]", True),
    ]


def test_the_text_of_diffs_is_canals() -> None:
    """canal puts neighbours of one kind into one call, and names the column alone when nothing was changed."""
    diffs = (JsonDiff(REPLACE, "$.a", "1"), JsonDiff(REPLACE, "$.b", "2"), JsonDiff(REMOVE, "$.c", ABSENT))
    assert PartialJson(diffs).expression("doc") == "JSON_REMOVE(JSON_REPLACE(doc, '$.a', 1, '$.b', 2), '$.c')"
    assert PartialJson(()).expression("doc") == "doc"


def test_a_diff_on_null_is_refused() -> None:
    after = b"\1\4\xe0" + ID + document(1) + SMALL + document(1) + counted(diff(INSERT, "$.a", 1))
    with pytest.raises(DecodeError, match="does not fit") as caught:
        decode(event(HALF, after))
    assert caught.value.column == "c"


def test_null_after_a_partial_bit_is_null() -> None:
    after = b"\1\1\xe2" + ID + SMALL + document(1) + document(2)
    assert decode(event(BEFORE, after)) == [(OLD, (7, None, 5, "1", "2"))]


def test_a_table_without_json() -> None:
    made = RowDecoder(b"\3", (0,), None)
    data = event(b"\xfe" + ID, b"\1\xfe" + ID, b"\xfe" + ID, b"\0\xfe" + ID, before=1, after=1, count=1)
    assert made.decode(data, 0, len(data), PARTIAL) == [((7,), (7,))] * 2
    assert made.walk(data, 0, len(data), PARTIAL) == 2


def test_options_of_a_later_server_are_named() -> None:
    for call in (decoder().walk, decoder().decode):
        with pytest.raises(UnsupportedError, match="0x2"):
            data = event(BEFORE, b"\2\3" + AFTER[2:])
            call(data, 0, len(data), PARTIAL)


def test_more_json_columns_than_bits_in_a_byte() -> None:
    """The bits are those of all JSON columns of the table, in their order, whichever of them the image holds."""
    made = RowDecoder(b"\xf5" * 11, (4,) * 11, None)
    old = b"\0\xf8" + document([0]) * 11
    bits = 1 << 2 | 1 << 10 | 1 << 5
    values = counted(diff(REPLACE, "$[0]", 2)), document([9]), counted(diff(INSERT, "$[0]", 10))
    new = b"\1" + bits.to_bytes(2, "little") + b"\xf8" + b"".join(values)
    data = event(old, new, before=0x7FF, after=1 << 2 | 1 << 7 | 1 << 10, count=11)
    [(_, after)] = made.decode(data, 0, len(data), PARTIAL)
    assert {i: value for i, value in enumerate(after) if value is not ABSENT} == {2: "[2]", 7: "[9]", 10: "[10, 0]"}


def test_every_truncation_and_trailing_byte_is_refused() -> None:
    whole = event(BEFORE, AFTER, HALF, WHOLE)
    refused = 0
    for size in range(len(whole)):
        for call in (decoder().walk, decoder().decode):
            try:
                found = call(whole, 0, size, PARTIAL)
            except TruncatedError:
                refused += 1
            else:
                assert found in (0, 1) or len(found) in (0, 1)
    assert refused == 2 * (len(whole) - 2)
    for call in (decoder().walk, decoder().decode):
        with pytest.raises(DecodeError):
            call(whole + b"\0", 0, len(whole) + 1, PARTIAL)


def interpreted() -> Any:
    path = Path(rows.__file__).parent / "decoder.py"
    loader = importlib.machinery.SourceFileLoader("rows_interpreted", str(path))
    spec = importlib.util.spec_from_loader("rows_interpreted", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


MODULES = (rows, interpreted())


def outcome(made: RowDecoder, call: str, data: bytes) -> Any:
    try:
        return repr(getattr(made, call)(data, 0, len(data), *(() if call == "diffs" else (PARTIAL,))))
    except DecodeError as error:
        return type(error), str(error), error.column


@settings(max_examples=settings().max_examples * 5 // 2)
@given(st.data())
def test_damage_ends_in_values_or_typed_errors_and_the_same_in_both_builds(data: st.DataObject) -> None:
    raw = bytearray(event(BEFORE, AFTER, HALF, WHOLE))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for call in ("walk", "decode", "diffs"):
        one, other = (outcome(decoder(module), call, bytes(raw)) for module in MODULES)
        assert one == other


# -- the whole line ----------------------------------------------------------------------------------------------------


def test_a_partial_update_is_an_update_entry() -> None:
    entry = decoded(log())[1]

    assert entry.event_type is canal.EventType.UPDATE
    assert entry.rows[0].after.as_dict() == {"id": 1, "doc": '{"a": 1, "b": "x"}'}
    assert entry.json_diffs() == [{"doc": (JsonDiff(INSERT, "$.b", '"x"'),)}]
    columns = entry.row_change.row_datas[0].after_columns
    assert [(one.value, one.updated) for one in columns] == [("1", False), ('{"a": 1, "b": "x"}', True)]
    entry.select(())
    assert entry.json_diffs() == []


def test_partial_updates_of_filtered_tables_are_only_counted() -> None:
    begin, end = decoded(log(), tables="other\\..*")

    assert end.transaction.row_count == 1


def test_other_entries_have_no_diffs() -> None:
    fake = FakeBinlog(flavor="mysql")
    fake.table("shop", "docs", "id INT PRIMARY KEY, doc JSON").insert({"id": 1, "doc": {}}, {"id": 2, "doc": {}})
    begin, entry, _ = [one for one in decoded(fake.events()) if one.transaction.row_count]

    assert (begin.json_diffs(), entry.json_diffs()) == ([], [{}, {}])


def test_partial_documents_in_arrow() -> None:
    """The column is null, and ``_exact`` has the change as canal writes it."""
    pytest.importorskip("pyarrow")
    entry = decoded(log())[1]
    body = entry.data[19:29] + b"\2\1\2" + b"\xfe" + struct.pack("<i", 1) + b"\1\1\xfe" + counted(diff(REMOVE, "$.a"))
    events = log()
    number = next(i for i, one in enumerate(events) if one[4] == 39)
    old = events[number]
    events[number] = old[:9] + struct.pack("<II", 19 + len(body), 0) + old[17:19] + body
    message = canal.Message(1, decoded(events))

    (batch,) = message.to_arrow()

    assert batch.column("_op").to_pylist() == ["update_preimage", "update_postimage"]
    assert batch.column("doc").to_pylist() == [None, None]
    assert batch.column("_exact").to_pylist() == [None, [("doc", "JSON_REMOVE(doc, '$.a')")]]
    assert batch.column("_absent").to_pylist() == [["doc"], ["id"]]


# -- objects -----------------------------------------------------------------------------------------------------------


@given(documents)
def test_objects_are_the_values_that_were_stored(value: Any) -> None:
    data = encode_json(value)

    assert decode_objects(data, 0, len(data)) == value


def test_rows_that_hold_objects_are_known_to_the_collector() -> None:
    """Rows of plain values are not: a cycle needs something that holds others."""
    fake = FakeBinlog()
    table = fake.table("shop", "t", "id INT PRIMARY KEY, document JSON")
    table.insert({"id": 1, "document": {"a": []}})
    fake.end()
    for objects in (True, False):
        config = canal.InstanceConfig(destination="d", source=fake, start="earliest", json="objects" if objects else "text")
        with canal.Instance(config) as instance:
            instance.subscribe()
            entry = instance.get(timeout=60).entries[1]
        (values,) = entry.tuples()[1] or ()
        assert type(values[1]) is (dict if objects else str)
        if objects:
            values[1]["a"].append(values)
            assert gc.is_tracked(values)
