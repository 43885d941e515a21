"""Targets of one table, written from Arrow: rows and their progress in one commit.

``table_target`` of ``canal.targets.DeltaTarget``, ``IcebergTarget``, ``MySQLTarget`` and ``ParquetTarget`` returns them. They
never interpret a change: pipes and ``apply_changes`` do that.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import attrs

from canal._util.lazy import lazy_names
from canal.errors import CanalError, ConfigError, TargetConflictError, TargetError
from canal.targets.protocol import Progress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Abilities",
    "DeltaTableTarget",
    "IcebergTableTarget",
    "MySQLTableTarget",
    "ParquetTableTarget",
    "TableTarget",
    "TableWork",
    "Upkeep",
]

_HOMES: Final = {
    "DeltaTableTarget": "delta",
    "IcebergTableTarget": "iceberg",
    "MySQLTableTarget": "mysql",
    "ParquetTableTarget": "parquet",
    "Upkeep": "upkeep",
}


@attrs.frozen(kw_only=True)
class Abilities:
    """Optional abilities of a target of one table."""

    only_appends: bool = False
    """The target has no keys: changes are appended, and no row is removed."""

    stores_durations: bool = False
    """TIME columns are intervals. Other targets are given microseconds as integers."""

    widens: bool = False
    """A column can get a wider type."""

    retypes: bool = False
    """A column can get any type when all rows are replaced."""


class TableWork(Protocol):
    """One transaction on a table. ``write`` fails if the table has changed since the transaction began."""

    progress: Progress | None
    """The stream's progress, with ``table``. None: no change of the stream was applied."""

    schema: pa.Schema | None
    """The target's columns. None: there is no table yet, and ``write`` creates it."""

    def read(self, keys: pa.Table) -> pa.Table:
        """Return the rows that exist with these keys (of the target's types, without duplicates), in any order."""

    def is_empty(self) -> bool:
        """Return whether the existing table has no rows. Called when a snapshot begins."""

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        """Remove the rows with the keys in ``deletes``, put ``upserts``, and store ``progress``: all or nothing.

        Args:
            upserts: rows with the columns of ``schema``, then the new columns of ``added``.
            deletes: the key columns. No key is twice, or in ``upserts`` too. Without columns there are no keys, and rows are
                only appended.
            progress: the progress to store.
            added: new columns of the table, and columns that get this other type, as the target's ``abilities`` allow.
            replace: whether to remove all rows before.

        Raises:
            TargetConflictError: another writer has changed the table since the transaction began.
        """


@runtime_checkable
class TableTarget(Protocol):
    """One table to which changes are applied. It can be pickled, and opens its resources in ``begin``.

    A table that needs upkeep is an ``upkeep.Maintained`` too.
    """

    @property
    def abilities(self) -> Abilities:
        """Return what ``TableWork.write`` can do."""

    def begin(self, stream: str, keys: tuple[str, ...]) -> AbstractContextManager[TableWork]:
        """Begin a transaction that reads and writes the progress of ``stream``. Without ``write`` it changes nothing."""


def need(module: str, extra: str) -> Any:
    """Import a module of an extra.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", remedy=f"pip install 'canal-cdc[{extra}]'") from error


#: Parts of an error's text that may be values of a row.
_VALUES: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|\b\d[\d.:-]*""")
#: Errors that no retry mends: classes of pyiceberg, and words of object stores and file systems.
_REFUSALS: Final = re.compile(
    r"OAuthError|AuthorizationExpiredError|Unauthorized|Forbidden|NotInstalledError|PermissionError|PermissionDenied|"
    r"AccessDenied|Unauthenticated|InvalidAccessKeyId|SignatureDoesNotMatch|DeltaProtocolError"
)


@contextmanager
def understood(table: str, conflicts: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise errors of a target's library as errors of this library.

    Args:
        conflicts: errors of a lost race with another writer.

    Raises:
        TargetConflictError: one of ``conflicts``.
        TargetError: any other error.
    """
    try:
        yield
    except CanalError:
        raise
    except conflicts as error:
        raise TargetConflictError(
            f"another writer changed {table} meanwhile", remedy="Run one query per table and stream."
        ) from error
    except Exception as error:
        text = f"{type(error).__name__}: {_without_values(error)}".removesuffix(": ")
        is_refused = _REFUSALS.search(text) is not None
        raise TargetError(
            f"{table} cannot be read or written, {text}",
            is_lasting=is_refused,
            remedy="Set credentials that may read and write the target, then apply the batch again."
            if is_refused
            else "Remove the cause, then apply the batch again. The target leaves out the changes that it has by then.",
        ) from error


def _without_values(error: Exception) -> str:
    """Return the text of an error without values of rows and without the query of a URL, which may be a signature."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy adds the statement and its values
    text = re.sub(r"\x1b\[\w*m", "", str(error))
    if isinstance(error, OSError):
        text = re.sub(r"\?[^\s)]+", "?…", text)
    else:
        text = _VALUES.sub("…", text.strip().partition("\n")[0])  # deltalake prints rows on further lines
    return " ".join(text.split())[:500]


def matching(rows: pa.Table, keys: pa.Table, *, others: bool = False) -> pa.Table:
    """Return the rows with keys among ``keys`` (of the same types, without duplicates), or with ``others`` the other rows."""
    import pyarrow as pa

    numbered = rows.select(keys.column_names).append_column("__row", pa.array(range(rows.num_rows), pa.int64()))
    found = numbered.join(keys, keys.column_names, join_type="left anti" if others else "left semi")
    return rows.take(found["__row"].combine_chunks())


__getattr__ = lazy_names(__name__, _HOMES, dict.fromkeys(_HOMES.values(), "lake"))
