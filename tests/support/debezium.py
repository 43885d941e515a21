"""A binary log of MySQL 8.0, what Debezium gave of it (tests/formats/debezium), and changes that a format refuses."""

from __future__ import annotations

from pathlib import Path

from canal.changes import Change
from canal.errors import UnfitChangeError
from canal.formats.debezium_json import DebeziumJson

HERE = Path(__file__).parents[1] / "formats/debezium"


def refused(encoder: DebeziumJson, change: Change) -> bool:
    try:
        encoder.messages(change)
    except UnfitChangeError as error:
        return error.changes == (change,)
    return False
