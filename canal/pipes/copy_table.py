"""Copies existing rows of a table before its changes are followed in a loop.

Never needs a Spark session, and never keeps more than one chunk in memory.
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
    """Copy the existing rows of a table into a target, before ``foreach_batch`` applies changes.

    The Instance must be subscribed: the loop gets all changes from then on, and skips those in the copy. Each chunk of the
    table's key is a commit. If the process ends before the copy is complete, the next call restarts the copy.

    Args:
        instance: started and subscribed, with a ``MySQLSource``.
        table: ``schema.table``.
        sink: the result of ``apply_changes(target, keys)`` for this table.
        chunk_rows: approximate rows per chunk.
        client_id: the client of the loop.

    Returns:
        False if the target has a complete copy or changes already: nothing was done. With ``snapshot="replace"`` a target
        after an ``UnloggedChangeError`` is copied again.

    Raises:
        ConfigError: the table does not exist, or the source is not a server.
        NotSubscribedError: the client is not subscribed.
        StreamMismatchError: the target has rows of unknown origin. See ``snapshot`` of ``apply_changes``.
        CanalError: the server or the target failed. Call it again.
    """
    source = None if instance.config is None else another(instance.config.source)
    if not isinstance(source, MySQLSource):
        raise ConfigError("copy_table reads from a server, but the Instance has none", remedy="Use a MySQLSource.")
    instance.position(client_id)
    sink.follow(table)
    progress = sink.progress()
    old = None if progress is None else progress.table
    is_replaced = old is not None and bool(old.fault) and sink.snapshot == "replace"
    if old is not None and not old.is_copy and not is_replaced:
        return False
    schema, dot, name = table.partition(".")
    if not (schema and dot and name):
        raise ConfigError(f"{table!r} is not a table name", remedy="Use schema.table.")
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
