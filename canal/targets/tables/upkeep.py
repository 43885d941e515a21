"""How a target is kept from growing with every batch: small files are put together, and old ones removed.

Never removes what a reader of the last ``keep`` seconds may have open.
"""

from __future__ import annotations

import logging
from typing import Protocol, runtime_checkable

import attrs

from canal.errors import CanalError, ConfigError

log = logging.getLogger("canal.targets")


@attrs.frozen(kw_only=True)
class Upkeep:
    """What ``maintain`` does, and when ``apply_changes`` has it done by itself.

    Args:
        every: commits between two by itself, counted in this process; 0: only when ``maintain`` is called.
        keep: seconds for which a version of the table, and what it needs, stays for readers, and for travels in time.
        small: bytes of a file below which it is put together with others.
    """

    every: int = 500
    keep: float = 7 * 86400.0
    small: int = 32 << 20

    def __attrs_post_init__(self) -> None:
        if self.every < 0 or self.keep < 0 or self.small < 0:
            raise ConfigError("the numbers of Upkeep are 0 or more")


@runtime_checkable
class Maintained(Protocol):
    """A target that can be kept up."""

    upkeep: Upkeep | None

    def maintain(self, stream: str, upkeep: Upkeep) -> None:
        """Put small files together, and remove what nothing of the last ``upkeep.keep`` seconds needs. Changes no row."""


@attrs.define
class CommitCounter:
    """Counts the commits of one table, and starts its upkeep when it is due."""

    _commits: int = attrs.field(default=0, init=False)

    def committed(self, target: object, stream: str, table: str) -> None:
        """Count a commit. Log the error if the upkeep fails: the rows are there."""
        self._commits += 1
        upkeep = target.upkeep if isinstance(target, Maintained) else None
        if not isinstance(target, Maintained) or upkeep is None or not upkeep.every or self._commits % upkeep.every:
            return
        try:
            target.maintain(stream, upkeep)
        except CanalError as error:
            log.warning("the upkeep of %s failed, and is tried again after %d commits: %s", table, upkeep.every, error)
