"""The numbers of servers and logs under a stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import canal
from canal.errors import PositionLostError
from canal.spark.stream.watch import Epochs


def transaction(journal: str, offset: int, source: str = "u", gtid_base: Any = "u:1-4") -> Any:
    return SimpleNamespace(journal=journal, offset=offset, source=source, gtid_base=gtid_base)


def test_a_log_that_goes_on_keeps_its_epoch_and_one_of_another_name_or_server_has_the_next() -> None:
    epochs = Epochs(canal.Position("binlog.000003", 4, source="u"), 0)

    assert [epochs.of(transaction(*one)) for one in (("binlog.000003", 400), ("binlog.000004", 4))] == [0, 0]
    assert epochs.of(transaction("other.000001", 4)) == 1
    assert epochs.of(transaction("other.000001", 4, "v")) == 2


@pytest.mark.parametrize(("journal", "offset"), [("binlog.000001", 500), ("binlog.000003", 399)])
def test_a_transaction_that_lies_before_the_one_before_it_is_of_a_log_that_was_begun_anew(journal: str, offset: int) -> None:
    epochs = Epochs(canal.Position("binlog.000003", 4, source="u"), 0)
    epochs.of(transaction("binlog.000003", 400))

    with pytest.raises(PositionLostError, match="the log was begun anew"):
        epochs.of(transaction(journal, offset))


def test_another_server_without_gtids_is_refused() -> None:
    epochs = Epochs(canal.Position("binlog.000003", 4, source="u"), 0)

    with pytest.raises(PositionLostError, match="without GTIDs"):
        epochs.of(transaction("binlog.000003", 400, "v", None))
