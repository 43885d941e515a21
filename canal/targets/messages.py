"""Converts changes to broker messages: topic names, keys, values and headers.

Never does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from canal.changes import Change, Op, Table
from canal.changes.batch import EntryRows
from canal.errors import CanalError, ConfigError, UnfitChangeError
from canal.formats.change_json import key_json
from canal.formats.encoder import KEYED, PLAIN, TOMBSTONES, Encoded, Encoder, Raw, RowEncoder
from canal.model import Row
from canal.rows.values import ABSENT, PartialJson

Text: TypeAlias = str | bytes
Encode: TypeAlias = Callable[[Change], Text | None]
Key: TypeAlias = Callable[[Table, Row], Text | None]
Headers: TypeAlias = Callable[[Change], Mapping[str, Text]]
Partition: TypeAlias = Callable[[Change], int]

#: Topic for statements without table and schema.
_NOWHERE: Final = "canal_statements"


def primary_key(table: Table, row: Row) -> str | None:
    """Return the key columns as a JSON object, or None for a table without a key.

    Keys that are equal in the source result in the same text.

    Raises:
        UnfitChangeError: if the row image lacks a key column.
    """
    known(table, row, table.keys)
    return key_json(row, table.keys, table.columns) if table.keys else None


def known(table: Table, row: Row, names: Iterable[str]) -> None:
    """Raise UnfitChangeError if the row image lacks any of these columns. The message needs them."""
    if any(row[name] is ABSENT or isinstance(row[name], PartialJson) for name in names):
        raise UnfitChangeError(
            f"a column of the key of {table.source} is not in the row image", remedy="Set binlog_row_image=FULL at the source."
        )


def image(change: Change) -> Row:
    """Return the row after a change, or before a DELETE. Columns absent from the after image come from the before image."""
    before, after = change.before, change.after
    return change.row if before is None or after is None else _filled(change, after, before)


class Namer:
    """Computes topic or queue names.

    Args:
        option: the template's option name, for error messages.
        template: a text with ``{name}``, ``{schema}`` and ``{table}``, or a function ``change -> name``.

    Raises:
        ConfigError: if the template has other placeholders.
    """

    def __init__(self, option: str, template: str | Callable[[Change], str]) -> None:
        self._template = template
        #: Whether all changes in a table have the same topic name.
        self.is_of_tables = isinstance(template, str)
        self._names: dict[tuple[str, str, str], str] = {}
        if isinstance(template, str):
            try:
                template.format(name="", schema="", table="")
            except (KeyError, IndexError, ValueError, AttributeError) as error:
                raise ConfigError(f"{option} may have {{name}}, {{schema}} and {{table}}, not {template!r}") from error

    def __call__(self, change: Change) -> str:
        if not isinstance(self._template, str):
            return str(_called(change, "a name to send it to", self._template, change))
        return self.of(change.table)

    def of(self, table: Table) -> str:
        """Return the name for all changes in a table."""
        assert isinstance(self._template, str)
        known = table.name, table.database, table.source
        found = self._names.get(known)
        if found is None:
            found = self._template.format(name=table.name, schema=table.database, table=table.own_name) or _NOWHERE
            self._names[known] = found
        return found


@attrs.frozen
class Outgoing:
    """A message to send to a broker."""

    id: str
    """The id of ``change``, with a suffix for the DELETE half of a key update."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    change: Change
    """The change, or a half of a key update."""


@attrs.frozen
class Encoding:
    """Options for converting changes to messages.

    An encoder supplies the keys, headers and tombstones. ``key`` supplies the keys instead if it is a function other than
    ``primary_key``, or if ``partition`` is set.

    Args:
        encode: an encoder, or a function that returns a message value.
        key: a function that returns a message key. ``primary_key`` means the encoder's keys, if ``encode`` is an encoder.
            None means the target has no keys, so an update of the key remains a single message.
        partition: a function that returns the partition. If set, encoders use keys from ``key`` too.
        tombstones: send a message without a value after the message for each deleted row.
    """

    encode: Encode
    key: Key | None = primary_key
    partition: Partition | None = None
    tombstones: bool = False

    @property
    def is_whole(self) -> bool:
        """Return whether the encoder creates complete messages."""
        return isinstance(self.encode, Encoder) and self.key in (None, primary_key) and self.partition is None

    @property
    def form(self) -> int:
        """Return how to encode a key update and a DELETE: see RowEncoder."""
        return PLAIN if self.key is None else TOMBSTONES if self.tombstones else KEYED

    def entry(self, topics: Namer | None, *callables: object) -> Callable[[EntryRows], list[Raw] | None] | None:
        """Return the function that encodes a whole entry, or None if a user function of the target needs each change."""
        encode = self.encode
        if not isinstance(encode, RowEncoder) or not self.is_whole or any(callables):
            return None
        if topics is not None and not topics.is_of_tables:
            return None
        form = self.form
        return lambda part: encode.entry(part, form)

    def messages(self, change: Change) -> Iterator[Outgoing]:
        """Yield the messages for a change.

        Raises:
            UnfitChangeError: if encoding fails. The error has the whole change, not only a half of a key update.
        """
        try:
            if self.is_whole:
                made = _called(change, "its message", self._whole, change)
                yield from [Outgoing(f"{change.id}{one.suffix}", one.key, one.value, one.headers, change) for one in made]
                return
            for half, key in [(change, None)] if self.key is None else halves(change, self.key):
                values = self._values(half)
                yield from [Outgoing(half.id, key, one.value, one.headers, half) for one in values]
                if self.tombstones and half.after is None and key is not None and values and values[-1].value is not None:
                    yield Outgoing(half.id, key, None, (), half)
        except UnfitChangeError as error:
            error.changes = (change,)  # the whole change, not a half of a key update
            raise

    def _whole(self, change: Change) -> Sequence[Encoded]:
        encode = self.encode
        if isinstance(encode, RowEncoder):
            return encode.messages(change, self.form)
        assert isinstance(encode, Encoder)
        return encode.messages(change)

    def _values(self, change: Change) -> Sequence[Encoded]:
        if isinstance(self.encode, Encoder):
            found: Sequence[Encoded] = _called(change, "its message", self.encode.messages, change)
            return found
        value = encoded(change, self.encode)
        return () if value == b"" else (Encoded(None, value),)


def halves(change: Change, key: Key) -> Iterator[tuple[Change, bytes | None]]:
    """Yield the change with its key. Split an update of the key into a DELETE and an INSERT.

    Raises:
        UnfitChangeError: if the key changes but the images are incomplete, or if the key function fails.
    """
    before, after = change.before, change.after
    if before is None and after is None:
        yield change, None
        return
    if before is None or after is None:
        yield change, _key(change, key, change.row)
        return
    # A column absent from the before image may have had another value. Then the keys differ, and the check below raises.
    old, new = _key(change, key, before), _key(change, key, _filled(change, after, before))
    if old == new:
        yield change, new
        return
    if any(value is ABSENT or isinstance(value, PartialJson) for value in (*before.values(), *after.values())):
        raise UnfitChangeError(
            f"the log tells only parts of a row of {change.table.source} whose key changes",
            changes=(change,),
            position=change.origin.position,
            remedy="Set binlog_row_image=FULL and no PARTIAL_JSON at the source, or park it by on_unfit.",
        )
    # Transforms never use a negative part, so both halves have unique ids.
    yield attrs.evolve(change, op=Op.DELETE, after=None, part=~change.part), old
    yield attrs.evolve(change, op=Op.INSERT, before=None), new


def _filled(change: Change, row: Row, other: Row) -> Row:
    """Return the row, with absent values replaced from the other row."""
    values = row.values()
    if ABSENT not in values:
        return row
    return Row(tuple(two if one is ABSENT else one for one, two in zip(values, other.values())), change.table.names)


def _key(change: Change, key: Key, row: Row) -> bytes | None:
    return _made(change, "the key of its message", key, change.table, row)


def partition_of(change: Change, partition: Partition | None) -> int:
    """Return the partition number for a message, or -1 if the target chooses.

    Raises:
        UnfitChangeError: if the partition function fails.
    """
    if partition is None:
        return -1
    number = _called(change, "the partition of its message", partition, change)
    if not isinstance(number, int) or number < 0:
        raise ConfigError(f"partition must return an integer of 0 or more, not {number!r}")
    return number


def encoded(change: Change, encode: Encode) -> bytes | None:
    """Return the value for a message.

    Raises:
        UnfitChangeError: if the encoder fails.
    """
    return _made(change, "its message", encode, change)


def headers_of(message: Outgoing, more: Headers | None) -> list[tuple[str, bytes]]:
    """Return the message's id header, the encoder's headers, and the user's additional headers."""
    change = message.change
    found = [("id", message.id.encode()), *message.headers]
    if more is not None:
        named = _called(change, "the headers of its message", more, change)
        found += [(name, _made(change, "a header", lambda value=value: value) or b"") for name, value in named.items()]
    return found


def of_entry(part: EntryRows) -> Iterator[tuple[str, bytes | None, bytes | None, tuple[tuple[str, bytes], ...], int]]:
    """Yield the encoded messages of an entry: id, key, value, headers, and the change's ``ord``."""
    transaction = part.entry.transaction.name
    for number, suffix, key, value, name, header in part.encoded:
        headers = () if name is None else ((name, header),)
        yield f"{transaction}/{number}{'.-1' if suffix else ''}", key, value, headers, number


def change_of(part: EntryRows, number: int) -> Change:
    """Return the entry's change with this ``ord``."""
    return next(change for change in part.rows if change.ord == number)


def refuse(unfit: Sequence[UnfitChangeError]) -> None:
    """Raise a single error for all unfit changes, if any."""
    if unfit:
        changes = tuple(change for error in unfit for change in error.changes)
        raise UnfitChangeError(unfit[0].message, changes=changes, position=unfit[0].position, remedy=unfit[0].remedy)


def _made(change: Change, what: str, function: Callable[..., Text | None], *arguments: object) -> bytes | None:
    value = _called(change, what, function, *arguments)
    if isinstance(value, str):
        return value.encode() if value.isascii() else bytes(_called(change, what, str.encode, value))
    if value is None or isinstance(value, bytes):
        return value
    raise ConfigError(f"{what} must be text, bytes or None, not {type(value).__name__}")


def _called(change: Change, what: str, function: Callable[..., Any], *arguments: object) -> Any:
    try:
        return function(*arguments)
    except UnfitChangeError as error:
        error.position = error.position or change.origin.position
        raise
    except CanalError:
        raise
    except Exception as error:
        raise UnfitChangeError(
            f"{what} cannot be made of a change of {change.table.name}: {type(error).__name__}",
            changes=(change,),
            position=change.origin.position,
            remedy="Correct the function passed to the target, or park the change by on_unfit.",
        ) from error
