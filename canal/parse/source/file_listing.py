"""Lists the files of a binary log, from the index or from the numbers in file names.

Reads only the magic bytes of a file.
"""

from __future__ import annotations

import os
import re
import time
from functools import partial
from itertools import dropwhile
from operator import itemgetter
from pathlib import Path
from typing import Callable, TypeVar

from canal.errors import CanalError, ConfigError, LostReason, PositionLostError, SourceError, UnsupportedError
from canal.position import journal_key

MAGIC = b"\xfebin"
ENCRYPTED_MAGIC = b"\xfdbin"
#: First bytes of the files of MariaDB's log in InnoDB.
INNODB_MAGIC, _INNODB_SUFFIX = b"\xfe\xfe\x0d\x01", ".ibb"
_CRASH_SAFE = "_crash_safe"
#: Seconds to wait for a missing file, and between two tries.
PATIENCE, _PAUSE = 5.0, 0.02
_T = TypeVar("_T")


def no_such_file(path: object) -> ConfigError:
    return ConfigError(f"there is no {path}", remedy="Give a binlog file, an index file or a directory.")


def kept_in_innodb(path: Path) -> UnsupportedError:
    return UnsupportedError(
        f"cannot read {path}: MariaDB wrote it with binlog_storage_engine, which keeps the log in InnoDB",
        remedy="Read the files of a server that was started without binlog_storage_engine, such as a replica.",
    )


def retry_missing(find: Callable[[], _T], pause: Callable[[float], object] = time.sleep, patience: float | None = None) -> _T:
    """Return the result of ``find``; retry for ``patience`` seconds while a file is missing.

    A server removes the index to rewrite it, and may purge a file after we listed it.
    """
    deadline = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        try:
            return find()
        except FileNotFoundError as error:
            lost: CanalError = no_such_file(error.filename)
        except OSError as error:
            raise SourceError(f"cannot read {error.filename}: {error.strerror}") from error
        except PositionLostError as error:
            if error.reason is not LostReason.GAP:
                raise
            lost = error
        if time.monotonic() >= deadline:
            raise lost
        pause(_PAUSE)


def in_directory(path: Path) -> Callable[[], list[Path]]:
    names = {entry.name.removesuffix(_CRASH_SAFE) for entry in os.scandir(path)}  # MySQL writes the new index to that name
    in_use = [path / name for name in sorted(names) if name.endswith(".index") and from_index(path / name)]
    pages = sorted(name for name in names if name.endswith(_INNODB_SUFFIX))
    if pages and not in_use:
        raise kept_in_innodb(path / pages[0])
    if len(in_use) > 1:
        raise ConfigError(
            f"{path} has {len(in_use)} index files: {', '.join(index.name for index in in_use)}",
            remedy="Give the path of the right index file.",
        )
    return partial(from_index, in_use[0]) if in_use else partial(numbered, path, _base_in(path))


def from_index(index: Path) -> list[Path]:
    """Return the files that an index lists, starting with the first that exists: a purge removes the oldest.

    Use only the names: the index may come from another machine. MariaDB rewrites it in place. While it does, the index may
    be cut off, or hold the last lines twice; then the later lines are valid.
    """
    text = None
    while text != (again := index.read_text("utf-8", "surrogateescape")):
        text = again
    lines = [line.strip() for line in text.split("\n")]
    names = [re.split(r"[/\\]", line)[-1] for line in lines if line]
    paths = [index.parent / name for name in dict.fromkeys(reversed(names))]
    return list(dropwhile(lambda path: not path.exists(), reversed(paths)))


def numbered(directory: Path, base: str, first: int = 0) -> list[Path]:
    """Return the files of a base name, sorted by number: 1000000 comes after 999999."""
    keys = ((journal_key(entry.name), entry) for entry in os.scandir(directory) if entry.is_file())
    return [Path(entry) for key, entry in sorted(keys, key=itemgetter(0)) if key[0] == base and key[1] >= first]


def _base_in(directory: Path) -> str:
    """Return the base name of the only series of binlog files. Other numbered files are told apart by their magic bytes."""
    numbered: dict[str, list[os.DirEntry[str]]] = {}
    for entry in os.scandir(directory):
        base, number = journal_key(entry.name)
        if number >= 0 and entry.is_file():
            numbered.setdefault(base, []).append(entry)
    bases = sorted(numbered)
    if len(bases) > 1:
        bases = [base for base in bases if any(map(_is_binlog, numbered[base]))] or bases[:1]
    if len(bases) > 1:
        raise ConfigError(
            f"{directory} has the files of {len(bases)} logs: {', '.join(f'{base}.*' for base in bases)}",
            remedy="Put each log into a separate directory, or give an index file.",
        )
    return bases[0] if bases else ""


def _is_binlog(entry: os.DirEntry[str]) -> bool:
    with open(entry, "rb", buffering=0) as file:
        return file.read(len(MAGIC)) in (MAGIC, ENCRYPTED_MAGIC)
