"""Compacts small files and removes old ones, so that a table does not grow with every batch.

Never removes a file that a reader of the last ``keep`` seconds may have open.
"""

from __future__ import annotations

import logging
from typing import Protocol, runtime_checkable

import attrs

from canal.errors import CanalError, ConfigError

log = logging.getLogger("canal.targets")


@attrs.frozen(kw_only=True)
class Upkeep:
    """Options of ``maintain``, and the interval at which pipes and ``apply_changes`` call it.

    Args:
        every: commits between two calls, counted in this process. 0: only the user calls ``maintain``.
        keep: seconds for which a version of the table stays readable, for open readers and time travel.
        small: files with fewer bytes are compacted.
    """

    every: int = 500
    keep: float = 7 * 86400.0
    small: int = 32 << 20

    def __attrs_post_init__(self) -> None:
        if self.every < 0 or self.keep < 0 or self.small < 0:
            raise ConfigError(f"every, keep and small of Upkeep must be at least 0: {self}")


@runtime_checkable
class Maintained(Protocol):
    """A target that has ``maintain``."""

    upkeep: Upkeep | None

    def maintain(self, stream: str, upkeep: Upkeep) -> None:
        """Compact small files, and remove files that no version of the last ``upkeep.keep`` seconds needs. Change no row."""


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
