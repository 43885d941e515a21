"""The Encoder protocol, and the base class for encoders that write rows column by column.

Never does I/O.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Protocol, TypeAlias, runtime_checkable

import attrs

from canal._util.bounded import Recent
from canal.changes.batch import EntryRows
from canal.changes.change import Change, Op, Origin, Table, op_of
from canal.changes.keys import KeyRules
from canal.changes.reading import is_json, origin_of
from canal.errors import UnfitChangeError
from canal.formats import put
from canal.formats.row_writer import Messages, Program, RowWriter
from canal.formats.text import dumps
from canal.rows import native
from canal.rows.values import ABSENT, JsonText

if TYPE_CHECKING:
    from canal.rows.decoder import RowDecoder

#: Maps each kind in ``canal.rows.native`` to a style number in ``put`` and the parameter for that style.
Styles: TypeAlias = "Mapping[int, tuple[int, int]]"
#: A message as a tuple: ``ord``, id suffix, key, value, header name, header value.
Raw: TypeAlias = "tuple[int, str, bytes | None, bytes | None, str | None, bytes | None]"

#: How to encode a key update and a DELETE: see RowEncoder.
PLAIN, KEYED, TOMBSTONES = range(3)
#: The integer kinds.
INTEGERS: Final = tuple(range(native.I8, native.U64 + 1))


@attrs.frozen
class Encoded:
    """A message.

    ``key`` is None if the message has no key. ``value`` is None for a tombstone: the key no longer has a row.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    suffix: str = attrs.field(default="", eq=False)
    """Suffix for the change's id if the message is a half of the change, else ""."""


@runtime_checkable
class Encoder(Protocol):
    """Encodes changes in a format.

    A change that is encoded again must result in the same messages. Only the encoding time may differ, if the format has it.
    """

    def messages(self, change: Change) -> Sequence[Encoded]:
        """Return the messages for a change in order, or () if the format has none for it.

        Raises:
            UnfitChangeError: if the format cannot represent the change.
        """

    def __call__(self, change: Change) -> str:
        """Return only the values, one line per message, or "" if there are none. For targets without keys and headers."""


class TextEncoder:
    """Base class for encoders with text values. A value has no line break."""

    def messages(self, change: Change) -> Sequence[Encoded]:
        raise NotImplementedError

    def __call__(self, change: Change) -> str:
        return "\n".join(one.value.decode() for one in self.messages(change) if one.value is not None)


@attrs.frozen
class ColumnPiece:
    """How to write a column's values. ``styles`` are shortcuts from log bytes to the result of ``make``."""

    make: Callable[[Any], bytes]
    styles: Styles = attrs.field(factory=dict)


class TableForm:
    """How an encoder writes a table's rows."""

    def __init__(self, table: Table, writer: RowWriter) -> None:
        self.table = table
        self.writer = writer
        self.messages: dict[tuple[Op, bool, bool, int], Messages] = {}
        self._source: RowDecoder | None = None

    def bind(self, part: EntryRows) -> bool:
        """Prepare the writer for the entry's row images. Return False if the rules' columns do not map to image columns."""
        entry, route = part.entry, part.route
        decoder = None if entry.table is None else entry.table.decoder
        if decoder is None:
            return False
        if decoder is self._source:
            return True
        if route is None:
            slots: Sequence[int | None] = range(decoder.width)
            constants: Sequence[Any] = ()
        elif route.slots is None:
            return False
        else:
            slots, constants = route.slots, route.constants
        marks = {} if decoder.json_text else {n: _marked for n, one in enumerate(part.source.columns) if one.base_type == "json"}
        self.writer.bind(decoder.text_form, slots, constants, marks)
        self._source = decoder
        return True


class Known:
    """Cache of table forms. A copy of the encoder starts with an empty cache."""

    def __init__(self) -> None:
        self.forms: Recent[str, TableForm] = Recent()
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Known, ()


@attrs.frozen
class RowEncoder(TextEncoder):
    """Base class for encoders that write rows column by column, directly from the log's bytes if possible. Thread-safe.

    If ``form`` is KEYED, an update of the key becomes two changes: a DELETE with the old key and an INSERT with the new key.
    This suits topics in which each key identifies a row. TOMBSTONES also adds a message without a value after each DELETE.
    """

    is_text: ClassVar[bool] = True
    """True if values are text without a line break."""

    _tables: Known = attrs.field(factory=Known, init=False, repr=False, eq=False)

    # -- hooks for formats -------------------------------------------------------------------------------------------------

    def _form(self, table: Table) -> RowWriter:
        """Return the writer for a table's rows.

        Raises:
            ValueError: if the format cannot represent a column.
        """
        raise NotImplementedError

    def _key(self, table: Table, side: int) -> Program | None:
        """Return the program for a message key, or None if messages have no key. ``side`` is KEY or KEY_BEFORE."""
        raise NotImplementedError

    def _value(self, table: Table, op: Op, has_before: bool, has_after: bool, is_half: bool = False) -> Program:
        """Return the program for a message value. ``is_half`` is true for the DELETE half of a key update."""
        raise NotImplementedError

    def _literals(self, table: Table, origin: Origin, part: int = 0) -> list[bytes]:
        """Return the per-entry bytes for LITERAL steps, by index."""
        raise NotImplementedError

    def _statement(self, change: Change) -> Sequence[Encoded]:
        """Return the messages for a change without row images."""
        return ()

    def _values(self, change: Change) -> tuple[Any, Any, list[bytes]]:
        """Return the values before and after a change, and its literals."""
        before, after = (None if row is None else row.values() for row in (change.before, change.after))
        return before, after, self._literals(change.table, change.origin, change.part)

    def _program(self, table: Table, op: Op, has_before: bool, has_after: bool, form: int) -> Messages:
        """Return the messages for changes with this shape."""
        key, old = self._key(table, put.KEY), self._key(table, put.KEY_BEFORE)
        tombstone = [(old, None, None, None)] if form == TOMBSTONES and old is not None and table.keys else []
        same = [(key, self._value(table, op, has_before, has_after), None, None)]
        if has_before and not has_after:
            return Messages([*same, *tombstone])
        if form == PLAIN or not (table.keys and has_before and has_after):
            return Messages(same)
        gone, came = self._value(table, Op.DELETE, True, False, True), self._value(table, Op.INSERT, False, True)
        moved = [(old, gone, None, None), *tombstone, (key, came, None, None)]
        return Messages(same, moved, ["~"] * (len(moved) - 1) + [""])

    def _unfit(self, change: Change, error: Exception) -> NoReturn:
        remedy = "Set binlog_row_image=FULL at the source if a column is missing; park it by on_unfit; or choose another format."
        unfit(change, f"the format cannot represent it: {error}", remedy)

    # -- single changes ----------------------------------------------------------------------------------------------------

    def messages(self, change: Change, form: int = PLAIN) -> Sequence[Encoded]:
        """Return the messages for a change in order, or () if the format has none for it.

        Raises:
            UnfitChangeError: if the format cannot represent the change.
        """
        return self._statement(change) if _is_statement(change) else self._written(change, form)

    def __call__(self, change: Change) -> str:
        if _is_statement(change):
            return super().__call__(change)
        found: bytes = self._written(change, PLAIN, as_lines=True)
        return found[:-1].decode()

    def _written(self, change: Change, form: int = PLAIN, as_lines: bool = False) -> Any:
        with self._tables.lock:
            try:
                known = self._known(change.table)
                messages = self._messages(known, change.op, change.before is not None, change.after is not None, form)
                before, after, literals = self._values(change)
                writer, origin = known.writer, change.origin
                writer.total = origin.rows
                writer.load(before, after)
                write = writer.line if as_lines else writer.change
                found = write(messages, literals, change.ord, origin.first)
                if found is None:
                    self._refuse_lacking(change, form)
            except (ValueError, IndexError, struct.error) as error:  # IndexError, struct.error: invalid geometry
                self._unfit(change, error)
        if as_lines:
            return found
        return [
            Encoded(key, value, () if name is None else ((name, header),), f".{~change.part}" if suffix else "")
            for _, suffix, key, value, name, header in found
        ]

    def _refuse_lacking(self, change: Change, form: int) -> NoReturn:
        """Raise an error because the row images lack columns needed for the messages."""
        rows, source = [row for row in (change.before, change.after) if row is not None], change.table.source
        what = ""
        if any(all(row[name] is ABSENT for row in rows) for name in change.table.keys):
            what = f"a column of the key of {source} is not in the row image"
        elif form != PLAIN and len(rows) > 1:
            what = f"the log tells only parts of a row of {source} whose key changes"
        if what:
            remedy = "Set binlog_row_image=FULL and no PARTIAL_JSON at the source, or park it by on_unfit."
            raise UnfitChangeError(what, changes=(change,), position=change.origin.position, remedy=remedy)
        raise ValueError(_lacking(change))

    # -- whole entries -----------------------------------------------------------------------------------------------------

    def lines(self, part: EntryRows) -> bytes | None:
        """Return the values for an entry's changes, one per line, or None if the changes must be encoded singly."""
        found: bytes | None = self._encoded(part, PLAIN, True)
        return found

    def entry(self, part: EntryRows, form: int = PLAIN) -> list[Raw] | None:
        """Return the messages for an entry's changes, or None if the changes must be encoded singly."""
        found: list[Raw] | None = self._encoded(part, form, False)
        return found

    def _encoded(self, part: EntryRows, form: int, as_lines: bool) -> Any:
        entry = part.entry
        if entry.kind == _PARTIAL:
            return None
        op = op_of(entry.event_type)
        with self._tables.lock:
            try:
                known = self._known(part.table)
                if not known.bind(part):
                    return None
                messages = self._messages(known, op, op is not Op.INSERT, op is not Op.DELETE, form)
                origin = origin_of(entry)
                literals = self._literals(part.table, origin)
                writer = known.writer
                writer.total = origin.rows
                return writer.lines(entry, messages, literals) if as_lines else writer.messages(entry, messages, literals)
            except Exception:  # encoding the changes singly reports the error and the change
                return None

    def _known(self, table: Table) -> TableForm:
        forms = self._tables.forms
        known = forms.get(table.name)
        if known is None or known.table is not table:
            known = forms[table.name] = TableForm(table, self._form(table))
        return known

    def _messages(self, known: TableForm, op: Op, has_before: bool, has_after: bool, form: int) -> Messages:
        shape = op, has_before, has_after, form
        found = known.messages.get(shape)
        if found is None:
            found = known.messages[shape] = self._program(known.table, op, has_before, has_after, form)
        return found


def _is_statement(change: Change) -> bool:
    return not change.op.is_row or change.before is change.after is None


#: ``Entry.kind`` for updates with JSON documents as diffs.
_PARTIAL: Final = 3


def writer_of(
    table: Table,
    pieces: Sequence[ColumnPiece],
    *,
    labels: Sequence[bytes] | None = None,
    names: Sequence[bytes] | None = None,
    order: Sequence[int] | None = None,
    keys: Sequence[ColumnPiece] | None = None,
    others: Sequence[ColumnPiece] = (),
    **options: Any,
) -> RowWriter:
    """Return a writer for a table's rows.

    Args:
        pieces: for each column, how to write its values.
        labels: for each column, the name as JSON.
        names: for each column, the bytes before its piece. Default: its label and a colon.
        order: the column numbers in output order.
        keys: like ``pieces``, for keys. Default: ``pieces``.
        others: like ``keys``, for a second form of the key.
        options: more arguments for RowWriter.
    """
    labels = [dumps(column.name).encode() for column in table.columns] if labels is None else labels
    names = [label + b":" for label in labels] if names is None else names
    order = range(len(pieces)) if order is None else order
    columns = [(names[number], pieces[number], number) for number in order]
    numbers = [table.names.index(name) for name in table.keys]
    found: list[list[int]] = [[], []]
    for of_key, some in zip(found, (pieces if keys is None else keys, others)):
        for number, form in zip(numbers, KeyRules.of(table.columns, numbers).forms) if some else ():
            if some is pieces and form is None:
                of_key.append(order.index(number))
            else:
                piece = some[number]
                of_key.append(len(columns))
                columns.append((b"", piece if form is None else ColumnPiece(_of_form(form, piece.make)), number))
    return RowWriter(
        [name for name, _, _ in columns],
        [piece.make for _, piece, _ in columns],
        [piece.styles for _, piece, _ in columns],
        [number for _, _, number in columns],
        len(pieces),
        found[0],
        found[1],
        labels,
        **options,
    )


def _of_form(form: Callable[[Any], Any], make: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: make(form(value))


def key_object(table: Table, side: int, is_whole: bool = True) -> list[tuple[int, Any]]:
    """Return the steps that write the key as a JSON object."""
    names = tuple([dumps(name).encode() + b":" for name in table.keys])
    return [(put.TEXT, b"{"), (side, (is_whole, names, False)), (put.TEXT, b"}")]


def image_object(side: int, is_there: bool) -> list[tuple[int, Any]]:
    """Return the steps that write an image as a JSON object, or null if there is none."""
    return [(put.TEXT, b"{"), (side, None), (put.TEXT, b"}")] if is_there else [(put.TEXT, b"null")]


def quoted(text: str) -> bytes:
    """Return text as a JSON string in UTF-8, or in ASCII if UTF-8 cannot encode the text."""
    made = json.encoder.encode_basestring(text)
    try:
        return made.encode()
    except UnicodeEncodeError:  # a label or name with bytes that are invalid in its charset
        return json.encoder.encode_basestring_ascii(text).encode()


def text_styles(op: int = put.UTF8_TEXT) -> dict[int, tuple[int, int]]:
    """Return the shortcuts that write text as a JSON string."""
    return {native.UTF8: (op, 0), native.ASCII: (op, 0), native.ENUM: (put.LABELS, 0), native.SET: (put.LABELS, 0)}


def _marked(value: Any) -> Any:
    return JsonText(value) if type(value) is str and is_json(value) else value


def _lacking(change: Change) -> str:
    """Return an error message with the first column that the row images lack."""
    for row in (change.before, change.after):
        for name, value in () if row is None else zip(row.keys(), row.values()):
            if value is ABSENT:
                return f"column {name}: the row image does not hold the column"
    return "the row images do not hold all of it"


def names(table: Table) -> tuple[str, str]:
    """Return database and table as named by the rules. The table is "" for a statement without a table."""
    if table.name == table.source or table.name.startswith(f"{table.database}."):
        return table.database, table.name[len(table.database) + 1 :]
    first, dot, rest = table.name.partition(".")
    return (first, rest) if dot else (table.database, first)


def split(position: str) -> tuple[str, int]:
    """Return journal and offset from ``journal:offset``."""
    journal, _, offset = position.rpartition(":")
    return journal, int(offset)


def unfit(change: Change, what: str, remedy: str) -> NoReturn:
    """Raise UnfitChangeError for a change that a format cannot represent."""
    raise UnfitChangeError(f"{change.table.source}: {what}", changes=(change,), position=change.origin.position, remedy=remedy)
