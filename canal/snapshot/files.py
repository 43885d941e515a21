"""The files of a snapshot that was read at one moment: they outlive the process that wrote them, until all is delivered.

Never removes what a checkpoint may name, but by the query that has it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from canal._util.disk import make_folder, private
from canal.errors import SchemaError, SourceError, StoreError

#: Seconds that a snapshot which nobody has asked for is kept: its process died just when Spark wrote its first offset down,
#: or just before, which nobody can tell but a restart.
_GRACE: Final = 86400.0


class SnapshotFiles:
    """A directory of its own under ``root`` for one snapshot, which must stay where it is while a checkpoint names it.

    A mark beside it, locked by the process that made it, says that no checkpoint does yet; ``keep`` takes it away. What
    killed processes have left, unlocked marks with their directories, goes when the next one is made.

    Raises:
        StoreError: it cannot be made or locked.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        parent = Path(root).absolute()
        self.directory = parent / f"snapshot-{secrets.token_hex(8)}"
        try:
            make_folder(parent)
            _remove_leftovers(parent)
            self._mark = self._locked()
            self.directory.mkdir(mode=0o700)
        except OSError as error:
            raise StoreError(
                f"the directory for a snapshot cannot be made in {parent}: {error}",
                remedy="Let snapshotDir be a directory that can be written, on a file system with locks (flock).",
            ) from error

    def _locked(self) -> BinaryIO:
        """The mark; it is locked before anybody can see it."""
        path = self.directory.with_name(f".{self.directory.name}")
        file = open(path, "wb", opener=private)  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(_mark_of(self.directory))
        return file

    def write(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, most: int) -> Iterator[int]:
        """Write the batches to files of ``most`` rows, one at least; gives the number of rows of each.

        Raises:
            StoreError: the disk is full, or broken.
        """
        batch = next(batches, None)
        number = 0
        while batch is not None or number == 0:
            rows = 0
            with self._writing(number, schema) as writer:
                while batch is not None and rows < most:
                    part = batch.slice(0, most - rows)
                    writer.write_batch(part)
                    rows += part.num_rows
                    rest = batch.slice(part.num_rows)
                    batch = rest if rest.num_rows else next(batches, None)
            yield rows
            number += 1
        with self._errors():
            self._mark.write(b"complete")
            self._mark.flush()

    @contextlib.contextmanager
    def _writing(self, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatchStreamWriter]:
        with self._errors(), open(file_of(self.directory, number), "wb", opener=private) as file:
            with pa.ipc.new_stream(file, schema) as writer:
                yield writer
            file.flush()
            os.fsync(file.fileno())

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the snapshot cannot be written to {self.directory}: {error}",
                remedy="Make room there, or set snapshotDir to a larger disk; then start the query again.",
            ) from error

    def close(self) -> None:
        """Let go of the mark, as the end of the process does."""
        self._mark.close()

    def remove(self) -> None:
        """What was written is of no use."""
        remove(self.directory)
        self._mark.close()


def keep(directory: str | os.PathLike[str]) -> None:
    """A checkpoint names the directory: only its query removes it from now on."""
    _mark_of(Path(directory)).unlink(missing_ok=True)


def remove(directory: str | os.PathLike[str]) -> None:
    """Remove the files of a snapshot, if they are there, and nothing else."""
    directory = Path(directory)
    with contextlib.suppress(OSError):
        for path in (*directory.glob("*.arrow"), *directory.glob("*plan-*.json")):
            path.unlink()
        directory.rmdir()
    _mark_of(directory).unlink(missing_ok=True)


def read_file(directory: str, number: int, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file of a snapshot: ``rows`` of them, with the columns of ``schema``.

    Raises:
        SchemaError: it was written with other columns.
        SourceError: it is not there, or cut, or damaged.
    """
    path = file_of(Path(directory), number)
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
            if not reader.schema.equals(schema):
                raise SchemaError(
                    "the table or the option schemaChange is another one than when the snapshot was read",
                    remedy="Begin anew, with a new checkpoint: the snapshot is not finished.",
                )
            found = 0
            for batch in reader:
                found += batch.num_rows
                yield batch
            if found != rows:
                raise pa.ArrowInvalid(f"it has {found} rows, {rows} were written")
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            f"a file of the snapshot cannot be read here: {path}: {error}",
            remedy="Let snapshotDir be a directory that all executors, and later runs, have under the same path; where the "
            "files are lost begin anew, with a new checkpoint.",
        ) from error


def file_of(directory: Path, number: int) -> Path:
    return directory / f"{number:06}.arrow"


def _mark_of(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}.unclaimed")


def _remove_leftovers(parent: Path) -> None:
    for mark in parent.glob("snapshot-*.unclaimed"):
        with contextlib.suppress(OSError), mark.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_complete = bool(file.read())
            if not is_complete or time.time() - os.fstat(file.fileno()).st_mtime > _GRACE:
                remove(mark.with_suffix(""))
