"""Masks: replacements for column values, applied before the library delivers them.

NULL and absent columns stay unchanged.
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
    """A replacement for column values, created by ``hmac``, ``last``, ``cut`` or ``drop``.

    A masked column is text. Equal values have equal masks in all tables and types: numbers as decimal text, TIMESTAMP in UTC, and
    binary values in hexadecimal for ``last`` and ``cut``.
    """

    kind: Literal["hmac", "last", "cut", "drop"]
    count: int = 0
    _key: bytes = attrs.field(default=b"", repr=False)
    is_optional: bool = False

    @classmethod
    def hmac(cls, *, env: str = "", key: str | bytes = b"") -> Mask:
        """Replace by 64 hexadecimal digits of HMAC-SHA256. Equal values stay equal; the value cannot be recovered
        without the key.

        Args:
            env: environment variable with the key.
            key: the key.

        Raises:
            ConfigError: the variable is missing, or the key is empty.
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
        """Keep the last characters and replace the others by ``*``. A value up to that length becomes all ``*``."""
        return cls("last", _counted(count))

    @classmethod
    def cut(cls, count: int) -> Mask:
        """Keep the first characters."""
        return cls("cut", _counted(count))

    @classmethod
    def drop(cls) -> Mask:
        """Remove the column from rows."""
        return cls("drop")

    def if_present(self) -> Mask:
        """Return this mask for a column that may be missing, such as a dropped or renamed column."""
        return attrs.evolve(self, is_optional=True)

    def text(self, value: Any) -> str:
        """Return the masked value."""
        if self.kind == "hmac":
            raw = value if isinstance(value, bytes) else _text(value).encode("utf-8", "surrogateescape")
            return hmac.new(self._key, raw, hashlib.sha256).hexdigest()
        text = value.hex() if isinstance(value, bytes) else _text(value)
        if self.kind == "cut":
            return text[: self.count]
        hidden = len(text) - self.count if len(text) > self.count else len(text)
        return "*" * hidden + text[hidden:]

    def column(self, column: ColumnSchema) -> ColumnSchema:
        """Return the schema of the masked column."""
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

    Tables use the syntax of ``InstanceConfig.filter``; column names are case-insensitive.

    Raises:
        ConfigError: the value has another form.
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
        """Return the masks of a table by column index.

        Raises:
            ConfigError: the table lacks a masked column, so its values might have another name.
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
        """Return the lower-case names of the masked columns."""
        return {name for tables, columns in self._tables if tables.accepts(schema, table) for name in columns}

    def withholds(self, statement: Any) -> bool:
        """Return whether to withhold a statement's text because it may contain masked values.

        True for all statements except DDL of a whole database or of tables without masks.
        """
        if statement.kind != "ddl" or statement.doubtful or statement.selects:
            return True
        if not statement.tables:
            return not statement.schema_wide
        return any(tables.accepts(*name) for name in statement.tables for tables, _ in self._tables)


def _items(value: object) -> Sequence[tuple[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(f'mask is such as {{"shop.users": {{"email": canal.Mask.last(4)}}}}, not {type(value).__name__}')
    return list(value.items())
