"""What a crash of the machine may leave of a process's files: all states, by what the process did and synced.

A library that is preloaded (record.c) writes down each write, sync, rename, link and removal. From any moment of that on
the machine may have crashed: what was synced is there; of what was not, each write and each name may be there or not.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import attrs

ROOT: Final = Path(__file__).resolve().parents[2]
COMPILER: Final = shutil.which("cc") or shutil.which("gcc")


def mark(text: str) -> None:
    """In the process that is recorded: note that this was promised to somebody."""
    file = os.open(os.environ["CANAL_DISK_LOG"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"A {text}\n".encode())
    finally:
        os.close(file)


def record(what: str, root: Path, work: Path) -> bytes:
    """Run ``python -m tests.programs.disk_child WHAT ROOT`` and give the record of what it did below ``root``."""
    assert COMPILER is not None
    library, log = work / "record.so", work / "log"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, ROOT / "tests/disk/record.c", "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "CANAL_DISK_ROOT": str(root), "CANAL_DISK_LOG": str(log)}
    subprocess.run([sys.executable, "-m", "tests.programs.disk_child", what, str(root)], cwd=ROOT, env=environment, check=True)
    return log.read_bytes()


@attrs.define(eq=False)
class File:
    """An inode of a file: what is on the disk for certain, and what was done since."""

    synced: bytes = b""
    done: list[tuple[int, bytes | None]] = attrs.field(factory=list)
    """(offset, bytes), or (size, None) for a cut."""

    def sync(self) -> None:
        self.synced, self.done = self.content(lambda: True), []

    def content(self, is_kept: Callable[[], bool]) -> bytes:
        data = bytearray(self.synced)
        for at, piece in self.done:
            if is_kept():
                if piece is None:
                    del data[at:]
                size = at + len(piece or b"")
                data.extend(bytes(max(size - len(data), 0)))
                if piece is not None:
                    data[at:size] = piece
        return bytes(data)


#: An inode of a directory has no content of its own here: its names are told by their paths.
_FOLDER: Final = File()
#: Something that is done to the names of a directory: what comes to a path, what goes from one.
_Change: TypeAlias = tuple[str, File | None, str]


@attrs.define
class Disk:
    """All files below a root, at one moment of a record."""

    root: str
    names: dict[str, File] = attrs.field(factory=dict)
    """On the disk for certain."""
    changes: dict[str, list[_Change]] = attrs.field(factory=lambda: defaultdict(list))
    """Of each directory: what was done to its names and not synced."""
    inodes: dict[str, File] = attrs.field(factory=dict)

    def carry_out(self, kind: str, words: list[str], data: bytes) -> None:
        if kind == "W":
            self._inode(words[0]).done.append((int(words[1]), data))
        elif kind == "T":
            self._inode(words[0]).done.append((int(words[1]), None))
        elif kind == "S":
            self._inode(words[0]).sync()
        elif kind == "F":
            _apply(self.names, self.changes.pop(words[0], []))
        elif kind == "C":
            path, number = words
            if not self._is_named(number):  # its number may have been another file's
                self.inodes[number] = File()
            self._change(path, self.inodes[number], "")
        elif kind == "D":
            self._change(words[0], _FOLDER, "")
        elif kind == "U":
            self._change("", None, words[0])
        elif kind == "R":
            number, old, new = words
            self._change(new, self.inodes[number], old)

    def _inode(self, number: str) -> File:
        return self.inodes.setdefault(number, File())

    def _is_named(self, number: str) -> bool:
        now = dict(self.names)
        for changes in self.changes.values():
            _apply(now, changes)
        return number in self.inodes and self.inodes[number] in now.values()

    def _change(self, new: str, file: File | None, old: str) -> None:
        self.changes[os.path.dirname(new or old)].append((new, file, old))

    def crash(self, names: Callable[[int], int], is_kept: Callable[[], bool]) -> dict[str, bytes | None]:
        """What is left where of each directory's changes the first ``names(count)`` came to the disk; None is a directory."""
        left = dict(self.names)
        for changes in self.changes.values():
            _apply(left, changes[: names(len(changes))])
        return {
            path: None if file is _FOLDER else file.content(is_kept)
            for path, file in left.items()
            if all(str(one) in left for one in Path(path).parents if Path(self.root) in one.parents)
        }


def _apply(names: dict[str, File], changes: list[_Change]) -> None:
    for new, file, old in changes:
        names.pop(old, None)
        if file is not None:
            names[new] = file


def crashes(log: bytes, root: Path, seed: int = 1) -> Iterator[tuple[list[str], dict[str, bytes | None]]]:
    """At each moment of a record: what was promised by then, and states that a crash may leave then.

    Of what was not synced nothing, all, the names alone, the data alone, and two times any of it.
    """
    disk, marks, rng = Disk(str(root)), [], random.Random(seed)
    none, every, some = (lambda count: 0), (lambda count: count), (lambda count: rng.randint(0, count))
    choices = [
        (none, lambda: False),
        (every, lambda: True),
        (every, lambda: False),
        (none, lambda: True),
        *[(some, lambda: rng.random() < 0.5)] * 2,
    ]
    for kind, words, data in _records(log):
        if kind == "A":
            marks.append(" ".join(words))
        else:
            disk.carry_out(kind, words, data)
        seen = []
        for names, is_kept in choices:
            state = disk.crash(names, is_kept)
            if state not in seen:
                seen.append(state)
                yield list(marks), state


def _records(log: bytes) -> Iterator[tuple[str, list[str], bytes]]:
    at = 0
    while at < len(log):
        end = log.index(b"\n", at)
        kind, *words = log[at:end].decode().split(" ")
        at = end + 1
        size = int(words[2]) if kind == "W" else 0
        yield kind, words, log[at : at + size]
        at += size


def lay_out(state: dict[str, bytes | None], root: str, target: Path) -> None:
    """Make the files of a state below ``root`` anew in ``target``."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path, data in sorted(state.items()):
        there = target / os.path.relpath(path, root)
        if data is None:
            there.mkdir(exist_ok=True)
        else:
            there.write_bytes(data)
