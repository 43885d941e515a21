"""Messages in go-mysql-transfer's format: ``{"action":"insert","timestamp":…,"date":{…}}``, for consumers of its topics.

Never rounds or drops a value. DECIMAL keeps all digits. A date or time is unfit if the pattern cannot represent it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Literal

import attrs

from canal.changes.batch import EntryRows
from canal.changes.change import Change, Op, Origin, Table
from canal.errors import ConfigError
from canal.formats import put
from canal.formats.change_json import VALUE, line
from canal.formats.encoder import (
    INTEGERS,
    PLAIN,
    ColumnPiece,
    Encoded,
    RowEncoder,
    TextEncoder,
    image_object,
    text_styles,
    unfit,
    writer_of,
)
from canal.formats.row_writer import Program, RowWriter
from canal.formats.text import dumps
from canal.formats.texts import TEXTS
from canal.model import Row
from canal.rows import native
from canal.rows.values import ABSENT, ZeroDate

_PARTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "yyyy": lambda value: f"{value.year:04}",
    "yy": lambda value: f"{value.year % 100:02}",
    "MM": lambda value: f"{value.month:02}",
    "dd": lambda value: f"{value.day:02}",
    "HH": lambda value: f"{value.hour:02}",
    "mm": lambda value: f"{value.minute:02}",
    "ss": lambda value: f"{value.second:02}",
}
_TOKEN: Final = re.compile(r"yyyy|YYYY|yy|YY|MM|dd|HH|hh|mm|ss|SS|[^A-Za-z]+|[A-Za-z]+")
_SAME: Final = {"YYYY": "yyyy", "YY": "yy", "hh": "HH", "SS": "ss"}


@attrs.frozen
class TransferForm:
    """Options for the messages of some tables.

    Args:
        encoder: the format for ``date``. "json" is an object, "kv-commas" the text ``a=1,b=2``, "v-commas" the text ``1,2``.
        date_formatter: the pattern for DATE, such as ``yyyy-MM-dd``. "" formats dates as MySQL does.
        datetime_formatter: the pattern for DATETIME and TIMESTAMP, such as ``yyyy-MM-dd HH:mm:ss``. TIMESTAMP is in the
            instance's time zone. "" formats both as MySQL does.
        reserve_raw_data: include the row before an update as the object ``raw``.

    Raises:
        ConfigError: if a pattern has letters other than yyyy, yy, MM, dd, HH, mm, ss.
    """

    encoder: Literal["json", "kv-commas", "v-commas"] = "json"
    date_formatter: str = ""
    datetime_formatter: str = ""
    reserve_raw_data: bool = False

    def __attrs_post_init__(self) -> None:
        for name, pattern in (("date_formatter", self.date_formatter), ("datetime_formatter", self.datetime_formatter)):
            for token in _TOKEN.findall(pattern):
                is_of_time = _SAME.get(token, token) in ("HH", "mm", "ss")
                if token[0].isalpha() and (_SAME.get(token, token) not in _PARTS or is_of_time and name == "date_formatter"):
                    raise ConfigError(f"{name} {pattern!r} has {token!r}", remedy=f"There are {', '.join(_PARTS)}.")

    @property
    def piece(self) -> ColumnPiece:
        """Return how to write values as JSON."""
        return ColumnPiece(
            lambda value: self._json(value).encode(),
            {
                **dict.fromkeys((*INTEGERS, native.YEAR, native.BIT, native.NUMBER), (put.INTEGER, 0)),
                **text_styles(),
                **dict.fromkeys((native.FLOAT, native.DOUBLE), (put.REAL, 0)),
                **(
                    {}
                    if self.datetime_formatter
                    else dict.fromkeys((native.DATETIME, native.TIMESTAMP), (put.MOMENT, put.DIGITS))
                ),
                **({} if self.date_formatter else {native.DATE: (put.DAY, 0)}),
                native.DECIMAL: (put.DECIMAL_NUMBER, 0),
                native.BYTES: (put.BASE64, 0),
            },
        )

    def message(self, change: Change) -> str:
        """Return the message for a row change with one of the comma encoders."""
        action = "insert" if change.op is Op.READ else change.op
        members = [f'"action":"{action}"', f'"timestamp":{change.origin.ts // 1000}']
        if self.reserve_raw_data and change.op is Op.UPDATE and change.before is not None:
            members.append(f'"raw":{self._object(change.before)}')
        return "{" + ",".join([*members, f'"date":{dumps(self._commas(change.row))}']) + "}"

    def _object(self, row: Row) -> str:
        pairs = (f"{dumps(name)}:{self._json(value)}" for name, value in sorted(row.as_dict().items()) if value is not ABSENT)
        return "{" + ",".join(pairs) + "}"

    def _commas(self, row: Row) -> str:
        texts = ((name, self._text(value)) for name, value in row.as_dict().items() if value is not ABSENT)
        return ",".join(f"{name}={text}" if self.encoder == "kv-commas" else text for name, text in texts)

    def _text(self, value: Any) -> str:
        if value is None:
            return ""
        text = self._json(value)
        return str(json.loads(text)) if text.startswith('"') else text

    def _json(self, value: Any) -> str:
        if isinstance(value, Decimal):
            return format(value, "f")
        if isinstance(value, ZeroDate) and (self.date_formatter or self.datetime_formatter):
            raise ValueError("a pattern cannot write a date with zeros")
        if isinstance(value, datetime):
            value = value.replace(tzinfo=None)
            return dumps(_formatted(value, self.datetime_formatter) or TEXTS[datetime](value))
        if isinstance(value, date):
            return dumps(_formatted(value, self.date_formatter) or value.isoformat())
        if isinstance(value, bytes):
            return dumps(base64.b64encode(value).decode())
        if isinstance(value, (dict, list)):
            return TEXTS[type(value)](value)
        if type(value) in TEXTS:
            return dumps(TEXTS[type(value)](value))
        return dumps(value)


def _formatted(value: Any, pattern: str) -> str:
    return "".join(_PARTS[name](value) if (name := _SAME.get(part, part)) in _PARTS else part for part in _TOKEN.findall(pattern))


@attrs.frozen
class TransferJson(RowEncoder):
    """Encodes changes as go-mysql-transfer messages. The key is the primary key as JSON.

    Tables without a form, and statements other than TRUNCATE, result in no messages. TRUNCATE raises UnfitChangeError.

    Args:
        form: returns the options for ``schema.table`` in the source, or None if the table is not sent.
    """

    form: Callable[[str], TransferForm | None]

    def messages(self, change: Change, form: int = PLAIN) -> Sequence[Encoded]:
        found = self.form(change.table.source)
        if found is None:
            return ()
        if found.encoder == "json":
            return super().messages(change, form)
        return (Encoded(None, found.message(change).encode()),) if change.op.is_row else self._statement(change)

    def __call__(self, change: Change) -> str:
        return TextEncoder.__call__(self, change)

    def _statement(self, change: Change) -> Sequence[Encoded]:
        if change.op is Op.TRUNCATE:
            unfit(change, "go-mysql-transfer has no message for TRUNCATE", "Empty the consumers' copies, or park it by on_unfit.")
        return ()

    def _encoded(self, part: EntryRows, form: int, as_lines: bool) -> Any:
        found = self.form(part.table.source)
        if found is None:
            return b"" if as_lines else []
        return super()._encoded(part, form, as_lines) if found.encoder == "json" else None

    def _form(self, table: Table) -> RowWriter:
        form = self.form(table.source)
        assert form is not None
        order = sorted(range(len(table.columns)), key=lambda number: table.columns[number].name)
        count = len(table.columns)
        return writer_of(table, [form.piece] * count, order=order, keys=[VALUE] * count)

    def _key(self, table: Table, side: int) -> Program | None:
        return line._key(table, side)

    def _value(self, table: Table, op: Op, has_before: bool, has_after: bool, is_half: bool = False) -> Program:
        form = self.form(table.source)
        assert form is not None
        action = "insert" if op is Op.READ else op  # like go-mysql-transfer's "-stock" mode
        steps: list[tuple[int, Any]] = [(put.TEXT, f'{{"action":"{action}","timestamp":'.encode()), (put.LITERAL, 0)]
        if form.reserve_raw_data and op is Op.UPDATE and has_before:
            steps += [(put.TEXT, b',"raw":'), *image_object(put.BEFORE, True)]
        steps += [(put.TEXT, b',"date":'), *image_object(put.AFTER if has_after else put.BEFORE, True), (put.TEXT, b"}")]
        return Program(steps)

    def _literals(self, table: Table, origin: Origin, part: int = 0) -> list[bytes]:
        return [b"%d" % (origin.ts // 1000)]
