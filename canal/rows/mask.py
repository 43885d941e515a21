"""Masks: what becomes of a column's values before anything of the library hands them out.

Never sees NULL, nor a column that is not in the row: both stay as they are.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal

import attrs

from canal.binlog import type_codes as codes
from canal.errors import ConfigError
from canal.filter import TableFilter
from canal.schema import ColumnSchema

_TEXT_TYPES: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
WITHHELD: Final = "/* withheld: tables are masked */"


@attrs.frozen
class Mask:
    """What is left of a column's values; made with ``hmac``, ``last``, ``cut`` and ``drop``.

    A masked column is text. The same value has the same mask in every table and whatever the column's type: numbers are their
    decimal text, TIMESTAMP is in UTC, bytes that are no text are hexadecimal for ``last`` and ``cut``.
    """

    kind: Literal["hmac", "last", "cut", "drop"]
    count: int = 0
    _key: bytes = attrs.field(default=b"", repr=False)
    is_optional: bool = False

    @classmethod
    def hmac(cls, *, env: str = "", key: str | bytes = b"") -> Mask:
        """64 hexadecimal digits of HMAC-SHA256: equal for equal values, and nothing can be read of it without the key.

        Args:
            env: the environment variable with the key.
            key: the key itself.

        Raises:
            ConfigError: there is no such variable, or the key is empty.
        """
        given: tuple[object, object] = env, key
        if not isinstance(given[0], str) or not isinstance(given[1], (str, bytes)):
            raise ConfigError("env of a mask is the name of an environment variable, and key a str or bytes")
        found = os.environ.get(env, "") if env else key
        if not found:
            raise ConfigError(f"the environment variable {env} has no key" if env else "the key of a mask is empty")
        return cls("hmac", 0, found.encode() if isinstance(found, str) else bytes(found))

    @classmethod
    def last(cls, count: int) -> Mask:
        """The last characters, with a ``*`` for each before them; of a value that is no longer than that only ``*``."""
        return cls("last", _counted(count))

    @classmethod
    def cut(cls, count: int) -> Mask:
        """The first characters."""
        return cls("cut", _counted(count))

    @classmethod
    def drop(cls) -> Mask:
        """Nothing: rows do not have the column."""
        return cls("drop")

    def if_present(self) -> Mask:
        """This mask, of a column that the table need not have, as one that was dropped or renamed."""
        return attrs.evolve(self, is_optional=True)

    def text(self, value: Any) -> str:
        """What is left of a value."""
        if self.kind == "hmac":
            raw = value if isinstance(value, bytes) else _text(value).encode("utf-8", "surrogateescape")
            return hmac.new(self._key, raw, hashlib.sha256).hexdigest()
        text = value.hex() if isinstance(value, bytes) else _text(value)
        if self.kind == "cut":
            return text[: self.count]
        hidden = len(text) - self.count if len(text) > self.count else len(text)
        return "*" * hidden + text[hidden:]

    def column(self, column: ColumnSchema) -> ColumnSchema:
        """The column of the masked values."""
        is_text = column.base_type in _TEXT_TYPES and column.charset not in (None, "binary")
        kind = "char(64)" if self.kind == "hmac" else column.column_type if is_text else "varchar(255)"
        return attrs.evolve(
            column,
            type_code=codes.VARCHAR,
            meta=0,
            unsigned=False,
            charset="utf8mb4",
            labels=None,
            column_type=kind,
            unmasked=column,
        )


def _counted(count: int) -> int:
    if type(count) is not int or count < 1:
        raise ConfigError(f"a mask leaves a number of characters, not {count!r}")
    return count


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(" ")
    return str(value)


@attrs.frozen
class Masks:
    """The masks of an instance, by table and column: ``{"shop.users": {"email": Mask.hmac(env="KEY")}}``.

    Tables are named in the syntax of ``InstanceConfig.filter``, columns without regard to case.

    Raises:
        ConfigError: something else is given.
    """

    masks: Mapping[str, Mapping[str, Mask]] = attrs.field(factory=dict)
    _tables: tuple[tuple[TableFilter, dict[str, tuple[str, Mask]]], ...] = attrs.field(init=False, repr=False, eq=False)

    @_tables.default
    def _compile(self) -> tuple[tuple[TableFilter, dict[str, tuple[str, Mask]]], ...]:
        found = []
        for table, columns in _items(self.masks):
            for name, mask in _items(columns):
                if not isinstance(mask, Mask):
                    raise ConfigError(f"the mask of {table}:{name} must be a canal.Mask, not a {type(mask).__name__}")
            found.append((TableFilter(table), {name.lower(): (name, mask) for name, mask in columns.items()}))
        return tuple(found)

    def __bool__(self) -> bool:
        return bool(self._tables)

    def of(self, schema: str, table: str, names: Sequence[str]) -> dict[int, Mask]:
        """The masks of a table, by the numbers of its columns.

        Raises:
            ConfigError: a column is named that the table does not have: its values might come under another name.
        """
        found: dict[int, Mask] = {}
        known = {name.lower(): number for number, name in enumerate(names)}
        for tables, columns in self._tables:
            if not tables.accepts(schema, table):
                continue
            missing = [written for name, (written, mask) in columns.items() if name not in known and not mask.is_optional]
            if missing:
                raise ConfigError(
                    f"a mask names {', '.join(map(repr, missing))}, which {schema}.{table} does not have",
                    remedy=f"Its columns are {', '.join(names)}. If one was renamed, mask it by both names, if it was dropped "
                    "keep its mask, each with .if_present(): without a mask, rows from before this that are not acknowledged "
                    "come in clear.",
                )
            for name, (_, mask) in columns.items():
                if name in known:
                    found.setdefault(known[name], mask)
        return found

    def columns_of(self, schema: str, table: str) -> set[str]:
        """Names of the columns of a table that are masked, in lower case."""
        return {name for tables, columns in self._tables if tables.accepts(schema, table) for name in columns}

    def withholds(self, statement: Any) -> bool:
        """Whether the text of a statement may hold what is masked: any but DDL of a whole database, or of tables none of which
        is masked."""
        if statement.kind != "ddl" or statement.doubtful or statement.selects:
            return True
        if not statement.tables:
            return not statement.schema_wide
        return any(tables.accepts(*name) for name in statement.tables for tables, _ in self._tables)


def _items(value: object) -> Sequence[tuple[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(f'mask is such as {{"shop.users": {{"email": canal.Mask.last(4)}}}}, not {type(value).__name__}')
    return list(value.items())
