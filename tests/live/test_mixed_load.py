"""A mixed load of several sessions with DDL on a real server: every committed change once, in order, equal in value."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import canal
from canal.testing.servers import ThrowawayServer
from tests.support.fix_servers import Line
from tests.support.journal import changes_of, check, compare_tables, replay
from tests.support.live import Reader, end_of_log, source
from tests.support.load import Load

SECONDS = 8.0


@pytest.mark.any_setup
@pytest.mark.needs("full_image", "plain_files")
@pytest.mark.timeout(240)
def test_every_committed_change_comes_once_in_order_and_again_from_the_files(own_server: ThrowawayServer, tmp_path: Path) -> None:
    check_load(own_server, tmp_path, SECONDS)


@pytest.mark.needs("full_metadata", "checksum", "compression", "full_image", "plain_files")
@pytest.mark.timeout(240)
def test_so_it_does_with_other_start_up_options(line: Line, tmp_path: Path) -> None:
    """All at once; `make soak` runs every live test with each of them."""
    setups = ["checksum-none", "lower-case", "compressed", *["gtid-off"] * (line.kind == "mysql"), "minimal-metadata"]
    options = [option for setup in setups for option in line.facts._replace(setup=setup).options]
    with line.server(*options) as server:
        check_load(server, tmp_path, SECONDS / 4)


def check_load(server: ThrowawayServer, tmp_path: Path, seconds: float) -> None:
    load = Load(server, "load", seed=1)
    load.setup()
    start = end_of_log(server)
    config = canal.InstanceConfig(destination="load", source=source(server), filter=r"load\..*", meta=canal.FileMeta(tmp_path))
    with canal.Instance(config) as instance:
        instance.subscribe()
        with Reader(instance) as reader:
            with load:
                time.sleep(seconds)
                deadline = time.monotonic() + 60
                while load.journal.row_changes() <= 500 or not load.journal.ddl:  # a machine that stalls does less
                    assert time.monotonic() < deadline, load
                    time.sleep(0.1)
            end = end_of_log(server)
            live = reader.read_up_to(end)
    final = load.final_tables()

    assert check(load.journal, live) == []
    tables, misfits = replay(load.journal, live)
    assert misfits == []
    assert compare_tables(final, tables) == []

    server.query("FLUSH BINARY LOGS")
    # From the first statement on: that is how files without names of columns tell them.
    files = canal.InstanceConfig(
        destination="files", source=canal.LocalBinlogSource(server.binlog_dir), filter=r"load\..*", start="earliest"
    )
    with canal.Instance(files) as instance:
        instance.subscribe()
        entries = [entry for message in instance.stream() for entry in message.entries]
    behind = (entry for entry in entries if (entry.header.journal, entry.header.offset) >= (start.journal, start.offset))
    offline = list(changes_of(behind))
    assert next(((one, other) for one, other in zip(offline, live) if one != other), None) is None
    assert len(offline) == len(live)
