"""What a broker is given of a change: the names, keys, values and headers of its messages.

Never sends anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from canal.changes import Change, Op, Table
from canal.errors import CanalError, ConfigError, UnfitChangeError
from canal.formats.change_json import key_json
from canal.model import Row
from canal.rows.values import ABSENT, PartialJson

Text: TypeAlias = str | bytes
Encode: TypeAlias = Callable[[Change], Text | None]
Key: TypeAlias = Callable[[Table, Row], Text | None]
Headers: TypeAlias = Callable[[Change], Mapping[str, Text]]
Partition: TypeAlias = Callable[[Change], int]

#: Where statements go that name no table and no schema.
_NOWHERE: Final = "canal_statements"


def primary_key(table: Table, row: Row) -> str | None:
    """The key columns as a JSON object; None for a table without a key.

    Raises:
        UnfitChangeError: the row image lacks one of them.
    """
    known(table, row, table.keys)
    return key_json(row, table.keys) if table.keys else None


def known(table: Table, row: Row, names: Iterable[str]) -> None:
    """Raise UnfitChangeError where the row image lacks one of these columns, of which the message is made."""
    if any(row[name] is ABSENT or isinstance(row[name], PartialJson) for name in names):
        raise UnfitChangeError(
            f"a column of the key of {table.source} is not in the row image", remedy="Set binlog_row_image=FULL at the source."
        )


def image(change: Change) -> Row:
    """The row after a change, or of a deletion the one before; what its image lacks is of the one before."""
    before, after = change.before, change.after
    return change.row if before is None or after is None else _filled(change, after, before)


class Namer:
    """Names of topics or queues.

    Args:
        option: what the template is given as.
        template: a text with ``{name}``, ``{schema}`` and ``{table}``, or ``change -> name``.

    Raises:
        ConfigError: it has other braces.
    """

    def __init__(self, option: str, template: str | Callable[[Change], str]) -> None:
        self._template = template
        self._names: dict[tuple[str, str, str], str] = {}
        if isinstance(template, str):
            try:
                template.format(name="", schema="", table="")
            except (KeyError, IndexError, ValueError, AttributeError) as error:
                raise ConfigError(f"{option} may have {{name}}, {{schema}} and {{table}}, not {template!r}") from error

    def __call__(self, change: Change) -> str:
        if not isinstance(self._template, str):
            return str(_called(change, "a name to send it to", self._template, change))
        table = change.table
        known = table.name, table.database, table.source
        found = self._names.get(known)
        if found is None:
            found = self._template.format(name=table.name, schema=table.database, table=table.own_name) or _NOWHERE
            self._names[known] = found
        return found


def halves(change: Change, key: Key) -> Iterator[tuple[Change, bytes | None]]:
    """The change with the key of its row; or, where an update changes the key, the deletion and the insertion that it is.

    Raises:
        UnfitChangeError: only parts of the row whose key changes are known, or the key cannot be made.
    """
    before, after = change.before, change.after
    if before is None and after is None:
        yield change, None
        return
    if before is None or after is None:
        yield change, _key(change, key, change.row)
        return
    # What the image before it lacks may have been another value: a key that is made of it differs, and is unfit below.
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
    # A part below 0 is of no transform, so the ids of both are their own.
    yield attrs.evolve(change, op=Op.DELETE, after=None, part=~change.part), old
    yield attrs.evolve(change, op=Op.INSERT, before=None), new


def _filled(change: Change, row: Row, other: Row) -> Row:
    """The row, with the values of the other one where its image holds none."""
    values = row.values()
    if ABSENT not in values:
        return row
    return Row(tuple(two if one is ABSENT else one for one, two in zip(values, other.values())), change.table.names)


def _key(change: Change, key: Key, row: Row) -> bytes | None:
    return _made(change, "the key of its message", key, change.table, row)


def partition_of(change: Change, partition: Partition | None) -> int:
    """The number of the partition of a message; -1: the target chooses.

    Raises:
        UnfitChangeError: it cannot be made.
    """
    if partition is None:
        return -1
    number = _called(change, "the partition of its message", partition, change)
    if not isinstance(number, int) or number < 0:
        raise ConfigError(f"partition must give a number from 0 on, not {number!r}")
    return number


def encoded(change: Change, encode: Encode) -> bytes | None:
    """The value of a message.

    Raises:
        UnfitChangeError: it cannot be made.
    """
    return _made(change, "its message", encode, change)


def headers_of(change: Change, more: Headers | None) -> list[tuple[str, bytes]]:
    """The id of the change, and what the user wants beside it."""
    found = [("id", change.id.encode())]
    if more is not None:
        named = _called(change, "the headers of its message", more, change)
        found += [(name, _made(change, "a header", lambda value=value: value) or b"") for name, value in named.items()]
    return found


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
            remedy="Mend the callable that was given to the target, or park it by on_unfit.",
        ) from error
