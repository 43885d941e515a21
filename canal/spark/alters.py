"""The former home of ``canal.changes.alters``."""

from canal.changes.alters import changed_values as changed_values
from canal.changes.alters import keeps_values as keeps_values
from canal.changes.alters import types_from_text as types_from_text
from canal.changes.alters import types_text as types_text
from canal.changes.alters import unfollowed as unfollowed
