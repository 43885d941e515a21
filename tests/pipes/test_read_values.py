"""Rows that are read have the very values that the log has for them, on real servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import canal
from canal.formats.arrow import changes
from canal.model import Entry, Row
from canal.rows.mask import Masks
from canal.snapshot.rows import Rows, ServerTables
from canal.snapshot.values import Forms
from canal.testing.servers import ThrowawayServer
from tests.support.live import end_of_log, source
from tests.support.oracle_cases import CASES
from tests.support.oracle_tables import Table, available, tables_of
from tests.support.snapshots import write_cases


def _read(server: ThrowawayServer, database: str, table: str, forms: Forms) -> Rows:
    tables = ServerTables(lambda: source(server), lambda schema, name: True, forms)
    try:
        return tables.read((database, table), None, "", 100_000, threading.Event())
    finally:
        tables.close()


def _logged(server: ThrowawayServer, start: canal.Position, database: str, **options: Any) -> dict[str, list[Entry]]:
    """The entries of rows that the log has since ``start``, by table."""
    server.query(f"CREATE TABLE `{database}`.the_end (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO `{database}`.the_end VALUES (1)")
    config = canal.InstanceConfig(destination="s", source=source(server), start=start, filter=rf"{database}\..*", **options)
    found: dict[str, list[Entry]] = {}
    with canal.Instance(config) as instance:
        instance.subscribe()
        for message in instance.stream():
            for entry in message.entries:
                if entry.header.table == "the_end" and entry.table is not None:
                    return found
                if entry.table is not None:
                    found.setdefault(entry.header.table, []).append(entry)
    raise AssertionError("the stream ended")


def _rows(entries: list[Entry]) -> dict[int, Row]:
    return {row.after[0]: row.after for entry in entries for row in entry.rows if row.after is not None}


def _arrow(entries: list[Entry]) -> pa.Table:
    """The rows as columns, sorted by the first one, and the texts of the values that no column holds."""
    found = changes(entries)
    names = [f"{number}" for number in range(len(found.columns))]
    made = pa.table([*found.columns, found.exact], names=[*names, "exact"])
    return made.sort_by("0")


def _column_differences(read: Rows, log: list[Entry], table: Table) -> Iterator[str]:
    ours, theirs = _arrow(read.entries), _arrow(log)
    if ours.schema != theirs.schema:
        yield f"{table.name} has other types: {ours.schema} {theirs.schema}"
    for name in theirs.schema.names:
        own, other = repr(ours[name].to_pylist()), repr(theirs[name].to_pylist())
        if own != other:
            yield f"{table.name} column {name}: read {own}, log {other}"


def _differences(read: Rows, log: list[Entry], table: Table) -> Iterator[str]:
    ours = _rows(read.entries)
    for key, theirs in _rows(log).items():
        own = ours.pop(key)
        for name in tuple(theirs.keys()):
            if repr(own[name]) != repr(theirs[name]):
                about = table.cases[int(name[1:])].type if name[0] == "c" else ""
                yield f"{table.name} row {theirs[0]} {name} {about}: read {own[name]!r:.80}, log {theirs[name]!r:.80}"
    assert not ours


@pytest.mark.every_line
@pytest.mark.parametrize("form", ["text", "other"])
def test_every_type_at_its_limits_reads_as_the_log_has_it(server: ThrowawayServer, database: str, form: str) -> None:
    start = end_of_log(server)
    tables = list(tables_of([case for case in CASES if available(case.since, server)], "cases"))
    for table in tables:
        write_cases(server, database, table)
    options: dict[str, Any] = {}
    forms = Forms()
    if form == "other":
        masks = {rf"{database}\..*": {"c1": canal.Mask.last(3).if_present()}}
        options = {"time_zone": ZoneInfo("America/New_York"), "mask": masks}
        forms = Forms(masks=Masks(options["mask"]), time_zone=options["time_zone"])
    log = _logged(server, start, database, **options)

    wrong = []
    for table in tables:
        read = _read(server, database, table.name, forms)
        wrong += [*_differences(read, log[table.name], table), *_column_differences(read, log[table.name], table)]
    assert wrong == [], "\n".join(wrong)
