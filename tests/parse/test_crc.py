"""The compiled CRC-32 against zlib's: both of its ways, at every length and alignment, and as the decoder uses it.

The C text stands in crc.pxd; it is compiled here once more, with each way open to be called.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

from canal.errors import ChecksumError
from canal.parse.log import crc
from canal.testing import FakeBinlog
from tests.support.packets import event
from tests.support.parsing import decoded

PROBE = """
uint32_t by_table(const uint8_t *p, size_t n) { canal_crc_choose(); return ~canal_crc_by_table(~0u, p, n); }
uint32_t chosen(const uint8_t *p, size_t n) { canal_crc_choose(); return canal_crc32(p, n); }
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    source, compiler = Path(crc.__file__).with_name("crc.pxd"), shutil.which("cc")
    if not source.exists() or compiler is None:
        pytest.skip("without crc.pxd or a C compiler")
    text = source.read_text().split('"""')[1].replace("\\\\\n", "\\\n")
    path = tmp_path_factory.mktemp("crc")
    (path / "crc.c").write_text(text + PROBE)
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", path / "crc.so", path / "crc.c"], check=True)
    return ctypes.CDLL(str(path / "crc.so"))


@pytest.mark.parametrize("way", ["by_table", "chosen"])
def test_every_length_and_alignment(compiled: ctypes.CDLL, way: str) -> None:
    count = getattr(compiled, way)
    count.restype, count.argtypes = ctypes.c_uint32, (ctypes.c_void_p, ctypes.c_size_t)
    data = random.Random(1).randbytes(70_000)
    buffer = ctypes.create_string_buffer(data, len(data))
    start = ctypes.addressof(buffer)
    for at in range(17):
        for size in (*range(300), 1000, 8191, 65_535, 65_536, 69_900):
            assert count(start + at, size) == zlib.crc32(data[at : at + size]) == crc.crc32(data[at:], size)


def test_an_event_of_any_length_is_checked_whole() -> None:
    rng, head = random.Random(2), FakeBinlog().events()[:1]
    for size in (*range(200), 4096, 65_517, 70_000):
        whole = event(28, rng.randbytes(size))
        assert decoded([*head, whole]) == []
        flipped = bytearray(whole)
        flipped[rng.choice([*range(4), *range(19, len(whole))])] ^= 1 << rng.randrange(8)
        with pytest.raises(ChecksumError):
            decoded([*head, bytes(flipped)])
