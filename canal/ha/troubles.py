"""What keeps this process from its turn: how often in a row each thing has failed, and the alarm of it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from canal.alarm import AlarmDesk, AlarmKind
from canal.errors import CanalError, CoordinationError

log = logging.getLogger("canal.ha")

LONGEST_WAIT: Final = 60.0
_FIRST_WAIT: Final = 0.5


def wait_of(failures: int) -> float:
    """Seconds until the next attempt, after so many in a row that failed."""
    return min(_FIRST_WAIT * 2.0 ** min(max(failures - 1, 0), 10), LONGEST_WAIT)


class Troubles:
    """What fails now. The alarm comes once for each thing, and once more when nothing fails any longer."""

    def __init__(self, destination: str, alarms: AlarmDesk) -> None:
        #: How often in a row each thing has failed.
        self.counts: Counter[str] = Counter()
        self._destination = destination
        self._alarms = alarms
        self._error: CanalError | None = None  # raised last

    @property
    def error(self) -> CanalError | None:
        """What was raised last; None where nothing fails."""
        return self._error if self.counts else None

    def wait(self, key: str = "") -> float:
        """Seconds until the next attempt at one thing, or at what all of them stand in the way of."""
        return wait_of(self.counts[key] if key else self.counts.total())

    def note(self, key: str, doing: str, error: BaseException, is_alarm: bool = True) -> None:
        """``doing`` has failed once more."""
        self.counts[key] += 1
        text = f"{doing}: {error.message if isinstance(error, CanalError) else repr(error)}"
        self._error = error if isinstance(error, CanalError) else CoordinationError(text, destination=self._destination)
        if not isinstance(error, CanalError):
            log.error("[%s] %s", self._destination, text, exc_info=error)
        if is_alarm:
            remedy = error.remedy if isinstance(error, CanalError) else ""
            self._alarms.tell(AlarmKind.COORDINATION, f"{text}. {remedy}" if remedy else text, f"{key} {doing}")
        else:
            log.warning("[%s] %s", self._destination, text)

    def forget(self, key: str) -> None:
        """It is not tried again."""
        del self.counts[key]

    def end(self, *keys: str) -> None:
        """These have not failed now."""
        if any(self.counts.pop(key, 0) for key in keys) and not self.counts:
            self._alarms.over(AlarmKind.COORDINATION, "this process takes its turns as it should")
