"""The changes of a message for a target, in log order: a change for each row or statement."""

from canal.changes.batch import ChangeBatch, Changes
from canal.changes.change import Change, Op, Origin, Table
from canal.changes.latest import TableState, latest
from canal.changes.reading import Reader

__all__ = ["Change", "ChangeBatch", "Changes", "Op", "Origin", "Reader", "Table", "TableState", "latest"]
