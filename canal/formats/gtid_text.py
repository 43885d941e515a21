"""The GTIDs of a batch's transactions as a short text, which a target keeps to know them at another server.

Never holds what is no GTID: without them a server's ``journal:offset`` says nothing at another one.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

#: MySQL's ``uuid:number`` and ``uuid:tag:number``, MariaDB's ``domain-server-number``: what stands before the number.
_SOURCE: Final = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:([a-z_][a-z0-9_]*:)?|[0-9]+-[0-9]+-")


def to_text(texts: pa.ChunkedArray) -> str:
    """The GTIDs among the texts, each once; "" where there is none.

    Of each source the numbers, each as its distance from the one before: some two bytes a transaction, compressed.
    """
    found = pc.run_end_encode(texts.combine_chunks()).values.drop_null()  # most stand once for each row of a transaction
    sources = pc.ascii_rtrim(found, "0123456789")
    document = {}
    for source in sorted(filter(_SOURCE.fullmatch, pc.unique(sources).to_pylist())):
        numbers = pc.utf8_slice_codeunits(found.filter(pc.equal(sources, source)), len(source))
        of_source = pc.unique(numbers.filter(pc.not_equal(numbers, "")).cast(pa.uint64())).sort()
        if len(of_source):
            document[source] = [of_source[0].as_py(), *pc.pairwise_diff(of_source).to_pylist()[1:]]
    if not document:
        return ""
    return base64.b85encode(zlib.compress(json.dumps(document, separators=(",", ":")).encode())).decode()


def from_text(text: str) -> list[str]:
    """The GTIDs of which ``to_text`` made the text."""
    document = json.loads(zlib.decompress(base64.b85decode(text))) if text else {}
    return [f"{source}{number}" for source, steps in document.items() for number in accumulate(steps)]
