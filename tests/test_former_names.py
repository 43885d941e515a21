"""Names that were public under another word: they give what the new ones give, and warn."""

from __future__ import annotations

import pytest

import canal
from canal.changes.change import Origin
from canal.parse import log_positions
from canal.parse.parser import BinlogParser
from canal.targets.tables import Progress
from canal.testing import fake
from canal.testing.fake import FakeBinlog


def test_the_place_of_an_origin_is_its_position() -> None:
    origin = Origin("uuid:1", "binlog.000001:4", 0)
    with pytest.warns(DeprecationWarning, match=r"Origin\.position"):
        assert origin.place == origin.position == "binlog.000001:4"


def test_the_place_of_progress_is_its_last_change() -> None:
    progress = Progress(txn=7, ord=3)
    with pytest.warns(DeprecationWarning, match=r"Progress\.last_change"):
        assert progress.place == progress.last_change == (7, 3)


@pytest.mark.parametrize("former", ["place", "whole_place", "delivered_place"])
def test_the_places_of_a_parser_are_its_positions(former: str) -> None:
    parser = BinlogParser(FakeBinlog())
    now = former.replace("place", "position")
    with pytest.warns(DeprecationWarning, match=f"{former} is called {now} now"):
        assert getattr(parser, former) == getattr(parser, now)


def test_the_places_of_a_store_are_its_readers() -> None:
    with pytest.warns(DeprecationWarning, match=r"canal\.status\.ReaderStatus now"):
        assert canal.PlaceStatus is canal.status.ReaderStatus
    store = canal.status.StoreStatus(*range(8), 0.5, readers={1: canal.status.ReaderStatus(3, 5)})
    with pytest.warns(DeprecationWarning, match=r"StoreStatus\.readers"):
        assert store.places == store.readers
    status = canal.InstanceStatus("test", canal.State.STOPPED, 0.0, None, (), store, None, None)
    found = status.as_dict()["store"]
    assert found["places"] == found["readers"] == {"1": {"acked": 3, "got": 5, "oldest_unacked": None, "oldest_ungot": None}}


def test_the_type_of_what_a_log_position_manager_is_given() -> None:
    with pytest.warns(DeprecationWarning, match="GivePosition"):
        assert log_positions.Place is log_positions.GivePosition
    with pytest.raises(AttributeError, match="nothing"):
        log_positions.nothing  # noqa: B018


def test_the_column_of_a_fake_table() -> None:
    with pytest.warns(DeprecationWarning, match="FakeColumn now"):
        assert fake.Column is fake.FakeColumn
