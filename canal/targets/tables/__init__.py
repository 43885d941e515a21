"""Writers of one table, from Arrow: rows and their progress in one commit.

``table_target`` of ``canal.targets.DeltaTarget``, ``IcebergTarget``, ``MySQLTarget`` and ``ParquetTarget`` makes them. They never
decide what a change means: that is done by pipes and by ``apply_changes``.
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
    """What a target of one table can do, beside putting and removing rows."""

    only_appends: bool = False
    """The target has no keys: changes are appended, and no row is removed."""

    stores_durations: bool = False
    """TIME columns are intervals. Other targets are given microseconds as integers."""

    widens: bool = False
    """A column can get a wider type."""

    retypes: bool = False
    """A column can get any type when all rows are replaced."""


class TableWork(Protocol):
    """One transaction on a target: what was read of it is checked when it is written."""

    progress: Progress | None
    """Of the stream, with ``table``; None: nothing of it was applied ever."""

    schema: pa.Schema | None
    """The target's columns; None: there is no table yet, and ``write`` makes it."""

    def read(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys (of the target's types, each once), in any order; not those that are missing."""

    def is_empty(self) -> bool:
        """Whether the table, which is there, has no rows; asked when a snapshot begins."""

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        """Remove the rows whose keys are in ``deletes``, put those of ``upserts``, and store ``progress``: all or nothing.

        ``upserts`` has the columns of ``schema``, in its order, and then those of ``added`` that it lacks, which are to be
        added to the table. The others of ``added`` are to be of this type from now on, by the target's ``abilities``: a wider
        one, or with ``replace`` any other. No key is in both, none is twice. The columns of
        ``deletes`` are the keys. With ``replace`` all other rows go. Where ``deletes`` has no columns, there are no keys: rows
        are only added.

        Raises:
            TargetConflictError: another writer has changed the target since the work was begun.
        """


@runtime_checkable
class TableTarget(Protocol):
    """One table to which changes are applied. It can be pickled, and opens what it needs when a work begins.

    A table that needs upkeep is an ``upkeep.Maintained`` too.
    """

    @property
    def abilities(self) -> Abilities:
        """What ``write`` of its works can do."""

    def begin(self, stream: str, keys: tuple[str, ...]) -> AbstractContextManager[TableWork]:
        """Begin a transaction that reads and writes the progress of ``stream``; leaving it without ``write`` changes nothing."""


def need(module: str, extra: str) -> Any:
    """Import a module that an extra brings.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed", remedy=f"pip install 'canal-cdc[{extra}]'") from error


#: What may be a value of a row in the text of an error.
_VALUES: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\{[^}]*\}|\b\d[\d.:-]*""")
#: Errors that no later attempt mends: names of pyiceberg's, and words of object stores and of file systems.
_REFUSALS: Final = re.compile(
    r"OAuthError|AuthorizationExpiredError|Unauthorized|Forbidden|NotInstalledError|PermissionError|PermissionDenied|"
    r"AccessDenied|Unauthenticated|InvalidAccessKeyId|SignatureDoesNotMatch|DeltaProtocolError"
)


@contextmanager
def understood(table: str, conflicts: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise errors of a target's library as errors of this library.

    Args:
        conflicts: the errors that mean that another writer was quicker.

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
            f"another writer changed {table} meanwhile", remedy="Run one query for each table and stream."
        ) from error
    except Exception as error:
        text = f"{type(error).__name__}: {_without_values(error)}".removesuffix(": ")
        is_refused = _REFUSALS.search(text) is not None
        raise TargetError(
            f"{table} cannot be read or written, {text}",
            is_lasting=is_refused,
            remedy="Give the target credentials that may read and write it, then apply the batch again."
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
    """Those of ``rows`` whose keys are among ``keys`` (of the same types, each once); or the others."""
    import pyarrow as pa

    numbered = rows.select(keys.column_names).append_column("__row", pa.array(range(rows.num_rows), pa.int64()))
    found = numbered.join(keys, keys.column_names, join_type="left anti" if others else "left semi")
    return rows.take(found["__row"].combine_chunks())


__getattr__ = lazy_names(__name__, _HOMES, dict.fromkeys(_HOMES.values(), "lake"))
