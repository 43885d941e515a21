"""Which files a binary log has: by its index, or by the numbers in their names.

Never reads more of a file than the bytes that it begins with.
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
#: Of MariaDB's logs in InnoDB, whose files are of pages.
INNODB_MAGIC, _INNODB_SUFFIX = b"\xfe\xfe\x0d\x01", ".ibb"
_CRASH_SAFE = "_crash_safe"
#: Seconds for which a file that is not there is looked for again, and between two looks.
PATIENCE, _PAUSE = 5.0, 0.02
_T = TypeVar("_T")


def no_such_file(path: object) -> ConfigError:
    return ConfigError(f"there is no {path}", remedy="Give a binlog file, its index file or a directory of them.")


def kept_in_innodb(path: Path) -> UnsupportedError:
    return UnsupportedError(
        f"{path} is of a MariaDB that keeps its log in InnoDB (binlog_storage_engine), whose files are not read",
        remedy="Read the files of a server that was started without binlog_storage_engine, such as a replica.",
    )


def patiently(find: Callable[[], _T], pause: Callable[[float], object] = time.sleep, patience: float | None = None) -> _T:
    """Return what ``find`` returns; call it again for a moment while a file is not there.

    A server takes its index away to write it anew, and purges between our finding a file and opening it.
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
    names = {entry.name.removesuffix(_CRASH_SAFE) for entry in os.scandir(path)}  # MySQL writes an index anew beside it
    in_use = [path / name for name in sorted(names) if name.endswith(".index") and from_index(path / name)]
    pages = sorted(name for name in names if name.endswith(_INNODB_SUFFIX))
    if pages and not in_use:
        raise kept_in_innodb(path / pages[0])
    if len(in_use) > 1:
        raise ConfigError(
            f"{path} has {len(in_use)} index files: {', '.join(index.name for index in in_use)}",
            remedy="Give the path of the index file that is meant.",
        )
    return partial(from_index, in_use[0]) if in_use else partial(numbered, path, _base_in(path))


def from_index(index: Path) -> list[Path]:
    """The files that an index lists, from the first one on that is there: purging begins at the oldest.

    Written on any machine: only names count. MariaDB writes it anew in place: it may be cut off while it is read, and for a
    moment the last lines are there twice, of which the last ones count.
    """
    text = None
    while text != (again := index.read_text("utf-8", "surrogateescape")):
        text = again
    lines = [line.strip() for line in text.split("\n")]
    names = [re.split(r"[/\\]", line)[-1] for line in lines if line]
    paths = [index.parent / name for name in dict.fromkeys(reversed(names))]
    return list(dropwhile(lambda path: not path.exists(), reversed(paths)))


def numbered(directory: Path, base: str, first: int = 0) -> list[Path]:
    """Files of a base name by number, which has no fixed width: 1000000 comes after 999999."""
    keys = ((journal_key(entry.name), entry) for entry in os.scandir(directory) if entry.is_file())
    return [Path(entry) for key, entry in sorted(keys, key=itemgetter(0)) if key[0] == base and key[1] >= first]


def _base_in(directory: Path) -> str:
    """The base name of the one series of binlog files in a directory; other numbered files are no binlogs by their magic."""
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
            remedy="Put each log into a directory of its own, or give an index file that lists the files of one.",
        )
    return bases[0] if bases else ""


def _is_binlog(entry: os.DirEntry[str]) -> bool:
    with open(entry, "rb", buffering=0) as file:
        return file.read(len(MAGIC)) in (MAGIC, ENCRYPTED_MAGIC)
