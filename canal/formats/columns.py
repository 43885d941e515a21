"""A column's value as canal gives it: text, with a JDBC type code.

Never guesses: a label that the column does not have is an error, not a number.

Other than canal, as it serves nobody: text is decoded in its column's charset; TIMESTAMP is text in the zone of the value,
not of the process; JSON is the server's text, whose numbers and SQL values canal writes otherwise; the old TIME of 100 hours
and more keeps its hours; VECTOR is bytes, where canal fails. What a consumer may depend on is a switch, see ``Form``.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import attrs

from canal._util.bounded import Recent
from canal.binlog import type_codes as codes
from canal.errors import DecodeError
from canal.formats.texts import document_text
from canal.rows import native
from canal.rows.values import ABSENT, AmbiguousLabel, InvalidText, PartialJson
from canal.schema import ColumnSchema

if TYPE_CHECKING:
    from canal._util import interpreted as cython
else:
    try:
        import cython
    except ModuleNotFoundError:
        from canal._util import interpreted as cython

BIT = -7
TINYINT = -6
BIGINT = -5
CHAR = 1
DECIMAL = 3
INTEGER = 4
SMALLINT = 5
REAL = 7
DOUBLE = 8
VARCHAR = 12
DATE = 91
TIME = 92
TIMESTAMP = 93
OTHER = 1111
BLOB = 2004
CLOB = 2005

#: Integer types: JDBC code signed, unsigned (the next that holds all its values).
_INTEGERS = {
    codes.TINY: (TINYINT, SMALLINT),
    codes.SHORT: (SMALLINT, INTEGER),
    codes.INT24: (INTEGER, INTEGER),
    codes.LONG: (INTEGER, BIGINT),
    codes.LONGLONG: (BIGINT, DECIMAL),
}
_SIGNED_BITS = {codes.TINY: 7, codes.SHORT: 15, codes.INT24: 23, codes.LONG: 31, codes.LONGLONG: 63}
_PLAIN = {
    codes.FLOAT: REAL,
    codes.DOUBLE: DOUBLE,
    codes.DECIMAL: DECIMAL,
    codes.NEWDECIMAL: DECIMAL,
    codes.BIT: BIT,
    codes.YEAR: VARCHAR,
    codes.DATE: DATE,
    codes.NEWDATE: DATE,
    codes.TIME: TIME,
    codes.TIME2: TIME,
    codes.DATETIME: TIMESTAMP,
    codes.DATETIME2: TIMESTAMP,
    codes.TIMESTAMP: TIMESTAMP,
    codes.TIMESTAMP2: TIMESTAMP,
    codes.JSON: VARCHAR,
    codes.ENUM: INTEGER,
    codes.SET: BIT,
    codes.GEOMETRY: BLOB,
    codes.VECTOR: BLOB,
}
#: Types that hold text or bytes: JDBC code of the text.
_STRINGS = {
    codes.STRING: CHAR,
    codes.VARCHAR: VARCHAR,
    codes.VAR_STRING: VARCHAR,
    codes.VARCHAR_COMPRESSED: VARCHAR,
    codes.TINY_BLOB: CLOB,
    codes.MEDIUM_BLOB: CLOB,
    codes.LONG_BLOB: CLOB,
    codes.BLOB: CLOB,
    codes.BLOB_COMPRESSED: CLOB,
}
#: Java writes smaller and greater numbers with an exponent.
_LEAST_PLAIN = 1e-3
_LEAST_SCIENTIFIC = 1e7
#: Of ``2026-01-01 10:00:00``, behind which a fraction may stand, or a zone.
_SECONDS = 19
_ATTRIBUTES = ("index", "sql_type", "name", "is_key", "updated", "is_null", "value", "mysql_type")
#: MariaDB's types that look like BINARY in the log and have a text of their own.
_TEXT_FORM = frozenset(("uuid", "inet6", "inet4"))
_TEXT_TYPES = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_BYTE_TYPES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"))


@attrs.frozen
class Form:
    """Where canal's own form is a fault: what ``RowChange.columns`` is to do.

    Args:
        labels: give an ENUM or SET as the text of its labels (JDBC VARCHAR). Canal gives the number of the label from 1, or
            the bits of the SET, which mean something else after an ALTER.
        codes_of_values: give the code that canal gives to the value: that of an unsigned integer is the signed type's until
            the value needs the next one, and NULL in a SET is BLOB, in JSON OTHER. Otherwise a column has one code for all.
    """

    labels: bool = False
    codes_of_values: bool = False


@cython.no_gc
@cython.freelist(4096)
@cython.cclass
class Column:
    """One column of one row as canal gives it: a value that equals another one with the same attributes.

    Attributes:
        index: its number among all columns of the table, from 0.
        sql_type: the ``java.sql.Types`` code.
        name: of the column.
        is_key: whether it is part of the primary key.
        updated: whether the change gave it this value, and another one stood there before.
        is_null: whether ``value`` is None.
        value: the text, None for NULL.
        mysql_type: the type as the server writes it, "" where that is not known.
    """

    __slots__ = _ATTRIBUTES

    def __init__(
        self, index: int, sql_type: int, name: str, is_key: bool, updated: bool, is_null: bool, value: str | None, mysql_type: str
    ) -> None:
        self._set(index, sql_type, name, is_key, updated, is_null, value, mysql_type)

    def _set(self, index, sql_type, name, is_key, updated, is_null, value, mysql_type):
        self.index = index
        self.sql_type = sql_type
        self.name = name
        self.is_key = is_key
        self.updated = updated
        self.is_null = is_null
        self.value = value
        self.mysql_type = mysql_type

    def _values(self) -> tuple[Any, ...]:
        return (self.index, self.sql_type, self.name, self.is_key, self.updated, self.is_null, self.value, self.mysql_type)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Column) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __reduce__(self) -> tuple[Any, ...]:
        return Column, self._values()

    def __repr__(self) -> str:
        return f"Column({', '.join(f'{name}={value!r}' for name, value in zip(_ATTRIBUTES, self._values()))})"


#: canal's own.
PLAIN = Form()


@cython.cclass
class _Way:
    """How the values of one column of a table become ``Column`` objects."""

    __slots__ = (
        "column",
        "name",
        "is_key",
        "mysql_type",
        "index",
        "code",
        "sql_type",
        "is_text",
        "is_number",
        "is_year",
        "is_float",
        "digits",
        "by_value",
    )

    def __init__(self, column: ColumnSchema, index: int, form: Form) -> None:
        self.column = column
        self.name, self.is_key, self.mysql_type = column.name, column.key, column.column_type
        self.index = index
        self.code = type_code(column)
        is_label = self.code in (codes.ENUM, codes.SET)
        self.is_text = form.labels  # of ENUM and SET
        self.is_number = is_label and not form.labels
        self.is_year = self.code == codes.YEAR
        self.is_float = self.code == codes.FLOAT
        self.digits = fraction_digits(column)
        self.by_value = form.codes_of_values and not (is_label and form.labels)
        self.sql_type = VARCHAR if is_label and form.labels else sql_type(column)

    def text(self, value):
        if value is None:
            return None
        if self.is_number:
            return _label_number(value, self.column, self.code)
        kind = type(value)
        if kind is str:
            return value
        if kind is int:
            return f"{value:04d}" if self.is_year else str(value)
        if kind is Decimal:
            return _decimal_text(value)
        if kind is datetime:
            text = value.isoformat(" ")[:_SECONDS]
            return text + _fraction(value.microsecond, self.digits) if self.digits else text
        if kind is date:
            return str(value)
        if kind is bytes:
            return value.decode("latin-1")
        if isinstance(value, PartialJson):
            return value.expression(self.column.name)
        if isinstance(value, str):  # dates that Python cannot hold
            return str(value)
        if isinstance(value, (dict, list)):  # of a rule's own; the log's documents come as text
            return document_text(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).decode("latin-1")
        if isinstance(value, int):
            return f"{value:04d}" if self.is_year else str(int(value))
        if isinstance(value, float):
            return float32_text(value) if self.is_float else float_text(value)
        if isinstance(value, Decimal):
            return _decimal_text(value)
        if isinstance(value, datetime):
            return value.isoformat(" ")[:_SECONDS] + _fraction(value.microsecond, self.digits)
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, timedelta):
            return _duration_text(value, self.digits)
        return str(value)

    def made(self, text, updated):
        code = value_type(text, self.column) if self.by_value else self.sql_type
        made = Column.__new__(Column)
        made._set(self.index, code, self.name, self.is_key, updated, text is None, text, self.mysql_type)
        return made


class CanalForm:
    """The columns of one table in canal's form.

    Args:
        columns: those that rows have.
        table: all columns of the table, among which these are counted; None: these are all of them.
    """

    __slots__ = ("columns", "table", "_ways")

    def __init__(self, columns: Sequence[ColumnSchema], form: Form = PLAIN, table: Sequence[ColumnSchema] | None = None) -> None:
        self.columns, self.table = columns, table
        numbers = {column.name: number for number, column in enumerate(columns if table is None else table)}
        self._ways = [_Way(column, numbers[column.name], form) for column in columns]

    def of(self, before: Sequence[Any] | None, after: Sequence[Any] | None) -> tuple[list[Column], list[Column]]:
        """The columns of a row before and after its change; columns that an image does not hold are left out.

        ``updated`` is canal's: False for all of ``before``; for ``after`` True unless the same text stood there before.
        """
        old = None if before is None else self._texts(before)
        new = None if after is None else self._texts(after)
        return self._made(old, None, False), self._made(new, old, True)

    def _texts(self, values):
        texts = []
        for i, value in enumerate(values):
            if value is not ABSENT:
                way = self._ways[i]
                value = way.text(value)
            texts.append(value)
        return texts

    def _made(self, texts, old, is_after):
        made: list[Column] = []
        if texts is None:
            return made
        for i in range(len(texts)):
            text = texts[i]
            if text is not ABSENT:
                updated = is_after and (old is None or old[i] is ABSENT or old[i] != text)
                way = self._ways[i]
                made.append(way.made(text, updated))
        return made


#: By the identity of what they were made of, which they keep. Threads of all instances share them.
_making = threading.Lock()
_forms = Recent[tuple[int, bool, bool], CanalForm]()
_ways = Recent[int, _Way]()


def canal_columns(
    columns: Sequence[ColumnSchema], before: Sequence[Any] | None, after: Sequence[Any] | None, form: Form = PLAIN
) -> tuple[list[Column], list[Column]]:
    """As ``canal_form(columns, form).of(before, after)``."""
    return canal_form(columns, form).of(before, after)


def canal_form(columns: Sequence[ColumnSchema], form: Form = PLAIN, table: Sequence[ColumnSchema] | None = None) -> CanalForm:
    """``CanalForm(columns, form, table)``, which is made once for the columns of each table."""
    if type(columns) is not tuple:  # who gave them may change them
        return CanalForm(columns, form, table)
    key = id(columns), form.labels, form.codes_of_values
    found = _forms.get(key)
    if found is None or found.columns is not columns or found.table is not table:
        found = CanalForm(columns, form, table)
        with _making:
            _forms[key] = found
    return found


def type_code(column: ColumnSchema) -> int:
    """The type code, with that of ENUM and SET instead of the STRING that stands for them in the log."""
    code = column.type_code
    if code == codes.STRING or code < 0:
        base = column.base_type
        if base in ("enum", "set"):
            return codes.ENUM if base == "enum" else codes.SET
        if code == codes.STRING and column.meta >> 8 in (codes.ENUM, codes.SET):
            return column.meta >> 8
    return code


def sql_type(column: ColumnSchema) -> int:
    """The column's ``java.sql.Types`` code: the same for all its values, NULL or not."""
    code = type_code(column)
    if code in _INTEGERS:
        return _INTEGERS[code][column.unsigned]
    if code in _STRINGS:
        return _STRINGS[code] if _is_text(column) else BLOB
    return _PLAIN.get(code, OTHER)


def value_type(text: str | None, column: ColumnSchema) -> int:
    """The code that canal gives to one value of the column, by its text: see ``Form.codes_of_values``."""
    code = type_code(column)
    if text is None and code in (codes.SET, codes.JSON):
        return BLOB if code == codes.SET else OTHER
    if code in _INTEGERS:
        needs_next = text is not None and column.unsigned and int(text) >> _SIGNED_BITS[code]
        return _INTEGERS[code][1 if needs_next else 0]
    return sql_type(column)


def _is_text(column: ColumnSchema) -> bool:
    base = column.base_type
    if base in _TEXT_TYPES or base in _TEXT_FORM:
        return True
    if base in _BYTE_TYPES:
        return False
    return column.charset not in (None, "binary")


def column_text(value: Any, column: ColumnSchema, form: Form = PLAIN) -> str | None:
    """The value's text in canal's form, None for NULL.

    Raises:
        DecodeError: an ENUM or SET holds a label that the column does not have.
    """
    way = _ways.get(id(column))
    if way is None or way.column is not column or way.is_text != form.labels:
        way = _Way(column, 0, form)
        with _making:
            _ways[id(column)] = way
    return way.text(value)


def _label_number(value: Any, column: ColumnSchema, code: int) -> str:
    """The number of an ENUM's label from 1 (0: the invalid value), or a SET's bits."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, (AmbiguousLabel, InvalidText)) and value.number is not None:
        return str(value.number)
    if isinstance(value, bytes):  # no charset is known, so labels cannot be compared
        return value.decode("latin-1")
    labels = column.labels or ()
    try:
        if code == codes.ENUM:
            return "0" if value == "" and "" not in labels else str(labels.index(value) + 1)
        bits = 0
        for label in value.split(",") if value else ():
            bits |= 1 << labels.index(label)
        return str(bits)
    except ValueError:
        raise DecodeError(
            "a value is not among the labels of its column",
            column=column.name,
            remedy=f"{column.name} is {column.column_type or 'of unknown type'}; give the table's present schema.",
        ) from None


def fraction_digits(column: ColumnSchema) -> int:
    """Digits of the fraction of seconds: from ``datetime(3)``, or from the table map where the text is not known."""
    text = column.column_type.partition("(")[2]
    if text[:1].isdigit():
        return min(int(text[0]), 6)
    if not column.column_type and column.type_code in codes.TEMPORAL:
        return min(column.meta, 6)
    return 0


def _fraction(microsecond: int, digits: int) -> str:
    return f".{microsecond:06d}"[: digits + 1] if digits else ""


def _decimal_text(value):
    text = str(value)
    return format(value, "f") if "E" in text else text


def _duration_text(value: timedelta, digits: int) -> str:
    sign = "-" if value < timedelta(0) else ""
    value = abs(value)
    minutes, seconds = divmod(value.days * 86400 + value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}{_fraction(value.microseconds, digits)}"


# -- floating point as Java writes it ----------------------------------------------------------------------------------


def float_text(value: float) -> str:
    """``Double.toString``: the shortest digits that read back as the same double."""
    if _LEAST_PLAIN <= abs(value) < _LEAST_SCIENTIFIC:
        return repr(value)
    return _java_text(value, repr(value))


def float32_text(value: float) -> str:
    """``Float.toString``: the shortest digits that read back as the same single-precision number."""
    single = native.single(value)
    if single - single != 0 or single == 0:
        return _java_text(single, repr(single))
    if _LEAST_PLAIN <= abs(single) < _LEAST_SCIENTIFIC:
        shortest = float(f"{single:.5e}")  # of six digits no two are the same number
        if native.single(shortest) == single:
            return repr(shortest)
    for digits in range(9):
        text = f"{single:.{digits}e}"
        if native.single(float(text)) == single:
            return _java_text(single, text)
    return _java_text(single, repr(single))


def _java_text(value: float, shortest: str) -> str:
    """Java's layout of digits given as ``[-]d.ddd[e±n]`` or ``[-]ddd.ddd``."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, point = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0.0"
    if len(text) == 1:  # Java writes two digits at least, so it takes the best two
        text = f"{abs(value):.1e}".replace(".", "")[:2].rstrip("0") or text
    exponent = len(digits) + int(point) - 1
    if not -3 <= exponent < 7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{minus}0.{'0' * (-exponent - 1)}{text}"
    return f"{minus}{text[: exponent + 1].ljust(exponent + 1, '0')}.{text[exponent + 1 :] or '0'}"
