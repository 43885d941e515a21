"""The rows that a table has before its changes are followed, for a loop over many tables in one process.

Never asks for a Spark session, and never holds more of a table than one chunk.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from canal.errors import ConfigError
from canal.formats.change_table import Shape
from canal.instance.instance import CLIENT_ID, Instance
from canal.parse.source.mysql import MySQLSource, another
from canal.pipes.apply import ApplyChanges, PlainBatch
from canal.snapshot.chunks import Pace, plan, read_chunk, read_table
from canal.snapshot.copies import copying

log = logging.getLogger("canal.pipe")


def copy_table(
    instance: Instance, table: str, sink: ApplyChanges, *, chunk_rows: int = 100_000, client_id: int = CLIENT_ID
) -> bool:
    """Put the rows that a table has now into a target, before ``foreach_batch`` has its changes applied there.

    The Instance must be subscribed: what changes from then on comes in the loop, and what of it the copy has is passed over
    there. Each chunk of the table's key is a commit; where the process ends in the middle, the next call begins anew.

    Args:
        instance: started and subscribed, with a ``MySQLSource``.
        table: ``schema.table``.
        sink: what ``apply_changes(target, keys)`` gave for this table.
        chunk_rows: rows of a chunk, about.
        client_id: the client of the Instance that the loop uses.

    Returns:
        False where the target has been copied or has followed changes before, and nothing was done; but with
        ``snapshot="replace"`` a target that an ``UnloggedChangeError`` has ended is copied anew.

    Raises:
        ConfigError: there is no such table, or the source is no server.
        NotSubscribedError: the client is not subscribed yet.
        StreamMismatchError: the target has rows of unknown origin; see ``snapshot`` of ``apply_changes``.
        CanalError: what the server or the target failed with. Call it again.
    """
    source = None if instance.config is None else another(instance.config.source)
    if not isinstance(source, MySQLSource):
        raise ConfigError("a table is copied from a server, and the Instance has none", remedy="Give it a MySQLSource.")
    instance.position(client_id)
    sink.follow(table)
    progress = sink.progress()
    old = None if progress is None else progress.table
    is_replaced = old is not None and bool(old.fault) and sink.snapshot == "replace"
    if old is not None and not old.is_copy and not is_replaced:
        return False
    schema, dot, name = table.partition(".")
    if not (schema and dot and name):
        raise ConfigError(f"{table!r} is no table", remedy="Name it as schema.table.")
    shape = Shape(read_table(source, schema, name))
    made = plan(source, shape, chunk_rows=chunk_rows)
    about, pace, done = PlainBatch(table, end=made.position, types=made.types, is_copy=True), Pace(table), 0
    with copying(instance.destination, table, made.rows) as tell:
        for chunk in made.chunks:
            rows = pa.Table.from_batches(read_chunk(source, shape, made, chunk, tell_empty=True), shape.arrow)
            sink(rows, about)
            done += rows.num_rows
            pace.tell(done, made.rows)
            tell(done)
        sink._end_copy()
    log.info("%s was copied at %s: %d rows; its changes follow", table, made.position, done)
    return True
