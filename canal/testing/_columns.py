"""The columns of fake tables from text, read as the statements of a log are."""

from __future__ import annotations

from typing import Final

from canal.errors import UsageError
from canal.parse.schema import definition, parts
from canal.parse.schema.scanner import END, Scanner
from canal.testing._encode import COLLATIONS, FakeColumn, keyed

#: Reserved words, so no column is called so unless in quotes.
_MAKE_VALUES: Final = frozenset(("DEFAULT", "ON", "AS"))


def parse_columns(text: str, charset: str = "utf8mb4") -> tuple[FakeColumn, ...]:
    """Columns from text such as ``"id INT UNSIGNED PRIMARY KEY, note VARCHAR(40)"``."""
    scan = Scanner(text)
    while (token := scan.take())[0] != END:
        if token[2] in _MAKE_VALUES:
            raise UsageError(f"the columns of a fake table cannot have {token[1]}: it makes no values by itself")
    scan = Scanner(f"{text})")
    try:
        body = definition.read_body(scan, parts.Dialect())
        if scan.broken or scan.peek()[0] != END:
            raise parts.NotUnderstoodError(f"{scan.peek()[1]!r} behind the last column")
    except parts.NotUnderstoodError as problem:
        raise UsageError(f"the columns of a fake table are not understood: {problem}") from None
    columns = [_column(column, charset) for column in body.columns]
    return keyed(columns, [part for key in body.keys if key.is_primary for part in key.columns])


def _column(found: parts.ColumnDefinition, charset: str) -> FakeColumn:
    kind, choice = found.type, found.charset or parts.CharsetChoice()
    if choice.collation and choice.collation not in COLLATIONS:
        raise UsageError(f"column {found.name}: collation {choice.collation} is not known to the fake binlog")
    if kind.zerofill or kind.compressed:
        raise UsageError(f"column {found.name}: ZEROFILL and COMPRESSED are not known to the fake binlog")
    return FakeColumn(
        found.name,
        kind.base,
        tuple(number for number in (kind.length, kind.scale) if number is not None),
        unsigned=kind.unsigned,
        nullable=found.nullable is not False,
        charset=kind.charset or choice.over(charset) or charset,
        collation=COLLATIONS.get(choice.collation, 0),
        labels=tuple(label if isinstance(label, str) else label.decode() for label in kind.labels or ()),
        visible=found.visible,
        auto_increment=found.auto_increment,
    )
