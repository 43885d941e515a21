"""Every binlog file of a directory, decoded whole and compared with what the servers' own tools print of it.

``CANAL_TEST_BINLOGS`` names the directory; the files are test data of the servers and their peers, and no part of this
project. Real files of every version from MySQL 5.1 and MariaDB 5.5 on: T3, T16, T17, T19, T20, T35, T36, T60.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.log_tools import compare, decode

ROOT = os.environ.get("CANAL_TEST_BINLOGS", "")

#: What does not decode whole, by the digest that begins a file's name: the error's class and its offset.
REFUSED = {
    # before MySQL 5.1's release: no rows, or rows of another form
    "670768": ("UnsupportedError", 4),
    "37e732": ("UnsupportedError", 4),
    "4a4193": ("UnsupportedError", 4),
    "2124ba": ("UnsupportedError", 4),
    "58a479": ("UnsupportedError", 4),
    "87fb15": ("UnsupportedError", 4),
    "17d32a": ("UnsupportedError", 4),
    "88c3e0": ("UnsupportedError", 4),
    "5ca554": ("UnsupportedError", 4),
    "207c45": ("UnsupportedError", 4),
    "0f9095": ("UnsupportedError", 4),
    "7f7f9f": ("UnsupportedError", 4),
    "42d1fb": ("UnsupportedError", 4),
    "467f72": ("UnsupportedError", 4),  # a patched server with longer headers
    "8e1454": ("UnsupportedError", 0),  # encrypted
    # relay logs
    "12066e": ("UnsupportedError", 4),
    "3baf5c": ("UnsupportedError", 4),
    "46004a": ("UnsupportedError", 4),
    "4bfbfe": ("UnsupportedError", 4),
    "639f9e": ("UnsupportedError", 4),
    "633192": ("UnsupportedError", 4),  # no FORMAT_DESCRIPTION
    "2a9e3b": ("TruncatedError", 4),  # 14 bytes
    # made by hand, events cut out
    "15e21d": ("DecodeError", 4),
    "049fdb": ("DecodeError", 236),
    "2cbb2b": ("DecodeError", 980),
    "2d0c80": ("DecodeError", 487),
    "77aa06": ("DecodeError", 775),
    "751609": ("SourceError", 106),  # an INCIDENT
    "391f36": ("ChecksumError", 123),
    "405e7a": ("ChecksumError", 123),  # a tool's output with wrong checksums
    "23f02f": ("ChecksumError", 884),
    "659ba7": ("ChecksumError", 889),  # made by hand: wrong checksums
}


def _files() -> list[Path]:
    return sorted(path for path in Path(ROOT).rglob("*") if path.is_file() and path.suffix != ".md") if ROOT else []


@pytest.mark.skipif(not ROOT, reason="CANAL_TEST_BINLOGS names no directory of binlog files")
def test_there_are_files() -> None:
    assert _files()


@pytest.mark.parametrize("path", _files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_file_is_read_as_the_tools_read_it(path: Path) -> None:
    refused = REFUSED.get(path.name[:6])
    if refused is not None:
        error = decode(path).error
        assert (type(error).__name__, str(error.position)) == (refused[0], f"{path.name}:{refused[1]}"), str(error)

    found = {kind: compare(path, kind) for kind in ("mysql", "mariadb")}

    if refused is not None:
        assert all(outcome.verdict == refused[0] for outcome in found.values()), found
    else:
        verdicts = {outcome.verdict for outcome in found.values()}
        assert "equal" in verdicts, found
        assert verdicts <= {"equal", "whole, the tool fails"}, found
