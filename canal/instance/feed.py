"""Where a client reads: the shared parser and store, or private ones while the client catches up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from canal.parse.parser import EventParser
from canal.store import EntryStore


@attrs.frozen(eq=False)
class Feed:
    """A parser and the store that it fills."""

    parser: EventParser
    store: EntryStore
    #: Ends a private feed. None: the shared feed.
    stop: Callable[[], None] | None = None
    #: The source of a private feed.
    source: Any = None
