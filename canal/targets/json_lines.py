"""JSON lines target: appends every change exactly once to a file, in log order.

Never keeps a partial commit: bytes after the last commit, left by a crash, are truncated before the next commit.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import attrs

from canal._util.disk import sync_folder
from canal._util.option_checks import path_of
from canal.changes import Change, Changes
from canal.changes.batch import EntryRows
from canal.errors import ConfigError, TargetError
from canal.formats.change_json import line
from canal.formats.encoder import RowEncoder
from canal.targets.messages import encoded
from canal.targets.protocol import Guarantee, Scope
from canal.targets.work import LogWork, conflict


def _is_file(instance: object, attribute: object, value: Any) -> None:
    if not hasattr(value, "write"):
        path_of(value, "path of JSONLinesTarget")


@attrs.frozen
class JSONLinesTarget:
    """A file with one line per change. ``canal.formats.change_json.document`` describes the members of a line.

    The file ``<path>.progress`` stores the progress and the committed size. The next writer truncates the file to this size
    and writes the lost lines again. If the file was moved away, the writer starts a new file.

    A pipe cannot be truncated, so it receives each line at least once. Pipes are FIFOs and binary file objects such as
    ``sys.stdout.buffer``.

    Args:
        path: the file's path, or a binary file object. A missing file is created.
        encode: returns the text for a change, without a line break, such as ``canal.formats.DebeziumJson()``. A change with
            the text "" is not written.
    """

    path: str | os.PathLike[str] | BinaryIO = attrs.field(validator=_is_file)
    encode: Callable[[Change], str] = line

    scope: ClassVar[Scope] = "all"
    is_log = True

    def __attrs_post_init__(self) -> None:
        if not getattr(self.encode, "is_text", True):
            raise ConfigError("lines of a file are text, and Avro is not", remedy="Give a JSON format, or another target.")

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.APPENDED if self._is_pipe else Guarantee.ONCE

    @property
    def _is_pipe(self) -> bool:
        if not isinstance(self.path, (str, os.PathLike)):
            return True
        path = Path(self.path)
        return path.exists() and not stat.S_ISREG(path.stat().st_mode)

    def __str__(self) -> str:
        return f"JSON lines in {getattr(self.path, 'name', self.path)}"

    @contextmanager
    def begin(self, stream: str) -> Iterator[LogWork]:
        with _understood(f"{self}"):
            if not isinstance(self.path, (str, os.PathLike)):
                yield _PipeWork(self.path, self.encode)
            elif self._is_pipe:
                with open(self.path, "ab") as file:
                    yield _PipeWork(file, self.encode)
            else:
                yield _FileWork(Path(self.path), stream, self.encode)


@contextmanager
def _understood(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TargetError(f"{what} cannot be written: {error.strerror}", remedy="Correct the cause. Nothing is lost.") from error


def _encoder(encode: Callable[[Change], str]) -> Callable[[EntryRows], bytes | None] | None:
    """Return the function that encodes a whole entry, or None if changes must be encoded singly."""
    return encode.lines if isinstance(encode, RowEncoder) else None


def _lines(made: Sequence[Change], encode: Callable[[Change], str]) -> bytes:
    found: list[bytes] = []
    for part in made.parts if isinstance(made, Changes) else [made]:
        if isinstance(part, EntryRows) and part.encoded is not None:
            found.append(part.encoded)
        else:
            found += [text + b"\n" for change in part if (text := encoded(change, encode))]
    return b"".join(found)


class _PipeWork(LogWork):
    def __init__(self, file: BinaryIO, encode: Callable[[Change], str]) -> None:
        super().__init__()
        self._file, self._encode = file, encode
        self.encode_entry = _encoder(encode)

    def load(self, table: str) -> None:
        return None

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        self._file.write(_lines(made, self._encode))
        self._file.flush()


class _FileWork(LogWork):
    def __init__(self, path: Path, stream: str, encode: Callable[[Change], str]) -> None:
        super().__init__()
        self._path, self._stream, self._encode = path, stream, encode
        self.encode_entry = _encoder(encode)
        self._beside = path.with_name(f"{path.name}.progress")

    def load(self, table: str) -> str | None:
        with self._locked():
            document = self._committed()
            found = document["streams"].get(self._stream)
            return None if found is None else str(found)

    def write(self, made: Sequence[Change], old: str | None, new: str, table: str) -> None:
        data = _lines(made, self._encode)
        with self._locked() as file:
            document = self._committed()
            if document["streams"].get(self._stream) != old:
                raise conflict()
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            document["streams"][self._stream] = new
            document["size"] += len(data)
            self._store(document)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Lock the file exclusively, truncate it to the committed size, and yield it open for appending."""
        with open(self._path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file.fileno()).st_size
            if not self._beside.exists():  # keep the content from before the first commit
                self._store({"size": size, "streams": {}})
            committed = self._committed()["size"]
            if size > committed:
                file.truncate(committed)
            elif size == 0 < committed:
                self._store(self._committed() | {"size": 0})
            elif size < committed:
                raise TargetError(
                    f"{self._path} has {size} bytes, but {committed} were committed: it was truncated or replaced",
                    remedy=f"Restore the file, or move it away to start a new file. {self._beside.name} keeps the progress.",
                )
            yield file

    def _committed(self) -> dict[str, Any]:
        try:
            found = json.loads(self._beside.read_bytes())
            return {"size": int(found["size"]), "streams": dict(found["streams"])}
        except (ValueError, TypeError, KeyError) as error:
            raise TargetError(f"{self._beside} cannot be read", remedy="Restore the damaged file.") from error

    def _store(self, document: dict[str, Any]) -> None:
        new = self._beside.with_name(f"{self._beside.name}.new")
        with open(new, "wb") as file:
            file.write(json.dumps(document).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._beside)
        sync_folder(self._beside.parent)
