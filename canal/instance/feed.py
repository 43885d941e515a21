"""Where the entries of a client come from: the store that all clients share, or a line of its own while it is behind that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from canal.parse.parser import EventParser
from canal.store import EntryStore


@attrs.frozen(eq=False)
class Feed:
    """A parser, and the store behind it that keeps entries for a client."""

    parser: EventParser
    store: EntryStore
    #: Ends a line of a client's own; None: the line is that of all.
    stop: Callable[[], None] | None = None
    #: What a line of a client's own reads.
    source: Any = None
