"""What every test of the parser is held against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import canal
from canal.parse.log.decoder import BinlogDecoder
from tests.support.decoder_flags import check


@pytest.fixture(autouse=True, scope="module")
def flags_that_are_true_together() -> Iterator[None]:
    """Each decoder, after each event that it takes, has flags that the table has; compiled, its steps cannot be seen."""
    if canal.compiled:
        yield
        return
    event = BinlogDecoder._event

    def checked(decoder: BinlogDecoder, data: bytes, size: int) -> None:
        event(decoder, data, size)
        check(decoder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BinlogDecoder, "_event", checked)
        yield
