"""Source equality of keys: exact values never merge keys, groups never split them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from canal.changes.keys import KeyRules
from canal.rows.values import InvalidText, NoLabel, ZeroDate
from canal.schema import column_from_text


def rules(column_type: str, charset: str | None = None) -> KeyRules:
    return KeyRules((column_from_text("k", column_type, charset=charset, key=True),))


_BERLIN = ZoneInfo("Europe/Berlin")
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=_BERLIN)


@pytest.mark.parametrize(
    ("column_type", "one", "other", "same"),
    [
        ("int", 1, 1, True),
        ("int", 1, 2, False),
        ("decimal(10,2)", Decimal("1.0"), Decimal("1.00"), True),
        ("decimal(10,2)", Decimal("1.0"), Decimal("1.01"), False),
        ("double", -0.0, 0.0, True),
        ("float", 0.1, 0.2, False),
        ("binary(4)", b"a\0\0\0", b"a\0", True),
        ("binary(4)", b"a\0\0\0", b"A\0\0\0", False),
        ("varbinary(4)", b"a", b"a\0", False),
        ("bit(9)", 256, 0, False),
        ("date", ZeroDate("0000-00-00"), ZeroDate("0000-00-00"), True),
        ("time(3)", timedelta(hours=-1), timedelta(hours=1), False),
        ("timestamp", datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=_BERLIN), True),
        ("timestamp", _TWICE, _TWICE.replace(fold=1), False),
        ("datetime", datetime(2026, 1, 1), datetime(2026, 1, 1), True),
    ],
)
def test_same_of_a_type_without_collation_is_known(column_type: str, one: Any, other: Any, same: bool) -> None:
    compared = rules(column_type)

    assert compared.same((one,), (other,)) is same
    assert (compared.exact((one,)) == compared.exact((other,))) is same
    assert (compared.group((one,)) == compared.group((other,))) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("k1", "k1", True),
        ("k1", "K1 ", None),
        ("k1", "k2", False),
        ("ñ", "n", None),
        ("a\x01", "b", None),
        ("7", "\N{MATHEMATICAL BOLD DIGIT SEVEN}", None),
        ("", InvalidText(b"\xff", "utf8mb4"), None),
        ("2f1ad7c0-93b8-4f63-a1e5-0c4a7e1d2b3f", "2f1ad7c0-93b8-4f63-a1e5-0c4a7e1d2b3a", False),
    ],
)
def test_same_of_texts_is_left_to_the_collation(one: str, other: str, same: bool | None) -> None:
    compared = rules("varchar(40)", "utf8mb4")

    assert compared.same((one,), (other,)) is same
    assert (compared.exact((one,)) == compared.exact((other,))) is (same is True)


def test_same_is_false_when_a_column_beside_a_text_differs() -> None:
    columns = column_from_text("t", "varchar(9)", charset="utf8mb4"), column_from_text("n", "int")

    assert KeyRules(columns).same(("a", 1), ("A", 2)) is False
    assert KeyRules(columns).same(("a", 1), ("A", 1)) is None
    assert KeyRules(columns).same(("é", 1), ("A", 2)) is False


def test_exact_of_labels_keeps_those_apart_that_print_alike() -> None:
    labels = rules("enum('','a')", "utf8mb4")
    values = "", NoLabel(), InvalidText(b"?", "utf8mb4", 1), InvalidText(b"?", "utf8mb4", 2)

    assert len({labels.exact((value,)) for value in values}) == 4


def test_group_of_a_text_that_only_a_prefix_identifies_is_unknown() -> None:
    assert rules("text", "utf8mb4").group(("abc",)) is None
    assert rules("blob").group((b"abc",)) is None


@pytest.mark.parametrize(
    ("column_type", "one", "other", "text"),
    [
        ("decimal(10,2)", Decimal("1.00"), Decimal("1.0000"), "1"),
        ("decimal(10,2)", Decimal("100.00"), Decimal("100"), "100"),
        ("decimal(65,30)", Decimal(f"{'9' * 35}.5"), Decimal(f"{'9' * 35}.50"), f"{'9' * 35}.5"),
        ("decimal(10,2)", Decimal("-0.00"), Decimal("0"), "0"),
        ("double", -0.0, 0.0, "0.0"),
        ("timestamp", _NOON.astimezone(_BERLIN), _NOON, "2026-01-01 12:00:00+00:00"),
    ],
)
def test_keys_that_the_source_calls_equal_are_written_alike(column_type: str, one: Any, other: Any, text: str) -> None:
    written = rules(column_type).written

    assert [str(written((key,))[0]) for key in (one, other)] == [text, text]
