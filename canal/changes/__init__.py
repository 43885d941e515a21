"""Changes: what a message of an Instance is to a target, one change for each row or statement, in the order of the log.

Never writes anything, and knows no target.
"""

from canal.changes.batch import ChangeBatch, Changes
from canal.changes.change import Change, Op, Origin, Table
from canal.changes.latest import TableState, latest
from canal.changes.reading import Reader

__all__ = ["Change", "ChangeBatch", "Changes", "Op", "Origin", "Reader", "Table", "TableState", "latest"]
