"""A directory of Parquet files of changes, one file per batch.

Never shows a reader half a batch, and never changes a file.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from canal._util.disk import make_folder, sync_folder
from canal.errors import ConfigError, TargetConflictError
from canal.targets.protocol import Progress
from canal.targets.tables import Abilities, understood

_PROGRESS: Final = b"canal.progress"
_STREAM: Final = re.compile(r"[A-Za-z0-9_]+")


@attrs.frozen
class ParquetTableTarget:
    """The changes themselves, each once, as Parquet files in the directory ``path``. The target creates the directory.

    A batch is one numbered file, which gets its name when it is complete and on disk. Its footer has the progress. If two
    writers of a stream write the same number, the second one is refused. Keep the newest file of each stream. The directory
    must be on a file system with hard links, not in an object store. Files have the columns that the table had then (read
    them in Spark with ``mergeSchema``). TIME columns are stored as microseconds (long).

    Args:
        path: the directory.
        compression: the codec, as pyarrow names it.
    """

    path: str
    compression: str = "zstd"

    abilities = Abilities(only_appends=True)

    @contextmanager
    def begin(self, stream: str, keys: tuple[str, ...]) -> Iterator[_ParquetWork]:
        if not _STREAM.fullmatch(stream):
            raise ConfigError(f"the stream {stream!r} of a ParquetTarget must consist of letters, digits and underscores")
        with understood(self.path):
            work = _ParquetWork(self, stream)
        yield work


class _ParquetWork:
    """Writes the next file of a stream."""

    schema: pa.Schema | None = None  # each file has its own

    def __init__(self, target: ParquetTableTarget, stream: str) -> None:
        self._target, self._stream = target, stream
        self._root = Path(target.path)
        numbers = [int(path.stem.rpartition("-")[2]) for path in self._root.glob(f"{stream}-*.parquet")]
        self._number = max(numbers, default=0)
        self.progress = self._stored() if numbers else None

    def _path(self, number: int) -> Path:
        return self._root / f"{self._stream}-{number:012d}.parquet"

    def _stored(self) -> Progress:
        text = (pq.read_metadata(self._path(self._number)).metadata or {}).get(_PROGRESS, b"")
        return Progress.from_text(text.decode())

    def read(self, keys: pa.Table) -> pa.Table:
        raise NotImplementedError("there are no keys")

    def is_empty(self) -> bool:
        raise NotImplementedError("changes are appended to any rows")

    def write(self, upserts: pa.Table, deletes: pa.Table, progress: Progress, *, added: list[pa.Field], replace: bool) -> None:
        if replace:
            raise ConfigError(
                f"the files of {self._target.path} cannot be replaced by another snapshot: readers may have them open",
                remedy="Use another directory.",
            )
        with understood(self._target.path):
            make_folder(self._root)
            if not upserts.num_columns:  # only the progress: readers may take the columns of any file
                upserts = pq.read_schema(self._path(self._number)).empty_table()
            hidden = self._root / f".{uuid.uuid4().hex}.tmp"  # readers ignore names that begin with a dot
            schema = upserts.schema.with_metadata({**(upserts.schema.metadata or {}), _PROGRESS: progress.to_text().encode()})
            try:
                with hidden.open("xb") as file:
                    pq.write_table(upserts.cast(schema), file, compression=self._target.compression)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(hidden, self._path(self._number + 1))  # fails if the file exists; a rename would not
                sync_folder(self._root)
            except FileExistsError as error:
                raise TargetConflictError(
                    f"another writer added a file to {self._target.path} meanwhile", remedy="Run one query per stream."
                ) from error
            finally:
                hidden.unlink(missing_ok=True)
